"""What a name map comes to: whether every parameter has its counterpart, surely, in its place, and no target twice.

No conversion follows a map that makes a target twice, so none is written. Parameters that one side trains and the other
does not are told too: no run without training shows them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from align.checkpoints.names_in_file import without_wrappers, wrapper_words
from align.core.name_map import Ambiguity
from align.core.piece_transforms import overlap
from align.core.verdicts import Coverage, Outcome, ShownResult, Verdict
from align.errors import MapError
from align.models.describe_sides import copied_sides, unregistered_layers, unregistered_tensors
from align.names.fold_names import fold_names
from align.words.catalogue import joined, say, sentence
from align.words.message_words import first_few

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from align.core.name_map import NameMap, Pairing
    from align.core.parameters import Parameter, ParameterSet, ParameterSummary
    from align.core.verdicts import Finding
    from align.names.map_sides import MapSide
    from align.words.catalogue import Note


@dataclass(slots=True)
class MapFacts:
    """What was found on the way to a map: `unseen` are the modules of each side, by its label, that did not run.

    `unproven` is why a trial did not prove the map; `conflicts` are about rules that values contradict, `doubled` about
    targets that would be made twice, `kept` about what an earlier trial found.
    """

    unseen: Sequence[tuple[str, list[str]]] = ()
    unproven: str = ""
    conflicts: Sequence[Note] = ()
    doubled: Sequence[Note] = ()
    kept: Sequence[Note] = ()


def map_warnings(name_map: NameMap, sides: tuple[MapSide, MapSide], facts: MapFacts) -> tuple[str, ...]:
    """Say what a map rests on, or what stands against it."""
    source, target = (side.parameters for side in sides)
    live = [side.live for side in sides if side.live]
    copied = [finding.message for finding in copied_sides(*live)]
    lost = [(side, one) for side in live if name_map.unmatched for one in unregistered_layers(side)]
    wrappers = [(side.label, wrapper_words(without_wrappers(side.names))) for side in (source, target)]
    notes: list[Note] = [("map_warning.wrappers", {"side": one, "words": words}) for one, words in wrappers if words]
    notes += [
        ("map_warning.not_seen_to_run", {"count": len(paths), "side": label, "paths": fold_names(paths)})
        for label, paths in facts.unseen
        if paths
    ]
    notes += [*facts.kept, *facts.conflicts, *facts.doubled]
    notes += [
        ("map_warning.unregistered", {"side": side.label, "framework": side.reader.name, **asdict(one)})
        for side, one in lost
    ]
    notes += _unseen_tensors(name_map, sides)
    frozen = frozen_apart(name_map, source, target)
    notes += _frozen_notes(frozen, (source.label, target.label))
    return (*copied, *(sentence(key, **given) for key, given in notes))


def _unseen_tensors(name_map: NameMap, sides: tuple[MapSide, MapSide]) -> Iterator[Note]:
    """Yield a note on each tensor in a plain attribute that has the shape of what the other side has alone."""
    for side, other, name in ((sides[0], sides[1], "target"), (sides[1], sides[0], "source")):
        shapes = {other.parameters.by_name[one.name].shape for one in name_map.unmatched if one.side == name}
        live = side.live
        if live is None:
            continue
        for one in unregistered_tensors(live.model, live.reader.name, shapes):
            facts = {**asdict(one), "shape": str(list(one.shape)), "side": live.label, "framework": live.reader.name}
            yield "map_warning.unregistered_tensor", facts


def _frozen_notes(found: FrozenApart, labels: tuple[str, str]) -> Iterator[Note]:
    """Yield the key and facts of what each side alone freezes, and of what to write in the target."""
    counts = say("map_warning.trainable", source=found.trainable[0], target=found.trainable[1])
    for pairs, label, frozen in ((found.frozen_in_source, labels[0], True), (found.frozen_in_target, labels[1], False)):
        if pairs:
            names = folded_names([pairing.source for pairing in pairs])
            change = freezing([pairing.target for pairing in pairs], frozen=frozen)
            facts = {"count": len(pairs), "side": label, "counts": counts, "names": names, "change": change}
            yield "map_warning.frozen", facts


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
        labels = {"source": name_map.source, "target": name_map.target}
        reasons.append(sentence("map_verdict.not_paired", left=left, right=right, **labels))
    if unsure:
        reasons.append(sentence("map_verdict.unsure", count=unsure))
    if swapped := swapped_places(name_map.pairings):
        places = [sentence("map_verdict.places", one=one, other=other) for one, other in swapped]
        reasons.append(sentence("map_verdict.swapped", places=places))
    if reasons:
        return Verdict(Outcome.NOT_ALIGNED, joined("; ", reasons), coverage)
    flow = sum(pairing.evidence == "dataflow" for pairing in name_map.pairings)
    return Verdict(Outcome.ALIGNED, sentence("map_verdict.paired", dropped=len(name_map.dropped), flow=flow), coverage)


def swapped_places(pairings: Iterable[Pairing]) -> list[tuple[str, str]]:
    """Pairs of paths, each once, that stand in each other's place by their shapes; without what both have at the end.

    What a run, equal values or the user say is no finding: they say that it is right so.

    >>> from align.core.name_map import Pairing
    >>> one, other = "layers.1.fc.weight", "layers.2.fc.weight"
    >>> swapped_places([Pairing(one, other, "structure", 1.0), Pairing(other, one, "structure", 1.0)])
    [('layers.1', 'layers.2')]
    """
    moved = {_owner(p.source): _owner(p.target) for p in pairings if p.evidence == "structure"}
    mutual = [(a, b) for a, b in moved.items() if a < b and moved.get(b) == a]
    return list(dict.fromkeys(_without_common_end(a, b) for a, b in mutual))


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


def _without_common_end(a: str, b: str) -> tuple[str, str]:
    left, right = a.split("."), b.split(".")
    while len(left) > 1 and len(right) > 1 and left[-1] == right[-1]:
        left, right = left[:-1], right[:-1]
    return ".".join(left), ".".join(right)


def with_doubled_open(name_map: NameMap) -> tuple[NameMap, list[Note]]:
    """The map with the pairs that make a target twice as open groups, and a note on each such target."""
    doubled = doubled_targets(name_map.pairings)
    kept = tuple(one for one in name_map.pairings if one.target not in doubled)
    paired = {one.source for one in kept}
    groups: list[Ambiguity] = []
    notes: list[Note] = []
    for target, sources in doubled.items():
        reason = sentence("map_reason.all_lead", sources=sources)
        own = [one for one in sources if one not in paired] or sources
        groups.append(Ambiguity(tuple(own), (target,), reason))
        notes.append(("map_reason.left_open", {"target": target, "reason": reason}))
    return replace(name_map, pairings=kept, ambiguous=(*name_map.ambiguous, *groups)), notes


def refuse_doubled(name_map: NameMap, path: Path) -> None:
    """Raise MapError naming all targets that are made twice, before a map is written."""
    if doubled := doubled_targets(name_map.pairings):
        faults = [say("rule_fault.doubled", target=target, sources=sources) for target, sources in doubled.items()]
        raise MapError(path, faults, say("names_reason.nothing_written"))


def doubled_targets(pairings: Iterable[Pairing]) -> dict[str, list[str]]:
    """The sources of each target of which a value would be made twice; parts that do not overlap make one together."""
    groups: dict[str, list[Pairing]] = {}
    for one in pairings:
        groups.setdefault(one.target, []).append(one)
    return {
        target: [one.source for one in own]
        for target, own in groups.items()
        if len(own) > 1 and overlap([one.transform for one in own])
    }


@dataclass(frozen=True, slots=True)
class FrozenApart:
    """How many paired parameters each side trains, and which only one side does not: the pairs, in the source's order.

    A buffer is trained by nobody. Where a parameter is cut into several, each piece counts.
    """

    trainable: tuple[int, int]
    frozen_in_source: tuple[Pairing, ...] = ()
    frozen_in_target: tuple[Pairing, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.frozen_in_source or self.frozen_in_target)


def frozen_apart(name_map: NameMap, source: ParameterSet, target: ParameterSet) -> FrozenApart:
    """Compare what is trained of the paired parameters; those of a file, which cannot tell, are left out."""
    known = [
        (pairing, bool(left.trainable), bool(right.trainable))
        for pairing in name_map.pairings
        if (left := _known(source, pairing.source)) and (right := _known(target, pairing.target))
    ]
    return FrozenApart(
        (sum(mine for _, mine, _ in known), sum(theirs for _, _, theirs in known)),
        tuple(pairing for pairing, mine, theirs in known if theirs and not mine),
        tuple(pairing for pairing, mine, theirs in known if mine and not theirs),
    )


def folded_names(names: Sequence[str]) -> str:
    """Names that differ in their numbers as one, the first few."""
    return first_few(fold_names(names))


def freezing(names: Sequence[str], *, frozen: bool) -> str:
    """The line that freezes these parameters, or no longer does: an attribute that both frameworks have."""
    return f"requires_grad = {not frozen} for {folded_names(names)}"


def _known(side: ParameterSet, name: str) -> Parameter | None:
    found = side.by_name.get(name)
    return found if found is not None and (found.trainable is not None or found.buffer) else None


# What mapping the parameters of two sides gives; `align.core.json_data` gives its JSON form, which reports read.


@dataclass(frozen=True, slots=True)
class MapResult(ShownResult):
    """The name map of two sides, the counts of both and all their parameters with shape, dtype and ties.

    `warnings` say what the map rests on, or what stands against it. `tried` is the line of the map file that says what
    a trial was made of, "" if there was none.
    """

    result_kind = "map"
    name_map: NameMap
    source: ParameterSummary
    target: ParameterSummary
    verdict: Verdict
    source_parameters: tuple[Parameter, ...] = ()
    target_parameters: tuple[Parameter, ...] = ()
    warnings: tuple[str, ...] = ()
    tried: str = ""


@dataclass(frozen=True, slots=True)
class MapCheck(ShownResult):
    """A given map judged against two sides: its faults, and the rules of it that matched nothing."""

    result_kind = "check"
    map: str
    reference: str
    candidate: str
    faults: tuple[Finding, ...]
    unused_rules: tuple[str, ...]
    verdict: Verdict
