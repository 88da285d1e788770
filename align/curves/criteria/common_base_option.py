"""The option that brings together two logs without a common step, of which one may count from 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.curves.axis.place_on_axis import common_places

if TYPE_CHECKING:
    from align.curves.loss_log import Curve


def find_common_base(reference: Curve, candidate: Curve) -> str:
    """Return `--reference-base 0` or `--candidate-base 0` if most steps meet so, "" if not.

    A log that prints steps 9, 19, 29 ... may count from 0: only where nothing told its first step is that looked for.
    """
    for side, moved, other in (("reference", reference, candidate), ("candidate", candidate, reference)):
        common = len(common_places(moved.steps + 1, other.steps)[0])
        if moved.base_guessed and 2 * common >= min(len(moved.steps), len(other.steps)) > 0:
            return f"--{side}-base 0"
    return ""
