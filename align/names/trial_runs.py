"""Runs of the one model seen beside a run of the other: which calls agree, which layers stand at the same place.

Outputs of the source's run are put into the place of the target's, so that a layer that is not settled yet, or that the
port computes differently, spoils nothing but what hangs on it directly.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise, permutations, product
from math import factorial
from typing import TYPE_CHECKING

import numpy as np
from scipy.cluster.hierarchy import DisjointSet

from align.core.name_map import Ambiguity, Pairing, term_of
from align.core.piece_transforms import Part, Slice, Sum, apart_from_whole, sum_step
from align.core.transforms import IDENTITY, Permute, Reshape, chained
from align.names.equal_values import Calibration, CallSampler, agree, alike, distinct_values, module_of, varies
from align.names.matching.fused_layers import in_pieces
from align.names.matching.matrix_orientations import plain_layer
from align.names.thresholds import MOST_ALTERNATIVES, REORDERED_SUM_DISTANCE, TRIAL_SEED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from align.core.name_map import NameMap
    from align.core.parameters import Array, Parameter
    from align.core.piece_transforms import Span
    from align.core.protocols import Progress
    from align.core.transforms import Transform
    from align.names.equal_values import CallKey, TrialSide
    from align.names.read_layers import Layer


ComparedValue = tuple[str, int, str]  # path of the source's module, number of the call, what of it


class TrialRuns:
    """Runs of the second side with assignments, seen beside one run of the first."""

    def __init__(self, sides: tuple[TrialSide, TrialSide], progress: Progress, draw: int = 0) -> None:
        self.sides = sides
        self.layer_of = sides[0].layer_of, sides[1].layer_of
        self._progress = progress
        self._generator = np.random.default_rng(TRIAL_SEED + draw)
        self._runs = 0
        self._deviating: dict[str, str] = {}

    def prepare(self, name_map: NameMap) -> None:
        """Give the first side its values, calibrate its statistics and run it once."""
        first, second = self.sides
        used = {p.source for p in name_map.pairings} | {n for group in name_map.ambiguous for n in group.sources}
        self._given = first.drawn(used, self._generator)
        first.load(self._given)
        calibration = Calibration(first.layers, self._given, self._generator)
        first.run(calibration)
        self._given |= calibration.statistics
        first.load(self._given)
        self._seen = CallSampler(keep=True)
        first.run(self._seen)
        paired = {p.target for p in name_map.pairings} | {n for group in name_map.ambiguous for n in group.targets}
        self._noise = second.drawn(paired, self._generator)
        second.load(self._noise)
        other = CallSampler()
        second.run(other)
        self._past = self._used_past(first, self._given, self._seen), self._used_past(second, self._noise, other)

    def _used_past(self, side: TrialSide, values: Mapping[str, Array], seen: CallSampler) -> bool:
        """Tell whether an output depends on layers that are never called: their weights are used past them."""
        layers = [layer for layer in side.layers if not seen.calls(module_of(layer))]
        names = {p.name for layer in layers for p in layer.roles.values()}
        if not names:
            return False
        side.load({**values, **distinct_values(layers, names, self._generator)})
        again = CallSampler()
        side.run(again)
        return not alike(seen.outputs.get(("", 0), ()), again.outputs.get(("", 0), ()))

    def observe(self, forced: Sequence[Pairing], loaded: Sequence[Pairing] = ()) -> PairedRuns:
        """Run the second side with both kinds loaded; layers of the first return what the first side's did."""
        first, second = self.sides
        values = dict(self._noise)
        for pairing in sorted((*forced, *loaded), key=term_of):
            own = self._given.get(first.tensor(pairing.source), first.own.get(pairing.source))
            if own is not None:
                _put(values, second.tensor(pairing.target), pairing.transform, own)
        second.load(values)
        modules = self._modules(forced) | self._deviating
        stand_ins = {
            (modules[path], call): output
            for (path, call), output in self._seen.kept.items()
            if path in modules and first.is_leaf(path) and second.is_leaf(modules[path])
        }
        seen = CallSampler(stand_ins)
        self._runs += 1
        self._progress("trial", self._runs, self._runs + 1)
        second.run(seen)
        calls = PairedRuns(self._seen, seen, self._modules((*forced, *loaded)), (first.free, second.free), self._past)
        if not loaded and (new := calls.deviating().items() - self._deviating.items()):
            self._deviating |= dict(new)
            return self.observe(forced)
        return calls

    def _modules(self, pairings: Sequence[Pairing]) -> dict[str, str]:
        """Modules of the first side by path, with the only one of the second that shares parameters with it."""
        mine, theirs = self.layer_of
        joined = {
            (module_of(mine[p.source]), module_of(theirs[p.target]))
            for p in pairings
            if p.source in mine and p.target in theirs
        }
        sources, targets = Counter(a for a, _ in joined), Counter(b for _, b in joined)
        return {a: b for a, b in joined if a and b and sources[a] == targets[b] == 1}


