"""What is left when all pairs are made: dropped for a stated reason, or unmatched with the names that come closest.

A wrong model asks thousands of times why a parameter has no counterpart: names that differ in their numbers alone are
looked up once, and the answer is given with the parameter's own numbers.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING

from align.core.name_map import Dropped, Unmatched
from align.names.read_layers import crosses, may_pair, numbered, whole_of
from align.names.thresholds import LIKENESS_OF_SUGGESTIONS, SUGGESTED_NAMES
from align.names.user_rules import NUMBER
from align.rules.layer_rules import constant_reason, defaults
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence, Set

    from align.core.name_map import Ambiguity, NameMap, Pairing, SideName
    from align.core.parameters import Parameter, ParameterSet, Shape
    from align.names.read_layers import Layer, LayeredSides, Pair

    Roles = dict[str, tuple[Layer, str]]
    Group = dict[tuple[str, ...], Parameter]  # by the numbers in their names, in which alone they differ


EXPORTED = "onnx"  # what the framework of exported graphs is called
_SIDES: tuple[SideName, SideName] = ("source", "target")


def explain_unpaired(
    sides: LayeredSides,
    ruled: Sequence[Dropped],
    pairings: Sequence[Pairing],
    ambiguous: Sequence[Ambiguity],
    layers: Sequence[Pair],
) -> tuple[list[Dropped], list[Unmatched]]:
    """Return what is dropped and what is unmatched on both sides, in the order of their names.

    `ruled` was dropped by the user; `layers` are the pairs of layers that `pairings` come from.
    """
    pairs = [(p.source, p.target) for p in pairings]
    paired = {a for a, _ in pairs}, {b for _, b in pairs}
    in_groups = {n for group in ambiguous for n in group.sources}, {n for group in ambiguous for n in group.targets}
    rest = []
    for index, side in enumerate(sides.parameters):
        explained = paired[index] | in_groups[index] | {d.name for d in ruled if d.side == _SIDES[index]}
        rest.append([p for p in side.parameters if p.name not in explained])
    dropped = list(ruled)
    unmatched: list[Unmatched] = []
    known = sides.roles if any(rest) else ({}, {})
    for index, name in enumerate(_SIDES):
        if not rest[index]:
            continue
        counterparts = {p.name: pair[1 - index] for pair in layers for p in pair[index].roles.values()}
        roles = known[index], known[1 - index]
        reasons = _constants(rest[index], sides.of_known_class[index]) | _drop_reasons(roles, counterparts)
        if sides.parameters[1 - index].framework == EXPORTED:
            reasons |= _not_exported(rest[index])
        reasons |= _tie_reasons(sides.parameters[index], paired[index], rest[index])
        partners = dict(names if index else names[::-1] for names in pairs)
        seen = WhyUnmatched(name, counterparts, partners, rest[index], rest[1 - index], roles)
        for parameter in rest[index]:
            if reason := reasons.get(parameter.name):
                dropped.append(Dropped(parameter.name, name, reason))
            else:
                unmatched.append(seen.explain(parameter))
    return dropped, unmatched


def explain_unpaired_anew(sides: LayeredSides, name_map: NameMap) -> NameMap:
    """Return the map with what is not paired explained by the pairings that it has now.

    Of a group that has lost all names of one side, the others are unmatched.
    """
    left, right = sides.roles
    layers = [
        (left[p.source][0], right[p.target][0]) for p in name_map.pairings if p.source in left and p.target in right
    ]
    ambiguous = [group for group in name_map.ambiguous if group.sources and group.targets]
    dropped, unmatched = explain_unpaired(sides, name_map.dropped, name_map.pairings, ambiguous, layers)
    return replace(name_map, ambiguous=tuple(ambiguous), dropped=tuple(dropped), unmatched=tuple(unmatched))


def _tie_reasons(side: ParameterSet, paired: set[str], rest: Iterable[Parameter]) -> dict[str, str]:
    """Reasons, by name, for those of the rest that name a tensor that is paired under another of its names."""
    tensors = {p.tied_to or p.name: p.name for p in side.parameters if p.name in paired}
    return {
        p.name: sentence("unmatched_reason.same_tensor", name=tensors[p.tied_to or p.name])
        for p in rest
        if (p.tied_to or p.name) in tensors
    }


def _constants(rest: Iterable[Parameter], known: Set[str]) -> dict[str, str]:
    """Reasons, by name, for tensors that a model computes from its settings; `known` are modules of known class."""
    reasons = {p.name: constant_reason(p, known_layer=p.module in known) for p in rest}
    return {name: reason for name, reason in reasons.items() if reason}


def _not_exported(rest: Iterable[Parameter]) -> dict[str, str]:
    """Reasons, by name, for counts of training batches, which no graph keeps."""
    return {p.name: sentence("unmatched_reason.not_exported") for p in rest if p.attribute in defaults()}


def _drop_reasons(roles: tuple[Roles, Roles], counterparts: dict[str, Layer]) -> dict[str, str]:
    """Reasons, by name, for roles that the counterpart, or the other side's layers of the same kind, do not have."""
    own, others = roles
    reasons = {(layer.kind, role): reason for layer, _ in others.values() for role, reason in layer.dropped.items()}
    drop_reasons = {}
    for name, (layer, role) in own.items():
        counterpart = counterparts.get(name)
        reason = reasons.get((layer.kind, role)) if counterpart is None else counterpart.dropped.get(role)
        if reason:
            drop_reasons[name] = reason
    return drop_reasons


