"""The sides of a name map, and what it comes to: whether every parameter has its counterpart, surely.

No conversion follows a map that makes a target twice, so none is written. Parameters that one side trains and the other
does not are told too: no run without training shows them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from align.checkpoints.extents import require_unchanged, tied_names
from align.checkpoints.inspect_checkpoint import refuse_placeholders
from align.checkpoints.names_in_file import (
    declared_framework,
    source_framework,
    state_beside_weights,
    without_wrappers,
    wrapper_words,
)
from align.checkpoints.open_checkpoint import open_checkpoint
from align.core.load_code import file_models
from align.core.name_map import Ambiguity
from align.core.parameters import Module, Origin, OriginNorm, Parameter, ParameterSet, StoredTensor, dtype_name
from align.core.piece_transforms import overlap
from align.core.protocols import OriginFollower, SettingsReader, collector_paused
from align.core.verdicts import Coverage, Outcome, ShownResult, Verdict
from align.errors import CannotRunError, MapError, SideError
from align.models.open_side import (
    Side,
    SideRequest,
    copied_sides,
    open_side,
    open_sides,
    unregistered_layers,
    unregistered_tensors,
)
from align.names.infer_layers import read_groups
from align.names.thresholds import USUAL_NORM_EPSILON
from align.names.user_rules import NameRules, fold_names
from align.rules.layer_rules import directed_rules, layer_rules, role_of, rule_for
from align.words.catalogue import few, joined, say, sentence

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from align.core.name_map import FrameworkName, NameMap, Pairing
    from align.core.parameters import Checkpoint, ParameterSummary
    from align.core.protocols import Model
    from align.core.verdicts import Finding
    from align.names.infer_layers import LayerReading
    from align.rules.layer_rules import DirectedRule, LayerRule, TargetFamily
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


@dataclass(frozen=True, slots=True)
class Unregistered:
    """What a framework does not see of a side: layers in a plain `container`, or a tensor, "" there; what to write."""

    path: str
    framework: str
    container: str
    line: str
    change: str


def map_warnings(
    name_map: NameMap, sides: tuple[MapSide, MapSide], facts: MapFacts
) -> tuple[tuple[str, ...], tuple[Unregistered, ...]]:
    """Say what a map rests on, or what stands against it; and what frameworks do not see, as data."""
    source, target = (side.parameters for side in sides)
    live = [side.live for side in sides if side.live]
    copied = [finding.message for finding in copied_sides(*live)]
    lost = [(side, item) for side in live if name_map.unmatched for item in unregistered_layers(side)]
    wrappers = [(side.label, wrapper_words(without_wrappers(side.names))) for side in (source, target)]
    notes: list[Note] = [("map_warning.wrappers", {"side": item, "words": words}) for item, words in wrappers if words]
    notes += [
        ("map_warning.not_seen_to_run", {"count": len(paths), "side": label, "paths": fold_names(paths)})
        for label, paths in facts.unseen
        if paths
    ]
    notes += [*facts.kept, *facts.conflicts, *facts.doubled]
    unseen: list[Note] = [
        ("map_warning.unregistered", {"side": side.label, "framework": side.reader.name, **asdict(item)})
        for side, item in lost
    ]
    unseen += _unseen_tensors(name_map, sides)
    unregistered = (
        Unregistered(**{name: given.get(name, "") for name in Unregistered.__slots__}) for _, given in unseen
    )
    frozen = frozen_apart(name_map, source, target)
    notes += [*unseen, *_frozen_notes(frozen, (source.label, target.label))]
    return (*copied, *(sentence(key, **given) for key, given in notes)), tuple(unregistered)


def _unseen_tensors(name_map: NameMap, sides: tuple[MapSide, MapSide]) -> Iterator[Note]:
    """Yield a note on each tensor in a plain attribute that has the shape of what the other side has alone."""
    for side, other, name in ((sides[0], sides[1], "target"), (sides[1], sides[0], "source")):
        shapes = {other.parameters.by_name[tensor.name].shape for tensor in name_map.unmatched if tensor.side == name}
        live = side.live
        if live is None:
            continue
        for tensor in unregistered_tensors(live.model, live.reader.name, shapes):
            facts = {
                **asdict(tensor),
                "shape": str(list(tensor.shape)),
                "side": live.label,
                "framework": live.reader.name,
            }
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
    unmatched = [sum(unpaired.side == side for unpaired in name_map.unmatched) for side in ("source", "target")]
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
        places = [sentence("map_verdict.places", one=unpaired, other=other) for unpaired, other in swapped]
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
    kept = tuple(item for item in name_map.pairings if item.target not in doubled)
    paired = {item.source for item in kept}
    groups: list[Ambiguity] = []
    notes: list[Note] = []
    for target, sources in doubled.items():
        reason = sentence("map_reason.all_lead", sources=sources)
        own = [item for item in sources if item not in paired] or sources
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
    for pairing in pairings:
        groups.setdefault(pairing.target, []).append(pairing)
    return {
        target: [pairing.source for pairing in own]
        for target, own in groups.items()
        if len(own) > 1 and overlap([pairing.transform for pairing in own])
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
    return few(fold_names(names))


def freezing(names: Sequence[str], *, frozen: bool) -> str:
    """The line that freezes these parameters, or no longer does: an attribute that both frameworks have."""
    return f"requires_grad = {not frozen} for {folded_names(names)}"


def _known(side: ParameterSet, name: str) -> Parameter | None:
    found = side.by_name.get(name)
    return found if found is not None and (found.trainable is not None or found.buffer) else None


# What mapping the parameters of two sides gives; `align.core.verdicts` gives its JSON form, which reports read.


@dataclass(frozen=True, slots=True)
class MapResult(ShownResult):
    """The name map of two sides, the counts of both and all their parameters with shape, dtype and ties.

    `warnings` say what the map rests on, or what stands against it. `tried` is the line of the map file that says what
    a trial was made of, "" if there was none. `unregistered` is what the frameworks do not see, which warnings say too.
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
    unregistered: tuple[Unregistered, ...] = ()


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


