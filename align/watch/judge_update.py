"""Whether an update left its parameters finite, and if not, why: gradients were sound when the optimizer got them."""

from __future__ import annotations

from math import isfinite, isnan
from typing import TYPE_CHECKING, Any

from align.watch.find_event import Origin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.core.loops import LoopForms, OptimizerState


def update_origin(state: OptimizerState, held: Sequence[tuple[str, Any]], forms: LoopForms) -> Origin | None:
    """The first parameter that an update made NaN or Inf of; None if all are finite."""
    floating = [(place, name, one) for place, (name, one) in enumerate(held) if forms.is_floating(one)]
    norms = forms.norms([forms.norm(one) for _, _, one in floating])
    for (place, name, one), norm in zip(floating, norms, strict=True):
        if not isfinite(norm) and not _only_large(one, norm, forms):
            kind = "NaN" if isnan(norm) else "Inf"
            cause = _cause(state, place)
            return Origin(kind, "update", None, "parameter", name, cause, forms.dtype_of(one))
    return None


def _only_large(tensor: Any, norm: float, forms: LoopForms) -> bool:
    """Tell whether the norm overflowed, not a value."""
    import numpy as np

    array = forms.as_array(tensor)
    return not isnan(norm) and array is not None and bool(np.isfinite(array.astype(np.float64)).all())


def _cause(state: OptimizerState, place: int) -> str:
    if state.epsilons.get(place) == 0:
        return "epsilon 0"
    return "rate not finite" if not isfinite(state.rates.get(place, 0.0)) else "update overflow"
