"""How long the data of a training is: samples, batches of an epoch, the size of one, as a loader or dataset tells them.

No framework is imported: what is given says by its own attributes what it is. A length that would have to be counted
by reading all data is not asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from align.errors import UsageError, UserCodeError
from align.models.user_code import run_user_code
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLES, BATCHES, BATCH_SIZE = "dataset samples", "dataset batches", "dataset batch_size"


def describe_data(data: Any) -> dict[str, str]:
    """Lengths that a loader or a dataset tells without being read; what it does not tell is left out.

    `data` is a DataLoader or dataset of torch, a dataset of MindSpore, or any object with a length: one that is indexed
    holds samples, one that is only looped over gives batches. Raises UsageError for what is none of these.

    >>> describe_data([("x", 1), ("y", 2)])
    {'dataset samples': '2'}
    """
    if data is None:
        return {}
    sized = any(hasattr(data, name) for name in ("get_dataset_size", "__iter__", "__getitem__"))
    if isinstance(data, (str, bytes, Mapping)) or not sized:
        raise UsageError.of("data_error.no_data", kind=type(data).__name__)
    read = _of_pipeline if hasattr(data, "get_dataset_size") else _of_loader if _is_loader(data) else _of_dataset
    return {name: str(number) for name, number in read(data).items() if number is not None}


def _is_loader(data: Any) -> bool:
    """Tell what gives batches: torch's DataLoader and what is like it."""
    return hasattr(data, "batch_size") or not hasattr(data, "__getitem__")


def _of_dataset(data: Any) -> dict[str, int | None]:
    return {SAMPLES: _asked(partial(len, data))}


def _of_loader(loader: Any) -> dict[str, int | None]:
    """Of a loader; its dataset is the whole one, its batches are those of one rank."""
    size = getattr(loader, "batch_size", None) or getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    samples = _asked(partial(len, loader.dataset)) if hasattr(loader, "dataset") else None
    return {SAMPLES: samples, BATCHES: _asked(partial(len, loader)), BATCH_SIZE: size if _is_count(size) else None}


def _of_pipeline(data: Any) -> dict[str, int | None]:
    """Of MindSpore's chain of operations: samples are what reaches `batch`; those of a rank alone are left out."""
    chain = _chain(data)
    if any(getattr(one, "source_len", None) == -1 for one in chain):  # a generator that would be run to count it
        return {BATCH_SIZE: _batch_size(chain)}
    whole = _asked(data.get_dataset_size)
    if (place := _place_of_batch(chain)) is None:
        return {SAMPLES: None if _is_split(chain) else whole}
    samples = None if _is_split(chain) else _asked(chain[place + 1].get_dataset_size)
    return {SAMPLES: samples, BATCHES: whole, BATCH_SIZE: _batch_size(chain)}


def _chain(data: Any) -> list[Any]:
    """Operations from the last to the source, as far as each has one input."""
    found = [data]
    while len(before := _inputs(found[-1])) == 1:
        found += before
    return found


def _inputs(operation: Any) -> list[Any]:
    return list(getattr(operation, "children", ()))


def _place_of_batch(chain: list[Any]) -> int | None:
    return next((at for at, one in enumerate(chain[:-1]) if hasattr(one, "drop_remainder")), None)


def _batch_size(chain: list[Any]) -> int | None:
    place = _place_of_batch(chain)
    size = getattr(chain[place], "batch_size", None) if place is not None else None
    return size if _is_count(size) else None


def _is_split(chain: list[Any]) -> bool:
    """Tell whether the source gives each rank its own share."""
    return (getattr(chain[-1], "num_shards", None) or 1) > 1


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _asked(length: Callable[[], int]) -> int | None:
    """What the user's data says of its length; None where it has none."""
    try:
        found = run_user_code(length, lambda error: UserCodeError(say("data_error.length"), error))
    except UserCodeError:
        return None
    return found if _is_count(found) or found == 0 else None
