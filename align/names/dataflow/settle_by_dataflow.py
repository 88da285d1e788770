"""What names leave open is settled by where parameters stand in the flow of the data.

Both models run on distinct values. Each use of a parameter is looked up by the rows that go into it; where the same
rows go into several (query, key and value), orders are tried, in all layers at once, and what comes behind them tells.
If at the end both models return the same with all pairs loaded, the whole map is proven.
"""

from __future__ import annotations

import re
from collections import defaultdict
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from align.core.name_map import Ambiguity, Dropped
from align.core.parameters import is_float, numpy_dtype
from align.core.piece_transforms import Part, joins
from align.core.protocols import OperatorRunner, silent
from align.models.user_code import other_seed
from align.names.dataflow.cut_products import ReturnedTensors, SeenUses, key_of, returned_alike
from align.names.dataflow.first_side import FirstSide
from align.names.dataflow.flow_pairings import FlowPairings, OrderSearch, copies_of_modules, form_between
from align.names.dataflow.follow_uses import FollowedUses
from align.names.dataflow.seen_rows import PieceIndex
from align.names.equal_values import Calibration, TrialSide, alike, distinct_values
from align.names.thresholds import (
    MOST_DATAFLOW_RUNS,
    MOST_DISTINCT_ELEMENTS,
    MOST_FIRST_STATES,
    MOST_SEEDS_TRIED,
    TRIAL_SEED,
    TRIAL_SPREAD,
)
from align.rules.layer_rules import STATISTICS
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from align.core.name_map import FlowPlace, NameMap, Pairing, SideName
    from align.core.parameters import Array, ParameterSet
    from align.core.protocols import Progress
    from align.core.transforms import Transform
    from align.models.open_side import Side
    from align.names.dataflow.cut_products import Returned, UseKey
    from align.names.dataflow.flow_pairings import Status
    from align.names.dataflow.follow_uses import TieKey
    from align.names.dataflow.operator_uses import Use
    from align.words.catalogue import Note


SIDES: Final[tuple[SideName, SideName]] = ("source", "target")


@dataclass(slots=True)
class DataflowFound:
    """Pairings that the flow of the data shows, and what each rests on.

    They are `proven` if both models return the same with all of them loaded.
    """

    pairings: list[Pairing]
    proven: bool
    interrupted: bool = False
    places: dict[tuple[str, str], FlowPlace] = field(default_factory=dict)


def map_by_dataflow(
    source: Side, target: Side, name_map: NameMap, inputs: Mapping[str, Array], progress: Progress = silent
) -> tuple[NameMap, tuple[Note, ...]]:
    """Return the map with what the flow of the data shows, and notes.

    It is as it was where a side's operators cannot be seen, or where it draws random numbers; a note says so. Pairs
    that the user gave stay. Both models get distinct values for the time of it, and have their own back afterwards.
    Raises ModelFailedError where a model does not run.
    """
    sides = source, target
    for side in sides:
        if not (isinstance(side.runner, OperatorRunner) and side.runner.shows_operators()):
            return name_map, (("map_warning.not_followed", {"side": side.label}),)
    first, second = (TrialSide(side) for side in sides)
    with first.restored(), second.restored():
        for own in (first, second):
            own.seconds(inputs)
            if _draws(own):
                return name_map, (("map_warning.draws_numbers", {"side": own.side.label}),)
        found = Dataflow(first, second, name_map, progress).settle()
    notes: tuple[Note, ...] = (("map_warning.interrupted", {}),) if found.interrupted else ()
    return with_dataflow(name_map, found, (first.parameters, second.parameters)), notes


def _draws(side: TrialSide) -> bool:
    """Tell whether another seed changes what a model returns."""
    runs = []
    for context in (nullcontext(), other_seed()):
        with context:
            seen = ReturnedTensors()
            side.run(seen)
            runs.append([one for _, one in seen.outputs])
    return not alike(*runs)


