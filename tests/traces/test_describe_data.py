"""Lengths of the data of a training, as real loaders and datasets of both frameworks tell them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.errors import UsageError
from align.traces.capture_trace import describe_data

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def lengths(samples: int | None, batches: int | None = None, size: int | None = None) -> dict[str, str]:
    found = {"dataset samples": samples, "dataset batches": batches, "dataset batch_size": size}
    return {name: str(number) for name, number in found.items() if number is not None}


class Raises:
    """A dataset whose length cannot be had."""

    def __len__(self) -> int:
        raise RuntimeError("the index is not loaded")

    def __getitem__(self, place: int) -> int:
        return place


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (None, {}),
        (range(7), lengths(7)),
        ([], lengths(0)),
        ((one for one in range(3)), {}),
        ({1, 2, 3}, lengths(None, 3)),
        (Raises(), {}),
    ],
)
def test_other_objects_with_a_length(data: Any, found: dict[str, str]) -> None:
    assert describe_data(data) == found


@pytest.mark.parametrize("data", [5, "train", {"x": 1}, len])
def test_what_holds_no_samples_is_refused(data: Any) -> None:
    with pytest.raises(UsageError, match="the lengths of the data cannot be kept") as caught:
        describe_data(data)
    assert "DataLoader" in caught.value.hint


@pytest.mark.frameworks
def test_loaders_and_datasets_of_torch() -> None:
    from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, SequentialSampler

    class Stream(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            raise AssertionError("it is read")

    rows = [*range(10)]
    by_batches = BatchSampler(SequentialSampler(rows), 4, drop_last=False)
    of_a_rank = DistributedSampler(rows, num_replicas=2, rank=0)  # type: ignore[arg-type,var-annotated]
    assert describe_data(DataLoader(rows, 3)) == lengths(10, 4, 3)  # type: ignore[arg-type]
    assert describe_data(DataLoader(rows, 3, drop_last=True)) == lengths(10, 3, 3)  # type: ignore[arg-type]
    assert describe_data(DataLoader(rows, batch_sampler=by_batches)) == lengths(10, 3, 4)  # type: ignore[arg-type]
    assert describe_data(DataLoader(rows, 1, sampler=of_a_rank)) == lengths(10, 5, 1)  # type: ignore[arg-type]
    assert describe_data(DataLoader(Stream(), 8)) == lengths(None, None, 8)
    assert describe_data(Stream()) == {}


@pytest.mark.frameworks
def test_datasets_of_mindspore() -> None:
    from mindspore import dataset

    def numbers() -> Iterator[tuple[Any]]:
        raise AssertionError("it is read")
        yield (np.zeros(1),)

    def rows(**share: int) -> Any:
        return dataset.NumpySlicesDataset({"x": np.arange(10)}, shuffle=False, **share)

    assert describe_data(rows()) == lengths(10)
    assert describe_data(rows().batch(3)) == lengths(10, 4, 3)
    assert describe_data(rows().map(lambda x: x, ["x"]).batch(3, drop_remainder=True)) == lengths(10, 3, 3)
    assert describe_data(rows().take(6).batch(3).repeat(2)) == lengths(6, 4, 3)
    assert describe_data(rows(num_shards=2, shard_id=0).batch(1)) == lengths(None, 5, 1)
    assert describe_data(dataset.GeneratorDataset(numbers, ["x"]).batch(8)) == lengths(None, None, 8)


@pytest.mark.frameworks
def test_the_loader_that_a_dump_is_given_stands_in_its_folders(tmp_path: Path) -> None:
    import torch
    from torch.utils.data import DataLoader

    def dumped(name: str, rows: int) -> Path:
        loader = DataLoader(torch.ones(rows, 2), 4)  # type: ignore[arg-type]
        model = torch.nn.Linear(2, 1)
        with align.dump(model, tmp_path / name, tensors=["none"], backward=False, data=loader) as dump:
            for x in loader:
                model(x)
                dump.step()
        return tmp_path / name / "step_0"

    result = align.compare_hyperparameters(dumped("a", 10), dumped("b", 20))
    found = {one.parameter: (one.reference.value, one.candidate.value) for one in result.differences}
    assert found == {"samples": ("10", "20"), "batches_per_epoch": ("3", "5")}
    assert "global_batch" in {one.parameter for one in result.equal}
