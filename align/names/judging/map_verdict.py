"""What a name map comes to: whether every parameter has its counterpart, surely and in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.core.message_words import first_few
from align.core.verdicts import Coverage, Outcome, Verdict
from align.names.judging.swapped_places import swapped_places

if TYPE_CHECKING:
    from align.core.name_map import NameMap


def map_verdict(name_map: NameMap, unproven: str = "") -> Verdict:
    """Aligned if every parameter is surely paired or dropped, in its place, and nothing is `unproven`."""
    unmatched = [sum(one.side == side for one in name_map.unmatched) for side in ("source", "target")]
    groups = [group.sources for group in name_map.ambiguous], [group.targets for group in name_map.ambiguous]
    unsettled = [sum(len(names) for names in side) for side in groups]
    left, right = unmatched[0] + unsettled[0], unmatched[1] + unsettled[1]
    coverage = Coverage("parameters", len(name_map.pairings), len(name_map.dropped), left, right)
    unsure = sum(not pairing.sure for pairing in name_map.pairings)
    reasons = [unproven] if unproven else []
    if not name_map.complete:
        reasons.append(f"{left} parameters of {name_map.source} and {right} of {name_map.target} are not paired")
    if unsure:
        reasons.append(
            f"{unsure} pairs are the best reading of the names and not sure (a trial or a line of yours tells)"
        )
    if swapped := swapped_places(name_map.pairings):
        places = first_few([f"{one} and {other}" for one, other in swapped])
        reasons.append(f"{places} stand in each other's place by their shapes")
    if reasons:
        return Verdict(Outcome.NOT_ALIGNED, "; ".join(reasons), coverage)
    reason = f"all parameters are paired, {len(name_map.dropped)} are dropped with a reason"
    return Verdict(Outcome.ALIGNED, reason, coverage)