# A side of a name map: a live model, or a checkpoint, of which only the headers are read until values are needed.
#
# The modules of a checkpoint are the prefixes of its names, their classes what a layer rule tells. A group of
# attributes that the rules of one kind alone explain has that rule's class; what the file leaves open has none, and
# may then be any layer with the same roles and shapes.


@dataclass(frozen=True, slots=True)
class MapSide:
    """The parameters of one side; `live` is its model if it is one, `tensors` are those of its checkpoint.

    `left_out` are tensors of a checkpoint that are no parameters (the state of an optimizer), with the reason; `file`
    is the checkpoint.
    """

    parameters: ParameterSet
    live: Side | None = None
    tensors: Mapping[str, StoredTensor] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    file: Checkpoint | None = None

    @property
    def values(self) -> Mapping[str, StoredTensor]:
        """The values by name, none of a model that was filled from no checkpoint: fresh ones tell nothing."""
        if self.live is None or not self.live.filled:
            return self.tensors
        arrays = self.live.reader.read_values(self.live.model)
        return {
            name: StoredTensor(name, array.shape, dtype_name(array.dtype), lambda array=array: array)  # type: ignore[misc]
            for name, array in arrays.items()
        }


def open_map_side(side: str | Path | Model | Side | SideRequest) -> MapSide:
    """Read a checkpoint's headers, or build (or take) a model.

    A text that names a file or folder which is there, and is no Python file, is a checkpoint. Raises what opening
    either raises.
    """
    if _is_file(side):
        return _of_file(side)
    return _live_side(open_side(side))


def open_map_sides(
    reference: str | Path | Model | Side | SideRequest,
    candidate: str | Path | Model | Side | SideRequest,
    *,
    trial: bool = False,
) -> tuple[MapSide, MapSide]:
    """Open both sides of a map; two models are separated as `open_sides` does, for a trial if there will be one."""
    if _is_file(reference) or _is_file(candidate):
        for side in (reference, candidate):
            if not _is_file(side):
                (side if isinstance(side, SideRequest) else SideRequest(side)).check()
        live = [open_map_side(side) for side in (reference, candidate) if not _is_file(side)]
        wanted = live[0].parameters.names if live else ()
        sides = [_of_file(side, wanted) if _is_file(side) else live[0] for side in (reference, candidate)]
        return sides[0], sides[1]
    first, second = open_sides(reference, candidate, "trial" if trial else "names")
    first, second = follow_origins(first, second)
    return _live_side(first), _live_side(second)


