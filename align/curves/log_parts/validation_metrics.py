"""Validation results that stand between the lines of training: metrics of their own, named `val/...`.

Under one name they would look like training values that were printed again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.curves.loss_log import Booleans, Integers, Phase

T = TypeVar("T")
_PREFIX = "val/"
OTHER_PHASES = ("val", "valid", "validation", "eval", "evaluation", "test", "predict")
_WORDS = re.compile(r"[/_\s.-]+")


def by_phase(validation: Booleans) -> Iterator[tuple[bool, Integers]]:
    """Yield (False, the rows of training) and (True, those of validation), as far as there are any."""
    for phase in (False, True):
        rows = np.flatnonzero(validation == phase)
        if len(rows):
            yield phase, rows


def named_validation(metrics: Mapping[str, T]) -> dict[str, T]:
    """Call metrics what they are called here if they are of validation: `val/acc` for `acc`, `val/acc` as it is."""
    return {name if name.startswith(_PREFIX) else _PREFIX + name: texts for name, texts in metrics.items()}


def carry_forward(values: Integers, known: Booleans, before: int) -> Integers:
    """Give the places that are not `known` the last known value in front of them, `before` where there is none."""
    last = np.maximum.accumulate(np.where(known, np.arange(len(values)), -1))
    return np.where(last < 0, before, values[last])


def phase_by_name(name: str) -> Phase:
    """Tell the phase by the first or the last word of a metric's name."""
    words = _WORDS.split(name.lower())
    return "validation" if {words[0], words[-1]} & set(OTHER_PHASES) else "training"