def _put(values: dict[str, Array], name: str, transform: Transform, value: Array) -> None:
    before, part = apart_from_whole(transform)
    changed = before.apply(value)
    step = sum_step(transform)
    is_added = isinstance(step, Sum) and step.term > 0  # the first term, which is put first, takes what was there
    if part is None:
        values[name] = values[name] + changed if is_added else changed
        return
    whole = values.get(name)
    values[name] = whole = np.zeros(part.shape, value.dtype) if whole is None else np.array(whole)
    whole[part.region] = whole[part.region] + changed if is_added else changed


@dataclass(frozen=True)
class PairedRuns:
    """A run of the target beside that of the source.

    `modules` are the paths of paired ones; `free` gives the kinds of those without parameters, by path, on each side;
    `past` says of each side whether layers that are never called have an effect.
    """

    source: CallSampler
    target: CallSampler
    modules: dict[str, str]
    free: tuple[dict[str, str], dict[str, str]]
    past: tuple[bool, bool] = (False, False)

    def agreeing(self) -> frozenset[ComparedValue]:
        """Inputs and outputs of paired modules, and the model's outputs, that are the source's."""
        agreeing = []
        for path, other in (*self.modules.items(), ("", "")):
            for call in range(self.source.calls(path)):
                agreeing += [(path, call, "in")] * self._equal("inputs", (path, call), (other, call))
                agreeing += [(path, call, "out")] * self._equal("outputs", (path, call), (other, call))
        return frozenset(agreeing)

    def all_agree(self) -> bool:
        """Tell whether the model's output is the source's, and all that paired modules are given and return.

        Tensors that vary nowhere tell nothing, but must be alike as well.
        """
        return ("", 0, "out") in self.agreeing() and all(
            alike(getattr(self.source, what).get((a, call), ()), getattr(self.target, what).get((b, call), ()))
            for a, b in (*self.modules.items(), ("", ""))
            for call in range(self.source.calls(a))
            for what in ("inputs", "outputs")
        )

    def changed(self, other: PairedRuns) -> frozenset[ComparedValue]:
        """Sights, as those of `agreeing`, in which the target gives other values than in another run."""
        changed = []
        for path, theirs in (*self.modules.items(), ("", "")):
            for call in range(self.source.calls(path)):
                for what, tensors in (("in", "inputs"), ("out", "outputs")):
                    mine, others = (getattr(run.target, tensors).get((theirs, call), ()) for run in (self, other))
                    if len(mine) != len(others) or any(a.distance(b) > 0 for a, b in zip(mine, others, strict=True)):
                        changed.append((path, call, what))
        return frozenset(changed)

    def same_place(self, a: str, b: str) -> bool | None:
        """Tell whether two modules are called as often, and given the same tensors at first; None if that is not known.

        What they are given later may hang on layers that are still open.
        """
        calls = self.source.calls(a), self.target.calls(b)
        if calls[0] != calls[1] and (all(calls) or not any(self.past)):
            return False
        if not all(calls):
            return None
        given = self.source.inputs.get((a, 0), ()), self.target.inputs.get((b, 0), ())
        if not all(any(varies(sample) for sample in samples) for samples in given):
            return None
        return agree(*given)

    def all_called(self, group: TrialGroup) -> bool:
        """Tell whether all layers of a group that have an effect are called, so that none is used past its module."""
        sides = (group.sources, self.source, self.past[0]), (group.targets, self.target, self.past[1])
        return all(
            not past or all(seen.calls(module_of(one)) for one in layers.values()) for layers, seen, past in sides
        )

    def deviating(self) -> dict[str, str]:
        """Modules without parameters that alone are given the same tensors and return others: another setting."""
        mine, theirs = self.free
        edges = {
            a: {b for b, other in theirs.items() if other == kind and self.same_place(a, b)} for a, kind in mine.items()
        }
        single = [(a[0], b[0]) for a, b in components(edges) if len(a) == len(b) == 1]
        return {a: b for a, b in single if not self.same_outputs(a, b)}

    def same_outputs(self, a: str, b: str) -> bool:
        """Tell whether two modules return the same tensors at every call."""
        return all(self._equal("outputs", (a, call), (b, call)) for call in range(self.source.calls(a)))

    def _equal(self, what: str, one: CallKey, two: CallKey) -> bool:
        return agree(getattr(self.source, what).get(one, ()), getattr(self.target, what).get(two, ()))


