"""Why an operator returns, or sends back, what is not finite: asked of the values that it was given.

Each check looks at arrays in float64 and answers with the id of a cause, and a mask of elements at fault in the first
array. The words of a cause stand in `align/words/en/watch.toml` under `[nonfinite_cause]` and `[nonfinite_remedy]`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from align.watch.operator_names import plain_name
from align.watch.thresholds import EXP_LARGEST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from align.core.dtypes import Array

Asked = tuple[str, "Array"]


@dataclass(frozen=True, slots=True)
class Operands:
    """What an operator was given, in float64, in its order; numbers are arrays without axes. `named` are by name."""

    arrays: tuple[Array, ...]
    named: Mapping[str, Any]
    dtype: str

    @property
    def first(self) -> Array:
        """What it computes on."""
        return self.arrays[0] if self.arrays else np.zeros(0)

    @property
    def second(self) -> Array | None:
        """What it computes with."""
        return self.arrays[1] if len(self.arrays) > 1 else None


def operands(
    kept: Sequence[Any], named: Mapping[str, Any], as_array: Callable[[Any], Array | None], dtype: str
) -> Operands:
    """Make arrays of what was kept of a call."""

    def wide(value: Any) -> Array | None:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return np.asarray(value, np.float64)
        array = as_array(value)
        return None if array is None or array.dtype.kind in "cOSU" else array.astype(np.float64)

    listed = [*kept, *named.values()]
    found = tuple(array for array in map(wide, listed) if array is not None)
    return Operands(found, named, dtype)


def explain_forward(name: str, given: Operands) -> Asked | None:
    """Why the result of an operator on these is not finite; None where its operands do not say it."""
    check = FORWARD.get(plain_name(name))
    with np.errstate(all="ignore"):
        return check(given) if check is not None and given.arrays else None


def explain_backward(name: str, given: Operands) -> Asked | None:
    """Why the gradient that an operator sends back is not finite; None where its operands do not say it."""
    check = BACKWARD.get(plain_name(name))
    with np.errstate(all="ignore"):
        return check(given) if check is not None and given.arrays else None


def _where(cause: str, mask: Any) -> Asked | None:
    return (cause, np.asarray(mask)) if np.any(mask) else None


def _log(given: Operands) -> Asked | None:
    return _where("log of 0", given.first == 0) or _where("log of a negative number", given.first < 0)


def _log1p(given: Operands) -> Asked | None:
    return _where("log of 0", given.first == -1) or _where("log of a negative number", given.first < -1)


def _logit(given: Operands) -> Asked | None:
    return _where("log of 0", (given.first <= 0) | (given.first >= 1))


def _probability(given: Operands) -> Asked | None:
    return _where("probability outside 0 to 1", (given.first < 0) | (given.first > 1)) or _logit(given)


def _root(given: Operands) -> Asked | None:
    return _where("root of a negative number", given.first < 0)


def _inverse_root(given: Operands) -> Asked | None:
    return _where("division by 0", given.first == 0) or _root(given)


def _inverse(given: Operands) -> Asked | None:
    return _where("division by 0", given.first == 0)


def _division(given: Operands) -> Asked | None:
    if given.second is None:
        return None
    divisor = np.broadcast_to(given.second, np.broadcast_shapes(given.first.shape, given.second.shape))
    return _where("division by 0", divisor == 0)


def _power(given: Operands) -> Asked | None:
    exponent = given.second
    if exponent is None:
        return None
    return (
        _where("division by 0", (given.first == 0) & (exponent < 0))
        or _where("root of a negative number", (given.first < 0) & (exponent != np.round(exponent)))
        or _where("overflow", np.isfinite(given.first))
    )


def _exp(given: Operands) -> Asked | None:
    return _where("exp overflow", given.first > EXP_LARGEST.get(given.dtype, EXP_LARGEST["float32"]))


def _sinh(given: Operands) -> Asked | None:
    return _where("exp overflow", np.abs(given.first) > EXP_LARGEST.get(given.dtype, EXP_LARGEST["float32"]))


def _softmax(given: Operands) -> Asked | None:
    """Of any axis: the one that it was given is not always known."""
    if given.first.ndim == 0:
        return None
    axes = [given.first.ndim - 1, *range(given.first.ndim - 1)]
    for axis in axes:
        rows = (given.first == -np.inf).all(axis=axis, keepdims=True)
        if rows.any():
            return "masked row", np.broadcast_to(rows, given.first.shape)
    return _where("exp overflow", given.first == np.inf)


def _attention(given: Operands) -> Asked | None:
    masks = [one for one in given.arrays[3:] if one.ndim > 1]
    found = next((one for one in masks if (one == -np.inf).all(axis=-1).any()), None)
    return None if found is None else ("masked row", np.zeros(0, bool))


def _product(given: Operands) -> Asked | None:
    if given.second is None:
        return None
    first, second = np.broadcast_arrays(given.first, given.second)
    mask = ((first == 0) & np.isinf(second)) | (np.isinf(first) & (second == 0))
    return _where("0 * inf", mask)


def _difference(given: Operands) -> Asked | None:
    if given.second is None:
        return None
    first, second = np.broadcast_arrays(given.first, given.second)
    if first.ndim and (first == -np.inf).all(axis=-1).any():  # a softmax written out
        return "masked row", (first == -np.inf).all(axis=-1, keepdims=True)
    return _where("inf - inf", np.isinf(first) & np.isinf(second))


def _arc(given: Operands) -> Asked | None:
    return _where("arc of more than 1", np.abs(given.first) > 1)


def _mean(given: Operands) -> Asked | None:
    return ("mean of nothing", np.zeros(0, bool)) if given.first.size == 0 else None


def _deviation(given: Operands) -> Asked | None:
    return ("deviation of one value", np.zeros(0, bool)) if given.first.size == 1 or 1 in given.first.shape else None


def _cross_entropy(given: Operands) -> Asked | None:
    targets = given.second
    if targets is None or targets.ndim + 1 != given.first.ndim:
        return None
    ignored = given.named.get("ignore_index", -100)
    return ("no target counts", np.zeros(0, bool)) if (targets == ignored).all() else None


def _root_back(given: Operands) -> Asked | None:
    return _where("root of 0", given.first == 0) or _root(given)


def _power_back(given: Operands) -> Asked | None:
    if given.second is None:
        return None
    return _where("root of 0", (given.first == 0) & (given.second < 1) & (given.second != 0)) or _power(given)


def _norm_back(given: Operands) -> Asked | None:
    if not np.any(given.first):
        return "norm of 0", np.ones(given.first.shape, bool)
    axes = range(given.first.ndim - 1, -1, -1)
    rows = ((given.first == 0).all(axis=axis, keepdims=True) for axis in axes)
    found = next((one for one in rows if one.any()), None)
    return None if found is None else ("norm of 0", np.broadcast_to(found, given.first.shape))


def _deviation_back(given: Operands) -> Asked | None:
    constant = given.first.size > 0 and bool((given.first == given.first.reshape(-1)[0]).all())
    rows = given.first.ndim > 1 and bool((given.first == given.first[..., :1]).all(axis=-1).any())
    return ("deviation of equal values", np.zeros(0, bool)) if constant or rows else _deviation(given)


def _arc_back(given: Operands) -> Asked | None:
    return _where("arc of more than 1", np.abs(given.first) >= 1)


FORWARD: dict[str, Callable[[Operands], Asked | None]] = {
    "log": _log,
    "log1p": _log1p,
    "logit": _logit,
    "binary_cross_entropy": _probability,
    "sqrt": _root,
    "rsqrt": _inverse_root,
    "reciprocal": _inverse,
    "div": _division,
    "pow": _power,
    "exp": _exp,
    "sinh": _sinh,
    "softmax": _softmax,
    "log_softmax": _softmax,
    "attention": _attention,
    "mul": _product,
    "matmul": _product,
    "sub": _difference,
    "add": _difference,
    "asin": _arc,
    "mean": _mean,
    "std": _deviation,
    "cross_entropy": _cross_entropy,
}
BACKWARD: dict[str, Callable[[Operands], Asked | None]] = {
    **FORWARD,
    "sqrt": _root_back,
    "pow": _power_back,
    "norm": _norm_back,
    "std": _deviation_back,
    "asin": _arc_back,
}
