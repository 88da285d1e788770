"""Validation results that stand between the lines of training: metrics of their own, named `val/...`.

Under one name they would look like training values that were printed again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.curves import Booleans, Integers

T = TypeVar("T")
_PREFIX = "val/"


def by_phase(validation: Booleans) -> Iterator[tuple[bool, Integers]]:
    """Yield (False, the rows of training) and (True, those of validation), as far as there are any."""
    for phase in (False, True):
        rows = np.flatnonzero(validation == phase)
        if len(rows):
            yield phase, rows


def with_validation(metrics: Mapping[str, Sequence[str]], validation: Sequence[bool]) -> dict[str, Sequence[str]]:
    """Part the columns of records into those of training and, where `validation[i]` is true, of validation."""
    if not any(validation):
        return dict(metrics)
    parted: dict[str, Sequence[str]] = {}
    for name, texts in metrics.items():
        parted[name] = ["" if other else text for text, other in zip(texts, validation, strict=True)]
        parted[validation_name(name)] = [text if other else "" for text, other in zip(texts, validation, strict=True)]
    return parted


def named_validation(metrics: Mapping[str, T]) -> dict[str, T]:
    """Call metrics what they are called here if they are of validation."""
    return {validation_name(name): texts for name, texts in metrics.items()}


def validation_name(name: str) -> str:
    """Return what a metric of validation is called here: `val/acc` for `acc`, `val/acc` as it is."""
    return name if name.startswith(_PREFIX) else _PREFIX + name


def carry_forward(values: Integers, known: Booleans, before: int) -> Integers:
    """Give the places that are not `known` the last known value in front of them, `before` where there is none."""
    last = np.maximum.accumulate(np.where(known, np.arange(len(values)), -1))
    return np.where(last < 0, before, values[last])