def choice_matters(runs: Sequence[PairedRuns], own: set[str]) -> bool:
    """Tell whether anything but the layers themselves gives other values for another choice."""
    return any(_unlike(runs[0].target, run.target, own) for run in runs[1:])


def _unlike(first: CallSampler, two: CallSampler, paths: set[str]) -> bool:
    """Tell whether two runs of the target differ elsewhere than in the modules that were filled differently."""
    return any(
        a.distance(b) > REORDERED_SUM_DISTANCE
        for key, samples in first.outputs.items()
        if key[0] not in paths
        for a, b in zip(samples, two.outputs.get(key, ()), strict=False)
    )


# The open groups of a name map as layers, and the pairings that each choice of partners would mean.
#
# Of layers that hold one checkpoint equal values settle the choice, and no run is needed. Of a fused layer whose
# pieces no name puts in order, every order is a choice.

Alternative = tuple[Pairing, ...]
Edges = dict[str, set[str]]  # paths of the targets that a source, by its path, may be
Values = tuple["Mapping[str, Array]", "Mapping[str, Array]"]


@dataclass
class TrialGroup:
    """Layers that are one another's rivals, by path; `slots` holds, for each ambiguity, who has which name in it."""

    sources: dict[str, Layer] = field(default_factory=dict)
    targets: dict[str, Layer] = field(default_factory=dict)
    slots: list[tuple[dict[str, Parameter], dict[str, Parameter]]] = field(default_factory=list)

    def forms(self, source: str, target: str) -> list[Alternative]:
        """Every set of pairings that joins two layers; none if they do not hold the same."""
        slots = [(mine.get(source), theirs.get(target)) for mine, theirs in self.slots]
        if any((a is None) != (b is None) for a, b in slots):
            return []
        turned = _turned(self.sources[source], self.targets[target])
        choices = [_pairings(a, b, turned) for a, b in slots if a and b]
        return list(product(*choices)) if choices and all(choices) else []

    def names(self, source: str) -> set[str]:
        """Names of a source layer's open parameters."""
        return {mine[source].name for mine, _ in self.slots if source in mine}

    def close(self, pairings: Iterable[Pairing]) -> None:
        """Take out the layers that these pairings settle."""
        self._take_out({p.source for p in pairings}, {p.target for p in pairings})

    def leave(self, groups: Sequence[Ambiguity]) -> None:
        """Take out the layers that stand in these other groups."""
        self._take_out({n for group in groups for n in group.sources}, {n for group in groups for n in group.targets})

    def _take_out(self, sources: set[str], targets: set[str]) -> None:
        for mine, theirs in self.slots:
            for path in [path for path, parameter in mine.items() if parameter.name in sources]:
                self.sources.pop(path, None)
            for path in [path for path, parameter in theirs.items() if parameter.name in targets]:
                self.targets.pop(path, None)

    def edges(self, may_be: Callable[[Layer, Layer], bool]) -> Edges:
        """Which of the layers that are still open may be which."""
        return {
            path: {t for t, b in self.targets.items() if may_be(a, b) and self.forms(path, t)}
            for path, a in self.sources.items()
        }

    def alternatives(self, sources: Sequence[str], targets: Sequence[str], edges: Edges) -> list[Alternative] | None:
        """Every way to pair these layers one to one, in every form; None if there are too many to try."""
        if len(sources) != len(targets):
            return []
        if factorial(len(sources)) > MOST_ALTERNATIVES:
            return None
        alternatives: list[Alternative] = []
        for order in permutations(targets):
            if all(t in edges[s] for s, t in zip(sources, order, strict=True)):
                forms = product(*(self.forms(s, t) for s, t in zip(sources, order, strict=True)))
                alternatives += [tuple(p for pairings in choice for p in pairings) for choice in forms]
                if len(alternatives) > MOST_ALTERNATIVES:
                    return None
        return alternatives