@dataclass(frozen=True, slots=True)
class WhyUnmatched:
    """What parameters of a side are held against: `own` is what is left of it, `left` what is left on the other side.

    `counterparts` are the layers there that theirs are paired with, by name; `partners` the parameters there that are
    paired, each with its own of this side; `roles` the layers of both sides, their own first.
    """

    side: SideName
    counterparts: dict[str, Layer]
    partners: dict[str, str]
    own: list[Parameter]
    left: list[Parameter]
    roles: tuple[Roles, Roles]
    _by_role: dict[tuple[str, str], Parameter] = field(init=False, default_factory=dict)
    _lost: set[str] = field(init=False, default_factory=set)
    _by_shape: dict[Shape, list[Parameter]] = field(init=False, default_factory=dict)
    _parts: dict[str, list[str]] = field(init=False, default_factory=dict)
    _known: dict[tuple[str, Shape, bool], list[Group]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for parameter in self.left:
            self._by_shape.setdefault(parameter.shape, []).append(parameter)
            if whole := whole_of(parameter):
                self._parts.setdefault(whole, []).append(parameter.name)
        for layer, role in self.roles[1].values():
            self._by_role[layer.path, role] = layer.roles[role]
        self._lost.update(_lost_children(self.roles[0], [parameter.name for parameter in self.own]))

    def explain(self, parameter: Parameter) -> Unmatched:
        """Say why a parameter has no counterpart, with the names that come closest."""
        if whole := whole_of(parameter):
            return Unmatched(parameter.name, self.side, sentence("unmatched_reason.part", whole=whole))
        if parts := self._parts.get(parameter.name):
            return Unmatched(parameter.name, self.side, sentence("unmatched_reason.in_parts"), tuple(parts))
        shape = str(list(parameter.shape))
        same_shape = self._by_shape.get(parameter.shape, [])
        close, lacking = self._closest(parameter, whole_shape=True), ""
        if layer := self.counterparts.get(parameter.name):
            reason, lacking = self._beside(parameter, layer)
        elif namesake := self._namesake(parameter):
            turned = len(parameter.shape) == 2 and namesake.shape == parameter.shape[::-1]
            other = {"other": str(list(namesake.shape)), "transposed": turned}
            reason = sentence("unmatched_reason.namesake_of_shape", shape=shape, **other)
            close = [namesake]
        elif same_shape:
            differences = self._differences(parameter, close or same_shape)
            reason = sentence("unmatched_reason.left_differs", shape=shape, differences=differences)
        elif lost := self._lost_child(parameter):
            reason = sentence("unmatched_reason.nothing_of", name=lost)
        elif close := self._closest(parameter, whole_shape=False):
            closest = str(list(close[0].shape))
            reason = sentence("unmatched_reason.closest_of_shape", shape=shape, closest=closest)
        else:
            reason = sentence("unmatched_reason.no_shape", shape=shape)
        return Unmatched(parameter.name, self.side, reason, tuple(p.name for p in close), lacking)

    def _beside(self, parameter: Parameter, layer: Layer) -> tuple[str, str]:
        """Why the layer that is paired with a parameter's own has no counterpart for it; its path if it lacks one."""
        other = self._in_role(parameter, layer)
        path = layer.path or "the root"
        if other is None:
            return sentence("unmatched_reason.layer_lacks", layer=path), path
        own = {"layer": path, "attribute": other.attribute}
        if other.name in self.partners:
            return sentence("unmatched_reason.layer_paired", partner=self.partners[other.name], **own), ""
        return sentence("unmatched_reason.layer_shape", shape=str(list(other.shape)), **own), ""

    def _namesake(self, parameter: Parameter) -> Parameter | None:
        """The parameter of the same path and role, if it is left over too and has another shape."""
        other = self._in_role(parameter)
        if other is None or other.shape == parameter.shape or other.name in self.partners:
            return None
        return other

    def _in_role(self, parameter: Parameter, layer: Layer | None = None) -> Parameter | None:
        """What plays the parameter's role in a layer of the other side, or in the one that is called as its own."""
        own, role = self.roles[0].get(parameter.name, (None, ""))
        layer = layer or own
        return self._by_role.get((layer.path, role)) if layer else None

    def _lost_child(self, parameter: Parameter) -> str:
        above = parameter.module
        return next((child for _, _, child in numbered(above) if child in self._lost and child != above), "")

    def _closest(self, parameter: Parameter, *, whole_shape: bool) -> list[Parameter]:
        """The parameters left, of this shape or of as many axes, whose names are most like its own."""
        key = NUMBER.sub("#", parameter.name), parameter.shape, whole_shape
        if key not in self._known:
            self._known[key] = self._alike(parameter, whole_shape=whole_shape)
        numbers = _numbers(parameter)
        return [group.get(numbers) or next(iter(group.values())) for group in self._known[key]]

    def _alike(self, parameter: Parameter, *, whole_shape: bool) -> list[Group]:
        """Groups of parameters whose names differ in their numbers alone, the closest first."""
        shapes = [parameter.shape] if whole_shape else [s for s in self._by_shape if len(s) == len(parameter.shape)]
        groups: dict[str, Group] = {}
        for shape in shapes:
            for one in self._by_shape.get(shape, ()):
                groups.setdefault(NUMBER.sub("#", one.name), {})[_numbers(one)] = one
        names = get_close_matches(NUMBER.sub("#", parameter.name), groups, SUGGESTED_NAMES, LIKENESS_OF_SUGGESTIONS)
        return [groups[name] for name in names]

    def _differences(self, parameter: Parameter, others: Iterable[Parameter]) -> list[str]:
        mine = self.roles[0].get(parameter.name)
        theirs = [self.roles[1].get(other.name) for other in others]
        differences = (_difference(mine, one) for one in theirs if mine and one)
        return list(dict.fromkeys(differences)) or [sentence("unmatched_difference.no_layer")]


def _difference(mine: tuple[Layer, str], theirs: tuple[Layer, str]) -> str:
    """What keeps two parameters of one shape apart."""
    (a, role), (b, other) = mine, theirs
    if a.aside != b.aside:
        return sentence("unmatched_difference.not_aside" if a.aside else "unmatched_difference.aside")
    if a.kind and b.kind and a.kind != b.kind:
        return sentence("unmatched_difference.kind", other=b.kind, own=a.kind)
    if role != other:
        return sentence("unmatched_difference.role", other=other, own=role)
    if a.signature != b.signature:
        return sentence("unmatched_difference.layer")
    return sentence("unmatched_difference.nothing_in_common")


def _numbers(parameter: Parameter) -> tuple[str, ...]:
    return tuple(NUMBER.findall(parameter.name))


def _lost_children(names: Iterable[str], left: Iterable[str]) -> set[str]:
    """Children of numbered lists of which all is left over, where that does not hold of the whole list."""
    every, over = (Counter(child[::2] for name in group for child in numbered(name)) for group in (names, left))
    lost = {child for child in over if over[child] == every[child]}
    lists = {container for container, _ in every.keys() - lost}
    return {child for container, child in lost if container in lists}


# Pairs that something puts in doubt: names that may be shifted by one, inputs that may stand in another order.
#
# No shape shows that a matrix takes what a flattening or a joining of features gives in another order. One as wide as
# several of what comes before it, and as nothing that comes before it, is no sure pair unless its path is equal on
# both sides.

_COUNTED = re.compile(r"(?<![^._])(?:[A-Za-z]|zero|one|two|three|four|five|six|seven|eight|nine|ten)(?![^.])")
SHIFTED = sentence("pair_note.shifted")
_FLATTENED = sentence("pair_note.flattened_inputs")
_JOINED = sentence("pair_note.joined_inputs")


def note_shifted(pairs: Iterable[Pair], free: tuple[Sequence[Layer], Sequence[Layer]]) -> dict[str, str]:
    """Return a note, by the source's name, on each pair of equal names that the layers left `free` put in doubt."""
    left, right = (_by_siblings(side) for side in free)
    ends = {
        one: [(x, y) for x in left[one] for y in right[one] if may_pair(x, y)] for one in left.keys() & right.keys()
    }
    same: dict[str, list[Pair]] = defaultdict(list)
    for a, b in pairs:
        for siblings in _siblings(a.path):
            if a.path == b.path:
                same[siblings].append((a, b))
            elif siblings in _siblings(b.path):
                ends.setdefault(siblings, []).append((a, b))
    shifted: list[Pair] = []
    for siblings, at_ends in ends.items():
        for end in at_ends:
            rivals = [pair for pair in same[siblings] if may_pair(end[0], pair[1])]
            if rivals and all(crosses(end, pair) for pair in rivals):
                shifted += [end, *rivals]
    return {parameter.name: SHIFTED for a, _ in shifted for parameter in a.roles.values()}


def _by_siblings(layers: Iterable[Layer]) -> dict[str, list[Layer]]:
    by_siblings: dict[str, list[Layer]] = defaultdict(list)
    for layer in layers:
        for siblings in _siblings(layer.path):
            by_siblings[siblings].append(layer)
    return by_siblings


def _siblings(path: str) -> list[str]:
    """The path with one letter, or one word for a number, left open where it ends a part: `net.a.fc` -> `net.#.fc`."""
    return [f"{path[: one.start()]}#{path[one.end() :]}" for one in _COUNTED.finditer(path)]


def note_input_orders(pairs: Iterable[Pair], sides: tuple[Sequence[Layer], Sequence[Layer]]) -> dict[str, str]:
    """Return a note, by the source's name, on each weight whose inputs may stand in another order; `sides` are all."""
    widths = [{width for layer in side for width in _made_by(layer)} for side in sides]
    known = widths[0] & widths[1]
    channels = {layer.shapes["weight"][0] for side in sides for layer in side if _is_conv(layer)}
    joined = {sum(both) for both in combinations_with_replacement(sorted(known), 2)}
    notes: dict[str, str] = {}
    for a, b in pairs:
        weights = [len(one.roles["weight"].shape) for one in (a, b) if "weight" in one.roles]
        inputs = a.shapes["weight"][1] if len(weights) == 2 and len(a.shapes["weight"]) > 1 else 1
        if a.path == b.path or inputs in known or 2 not in weights or "embedding" in (a.kind, b.kind):
            continue
        if "linear" in (a.kind, b.kind) and any(inputs % width == 0 and inputs > width > 1 for width in channels):
            notes[a.roles["weight"].name] = _FLATTENED
        elif weights[0] != weights[1] and inputs in joined:
            notes[a.roles["weight"].name] = _JOINED
    return notes


def _made_by(layer: Layer) -> tuple[int, ...]:
    """How wide what a layer gives may be."""
    weight = layer.shapes.get("weight", ())
    if layer.kind == "embedding":
        return weight[1:]
    return weight[:2] if layer.kind == "conv_transpose" else weight[:1]


def _is_conv(layer: Layer) -> bool:
    return layer.kind == "conv" and len(layer.shapes.get("weight", ())) > 2