def _is_file(side: str | Path | Model | Side | SideRequest) -> bool:
    if file_models(side) is not None:
        return False
    return isinstance(side, Path) or (isinstance(side, str) and is_checkpoint(side))


def _live_side(side: Side) -> MapSide:
    return MapSide(side.reader.read_parameters(side.model, side.label), side)


def require_unchanged_files(sides: Iterable[MapSide]) -> None:
    """Raise NotACheckpointError for a checkpoint that was written to, replaced or removed since it was opened."""
    for side in sides:
        if side.file is not None:
            require_unchanged(side.file)


def require_parameters(sides: Iterable[MapSide]) -> None:
    """Raise CannotRunError naming the sides that have no parameters."""
    if empty := [side.parameters.label for side in sides if not side.parameters.parameters]:
        raise CannotRunError.of("names_error.no_parameters", sides=empty)


def is_checkpoint(side: str) -> bool:
    """Tell whether a side is a path to a checkpoint; raises SideError for what can be neither that nor a model."""
    if Path(side).exists() and Path(side).suffix != ".py":
        return True
    if ":" not in side:
        raise SideError(side, say("names_reason.no_side"))
    return False


@collector_paused()
def _of_file(side: object, wanted: Container[str] = ()) -> MapSide:
    checkpoint = open_checkpoint(Path(str(side)))
    refuse_placeholders(checkpoint)
    return checkpoint_side(checkpoint, wanted)


@collector_paused()
def checkpoint_side(checkpoint: Checkpoint, wanted: Container[str] = ()) -> MapSide:
    """Read as torch's names where neither file nor names tell; the map then does not say whose they are.

    What is no weight by itself is one where it is `wanted`, as a parameter of the model on the other side.
    """
    framework, _ = source_framework(checkpoint.metadata, checkpoint.tensors)
    named = declared_framework(checkpoint.metadata) or (framework if framework == "mindspore" else None)
    beside = state_beside_weights(checkpoint)
    state = {name: reason for name, reason in beside.items() if name not in wanted}
    tensors = {name: tensor for name, tensor in checkpoint.tensors.items() if name not in state}
    parameters = parameters_of_file(str(checkpoint.path), framework, tensors, layer_rules())
    return MapSide(replace(parameters, framework=named), None, tensors, state, checkpoint)


def parameters_of_file(
    label: str, framework: FrameworkName, tensors: Mapping[str, StoredTensor], rules: Sequence[LayerRule]
) -> ParameterSet:
    """Return what a file tells of its parameters, in its order; `framework` is whose names it has."""
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    family: TargetFamily = "nn" if framework == "torch" else "torch"
    known = directed_rules(rules, family, alone=not any("." in name for name in shapes))
    readings = read_groups(shapes, known, (), {})
    classes = _classes_of(readings)
    ties = {name: names[0] for names in tied_names(tensors.values()) for name in names[1:]}
    return ParameterSet(
        label,
        framework,
        tuple(_parameter(tensor, ties.get(name)) for name, tensor in tensors.items()),
        tuple(map(_module, readings, classes)),
        order="file",
    )


def _parameter(tensor: StoredTensor, tied_to: str | None) -> Parameter:
    module, _, attribute = tensor.name.rpartition(".")
    return Parameter(tensor.name, tensor.shape, tensor.dtype, module, attribute, tied_to=tied_to)


def _classes_of(readings: Iterable[LayerReading]) -> Iterator[tuple[str, ...]]:
    """The classes of each layer; those of layers that repeat are found once."""
    known: dict[tuple[object, ...], tuple[str, ...]] = {}
    for reading in readings:
        layer = (bool(reading.odd), *map(id, reading.rules), *reading.group.shapes)
        if (found := known.get(layer)) is None:
            found = known[layer] = _classes(reading)
        yield found


