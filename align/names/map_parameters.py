"""The name map of two models: which parameter is which of the other, made, or given and checked."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from align.core.name_map import FRAMEWORKS, Dropped, Pairing, cut_faults
from align.core.parameters import summarize_parameters
from align.core.piece_transforms import join_fault, joins
from align.core.protocols import collector_paused, silent
from align.core.transforms import IDENTITY, Permute
from align.core.verdicts import Coverage, Finding, Outcome, Verdict
from align.errors import CannotRunError, InputsError, ModelFailedError, NothingInCommonError, UsageError
from align.models.inputs import read_inputs, run_fitted
from align.names.dataflow.settle_by_code import settle_by_code
from align.names.equal_values import note_relations, note_value_conflicts, pairs_by_values
from align.names.map_export import MapRules, read_map_rules, write_map_file
from align.names.map_file import read_rules
from align.names.map_one_side import AUTO, choose_family
from align.names.map_result import (
    MapCheck,
    MapFacts,
    MapResult,
    MapSide,
    checkpoint_side,
    map_verdict,
    map_warnings,
    open_map_side,
    open_map_sides,
    require_parameters,
    require_unchanged_files,
    with_doubled_open,
)
from align.names.matching.match_names import match_names
from align.names.read_layers import LayeredSides, is_turned, roles_by_name
from align.names.thresholds import CONFIDENCE_BY_ORDER
from align.names.user_rules import NameRules
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.core.name_map import FrameworkName, NameMap, SideName
    from align.core.parameters import Array, Checkpoint, ParameterSet, StoredTensor
    from align.core.protocols import Inputs, Model, Progress
    from align.core.traces import Capture
    from align.core.transforms import Transform
    from align.models.open_side import Side
    from align.names.read_layers import Layer
    from align.words.catalogue import Note

    _Call = tuple[int, int, Pairing]


def map_parameters(  # noqa: PLR0913 - one parameter an option
    reference: str | Path | Model | Side,
    candidate: str | Path | Model | Side,
    *,
    rules: NameRules | MapRules | Path | str | None = None,
    inputs: Path | str | Mapping[str, Array] | None = None,
    out: Path | str | None = None,
    trial: bool | Literal["open"] = False,
    family: str | None = None,
    progress: Progress = silent,
) -> MapResult:
    """Map the parameters of two sides: live models, `module:function` that makes one, or paths of checkpoints.

    `rules` is a map file whose lines are never overruled. With `inputs` both models run once, and the order of
    execution becomes evidence; with `trial` it does not: both run on distinct values, and where each parameter stands
    in the flow of the data decides. With `trial="open"` they run only where names leave something open; where one
    cannot run, names alone decide, and a warning says why.
    `out` receives the map (.toml, .csv or .json); what the user wrote into one that is there counts as rules and is
    kept, and so is what a trial found before. Raises CannotRunError for a side without parameters; two sides that
    have nothing in common have a map, in which all is unmatched.

    >>> import numpy as np
    >>> from align.models.frameworks.arrays import ArrayLayer, ArrayModel
    >>> def model(path, layer):
    ...     weights = {"weight": np.ones((2, 3))}
    ...     return ArrayModel((ArrayLayer(path, layer, lambda x, weight: x @ weight.T, weights),))
    >>> result = map_parameters(model("fc", "torch.nn.Linear"), model("head.dense", "mindspore.nn.Dense"))
    >>> [(pair.source, pair.target) for pair in result.name_map.pairings]
    [('fc.weight', 'head.dense.weight')]
    """
    given_rules = _given_rules(rules, _path(out))
    given = read_inputs(inputs) if inputs is not None else None
    sides = open_map_sides(reference, candidate, trial=bool(trial))
    require_parameters(sides)
    source, target = (side.parameters for side in sides)
    known = choose_family(family, source, target)
    rules_of_all = given_rules.rules if known is None else known.beside(given_rules.rules)
    live = _live(sides) if given is not None else None
    named = _with_left_out(sides, _settled(sides, (source, target), rules_of_all))
    name_map = named if trial is True else _told_by_code(sides, named, rules_of_all)
    facts, line = MapFacts(), ""
    if given is not None and live is not None and not trial:  # what values do says more than the order of calls
        was_open = bool(name_map.ambiguous)
        name_map, unseen = settle_by_order(name_map, live, (source, target), given, rules_of_all)
        facts.unseen = unseen if was_open else []
    if known is not None:
        name_map, named = (known.marked(one, given_rules.rules) for one in (name_map, named))
    if trial is True or (trial and not _is_settled(name_map)):
        from align.names.settle_by_trial import Trial, map_by_kept_trial

        asked, start = Trial((source, target), rules_of_all, given_rules.tried), time.perf_counter()
        try:
            tried = map_by_kept_trial(live, asked, named, given, progress)
        except (CannotRunError, ModelFailedError, InputsError) as error:
            if trial is True:
                raise
            facts.kept = [("map_warning.trial_impossible", {"reason": error.message})]
        else:
            name_map, facts.unproven, facts.kept, line = tried.name_map, tried.unproven, tried.notes, tried.line
            if trial == "open":
                facts.kept = [*facts.kept, _decided(name_map, time.perf_counter() - start)]
    if given_rules.rules.all_rules:
        name_map, facts.conflicts = note_value_conflicts(name_map, (sides[0].values, sides[1].values))
    facts.kept = [*facts.kept, *_relations(sides, name_map, trial)]
    require_unchanged_files(sides)
    name_map, facts.doubled = with_doubled_open(name_map)
    warnings, unregistered = map_warnings(name_map, sides, facts)
    counts = summarize_parameters(source), summarize_parameters(target)
    both = source.parameters, target.parameters
    result = MapResult(name_map, *counts, map_verdict(name_map, facts.unproven), *both, warnings, line, unregistered)
    if out is not None:
        write_map_file(Path(out), result, given_rules.kept)
    return result


def _relations(sides: tuple[MapSide, MapSide], name_map: NameMap, trial: bool | str) -> list[Note]:
    """How the weights of both sides hang together where they differ, of models under trial that have weights."""
    return [*note_relations(name_map, (sides[0].values, sides[1].values))] if trial else []


def _told_by_code(sides: tuple[MapSide, MapSide], name_map: NameMap, rules: NameRules) -> NameMap:
    """The map with what the code of two live models tells; a trial starts without it, since values say more."""
    left, right = sides
    if left.live is None or right.live is None:
        return name_map
    told = settle_by_code(name_map, (left.live, right.live), (left.parameters, right.parameters), rules)
    return told if told is name_map else _with_left_out(sides, replace(told, dropped=_kept_drops(sides, told)))


def _kept_drops(sides: tuple[MapSide, MapSide], name_map: NameMap) -> tuple[Dropped, ...]:
    """What the map drops, without what files hold beside weights, which is told once."""
    beside = ({*sides[0].left_out}, {*sides[1].left_out})
    return tuple(one for one in name_map.dropped if one.name not in beside[one.side == "target"])


def _is_settled(name_map: NameMap) -> bool:
    return name_map.complete and all(pairing.sure for pairing in name_map.pairings)


def _decided(name_map: NameMap, seconds: float) -> Note:
    """How many pairs running both models has decided, by what, and how long it took."""
    found = Counter(pairing.evidence for pairing in name_map.pairings)
    return "map_warning.decided", {"seconds": seconds, "flow": found["dataflow"], "trial": found["trial"]}


def map_checkpoints(reference: Checkpoint, candidate: Checkpoint) -> NameMap:
    """The map by which the values of two files are to be compared; what is no weight is dropped.

    Names count more than values, of which they are the judges: a layer that holds another one's weight keeps its name.
    Where both sides are the two of one ready family, its names count; values settle only what names leave open.
    """
    sides = checkpoint_side(reference), checkpoint_side(candidate)
    parameters, rules = (sides[0].parameters, sides[1].parameters), NameRules()
    if family := choose_family(AUTO, *parameters):
        return _with_left_out(sides, family.marked(_settled(sides, parameters, family.beside(rules)), rules))
    by_name = [p for p in _matched(*parameters, rules).pairings if p.confidence == 1 and p.evidence in ("name", "rule")]
    rules = replace(rules, names={p.source: (p.target, p.transform) for p in by_name})
    return _with_left_out(sides, _settled(sides, parameters, rules))


def read_checkpoint_side(path: Path) -> tuple[ParameterSet, Mapping[str, StoredTensor]]:
    """What a checkpoint tells of its parameters, and its tensors but for the state of an optimizer."""
    read = open_map_side(path)
    return read.parameters, read.tensors


def _given_rules(rules: NameRules | MapRules | Path | str | None, out: Path | None) -> MapRules:
    if isinstance(rules, MapRules):
        return rules
    return MapRules(rules) if isinstance(rules, NameRules) else read_map_rules(_path(rules), out)


def _path(path: Path | str | None) -> Path | None:
    return None if path is None else Path(path)


def _live(sides: tuple[MapSide, MapSide]) -> tuple[Side, Side]:
    left, right = (side.live for side in sides)
    if left is None or right is None:
        label = next(side.parameters.label for side in sides if side.live is None)
        raise UsageError.of("names_error.checkpoint_not_run", side=label)
    return left, right


@collector_paused()
def _settled(
    sides: tuple[MapSide, MapSide], parameters: tuple[ParameterSet, ParameterSet], rules: NameRules
) -> NameMap:
    """Match, and settle by equal values where both sides have values; the rest of a layer follows.

    What values confirm is returned as well: what they contradict is no reason to doubt it.
    """
    name_map = _matched(*parameters, rules)
    values = sides[0].values, sides[1].values
    by_values = pairs_by_values(name_map, LayeredSides(parameters), values) if all(values) else {}
    before = {pairing.source: pairing for pairing in name_map.pairings}
    if all(before.get(name) == pairing for name, pairing in by_values.items()):
        return name_map
    names = {name: (pairing.target, pairing.transform) for name, pairing in by_values.items()}
    again = _matched(*parameters, replace(rules, names=rules.names | names))
    pairings = (
        by_values[p.source] if p.source in by_values and p.target == by_values[p.source].target else p
        for p in again.pairings
    )
    return replace(again, pairings=tuple(pairings))


def _with_left_out(sides: tuple[MapSide, MapSide], name_map: NameMap) -> NameMap:
    left = [Dropped(name, "source", reason) for name, reason in sides[0].left_out.items()]
    right = [Dropped(name, "target", reason) for name, reason in sides[1].left_out.items()]
    return replace(name_map, dropped=(*name_map.dropped, *left, *right))


def match_sides(source: ParameterSet, target: ParameterSet, rules: NameRules) -> NameMap:
    """Match two sides; raises NothingInCommonError if not a single parameter pairs or might pair.

    Two sides without parameters have an empty map: what they compute can be compared all the same.
    """
    name_map = _matched(source, target, rules)
    if (source.parameters or target.parameters) and not name_map.pairings and not name_map.ambiguous:
        bare = next((side.label for side in (source, target) if not side.parameters), "")
        raise NothingInCommonError(source.label, target.label, "parameter", bare)
    return name_map


def _matched(source: ParameterSet, target: ParameterSet, rules: NameRules) -> NameMap:
    return replace(match_names(source, target, rules), frameworks=(_known(source), _known(target)))


def _known(side: ParameterSet) -> FrameworkName | None:
    return FRAMEWORKS.get(side.framework or "")


# What names leave open is read from the order in which both models call their layers; what names tell stays.
#
# A sure pair that this order contradicts stays too, but is no longer sure: a correct port may call its shortcut
# first, and a wrong one may call two blocks the other way round. A trial tells them apart.

_CROSSED = sentence("pair_note.another_order")


def settle_by_order(
    name_map: NameMap,
    sides: tuple[Side, Side],
    parameters: tuple[ParameterSet, ParameterSet],
    inputs: Mapping[str, Array],
    rules: NameRules,
) -> tuple[NameMap, list[tuple[str, list[str]]]]:
    """Run both sides once; return the map as the order of execution has it, and what of each side did not run."""
    source, target = (_executed(side, own, inputs) for side, own in zip(sides, parameters, strict=True))
    unseen = [(side.label, unseen_modules(side)) for side in (source, target)]
    return match_by_order(name_map, source, target, rules), unseen


def unseen_modules(side: ParameterSet) -> list[str]:
    """The paths of modules with parameters that were not seen to run."""
    return [module.path for module in side.modules if module.parameters and not module.ran]


def match_by_order(name_map: NameMap, source: ParameterSet, target: ParameterSet, rules: NameRules) -> NameMap:
    """Return the map with those ambiguous groups paired, not surely, that the order of execution of both sides tells.

    Sides that do not both stand in that order change nothing.
    """
    if not source.order == target.order == "execution":
        return name_map
    again = _paired(name_map, source, target, rules) if name_map.ambiguous else name_map
    return _doubted(again, LayeredSides((source, target)))


def _paired(name_map: NameMap, source: ParameterSet, target: ParameterSet, rules: NameRules) -> NameMap:
    """Match again with all pairs of the map as rules; what is new rests on the order."""
    known = {(p.source, p.target): p for p in name_map.pairings}
    targets: dict[str, list[tuple[str, Transform]]] = defaultdict(list)
    for pairing in name_map.pairings:
        targets[pairing.source].append((pairing.target, pairing.transform))
    names = {name: found[0] for name, found in targets.items()}
    further = {name: tuple(found[1:]) for name, found in targets.items() if len(found) > 1}
    fixed = replace(rules, names=rules.names | names, further={**rules.further, **further})
    again = replace(match_names(source, target, fixed), frameworks=name_map.frameworks)
    pairings = (
        known.get((p.source, p.target)) or replace(p, confidence=min(p.confidence, CONFIDENCE_BY_ORDER))
        for p in again.pairings
    )
    return replace(again, pairings=tuple(pairings))


def _doubted(name_map: NameMap, sides: LayeredSides) -> NameMap:
    """The map with those sure pairs doubted that cross another pair of their kind and shape in the order of calls."""
    left, right = (_places(side) for side in sides.parameters)
    roles = sides.roles[0]
    rivals: dict[object, list[_Call]] = defaultdict(list)
    for pairing in name_map.pairings:
        if pairing.source in roles and pairing.source in left and pairing.target in right:
            layer, role = roles[pairing.source]
            place = left[pairing.source], right[pairing.target]
            rivals[layer.kind, layer.signature, role].append((*place, pairing))
    crossed = {id(pairing) for calls in rivals.values() for pairing in _crossing(calls)}
    pairings = (
        replace(p, confidence=min(p.confidence, CONFIDENCE_BY_ORDER), note=p.note or _CROSSED)
        if id(p) in crossed and p.sure and p.evidence not in ("user", "values")
        else p
        for p in name_map.pairings
    )
    return replace(name_map, pairings=tuple(pairings))


def _places(side: ParameterSet) -> dict[str, int]:
    """The place of each parameter's module among those that ran."""
    ran = [module for module in side.modules if module.ran]
    return {name: place for place, module in enumerate(ran) for name in module.parameters}