def open_groups(
    ambiguous: Iterable[Ambiguity], left: Mapping[str, Layer], right: Mapping[str, Layer]
) -> list[TrialGroup]:
    """Join the ambiguities of the same layers; `left` and `right` say whose each name is.

    Groups in which a layer has two rivals of its own are left out: which name is which role is not known.
    """
    joined: DisjointSet[object] = DisjointSet()
    regular = [one for one in ambiguous if _one_a_layer(one.sources, left) and _one_a_layer(one.targets, right)]
    for ambiguity in regular:
        keys = [*(("s", left[n].path) for n in ambiguity.sources), *(("t", right[n].path) for n in ambiguity.targets)]
        for key in keys:
            joined.add(key)
            joined.merge(keys[0], key)
    groups: dict[object, TrialGroup] = defaultdict(TrialGroup)
    for ambiguity in regular:
        group = groups[joined[("s", left[ambiguity.sources[0]].path)]]
        group.sources |= {left[name].path: left[name] for name in ambiguity.sources}
        group.targets |= {right[name].path: right[name] for name in ambiguity.targets}
        group.slots.append((_by_layer(ambiguity.sources, left), _by_layer(ambiguity.targets, right)))
    return sorted(groups.values(), key=lambda group: min(layer.position for layer in group.sources.values()))


def rivals(pairings: Iterable[Pairing], layer_of: Mapping[str, Layer]) -> list[Ambiguity]:
    """The groups in which pairs of one kind, shape and role might exchange partners."""
    by_role: dict[object, list[Pairing]] = defaultdict(list)
    for pairing in pairings:
        layer = layer_of[pairing.source]
        role = next(role for role, parameter in layer.roles.items() if parameter.name == pairing.source)
        if not _is_piece(pairing):
            by_role[layer.kind, layer.signature, role].append(pairing)
    groups = [(tuple(p.source for p in group), tuple(p.target for p in group)) for group in by_role.values()]
    return [Ambiguity(*names, "not sure") for names in groups if len(names[0]) > 1]


def uncertain_piece_orders(pairings: Iterable[Pairing]) -> list[list[Alternative]]:
    """For each fused tensor whose pieces are not surely in order, with what shares its partners: every order of them.

    The present one comes first.
    """
    joined: DisjointSet[object] = DisjointSet()
    pieces = [p for p in pairings if p.confidence < 1 and p.evidence != "user" and _is_piece(p)]
    for pairing in pieces:
        keys = [(0, _owner(pairing.source)), (1, _owner(pairing.target))]
        for key in keys:
            joined.add(key)
        joined.merge(*keys)
    clusters: dict[object, list[Pairing]] = defaultdict(list)
    for pairing in pieces:
        clusters[joined[(0, _owner(pairing.source))]].append(pairing)
    return [found for cluster in clusters.values() if len(found := _orders(cluster)) > 1]


