"""What a dataset may be, and one clear message for all that it may not be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.errors import InputsError, SideError, UsageError, UserCodeError
from align.evaluation.dataset_batches import Dataset

if TYPE_CHECKING:
    from pathlib import Path

X = np.arange(12, dtype=np.float32).reshape(4, 3)
Y = np.array([0, 1, 2, 0])


def read(*batches: Any, limit: int | None = None) -> list[Any]:
    return list(Dataset(list(batches), limit).batches())


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ((X, Y), ["0"]),
        ([X, Y], ["0"]),
        (({"x": X, "mask": X > 3}, Y), ["x", "mask"]),
        (((X, X), Y), ["0", "1"]),
        ((X.tolist(), Y.tolist()), ["0"]),
        ({"x": X, "labels": Y}, ["x"]),
        ({"x": X, "label": Y}, ["x"]),
    ],
)
def test_a_batch_is_inputs_and_labels_in_any_usual_form(given: Any, names: list[str]) -> None:
    (batch,) = read(given)
    assert list(batch.inputs) == names
    assert batch.size == 4
    assert np.array_equal(batch.inputs[names[0]], X)
    assert np.array_equal(batch.labels, Y)


@pytest.mark.frameworks
def test_tensors_of_both_frameworks_become_arrays() -> None:
    import mindspore
    import torch

    grown = torch.tensor(X, requires_grad=True)
    cells = mindspore.Tensor(X), mindspore.Tensor(Y)
    for batch in read((grown, torch.tensor(Y)), cells):
        assert type(batch.inputs["0"]) is type(batch.labels) is np.ndarray
        assert np.array_equal(batch.inputs["0"], X)


@pytest.mark.frameworks
def test_the_loaders_of_both_frameworks_are_datasets() -> None:
    import mindspore
    import torch

    pairs = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y))
    loader = Dataset(torch.utils.data.DataLoader(pairs, batch_size=2))
    pipeline = Dataset(mindspore.dataset.NumpySlicesDataset((X, Y), shuffle=False).batch(2))
    for dataset in (loader, pipeline):
        assert [batch.size for batch in dataset.batches()] == [2, 2]
        assert len(list(dataset.batches())) == 2
    assert np.array_equal(loader.facts, pipeline.facts)


def test_labels_that_make_no_array_reach_the_metric_as_they_are() -> None:
    boxes = [[(1, 2)], [], [(3, 4), (5, 6)], []]
    (batch,) = read((X, boxes), limit=3)
    assert batch.labels == boxes[:3]


def test_no_more_samples_are_taken_than_asked_for() -> None:
    sizes = [batch.size for batch in read((X, Y), (X, Y), (X, Y), limit=6)]
    assert sizes == [4, 2]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((X,), "has no labels: it is an object of type tuple of length 1"),
        (X, "has no labels: it is an object of type ndarray"),
        ({"x": X, "y": Y}, "has no labels: it is a mapping of x, y"),
        ((X, Y[:3]), "parts of different lengths: 4 0, 3 labels"),
        (({"x": X, "mask": X[:2]}, Y), "parts of different lengths: 4 x, 2 mask, 4 labels"),
        ((["a", "b"], Y[:2]), "inputs that are no batches of numbers: 0"),
        (({}, Y), "inputs that are no batches of numbers: none"),
    ],
)
def test_what_is_no_batch_is_said_with_its_number(given: Any, said: str) -> None:
    with pytest.raises(InputsError, match=said) as error:
        read((X, Y), given)
    assert error.value.message.startswith("batch 1 of list")
    assert "(inputs, labels)" in error.value.hint


def test_a_dataset_without_samples_is_refused() -> None:
    for nothing in ([], [(X[:0], Y[:0])]):
        with pytest.raises(InputsError, match="has no samples"):
            read(*nothing)


def test_an_iterator_which_can_be_read_only_once_is_refused() -> None:
    with pytest.raises(UsageError, match="only once"):
        Dataset(iter([(X, Y)]))


def test_other_samples_in_the_second_pass_are_refused() -> None:
    class Shuffled:
        seed = 0

        def __iter__(self) -> Any:
            self.seed += 1
            yield np.random.default_rng(self.seed).permutation(X), Y

    dataset = Dataset(Shuffled())
    list(dataset.batches())
    with pytest.raises(InputsError, match="gives other samples when it is read again"):
        list(dataset.batches())


def test_a_function_is_called_anew_for_each_pass_and_its_errors_are_named(tmp_path: Path) -> None:
    code = "import numpy as np\n\ndef data():\n    yield np.ones((2, 3)), [0, 1]\n    raise OSError('disk gone')\n"
    (tmp_path / "pipeline.py").write_text(code + "\n\ndef number():\n    return 3\n", encoding="utf-8")
    place = str(tmp_path / "pipeline.py")
    for _ in range(2):
        with pytest.raises(UserCodeError, match=r"reading .*pipeline.py:data failed: OSError: disk gone"):
            list(Dataset(f"{place}:data").batches())
    with pytest.raises(InputsError, match="returned an object of type int, not batches"):
        list(Dataset(f"{place}:number").batches())
    with pytest.raises(SideError, match="does not exist"):
        list(Dataset(f"{place}:nothing").batches())
