"""A port that computes in a coarser precision than the user asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.core.dtypes import EPSILON, rounded_as
from align.core.verdicts import Finding
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.core.traces import Capture


def coarser_layers(captures: Sequence[Capture], required: str) -> Iterator[Finding]:
    """An error that names the first of the candidate's layers that returns a coarser dtype; none asked for: nothing.

    `captures` are all that its layers returned, with a counterpart or without.
    """
    if not required:
        return
    coarser = [one for one in captures if EPSILON.get(rounded_as(one.dtype), 0.0) > EPSILON[required]]
    if coarser:
        first = coarser[0]
        message = sentence(
            "forward_finding.precision_too_coarse", count=len(coarser), required=required, dtype=first.dtype
        )
        place = first.module or sentence("model_part.output")
        yield Finding("precision-too-coarse", "error", place, message)