def _crossing(calls: Sequence[_Call]) -> list[Pairing]:
    """Pairs before which, in the source, something is called that the target calls later, or the other way round."""
    calls = sorted(calls, key=lambda call: call[0])
    after = [target for _, target, _ in calls]
    highest = list(accumulate(after, max))
    lowest = list(accumulate(reversed(after), min))[::-1]
    return [
        pairing
        for number, (_, target, pairing) in enumerate(calls)
        if highest[number] > target or lowest[number] < target
    ]


@dataclass
class CallOrder:
    """A CaptureSink that only remembers when each module first returned."""

    first: dict[str, int] = field(default_factory=dict)

    def add(self, capture: Capture, value: Array) -> None:  # noqa: ARG002
        """Note a module."""
        self.first.setdefault(capture.module, capture.order)


def in_execution_order(side: ParameterSet, order: CallOrder) -> ParameterSet:
    """Return the side with its modules in the order of their first return, and those marked that were not seen to run.

    Those stand where the module around them ended; their tensors may have been used past them, as attention uses its
    output projection. If no module with parameters was seen, the order of registration stays.
    """
    modules = tuple(m if m.path in order.first else replace(m, ran=False) for m in side.modules)
    if not any(module.parameters and module.ran for module in modules):
        return replace(side, modules=modules)
    modules = tuple(sorted(modules, key=lambda module: _end(module.path, order.first)))
    return replace(side, modules=modules, order="execution")