def with_dataflow(name_map: NameMap, by_flow: DataflowFound, sides: tuple[ParameterSet, ParameterSet]) -> NameMap:
    """Return the map with these pairings in the place of what names say of their targets and sources.

    Where all is proven, copies of modules that never run are paired as what runs.
    """
    copies, in_copies = copies_of_modules(by_flow.pairings, sides) if by_flow.proven else ([], set[str]())
    by_flow = replace(by_flow, pairings=[*by_flow.pairings, *copies])
    said = [entry for entry in name_map.pairings if entry.evidence in ("user", "dataflow", "trial")]
    new = _new_pairings(name_map, by_flow, said, sides[0])
    taken = {entry.source for entry in new}, {entry.target for entry in new}
    named = {(entry.source, entry.target, entry.transform) for entry in name_map.pairings}
    unlike = {entry.source for entry in new if (entry.source, entry.target, entry.transform) not in named}
    old = [p for p in name_map.pairings if p.target not in taken[1] and (p in said or p.source not in unlike)]
    order = {name: at for at, name in enumerate(sides[0].names)}
    pairings = tuple(sorted((*old, *new), key=lambda pairing: order[pairing.source]))
    paired = {entry.source for entry in pairings}, {entry.target for entry in pairings}
    told = paired[0] | in_copies, paired[1] | in_copies
    dropped = [*name_map.dropped, *(_computed(sides, told, name_map.dropped) if by_flow.proven else ())]
    left = [p for p in name_map.pairings if p not in old and p.source not in paired[0]]
    groups = [group.without(*paired) for group in name_map.ambiguous]
    groups += [Ambiguity((p.source,), (), sentence("trial_reason.stands_elsewhere")) for p in left]
    gone = [{entry.name for entry in dropped if entry.side == side} for side in SIDES]
    groups = [group.without(*gone) for group in groups]
    ambiguous = tuple(group for group in groups if group.sources or group.targets)
    kept = {(entry.source, entry.target) for entry in new}
    flow = tuple(place for key, place in by_flow.places.items() if key in kept)
    return replace(name_map, pairings=pairings, ambiguous=ambiguous, dropped=tuple(dropped), flow=flow)


def _new_pairings(
    name_map: NameMap, flow: DataflowFound, said: Sequence[Pairing], source: ParameterSet
) -> list[Pairing]:
    """The pairings that the map gets: what names say otherwise is noted, and gives way only to what is proven."""
    kept_out = {pairing.target for pairing in said} | {
        pairing.name for pairing in name_map.dropped if pairing.side == "target"
    }
    whole = {pairing.source for pairing in said if not pairing.transform.steps}
    known = {(pairing.source, pairing.target, pairing.transform): pairing for pairing in name_map.pairings}
    forms = {
        (pairing.source, pairing.target): pairing.transform for pairing in name_map.pairings if pairing.transform.steps
    }
    by_name = {pairing.target: pairing.source for pairing in name_map.pairings if pairing.sure}
    against = _layers_against(flow.pairings, said)
    new: list[Pairing] = []
    for pairing in _under_own_names(flow.pairings, source):
        before = known.get((pairing.source, pairing.target, pairing.transform))
        if pairing.target in kept_out or pairing.source in whole:
            continue
        if _owner(pairing.source) in against[0] or _owner(pairing.target) in against[1]:
            continue
        if before is not None and before.sure and not pairing.note:
            new.append(replace(before, confidence=1.0))
        elif before is not None or by_name.get(pairing.target, pairing.source) == pairing.source:
            form = forms.get((pairing.source, pairing.target))
            is_said_otherwise = form is not None and form != pairing.transform and not pairing.note
            note = sentence("pair_note.names_say_otherwise") if is_said_otherwise else pairing.note
            new.append(replace(pairing, note=note))
        elif flow.proven and not against[0]:
            new.append(replace(pairing, note=sentence("pair_note.names_stand_elsewhere", name=by_name[pairing.target])))
    return new


def _layers_against(pairings: Sequence[Pairing], said: Sequence[Pairing]) -> tuple[set[str], set[str]]:
    """The layers of both sides that a rule of the user's pairs otherwise than these pairings."""
    owners: tuple[set[str], set[str]] = set(), set()
    for rule in (pairing for pairing in said if pairing.evidence == "user"):
        for pairing in pairings:
            if (pairing.source == rule.source) != (pairing.target == rule.target):
                owners[0].update((_owner(pairing.source), _owner(rule.source)))
                owners[1].update((_owner(pairing.target), _owner(rule.target)))
    return owners


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


def _computed(
    sides: tuple[ParameterSet, ParameterSet], named: tuple[set[str], set[str]], dropped: Iterable[Dropped]
) -> list[Dropped]:
    """Tensors that are not trained, and without which the outputs are equal: tables that a model computes itself."""
    known = {(one.name, one.side) for one in dropped}
    return [
        Dropped(parameter.name, side, sentence("unmatched_reason.computed"))
        for at, side in enumerate(SIDES)
        for parameter in sides[at].parameters
        if (parameter.buffer or parameter.trainable is False)
        and parameter.name not in named[at]
        and (parameter.name, side) not in known
    ]


