"""The name map of two models: which parameter of the one is which of the other."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from align.core.name_map import FRAMEWORKS, Dropped
from align.core.parameters import summarize_parameters
from align.core.progress import silent
from align.errors import CannotRunError, InputsError, ModelFailedError, NothingInCommonError, UsageError
from align.models.inputs import read_inputs, run_fitted
from align.names.dataflow.settle_by_code import settle_by_code
from align.names.equal_values import note_value_conflicts, pairs_by_values
from align.names.map_export import MapRules, read_map_rules, write_map_file
from align.names.map_one_side import choose_family
from align.names.map_result import MapFacts, MapResult, map_verdict, map_warnings, with_doubled_open
from align.names.map_sides import (
    MapSide,
    checkpoint_side,
    open_map_side,
    open_map_sides,
    require_parameters,
    require_unchanged_files,
)
from align.names.matching.match_names import match_names
from align.names.read_layers import LayeredSides
from align.names.thresholds import CONFIDENCE_BY_ORDER
from align.names.user_rules import NameRules
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.core.checkpoints import Checkpoint, StoredTensor
    from align.core.dtypes import Array
    from align.core.name_map import FrameworkName, NameMap, Pairing
    from align.core.parameters import ParameterSet
    from align.core.progress import Progress
    from align.core.protocols import Inputs, Model
    from align.core.traces import Capture
    from align.core.transforms import Transform
    from align.models.open_side import Side
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
    require_unchanged_files(sides)
    name_map, facts.doubled = with_doubled_open(name_map)
    warnings = map_warnings(name_map, sides, facts)
    counts = summarize_parameters(source), summarize_parameters(target)
    both = source.parameters, target.parameters
    result = MapResult(name_map, *counts, map_verdict(name_map, facts.unproven), *both, warnings, line)
    if out is not None:
        write_map_file(Path(out), result, given_rules.kept)
    return result


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
    """The map of two files by what they alone tell, as `map_parameters` finds it; what is no weight is dropped."""
    sides = checkpoint_side(reference), checkpoint_side(candidate)
    return _with_left_out(sides, _settled(sides, (sides[0].parameters, sides[1].parameters), NameRules()))


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