def _end(path: str, first: Mapping[str, int]) -> int:
    while path and path not in first:
        path = path.rpartition(".")[0]
    return first.get(path, len(first))


def _executed(side: Side, parameters: ParameterSet, inputs: Mapping[str, Array]) -> ParameterSet:
    """The parameters in execution order where it is known."""
    orders: list[CallOrder] = []

    def run(given: Inputs) -> None:
        orders.append(CallOrder())
        side.runner.run(side.model, given, orders[-1])

    run_fitted(side, inputs, run)
    return in_execution_order(parameters, orders[-1])


# A given name map held against two sides: every name that is missing, every pair that cannot be, everything left out.
#
# A pair contradicts what is sure if its roles or the kinds of its layers differ, if it turns a matrix that the
# classes do not or leaves one that they do, or if the sides, matched without the map, surely pair one of its names
# otherwise. A change of form that the map states may join layers of two kinds, such as a 1x1 convolution and a dense
# layer.


SIDES: tuple[SideName, SideName] = ("source", "target")
Sides = tuple["ParameterSet", "ParameterSet"]


def check_name_map(
    reference: str | Path | Model | Side, candidate: str | Path | Model | Side, name_map: Path | str
) -> MapCheck:
    r"""Judge a map file against two sides: aligned if it pairs or drops every name, and no pair is a wrong one.

    Raises MapError for a file that is none, NothingInCommonError if it pairs no name of the one with one of the other.

    >>> import numpy, tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> for file, name in (("a.npz", "fc.weight"), ("b.npz", "head.weight")):
    ...     numpy.savez(folder / file, **{name: numpy.ones((2, 3))})
    >>> _ = (folder / "map.toml").write_text('[names]\n"fc.weight" = "head.weight"')
    >>> check_name_map(folder / "a.npz", folder / "b.npz", folder / "map.toml").verdict.outcome.value
    'aligned'
    """
    rules = read_rules(Path(name_map))
    opened = open_map_sides(reference, candidate)
    sides = opened[0].parameters, opened[1].parameters
    pairings = _pairings(rules, sides[0])
    dropped = _dropped(rules, "source", sides[0]), _dropped(rules, "target", sides[1])
    if not any(p.source in sides[0].by_name and p.target in sides[1].by_name for p in pairings):
        what = say("names_reason.paired_parameter", map=name_map)
        raise NothingInCommonError(sides[0].label, sides[1].label, what)
    faults = name_map_faults(pairings, dropped, sides, match_names(*sides, NameRules()))
    unused = [rule for rule in rules.all_rules if rule.startswith("[[rename]]") and not _is_used(rules, rule, sides[0])]
    verdict = _verdict(pairings, dropped, faults)
    return MapCheck(str(name_map), sides[0].label, sides[1].label, tuple(faults), tuple(unused), verdict)


