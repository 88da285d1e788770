"""Tensors that a dump keeps in files of their own, and the figures that it gives of them."""

from __future__ import annotations

from functools import partial
from math import isfinite, isinf, isnan, prod, sqrt
from typing import TYPE_CHECKING, Any

from align.checkpoints.single_files import FilesBeside, open_tensor
from align.core.dtypes import is_numeric
from align.core.measurements import TensorStatistics
from align.core.thresholds import MOST_AXES
from align.errors import DumpError
from align.traces.thresholds import MOST_DUMPED_ELEMENTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from align.core.dtypes import Array
    from align.core.parameters import Shape


def canonical_dtype(path: Path, name: Any) -> str:
    """The dtype that `torch.float32`, `Float32` and `BFloat16` mean; raises DumpError for what is none."""
    found = str(name).rpartition(".")[2].lower()
    found = {"half": "float16", "float": "float32", "double": "float64", "long": "int64", "int": "int32"}.get(
        found, found
    )
    if not is_numeric(found):
        raise DumpError.of("dump_error.unknown_dtype", path=path, dtype=str(name)[:60])
    return found


def sound_dims(path: Path, name: str, dims: Any) -> Shape:
    """A shape as a dump says it; raises DumpError for what is none."""
    sound = isinstance(dims, list) and len(dims) <= MOST_AXES and all(type(dim) is int and dim >= 0 for dim in dims)
    if not sound or prod([dim or 1 for dim in dims]) > MOST_DUMPED_ELEMENTS:
        raise DumpError.of("dump_error.no_shape", path=path, name=name, shape=str(dims)[:60])
    return tuple(dims)


def tensor_loader(files: FilesBeside, location: str, name: str, shape: Shape) -> Callable[[], Array] | None:
    """What loads the tensor of a file that a dump names; None if there is no such file beside it.

    Loading raises DumpError if the file holds another shape than the dump says.
    """
    found = files.file(location)
    return None if found is None else partial(_load, found, name, shape)


def _load(path: Path, name: str, shape: Shape) -> Array:
    stored = open_tensor(path)
    if stored.shape != shape:
        facts = {"held": list(stored.shape), "said": list(shape)}
        raise DumpError.of("dump_error.other_shape", path=path, name=name, **facts)
    return stored.load()


def figures(table: dict[str, Any], shape: Shape) -> TensorStatistics | None:
    """Largest, smallest and mean value and the norm, by the names that tools give them; None where there are none.

    Where one of them is NaN or infinite, one element at least is counted as such.
    """
    given = [_number(table.get(key)) for key in ("Min", "Max", "Mean", "Norm")]
    if all(one is None for one in (given[0], given[1], given[3])):
        return None
    low, high, mean, norm = (one if one is not None and isfinite(one) else None for one in given)
    nan, inf = (any(one is not None and test(one) for one in given) for test in (isnan, isinf))
    return TensorStatistics(
        low, high, mean, None if norm is None else norm / sqrt(max(prod(shape), 1)), int(nan), int(inf)
    )


def _number(value: Any) -> float | None:
    """A number or the text of one, or a bool, whose largest and smallest value some tools give; None for others."""
    if not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except (OverflowError, ValueError):
        return None