def _under_own_names(pairings: Sequence[Pairing], source: ParameterSet) -> list[Pairing]:
    """Of a tensor with several names that is several targets: each target gets a name of its own."""
    others: dict[str, list[str]] = defaultdict(list)
    for parameter in source.parameters:
        if parameter.tied_to:
            others[parameter.tied_to].append(parameter.name)
    renamed, whole = [], set[str]()
    for pairing in pairings:
        if pairing.source in whole and others[pairing.source] and not pairing.transform.steps:
            renamed.append(replace(pairing, source=others[pairing.source].pop(0)))
        else:
            renamed.append(pairing)
            whole |= {pairing.source} if not pairing.transform.steps else set()
    return renamed


class Dataflow:
    """Both sides, the uses of the first, and the runs of the second."""

    def __init__(self, first: TrialSide, second: TrialSide, name_map: NameMap, progress: Progress = silent) -> None:
        self.first, self.second, self.name_map, self._progress = first, second, name_map, progress
        self._runs = 0
        self._latest: FollowedUses | None = None
        self.states: tuple[list[str], list[str]] = [], []  # of both sides, that are kept at zero

    def settle(self) -> DataflowFound:
        """Record the first side, follow the second, and prove what was found."""
        self._record()
        if self._find_states():
            self._record()
        try:
            run, status, unlike = self._search()
        except KeyboardInterrupt as interrupt:
            if type(interrupt) is not KeyboardInterrupt or self._latest is None:  # a signal to end align itself
                raise
            flow_pairings = self._made(self._latest, {}, ())
            return DataflowFound(
                [pairing for pairing in flow_pairings.pairings() if pairing.confidence],
                False,
                True,
                flow_pairings.places,
            )
        flow_pairings = self._made(run, status, unlike)
        if self.states[0] and self._proof(flow_pairings.pairings()):
            self._join_states(flow_pairings)
        pairings = flow_pairings.pairings()
        proven = self._proof(pairings)
        if proven:
            pairings = [replace(pairing, confidence=1.0) for pairing in pairings]
        return DataflowFound(
            [pairing for pairing in pairings if pairing.confidence], proven, False, flow_pairings.places
        )

    def _record(self) -> None:
        """See the uses of both sides, each with values of its own."""
        self._record_first()
        generator = np.random.default_rng(TRIAL_SEED + 1)
        self.own = lively_values(self.second, generator)
        self.own |= self._named_values()
        self.own |= _zeros(self.own, self.states[1])
        self.second.load(self.own)
        seen = SeenUses(_index_of(self.own, self.states[1]))
        self.second.run(seen)
        self.seen = {key_of(use): use for use in seen.uses()}
        self.given = self._guessed_forms()
        self._index = _index_of(self.own, self.states[1])
        self._index.states = seen.index.states
        self.second.load(self.own)

    def _find_states(self) -> bool:
        """Find learnt first states of recurrent layers, which are kept at zero until all else is known.

        What multiplies rows that such a parameter alone makes is not seen to multiply data.
        """
        widths = {self.values[name].shape[-1] for name in self.index.states}
        widths |= {self.own[name].shape[-1] for name in self._index.states}
        if len(widths) != 1:
            return False
        width = widths.pop()
        paired = [one for one in self.follow({}).followed.values() if one.by != "forced"]
        placed = (
            {name for one in paired for match in one.matches for name in match.use.piece.names},
            {name for one in paired if one.matches for name in one.use.piece.names},
        )
        states = (
            _unplaced(self.first, self.uses.uses, width, placed[0]),
            _unplaced(self.second, [*self.seen.values()], width, placed[1]),
        )
        rows = [
            sum(own[name].size for name in names) // width
            for own, names in zip((self.values, self.own), states, strict=True)
        ]
        if rows[0] == rows[1] <= MOST_FIRST_STATES:
            self.states = states
        return bool(self.states[0])

    def _join_states(self, flow_pairings: FlowPairings) -> None:
        """Pair first states that come to the same outputs where each row of them alone is not zero."""
        generator = np.random.default_rng(TRIAL_SEED + 2)
        row = generator.standard_normal(self.own[self.states[1][0]].shape[-1])
        shown = _shown_rows(self.first, self.values, self.states[0], row)
        for target, kept, outputs in _shown_rows(
            self.second, self._loaded(flow_pairings.pairings()), self.states[1], row
        ):
            alike = [(source, given) for source, given, other in shown if returned_alike(other, outputs)]
            for source, given in alike if len(alike) == 1 else ():
                flow_pairings.join((source, None), target, given, kept, "open")  # until all is proven
        drawn = {name: generator.standard_normal(self.values[name].shape) for name in self.states[0]}
        self.values |= {name: value.astype(self.values[name].dtype) for name, value in drawn.items()}
        self.outputs = _returned(self.first, self.values)

    def _record_first(self) -> None:
        """See the uses of the first side; with other values where they let some experts see nothing."""
        best: tuple[int, SeenUses, dict[str, Array], PieceIndex] | None = None
        for seed in range(MOST_SEEDS_TRIED):
            generator = np.random.default_rng(TRIAL_SEED + 100 * seed)
            values = lively_values(self.first, generator)
            values |= _zeros(values, self.states[0])
            self.first.load(values)
            calibration = Calibration(self.first.layers, values, generator)
            self.first.run(calibration)
            values |= calibration.statistics
            self.first.load(values)
            index = _index_of(values, self.states[0])
            seen = SeenUses(index)
            self.first.run(seen)
            missed = self._missed(seen.uses(), values)
            if best is None or missed < best[0]:
                best = missed, seen, values, index
            if not missed:
                break
        if best is not None:
            _, seen, self.values, self.index = best
            self.outputs, self.uses = seen.outputs, FirstSide(seen.uses())

    def _missed(self, uses: Sequence[Use], values: Mapping[str, Array]) -> int:
        """How many elements of tensors that are used in pieces, or of like siblings of those, are not used."""
        used: dict[str, int] = defaultdict(int)
        for use in uses:
            for name in use.piece.names:
                used[name] += use.value.size if not use.piece.derived else values[name].size
        stacked = sum(max(0, values[name].size - used[name]) for name in used if values[name].ndim > 2)
        folded = {unnumbered(name) for name in used}
        siblings = (name for name in values if name not in used and unnumbered(name) in folded)
        return stacked + sum(values[name].size for name in siblings)

    def _named_values(self) -> dict[str, Array]:
        """The first side's values under the second side's names, of surely named pairs of whole tensors."""
        values: dict[str, Array] = {}
        for pairing in self.name_map.pairings:
            own, name = self.values.get(self.first.tensor(pairing.source)), self.second.tensor(pairing.target)
            if pairing.sure and own is not None and name in self.own and not _cuts(pairing.transform):
                values[name] = pairing.transform.apply(own).astype(self.own[name].dtype)
        return values

    def _guessed_forms(self) -> dict[str, tuple[str, Transform]]:
        """Pairs of parameters that are used in ways that the other side has none of: a filter, and a row for each tap.

        They are the same in number and size, and get each other's values in the order of their first uses.
        """
        sides = (self.uses.uses, [*self.seen.values()])
        values = self.values, self.own
        ways: list[dict[str, tuple[str, int]]] = [{}, {}]
        for at, uses in enumerate(sides):
            for use in uses:
                if len(use.piece.names) == 1:
                    name = use.piece.names[0]
                    ways[at].setdefault(name, (use.kind, values[at][name].size))
        alone = [[name for name, way in ways[at].items() if way not in ways[1 - at].values()] for at in (0, 1)]
        forms: dict[str, tuple[str, Transform]] = {}
        for size in sorted({self.own[name].size for name in alone[1]}):
            left, right = ([name for name in alone[at] if values[at][name].size == size] for at in (0, 1))
            for source, target in zip(left, right, strict=True) if len(left) == len(right) else ():
                change = form_between(self.values[source].shape, self.own[target].shape)
                if change is not None:
                    forms[target] = source, change
                    self.own[target] = change.apply(self.values[source]).astype(self.own[target].dtype)
        return forms

    def _hints(self) -> dict[str, list[str]]:
        """For each target, the sources that names pair it with, those of the first part first."""
        starts: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for pairing in self.name_map.pairings:
            start = next((step.start for step in reversed(pairing.transform.steps) if isinstance(step, Part)), 0)
            starts[self.second.tensor(pairing.target)].append((start, self.first.tensor(pairing.source)))
        return {name: [source for _, source in sorted(own)] for name, own in starts.items()}

    @cached_property
    def _classes(self) -> dict[str, str]:
        """The class of each module of the second side, by its path."""
        return {module.path: module.class_name for module in self.second.parameters.modules}

    def _family(self, name: str) -> tuple[str, ...]:
        """The classes of the two modules that hold a parameter: what one class does, it does alike in each layer."""
        path = _owner(name)
        return self._classes.get(path, ""), self._classes.get(_owner(path), "")

    def follow(self, orders: Mapping[TieKey, int]) -> FollowedUses:
        """Run the second side with these orders of ties."""
        self._runs += 1
        self._progress("dataflow", self._runs, self._runs + 1)
        known = self._hints(), self.given
        run = FollowedUses(self._index.anew(), self.uses, self.seen, orders, known, self._family)
        self.second.run(run)
        self._latest = run
        return run

    def _search(self) -> tuple[FollowedUses, dict[TieKey, Status], set[UseKey]]:
        """Try orders of ties until nothing behind them has wrong rows: in all layers at once, each on its own."""
        search = OrderSearch()
        run = self.follow({})
        search.start(run, self.outputs)
        while self._runs + search.doubts < MOST_DATAFLOW_RUNS and (orders := search.next_orders()) is not None:
            run = self.follow(orders)
            search.note(orders, run)
        if search.orders != search.last:
            run = self.follow(search.orders)
        proven = not run.helped and returned_alike(self.outputs, run.outputs)
        left = MOST_DATAFLOW_RUNS - self._runs
        others = [(orders, self.follow(orders)) for orders in search.doubted(left)]
        unlike = set() if proven else {key for _, other in others for key in _unlike(run, other)}
        unlike |= set() if proven else search.unshown(run)
        return run, search.status(run, others, proven=proven), unlike

    def _made(self, run: FollowedUses, status: Mapping[TieKey, Status], unlike: Container[UseKey]) -> FlowPairings:
        """All pairs that a run shows; those that only a guess shows have a confidence of 0."""
        flow_pairings = FlowPairings((self.first, self.second), (self.index, run.index))
        for target, (source, change) in self.given.items():
            flow_pairings.give(source, target, change)
        trusted = self._trusted(run)
        for key, followed in run.followed.items():
            is_open = followed.by == "forced" or key in run.by_zeros or key in unlike or key not in trusted
            how: Status = "open" if is_open else "sure"
            if followed.tie and how == "sure":
                how = status.get(followed.tie, "open")
            for match in followed.matches:
                flow_pairings.add(followed, match, how)
        return flow_pairings

    def _trusted(self, run: FollowedUses) -> set[UseKey]:
        """Uses whose place does not hang on a guess: behind one, only what follows in the first side's own order.

        What a guessed use should have returned is put in its place, so that the next uses fit it, right or wrong.
        """
        place = {use.order: at for at, use in enumerate(use for use in self.uses.uses if use.heavy)}
        trusted: set[UseKey] = set()
        last, in_doubt, in_line = -1, False, True
        for key, followed in run.followed.items():
            at = [place[match.use.order] for match in followed.matches if match.use.order in place]
            if followed.use.heavy and followed.by == "forced":
                in_doubt = True
                in_line = bool(at) and min(at) == last + 1
            elif followed.use.heavy and in_doubt and at:
                in_line = in_line and min(at) == last + 1
            if followed.by != "forced" and (in_line or not in_doubt):
                trusted.add(key)
            last = max([last, *at]) if in_line or not in_doubt else last
        return trusted

    def _proof(self, pairings: Sequence[Pairing]) -> bool:
        """Tell whether the outputs are equal once all pairs are loaded."""
        return returned_alike(self.outputs, _returned(self.second, self._loaded(pairings)))

    def _loaded(self, pairings: Sequence[Pairing]) -> dict[str, Array]:
        """The second side's values with those that pairs give it."""
        wholes: dict[str, Array] = {}
        for pairing in pairings:
            own, name = self.values.get(self.first.tensor(pairing.source)), self.second.tensor(pairing.target)
            if own is not None and name in self.own:
                made = pairing.transform.apply(own)  # zeros where other parts belong
                wholes[name] = wholes[name] + made if name in wholes and joins(pairing.transform) else made
        loaded = {
            name: made.astype(self.own[name].dtype).reshape(self.own[name].shape) for name, made in wholes.items()
        }
        return self.own | loaded


