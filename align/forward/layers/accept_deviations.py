"""What the user accepts taken out of the verdict, with what only carries it on; and the precision that is required."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from align.core.dtypes import EPSILON, rounded_as
from align.core.verdicts import Finding
from align.errors import UnusedPatternsError
from align.forward.allowances import matches_glob
from align.forward.forward_result import AcceptedLayers
from align.words.catalogue import sentence
from align.words.message_words import close_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.core.traces import Capture
    from align.forward.allowances import AcceptedDeviation, Allowances
    from align.forward.forward_result import Culprit, LayerComparison
    from align.traces.module_calls import CallPair


@dataclass(frozen=True, slots=True)
class Deviations:
    """Layers with their outcome after acceptance, the culprits that are left, and what was accepted."""

    layers: tuple[LayerComparison, ...]
    culprits: tuple[Culprit, ...]
    accepted: tuple[AcceptedLayers, ...]


def check_allowances(allowances: Allowances, pairs: Sequence[CallPair]) -> None:
    """Raise UnusedPatternsError naming every glob that fits no layer, with the paths that come closest."""
    paths = sorted({call.module for pair in pairs for call in (pair.reference, pair.candidate)})
    if unused := list(allowances.unused(paths)):
        raise UnusedPatternsError(close_names(unused, paths))


def accept_deviations(
    layers: Sequence[LayerComparison], culprits: Sequence[Culprit], accepted: Sequence[AcceptedDeviation]
) -> Deviations:
    """Call accepted what the user accepts, and what is right alone after it if nothing else is at fault."""
    listed = [_listed(one, layers) for one in accepted]
    left = tuple(one for one in culprits if not _reason(one, accepted))
    judged = [
        replace(row, outcome="accepted", note=reason) if (reason := _off(row, accepted)) else row for row in layers
    ]
    first = next((place for place, row in enumerate(judged) if row.outcome == "accepted"), len(judged))
    if not left:
        carried = sentence("forward_note.carries_accepted_on")
        judged[first:] = [
            replace(row, outcome="accepted", note=carried) if _is_carried(row) else row for row in judged[first:]
        ]
    return Deviations(tuple(judged), left, tuple(listed))


def _listed(one: AcceptedDeviation, layers: Sequence[LayerComparison]) -> AcceptedLayers:
    off = [row for row in layers if _off(row, [one])]
    factors = [row.factor for row in off if row.factor is not None]
    return AcceptedLayers(
        one.layers, one.reason, tuple(dict.fromkeys(row.candidate for row in off)), max(factors, default=None)
    )


def _off(row: LayerComparison, accepted: Sequence[AcceptedDeviation]) -> str:
    alone = row.isolated is not None and row.isolated.outcome == "not aligned"
    return _reason(row, accepted) if alone or row.outcome == "not aligned" else ""


def _reason(one: LayerComparison | Culprit, accepted: Sequence[AcceptedDeviation]) -> str:
    return next((rule.reason for rule in accepted if matches_glob(rule.layers, one.reference, one.candidate)), "")


def _is_carried(row: LayerComparison) -> bool:
    """Right alone, or a module whose inside is."""
    alone = row.isolated
    right = alone is not None and (
        alone.outcome == "aligned" or (alone.outcome == "not comparable" and not row.certain)
    )
    return row.outcome == "not aligned" and right


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
