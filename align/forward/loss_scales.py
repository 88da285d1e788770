"""Which loss scales a model can be trained with on a chip: powers of two at which no gradient leaves float16.

A scale multiplies all gradients. At the highest that fits, the largest stays in range; the smallest are flushed to
zero, fewer the higher the scale. Where too many are, the layers with the largest gradients are to stay in float32.
"""

from __future__ import annotations

from collections import Counter
from math import floor, log2
from typing import TYPE_CHECKING

from align.core.dtypes import LARGEST_FLOAT16
from align.forward.emulation_result import GradientLayer, LossScales
from align.forward.thresholds import MOST_FLUSHED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.core.dtypes import GradientsMet

SMALLEST_KEPT = -24  # format: exponent of float16's smallest number; half of it and less is flushed to zero


def loss_scales(loss: str, met: Sequence[GradientsMet]) -> LossScales | None:
    """The scales that fit, with what is flushed; None where no gradient becomes float16."""
    if not met:
        return None
    highest = _highest(met)
    lowest = next((power for power in range(min(highest, 0), highest) if flushed(met, power) <= MOST_FLUSHED), highest)
    keep = _to_keep(met) if flushed(met, highest) > MOST_FLUSHED else ()
    return LossScales(
        loss=loss,
        highest=2.0**highest,
        lowest=2.0**lowest,
        flushed=flushed(met, highest),
        flushed_unscaled=flushed(met, 0),
        overflows_unscaled=highest < 0,
        keep=keep,
        layers=tuple(_row(one, highest) for one in sorted(met, key=lambda one: -one.largest)),
    )


def flushed(met: Sequence[GradientsMet], power: int) -> float:
    """The share of gradients other than zero that become zero at a loss scale of 2 ** power."""
    total = sum((Counter(one.exponents) for one in met), Counter())
    lost = sum(count for exponent, count in total.items() if exponent + power < SMALLEST_KEPT - 1)
    return lost / max(total.total(), 1)


def _highest(met: Sequence[GradientsMet]) -> int:
    return floor(log2(LARGEST_FLOAT16 / max(one.largest for one in met)))


def _to_keep(met: Sequence[GradientsMet]) -> tuple[str, ...]:
    """The fewest modules, those of the largest gradients, without which a scale fits; () where none would do."""
    left, kept = sorted(met, key=lambda one: one.largest), list[str]()
    while left and flushed(left, _highest(left)) > MOST_FLUSHED:
        module = left[-1].module
        kept.append(module)
        left = [one for one in left if one.module != module]
    return tuple(kept) if left else ()


def _row(one: GradientsMet, highest: int) -> GradientLayer:
    smallest = 2.0 ** min(one.exponents, default=0)
    count = sum(one.exponents.values())
    return GradientLayer(one.module, one.operator, one.entry, one.largest, smallest, count, flushed([one], highest))