def _returned(side: TrialSide, values: dict[str, Array]) -> Returned:
    """What a side returns with these values."""
    side.load(values)
    seen = ReturnedTensors()
    side.run(seen)
    return seen.outputs


def _shown_rows(
    side: TrialSide, values: dict[str, Array], names: Sequence[str], row: Array
) -> list[tuple[str, NDArray[np.int64], Returned]]:
    """What a side returns where one row of these tensors is not zero: its tensor, its flat places, the outputs."""
    rows = []
    for name in names:
        for start in range(0, values[name].size, row.size):
            places = np.arange(start, start + row.size)
            state = np.zeros_like(values[name])
            state.reshape(-1)[places] = row
            rows.append((name, places, _returned(side, values | {name: state})))
    return rows


def _unplaced(side: TrialSide, uses: Sequence[Use], width: int, placed: set[str]) -> list[str]:
    """Parameters of this width that are no layer's, that no rows are multiplied by or added to, and without a place."""
    known = placed | {name for name, layer in side.layer_of.items() if layer.kind}
    known |= {name for use in uses if use.heavy or use.kind == "table" for name in use.piece.names}
    known |= {name for use in uses if use.bias for name in use.bias.piece.names}
    own = (one for one in side.parameters.parameters if not one.buffer and not one.tied_to and one.name not in known)
    return [one.name for one in own if one.shape[-1:] == (width,)]