def _module(reading: LayerReading, classes: tuple[str, ...]) -> Module:
    group = reading.group
    return Module(group.prefix, classes, tuple(group.names))


def _classes(reading: LayerReading) -> tuple[str, ...]:
    """A class that all rules stand for that can be meant; none where they are of two kinds, or name things unlike."""
    rules = [rule for rule in reading.rules if not _is_asked_for(reading, rule)] or reading.rules
    alike = {(rule.kind, *sorted(rule.source.parameters.items()), *rule.source.insert_axis.items()) for rule in rules}
    if reading.odd or len(alike) != 1 or rules[0].inner:
        return ()
    return rules[0].source.classes[:1]


def _is_asked_for(reading: LayerReading, rule: DirectedRule) -> bool:
    """Whether torch's layer has one of these parameters on request only, as an InstanceNorm its statistics."""
    families = [family for family in (rule.source, rule.target) if family is not None]
    roles = {role for role, attribute in rule.source.parameters.items() if attribute in reading.group.shapes}
    return any(roles & family.may_lack.keys() for family in families)


# An exported model beside the one that it may come from: what the export folded, turned or left out is found again.
#
# The names that both sides have in common are matched first. What then has no counterpart is looked for by its value:
# an export multiplies a BatchNorm into a convolution, keeps constants in the place of a table's rows, and leaves
# zeros out.

_TORCH_ATTRIBUTES = {"weight": "weight", "bias": "bias", "mean": "running_mean", "variance": "running_var"}
_NORM = "batch_norm"


def follow_origins(reference: Side, candidate: Side) -> tuple[Side, Side]:
    """Both sides, an exported one with its parameters as the other, which is not exported, knows them."""
    return followed_side(reference, candidate), followed_side(candidate, reference)


def followed_side(side: Side, origin: Side, *, same_values: bool = True) -> Side:
    """The side with what its origin tells of it; any side that is no export as it is.

    `same_values` tells whether the export is meant to have the origin's values.
    """
    if not isinstance(side.reader, OriginFollower) or isinstance(origin.reader, OriginFollower):
        return side
    theirs = origin.reader.read_parameters(origin.model, origin.label)
    parameters = side.reader.read_parameters(side.model, side.label)
    known = Origin(
        theirs,
        origin.reader.read_values(origin.model),
        tuple(_norms(theirs, _epsilons(origin))),
        _paired(parameters, theirs),
        _biases(theirs),
        frozenset(name for one in theirs.modules if rule_for(one.classes[:1]) for name in one.parameters),
        same_values,
    )
    return replace(side, model=side.reader.followed(side.model, known))


def _paired(own: ParameterSet, theirs: ParameterSet) -> dict[str, str]:
    from align.names.matching.match_names import match_names  # it needs SciPy, and a conversion imports this module

    pairs = match_names(own, theirs, NameRules()).pairings
    return {one.source: one.target for one in pairs}


def _epsilons(origin: Side) -> dict[str, float]:
    if not isinstance(origin.reader, SettingsReader):
        return {}
    layers = origin.reader.read_settings(origin.model)
    return {one.path: eps for one in layers if isinstance(eps := one.values.get("eps"), float)}


def _norms(side: ParameterSet, epsilons: dict[str, float]) -> Iterator[OriginNorm]:
    for module in side.modules:
        rule = rule_for(module.classes)
        if rule is None or rule[0].kind != _NORM:
            continue
        names = dict(_by_role(side, module))
        if set(names) == set(_TORCH_ATTRIBUTES.values()):
            yield OriginNorm(module.path, epsilons.get(module.path, USUAL_NORM_EPSILON), names)


def _by_role(side: ParameterSet, module: Module) -> Iterator[tuple[str, str]]:
    for name in module.parameters:
        role = role_of(module.classes, side.by_name[name].attribute) or ""
        if role in _TORCH_ATTRIBUTES:
            yield _TORCH_ATTRIBUTES[role], name


def _biases(side: ParameterSet) -> dict[str, str]:
    biases = {}
    for module in side.modules:
        roles = dict(_by_role(side, module))
        if "weight" in roles and "bias" in roles:
            biases[roles["weight"]] = roles["bias"]
    return biases
