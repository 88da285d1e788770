"""A limited dataset holds what was asked for, says its length, and stays of its kind."""

from __future__ import annotations

import numpy as np
import pytest

from align import limit
from align.errors import UsageError

BATCHES = [(np.arange(start, start + 4), np.arange(start, start + 4) % 3) for start in range(0, 20, 4)]


class Stream:
    def __iter__(self):
        return iter(BATCHES)


def test_batches_and_samples_of_a_list():
    assert [len(batch[0]) for batch in limit(BATCHES, samples=6)] == [4, 2]
    assert len(limit(BATCHES, batches=2)) == 2
    assert len(limit(BATCHES, batches=99)) == 5
    assert [batch[0][0] for batch in limit(BATCHES, indices=[1, 3])] == [4, 12]


def test_an_iterable_without_a_length_works():
    limited = limit(Stream(), batches=2)
    assert [len(list(limited)), len(list(limited))] == [2, 2]
    with pytest.raises(TypeError, match="has no length"):
        len(limited)
    assert sum(len(batch[0]) for batch in limit(Stream(), samples=7)) == 7


def test_a_configuration_of_mmengine_gets_indices():
    settings = {"batch_size": 8, "dataset": {"type": "RepeatDataset", "dataset": {"type": "Coco", "pipeline": []}}}
    limited = limit(settings, batches=3)
    assert limited["dataset"]["dataset"] == {"type": "Coco", "pipeline": [], "indices": 24}
    assert "indices" not in settings["dataset"]["dataset"]
    assert limit({"type": "Coco"}, indices=[5, 2])["indices"] == [5, 2]


REFUSED = {
    "one of samples, indices and batches": lambda: limit(BATCHES),
    "give 1 or more": lambda: limit(BATCHES, samples=0),
    "count from 0": lambda: limit(BATCHES, indices=[7]),
    "give what the training reads": lambda: limit(3, samples=1),
    "give samples=N or batches=N": lambda: limit(Stream(), indices=[1]),
    "give samples=N or indices": lambda: limit({"type": "Coco"}, batches=1),
}


@pytest.mark.parametrize("hint", REFUSED)
def test_what_cannot_be_limited_is_refused_with_a_hint(hint):
    with pytest.raises(UsageError) as refused:
        REFUSED[hint]()
    assert hint in refused.value.hint


@pytest.mark.frameworks
def test_loaders_and_datasets_of_torch():
    import torch
    from torch.utils.data import DataLoader, IterableDataset, TensorDataset

    dataset = TensorDataset(torch.arange(20), torch.arange(20) % 3)
    assert len(limit(dataset, samples=5)) == 5
    loader = DataLoader(dataset, batch_size=4, shuffle=True, drop_last=True)
    limited = limit(loader, samples=10)
    assert (len(limited), len(limited.dataset), limited.batch_size) == (2, 10, 4)
    assert {int(value) for batch in limited for value in batch[0]} <= set(range(10))
    assert sorted(int(value) for batch in limit(loader, indices=[19, 3, 7, 8]) for value in batch[0]) == [3, 7, 8, 19]
    assert len(limit(loader, batches=3)) == len(list(limit(loader, batches=3))) == 3

    class Numbers(IterableDataset):
        def __iter__(self):
            return iter(range(100))

    assert sum(len(batch) for batch in limit(DataLoader(Numbers(), batch_size=8), samples=20)) == 20


@pytest.mark.frameworks
def test_datasets_of_mindspore():
    import mindspore.dataset as ds

    def made():
        return ds.NumpySlicesDataset({"x": np.arange(20)}, shuffle=False)

    def values(dataset):
        return [row["x"].tolist() for row in dataset.create_dict_iterator(output_numpy=True, num_epochs=1)]

    assert limit(made(), samples=5).get_dataset_size() == 5
    assert values(limit(made(), indices=[7, 3])) == [7, 3]
    assert limit(made().batch(4), batches=2).get_dataset_size() == 2
    assert values(limit(made().batch(4), samples=8)) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(UsageError, match="no whole number of batches"):
        limit(made().batch(4), samples=6)
    with pytest.raises(UsageError, match="behind `batch`"):
        limit(made().batch(4), indices=[1])