def _zeros(values: Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
    return {name: np.zeros_like(values[name]) for name in names}


def _index_of(values: Mapping[str, Array], zeros: Container[str]) -> PieceIndex:
    """The values to be found again: not those that are zero."""
    return PieceIndex({name: value for name, value in values.items() if name not in zeros})


def _unlike(run: FollowedUses, other: FollowedUses) -> set[UseKey]:
    """Uses that find another place in another run, and rows that are right there too."""
    keys = set()
    for key, followed in run.followed.items():
        two = other.followed.get(key)
        if two is None or followed.by != two.by or followed.by not in ("place", "after"):
            continue
        if [match.use.order for match in followed.matches] != [match.use.order for match in two.matches]:
            keys.add(key)
    return keys


def unnumbered(name: str) -> str:
    """A name with the same number in the place of each of its numbers."""
    return re.sub(r"\d+", "0", name)


def _cuts(transform: Transform) -> bool:
    return any(hasattr(step, "start") or hasattr(step, "term") for step in transform.steps)


# Values for a run that shows where each tensor stands: distinct throughout, and such that a signal stays alive.


def lively_values(side: TrialSide, generator: np.random.Generator) -> dict[str, Array]:
    """Distinct values for all floating parameters and statistics, that keep a signal alive."""
    known = [layer for layer in side.layers if layer.kind]
    names = {p.name for layer in known for p in layer.roles.values()}
    drawn = distinct_values(known, names, generator)
    for parameter in side.parameters.parameters:
        name = side.tensor(parameter.name)
        if name in drawn or not is_float(parameter.dtype) or (parameter.buffer and not _is_statistic(side, name)):
            continue
        own = np.asarray(side.own[parameter.name], np.float64)
        drawn[name] = _moved(own, generator).astype(numpy_dtype(parameter.dtype))
    return {name: _distinct(drawn[name]) if name in drawn else value for name, value in side.own.items()}


def _distinct(value: Array) -> Array:
    """No element twice, so that each is found again by its value: the next numbers above it take its place."""
    if value.dtype != np.float32 or value.size > MOST_DISTINCT_ELEMENTS:
        return value
    flat = value.reshape(-1)
    order = np.argsort(flat, kind="stable")
    bits = flat[order].view(np.int32).astype(np.int64)
    ranks = np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)  # in the order of the numbers
    steps = np.arange(len(ranks))
    ranks = np.maximum.accumulate(ranks - steps) + steps
    made = np.where(ranks < 0, -ranks | -0x80000000, ranks).astype(np.int32).view(np.float32)
    found = np.empty_like(flat)
    found[order] = made
    return found.reshape(value.shape)


def _is_statistic(side: TrialSide, name: str) -> bool:
    layer = side.layer_of.get(name)
    return layer is not None and any(p.name == name and role in STATISTICS for role, p in layer.roles.items())


def _moved(values: Array, generator: np.random.Generator) -> Array:
    """Own values a little moved; of a tensor that is constant throughout: spread around it."""
    noise = generator.standard_normal(values.shape)
    spread, size = float(values.std()), float(abs(values).max(initial=0.0))
    if values.ndim and spread > 1e-3 * size:
        moved: Array = values * (1 + 0.05 * noise) + 0.01 * spread * generator.standard_normal(values.shape)
    elif values.ndim > 1 and sum(n > 1 for n in values.shape) > 1 and not size:
        moved = noise * np.sqrt(2.0 / values.shape[-1])
    else:
        moved = values + TRIAL_SPREAD * noise * (size or 1.0)
    return moved