def _orders(cluster: Sequence[Pairing]) -> list[Alternative]:
    """The pairings of a cluster with their transforms in every order, the same for all fused tensors in it."""
    tensors: dict[str, list[Pairing]] = defaultdict(list)
    fused = Counter(p.source for p in cluster).most_common(1)[0][1] > 1
    for pairing in cluster:
        tensors[pairing.source if fused else pairing.target].append(pairing)
    ordered = [_in_order(pieces) for pieces in tensors.values()]
    sizes = {len(pieces) for pieces in ordered}
    if len(sizes) != 1 or factorial(number := sizes.pop()) > MOST_ALTERNATIVES:
        return []
    if not all(map(_in_a_row, ordered)):
        return []
    return [
        tuple(pairing for pieces in ordered for pairing in _laid([pieces[i] for i in order], _place(pieces[0])[0]))
        for order in permutations(range(number))
    ]


def _in_order(pieces: Sequence[Pairing]) -> list[Pairing | Span]:
    """Pieces of one tensor by their places, with the spans of zeros that stand in the place of others."""
    cuts = (step for one in pieces for step in one.transform.steps if isinstance(step, (Slice, Part)))
    return sorted([*pieces, *(span for step in cuts for span in step.zeros)], key=_place)


def _laid(pieces: Sequence[Pairing | Span], start: int) -> Iterator[Pairing]:
    """Pieces of one tensor one behind the other, each with its own length: those of fewer heads are shorter."""
    sizes = (stop - first for first, stop in map(_place, pieces))
    spans = list(pairwise(accumulate(sizes, initial=start)))
    zeros = tuple(span for piece, span in zip(pieces, spans, strict=True) if not isinstance(piece, Pairing))
    for piece, (first, stop) in zip(pieces, spans, strict=True):
        if isinstance(piece, Pairing):
            laid = (
                replace(step, start=first, stop=stop, zeros=zeros) if isinstance(step, (Slice, Part)) else step
                for step in piece.transform.steps
            )
            yield replace(piece, transform=chained(*laid))
            zeros = ()


def _in_a_row(pieces: Sequence[Pairing | Span]) -> bool:
    return all(_place(one)[1] == _place(other)[0] for one, other in pairwise(pieces))


def _place(piece: Pairing | Span) -> Span:
    """Where in the whole a piece begins and ends."""
    if not isinstance(piece, Pairing):
        return piece
    return next((step.start, step.stop) for step in piece.transform.steps if isinstance(step, (Slice, Part)))


def _is_piece(pairing: Pairing) -> bool:
    return any(isinstance(step, (Slice, Part)) for step in pairing.transform.steps)


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


def components(edges: Edges) -> Iterator[tuple[list[str], list[str]]]:
    """Sources and targets that hang together; those without any edge are left out."""
    joined: DisjointSet[tuple[str, str]] = DisjointSet()
    for source, targets in edges.items():
        for target in targets:
            joined.add(("s", source))
            joined.add(("t", target))
            joined.merge(("s", source), ("t", target))
    for subset in joined.subsets():
        yield [p for side, p in sorted(subset) if side == "s"], [p for side, p in sorted(subset) if side == "t"]


def _one_a_layer(names: Sequence[str], layers: Mapping[str, Layer]) -> bool:
    return bool(names) and len({layers[name].path for name in names if name in layers}) == len(names)


def _by_layer(names: Sequence[str], layers: Mapping[str, Layer]) -> dict[str, Parameter]:
    return {
        layers[name].path: parameter
        for name in names
        for parameter in layers[name].roles.values()
        if parameter.name == name
    }


def _turned(a: Layer, b: Layer) -> bool | None:
    """Whether the matrices of two layers stand transposed to each other; None if the classes do not tell."""
    if a.kind != b.kind or not a.kind or a.inputs_first is None or b.inputs_first is None:
        return None
    return a.inputs_first != b.inputs_first


