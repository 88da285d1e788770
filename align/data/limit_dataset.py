"""A quick run on the same few samples on both sides: a dataset, a loader or a configuration with less in it.

The library of the dataset does it where it can (`Subset`, `take`, `select`), so that workers, sampling and collating
stay what they are. Libraries are found by the class of what is given and never imported here.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from align.data.read_pipeline import by_index, is_batched, is_pipeline, own_length
from align.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def limit(
    dataset: Any, *, samples: int | None = None, indices: Sequence[int] | None = None, batches: int | None = None
) -> Any:
    """Return the dataset with its first `samples`, those at `indices`, or its first `batches`: give one of the three.

    Takes datasets and loaders of torch, `mindspore.dataset`, Hugging Face datasets, configurations of mmengine (a
    mapping with `dataset`), and iterables, with and without a length. What is returned is of the same kind, and its
    length says what it holds. Raises UsageError for anything else, and for what the dataset cannot do.

    >>> len(limit([10, 11, 12, 13], batches=2)), list(limit([10, 11, 12, 13], batches=2))
    (2, [10, 11])
    """
    given = {"samples": samples, "indices": indices, "batches": batches}
    chosen = [name for name, value in given.items() if value is not None]
    if len(chosen) != 1:
        raise UsageError.of("limit_error.one_of_three", names=chosen or ["none"])
    for name, count in (("samples", samples), ("batches", batches)):
        if count is not None and count < 1:
            raise UsageError.of("limit_error.at_least_one", name=name, count=count)
    if isinstance(dataset, Mapping):
        return _limited_configuration(dataset, samples, indices, batches)
    if not is_pipeline(dataset):
        raise UsageError.of("limit_error.no_dataset", kind=type(dataset).__name__)
    if hasattr(dataset, "create_dict_iterator"):
        return _limited_mindspore(dataset, samples, indices, batches)
    if hasattr(dataset, "select") and _library(dataset, "datasets"):
        return _limited_table(dataset, samples, indices, batches)
    if hasattr(dataset, "batch_sampler") and hasattr(dataset, "dataset"):
        return _limited_loader(dataset, samples, indices, batches)
    if _library(dataset, "torch") and own_length(dataset) is not None and batches is None:
        return _subset(dataset, _chosen(dataset, samples, indices))
    return _limited_iterable(dataset, samples, indices, batches)


def _library(dataset: Any, name: str) -> bool:
    return any(base.__module__.partition(".")[0] == name for base in type(dataset).__mro__)


def _chosen(dataset: Any, samples: int | None, indices: Sequence[int] | None) -> list[int]:
    length = own_length(dataset)
    wanted = [*indices] if indices is not None else [*range(min(samples or 0, length if length is not None else 0))]
    beyond = [index for index in wanted if length is not None and not -length <= index < length]
    if beyond:
        raise UsageError.of("limit_error.beyond", indices=beyond[:4], length=length)
    return wanted


def _subset(dataset: Any, indices: list[int]) -> Any:
    return sys.modules["torch.utils.data"].Subset(dataset, indices)


def _limited_loader(loader: Any, samples: int | None, indices: Sequence[int] | None, batches: int | None) -> Any:
    """A loader over fewer samples with the same workers and collating; it shuffles these if it shuffled before."""
    if batches is not None:
        return FirstItems(loader, batches)
    if own_length(loader.dataset) is None:
        return _limited_iterable(loader, samples, indices, None)
    torch_data = sys.modules["torch.utils.data"]
    shuffles = not isinstance(loader.sampler, torch_data.SequentialSampler)
    kept = ("batch_size", "num_workers", "collate_fn", "drop_last", "generator", "worker_init_fn")
    options = {name: getattr(loader, name) for name in kept}
    subset = _subset(loader.dataset, _chosen(loader.dataset, samples, indices))
    return torch_data.DataLoader(subset, shuffle=shuffles, **options)


def _limited_mindspore(dataset: Any, samples: int | None, indices: Sequence[int] | None, batches: int | None) -> Any:
    batched = is_batched(dataset)
    if indices is not None:
        if batched or not hasattr(dataset, "use_sampler"):
            raise UsageError.of("limit_error.indices_before_batch")
        chosen = copy.deepcopy(dataset)
        chosen.use_sampler(sys.modules["mindspore.dataset"].SubsetSampler(_chosen(dataset, None, indices)))
        return chosen
    if batches is not None:
        return dataset.take(batches) if batched else FirstItems(dataset, batches)
    size = dataset.get_batch_size() if batched else 1
    if (samples or 0) % size:
        raise UsageError.of("limit_error.whole_batches", samples=samples, size=size)
    return dataset.take((samples or 0) // size)


def _limited_table(dataset: Any, samples: int | None, indices: Sequence[int] | None, batches: int | None) -> Any:
    if batches is not None:
        raise UsageError.of("limit_error.no_batches")
    return dataset.select(_chosen(dataset, samples, indices))


def _limited_configuration(
    settings: Mapping[str, Any], samples: int | None, indices: Sequence[int] | None, batches: int | None
) -> Any:
    """A data loader's or dataset's configuration with `indices`, which mmengine takes as a count or as numbers."""
    if batches is not None:
        if "batch_size" not in settings:
            raise UsageError.of("limit_error.no_batch_size")
        samples = batches * int(settings["batch_size"])
    if "dataset" not in settings and "type" not in settings:
        raise UsageError.of("limit_error.no_dataset", kind=type(settings).__name__)
    limited = copy.deepcopy(settings)
    inner: Any = limited
    while isinstance(inner.get("dataset"), Mapping):  # RepeatDataset and the like hold the dataset that they wrap
        inner = inner["dataset"]
    inner["indices"] = [*indices] if indices is not None else samples
    return limited


def _limited_iterable(data: Any, samples: int | None, indices: Sequence[int] | None, batches: int | None) -> Any:
    if indices is not None:
        if not hasattr(data, "__getitem__"):
            raise UsageError.of("limit_error.no_indices", kind=type(data).__name__)
        return [data[index] for index in _chosen(data, None, indices)]
    if samples is not None and is_batched(data) and not by_index(data):
        return FirstSamples(data, samples)
    return FirstItems(data, batches if batches is not None else samples or 0)


class FirstItems:
    """The first items of an iterable, anew at each reading; everything else is asked of the iterable itself."""

    def __init__(self, data: Any, count: int) -> None:
        self._data, self._count = data, count

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self._data), self._count)

    def __len__(self) -> int:
        """How many there are; raises TypeError if the iterable does not know its own length."""
        length = own_length(self._data)
        if length is None:
            raise TypeError(f"{type(self._data).__name__} has no length")
        return min(length, self._count)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._data, name)


class FirstSamples:
    """Batches that hold the first samples together; the last one is cut."""

    def __init__(self, data: Any, samples: int) -> None:
        self._data, self._samples = data, samples

    def __iter__(self) -> Iterator[Any]:
        left = self._samples
        for batch in self._data:
            size = _size(batch)
            yield batch if size <= left else _cut(batch, left)
            left -= size
            if left <= 0:
                return


def _size(batch: Any) -> int:
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (tuple, list)) else (batch,)
    sizes = [len(part) for part in parts if hasattr(part, "__len__") and not isinstance(part, str)]
    return sizes[0] if sizes else 1


def _cut(batch: Any, size: int) -> Any:
    if isinstance(batch, Mapping):
        return {name: value[:size] for name, value in batch.items()}
    if isinstance(batch, (tuple, list)) and not all(isinstance(part, (int, float, str)) for part in batch):
        return type(batch)(part[:size] for part in batch)
    return batch[:size]