def _pairings(rules: NameRules, source: ParameterSet) -> list[Pairing]:
    """What the map says of the source's names, and of names under [names] that it does not have."""
    names = dict.fromkeys((*source.names, *rules.names))
    paired = [name for name in names if name in rules.names or not rules.drop_of("source", name)]
    return [Pairing(name, to, "user", 1.0, change) for name in paired for to, change, _ in rules.targets_of(name)]


def _dropped(rules: NameRules, name: SideName, side: ParameterSet) -> set[str]:
    return {one for one in side.names if rules.drop_of(name, one)}


def _is_used(rules: NameRules, rule: str, source: ParameterSet) -> bool:
    return any(found[2] == rule for name in source.names if (found := rules.target_of(name)))


def _verdict(pairings: Sequence[Pairing], dropped: tuple[set[str], set[str]], faults: Sequence[Finding]) -> Verdict:
    uncovered = [sum(fault.code == f"uncovered-{side}" for fault in faults) for side in SIDES]
    coverage = Coverage("parameters", len(pairings), len(dropped[0]) + len(dropped[1]), *uncovered)
    if faults:
        return Verdict(Outcome.NOT_ALIGNED, sentence("map_verdict.faults", count=len(faults)), coverage)
    return Verdict(Outcome.ALIGNED, sentence("map_verdict.sound"), coverage)