def _pairings(a: Parameter, b: Parameter, turned: bool | None) -> list[Pairing]:
    return [Pairing(a.name, b.name, "trial", 1.0, transform) for transform in _transforms(a, b, turned)]


def _transforms(a: Parameter, b: Parameter, turned: bool | None) -> list[Transform]:
    """Forms in which one tensor may be the other; a matrix may stand transposed unless the classes say otherwise."""
    matrix = len(a.shape) == 2
    forms: list[Transform] = []
    if matrix and turned is not False and a.shape[::-1] == b.shape:
        forms.append(Permute((1, 0)))
    if matrix and turned:
        return forms
    if a.shape == b.shape:
        forms.insert(0, IDENTITY)
    elif a.count == b.count and _bare(a) == _bare(b):
        forms.insert(0, Reshape(b.shape, a.shape))
    return forms


def _bare(parameter: Parameter) -> tuple[int, ...]:
    return tuple(size for size in parameter.shape if size != 1)


def fused_piece_orders(
    ambiguous: Iterable[Ambiguity], left: Mapping[str, Layer], right: Mapping[str, Layer]
) -> list[list[Alternative]]:
    """For each open fused layer of either side, the pairings of its pieces in every order.

    The pieces follow each other; of pieces that are interleaved by heads none is right, and the layer stays open.
    """
    groups: dict[tuple[str, bool], dict[str, Layer]] = defaultdict(dict)
    wholes: dict[tuple[str, bool], Layer] = {}
    for group in ambiguous:
        cut = len(group.sources) == 1
        whole, pieces = (group.sources, group.targets) if cut else (group.targets, group.sources)
        names = (left, right) if cut else (right, left)
        if len(whole) == 1 < len(pieces) and whole[0] in names[0] and all(name in names[1] for name in pieces):
            key = names[0][whole[0]].path, cut
            wholes[key] = plain_layer(names[0][whole[0]])
            groups[key] |= {names[1][name].path: plain_layer(names[1][name]) for name in pieces}
    return [
        found for key, pieces in groups.items() if (found := _piece_orders(wholes[key], [*pieces.values()], cut=key[1]))
    ]


def _piece_orders(whole: Layer, pieces: Sequence[Layer], *, cut: bool) -> list[Alternative]:
    """The pairings in every order; none if the pieces do not fill the fused layer, or are too many."""
    roles = [role for role in whole.roles if any(role in piece.roles for piece in pieces)]
    full = [role for role in roles if all(role in piece.roles for piece in pieces)]
    filled = all(sum(piece.shapes[role][0] for piece in pieces) == whole.shapes[role][0] for role in full)
    if "weight" not in full or not filled or factorial(len(pieces)) > MOST_ALTERNATIVES:
        return []
    return [
        tuple(Pairing(a, b, "trial", 1.0, change) for a, b, change in in_pieces(whole, order, roles, cut=cut))
        for order in permutations(pieces)
    ]


def settle_by_equality(groups: Sequence[TrialGroup], values: Values) -> list[Pairing]:
    """Pairings of layers that alone hold the same values, taken out of their groups.

    A tensor of one value throughout, as fresh norms and biases have it, shows nothing.
    """
    settled: list[Pairing] = []
    for group in groups:
        equal = {
            (s, t): [form for form in group.forms(s, t) if _equal(form, values)]
            for s in group.sources
            for t in group.targets
        }
        edges = {s: {t for t in group.targets if equal[s, t]} for s in group.sources}
        for sources, targets in components(edges):
            forms = equal[sources[0], targets[0]]
            if len(sources) == len(targets) == len(forms) == 1:
                settled += forms[0]
                group.close(forms[0])
    return settled


def _equal(form: Alternative, values: Values) -> bool:
    pairs = [(pairing.transform.apply(values[0][pairing.source]), values[1][pairing.target]) for pairing in form]
    return any((mine != mine.reshape(-1)[0]).any() for mine, _ in pairs if mine.size) and all(
        mine.shape == theirs.shape and np.array_equal(mine, theirs) for mine, theirs in pairs
    )