def name_map_faults(
    pairings: Sequence[Pairing], dropped: tuple[set[str], set[str]], sides: Sides, inferred: NameMap
) -> list[Finding]:
    """Return all faults of the pairs of a map; `dropped` are names left out, `inferred` is the map without it."""
    known = [p for p in pairings if p.source in sides[0].by_name and p.target in sides[1].by_name]
    shapes = {parameter.name: parameter.shape for parameter in sides[0].parameters}
    covered = {p.source for p in pairings} | dropped[0], {p.target for p in pairings} | dropped[1]
    return [
        *_missing(pairings, sides),
        *_doubled(known),
        *(Finding("pieces", "error", name, fault) for name, fault in cut_faults(known, shapes).items()),
        *(_fault("shape", p, fault) for p in known if (fault := _shape_fault(p, sides))),
        *_unlike(known, sides),
        *_contradicted(known, inferred),
        *(
            Finding(f"uncovered-{name}", "error", parameter.name, sentence("map_fault.uncovered"))
            for name, side, names in zip(("source", "target"), sides, covered, strict=True)
            for parameter in side.parameters
            if parameter.name not in names
        ),
    ]


def _fault(code: str, pairing: Pairing, message: str) -> Finding:
    return Finding(code, "error", f"{pairing.source} -> {pairing.target}", message)


def _missing(pairings: Iterable[Pairing], sides: Sides) -> Iterator[Finding]:
    for pairing in pairings:
        if pairing.source not in sides[0].by_name:
            yield Finding("missing-source", "error", pairing.source, sentence("map_fault.missing", side=sides[0].label))
        if pairing.target not in sides[1].by_name:
            yield Finding("missing-target", "error", pairing.target, sentence("map_fault.missing", side=sides[1].label))


def _doubled(pairings: Iterable[Pairing]) -> Iterator[Finding]:
    """Yield targets that several sources make, unless each makes a part and the parts are the whole."""
    by_target: dict[str, list[Pairing]] = {}
    for pairing in pairings:
        by_target.setdefault(pairing.target, []).append(pairing)
    for target, pairs in by_target.items():
        changes = [p.transform for p in pairs]
        if all(map(joins, changes)):
            fault = join_fault(changes)
        else:
            sources = [p.source for p in pairs]
            fault = sentence("map_fault.doubled", sources=sources) if len(pairs) > 1 else ""
        if fault:
            yield Finding("doubled", "error", target, fault)


def _shape_fault(pairing: Pairing, sides: Sides) -> str:
    shape, wanted = sides[0].by_name[pairing.source].shape, sides[1].by_name[pairing.target].shape
    try:
        got = pairing.transform.output_shape(shape)
    except ValueError as error:
        return str(error)
    return "" if got == wanted else sentence("map_fault.shape", shape=str(list(got)), wanted=str(list(wanted)))


def _unlike(pairings: Iterable[Pairing], sides: Sides) -> Iterator[Finding]:
    left, right = (roles_by_name(side) for side in sides)
    for pairing in pairings:
        (mine, role), (theirs, other) = left.get(pairing.source, (None, "")), right.get(pairing.target, (None, ""))
        if mine is None or theirs is None:
            continue
        turn = _turn_fault(pairing, (mine, role), (theirs, other))
        if turn and not _shape_fault(pairing, sides):
            yield _fault("transpose", pairing, turn)
        if pairing.transform != IDENTITY:
            continue
        if role != other:
            yield _fault("role", pairing, sentence("map_fault.role", role=role, other=other))
        elif mine.kind and theirs.kind and mine.kind != theirs.kind:
            yield _fault("kind", pairing, sentence("map_fault.kind", kind=mine.kind, other=theirs.kind))


def _turn_fault(pairing: Pairing, mine: tuple[Layer, str], theirs: tuple[Layer, str]) -> str:
    """Say where the classes of two layers tell that a matrix is turned or not, and the map does otherwise."""
    (a, role), (b, other) = mine, theirs
    if not a.kind or a.kind != b.kind or None in (a.inputs_first, b.inputs_first):
        return ""
    if len(a.shapes[role]) != len(a.roles[role].shape) or len(b.shapes[other]) != 2:
        return ""
    turned = is_turned(a, role) != is_turned(b, other)
    turns = sum(isinstance(step, Permute) and step.axes == (1, 0) for step in pairing.transform.steps) % 2 == 1
    if turned == turns:
        return ""
    return sentence("map_fault.not_transposed" if turned else "map_fault.transposed")


def _contradicted(pairings: Iterable[Pairing], own: NameMap) -> Iterator[Finding]:
    sure: dict[str, list[Pairing]] = {}
    for pairing in own.pairings:
        if pairing.sure:
            sure.setdefault(pairing.source, []).append(pairing)
    for pairing in pairings:
        mine = sure.get(pairing.source, ())
        if mine and pairing.target not in [one.target for one in mine]:
            targets, evidence = [one.target for one in mine], mine[0].evidence
            message = sentence("map_fault.contradicted", targets=targets, evidence=evidence)
            yield _fault("contradicted", pairing, message)
