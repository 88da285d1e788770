"""Which parameter of the source is which of the target: by the user's rules, by name, by layer class, by structure.

From the surest stage to the boldest: whole layers, layers that lack a bias or statistics, layers that one side names
and the other numbers, and what these teach of the rest; then other forms. What the evidence does not decide is
AMBIGUOUS and stays unpaired: a wrong pair is worse than ten open ones. The other parameters of a fused layer follow the
one that a user's rule cuts or joins: a bias goes with its weight. A module that holds all of a side, as a wrapper does,
says nothing of any layer in it: paths are read without it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from align.checkpoints.names_in_file import PARALLEL, older_part_name, paths_without_wrappers
from align.core.name_map import NameMap, Pairing, cut_faults
from align.core.piece_transforms import Part, Reorder, Slice, join_fault
from align.core.protocols import collector_paused
from align.core.thresholds import SURE
from align.core.transforms import chained
from align.names.matching.explain_unpaired import explain_unpaired, note_input_orders, note_shifted
from align.names.matching.fused_layers import reserve_fused
from align.names.matching.match_layers import match_layers
from align.names.matching.matrix_orientations import (
    match_numbered_projections,
    match_other_forms,
    plain_layer,
    settle_orientations,
)
from align.names.matching.settle_in_places import settle_in_places
from align.names.read_layers import (
    ASIDE,
    LayeredSides,
    Names,
    cut_alike,
    is_turned,
    read_layers,
    remaining,
    transform_between,
    without_optional_roles,
)
from align.names.thresholds import CONFIDENCE_OF_DOUBTED
from align.names.user_rules import apply_rules_to_sides

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.name_map import Ambiguity, Evidence
    from align.core.parameters import ParameterSet, Shape
    from align.core.transforms import Transform
    from align.names.matching.matrix_orientations import OtherForms
    from align.names.matching.settle_in_places import InPlaces
    from align.names.read_layers import Layer, Pair, Roles
    from align.names.user_rules import NameRules


Sure = tuple["Pair", float]


@collector_paused()
def match_names(source: ParameterSet, target: ParameterSet, rules: NameRules) -> NameMap:
    """Return the name map of two sides, complete or not.

    Raises MapError if the rules contradict each other or the shapes. Order is taken as evidence only where both sides
    stand in execution order.
    """
    sides = _without_outer_wrappers(source, target)
    ruled = apply_rules_to_sides(rules, source, target)
    named = {p.source for p in ruled.pairings}, {p.target for p in ruled.pairings}
    for drop in ruled.dropped:
        named[drop.side == "target"].add(drop.name)
    followed = [*_follow_fused(sides, ruled.pairings, named), *_pair_parts(source, target, named)]
    named[0].update(pairing.source for pairing in followed)
    named[1].update(pairing.target for pairing in followed)
    ordered = source.order == target.order == "execution"
    matched = match_in_stages(sides, named, _given_layers(sides, ruled.pairings), ordered)
    open_names = {name for group in matched.ambiguous for name in group.sources}
    paired = [one for (a, b), sure in matched.pairs for one in _pair_roles(a, b, sure, None)]
    paired += [one for (a, b), sure in matched.other_forms for one in _pair_roles(a, b, sure, "structure")]
    paired = [one for one in paired if _free(one, named) and one.source not in open_names]
    paired = [_unsure(one, matched.notes[one.source]) if one.source in matched.notes else one for one in paired]
    pairings = [*ruled.pairings, *followed, *paired, *matched.fused]
    layers = [pair for pair, _ in (*matched.pairs, *matched.other_forms)]
    dropped, unmatched = explain_unpaired(sides, ruled.dropped, pairings, matched.ambiguous, layers)
    place = {name: index for index, name in enumerate(source.names)}
    return NameMap(
        source=source.label,
        target=target.label,
        pairings=tuple(sorted(pairings, key=lambda pairing: place[pairing.source])),
        dropped=tuple(dropped),
        ambiguous=tuple(matched.ambiguous),
        unmatched=tuple(unmatched),
        unused_rules=ruled.unused_rules,
    )


def _without_outer_wrappers(source: ParameterSet, target: ParameterSet) -> LayeredSides:
    """Return both sides with the paths of their modules below what holds them all; the names of parameters stay.

    What `torch.compile`, FSDP and the like put in between is left out as well, and `module` if the other side has none.
    A module that the other side has beside others stays, and so does a list, since its numbers mean little without it.
    """
    both = source, target
    sides = [_without_inner(side, other) for side, other in zip(both, both[::-1], strict=True)]
    paths = [[module.path for module in side.modules if module.parameters] for side in sides]
    wrappers = [_outer_wrapper(own) for own in paths]
    kept = [wrapper if _wraps(wrapper, others) else "" for wrapper, others in zip(wrappers, paths[::-1], strict=True)]
    if wrappers[0] == wrappers[1]:
        kept = wrappers
    left, right = (_below(side, wrapper) for side, wrapper in zip(sides, kept, strict=True))
    return LayeredSides((left, right))


def _without_inner(side: ParameterSet, other: ParameterSet) -> ParameterSet:
    """The side with its modules where they are without wrappers; of a wrapper and what it holds the latter."""
    holders = [module.path for module in side.modules if module.parameters]
    inner = not any(PARALLEL in module.path.split(".") for module in other.modules)
    paths = paths_without_wrappers([module.path for module in side.modules], holders, inner=inner)
    if all(was == new for was, new in paths.items()):
        return side
    held = {new: was for was, new in sorted(paths.items(), key=lambda item: len(item[0]))}
    modules = (replace(one, path=paths[one.path]) for one in side.modules if held[paths[one.path]] == one.path)
    parameters = (replace(one, module=paths.get(one.module, one.module)) for one in side.parameters)
    return replace(side, modules=tuple(modules), parameters=tuple(parameters))


def _wraps(wrapper: str, others: Sequence[str]) -> bool:
    """Tell whether nothing on the other side stands in a module of this name."""
    return not any(path.startswith(f"{wrapper.partition('.')[0]}.") for path in others)


def _below(side: ParameterSet, wrapper: str) -> ParameterSet:
    if not wrapper:
        return side
    modules = tuple(replace(module, path=module.path.removeprefix(wrapper)) for module in side.modules)
    parameters = tuple(
        replace(parameter, module=parameter.module.removeprefix(wrapper)) for parameter in side.parameters
    )
    return replace(side, modules=modules, parameters=parameters)


def _outer_wrapper(paths: Sequence[str]) -> str:
    """What stands before all paths, with the dot; "" if nothing does."""
    wrapper = ""
    while held := _holder(paths, wrapper):
        wrapper = held
    return wrapper


def _holder(paths: Sequence[str], wrapper: str) -> str:
    """The wrapper with the one module more that holds all paths, "" if none does."""
    first = paths[0].removeprefix(wrapper).partition(".")[0] if paths else ""
    if not first or first.lower() in ASIDE:  # this word says that a side is a copy
        return ""
    longer = f"{wrapper}{first}."
    below = [path.removeprefix(longer) for path in paths if path.startswith(longer)]
    return longer if len(below) == len(paths) and not any(path[:1].isdigit() for path in below) else ""


def _follow_fused(sides: LayeredSides, ruled: Sequence[Pairing], named: Names) -> list[Pairing]:
    """Pair what no rule names in layers that the user's rules cut or join; nothing of a role that does not fit."""
    fused = [pairing for pairing in ruled if _places(pairing.transform)]
    if not fused:
        return []
    known = sides.roles
    groups: dict[tuple[bool, str, str], list[Pairing | None]] = {}
    for pairing in fused:
        cut = not isinstance(_places(pairing.transform)[-1], Part)
        whole = known[0][pairing.source][0].path if cut else known[1][pairing.target][0].path
        for role, follower in _followers(pairing, known):
            groups.setdefault((cut, whole, role), []).append(follower)
    shapes = {parameter.name: parameter.shape for parameter in sides.parameters[0].parameters}
    found = ([one for one in group if one is not None] for group in groups.values() if None not in group)
    filled = (group for group in found if _is_whole(group, shapes))
    return [one for group in filled if all(_free(one, named) for one in group) for one in group]


def _pair_parts(source: ParameterSet, target: ParameterSet, named: Names) -> Iterator[Pairing]:
    """Pair the parts of weights that torch's older weight_norm and spectral_norm call otherwise: the values are one."""
    lone = {
        older_part_name(parameter.name): parameter
        for parameter in target.parameters
        if parameter.name not in source.by_name
    }
    for parameter in source.parameters:
        other = lone.get(older_part_name(parameter.name)) if parameter.name not in target.by_name else None
        if other is not None and other.shape == parameter.shape:
            pairing = Pairing(parameter.name, other.name, "name", 1.0)
            yield from [pairing] if _free(pairing, named) else []


def _is_whole(group: Sequence[Pairing], shapes: Mapping[str, Shape]) -> bool:
    """Tell whether the pieces are all of what is cut, or make all of what is joined."""
    if isinstance(_places(group[0].transform)[-1], Part):
        return not join_fault([one.transform for one in group])
    return not cut_faults(group, shapes)


def _places(transform: Transform) -> list[Slice | Part | Reorder]:
    """The steps that take pieces out of a tensor or put them into one."""
    places = [step for step in transform.steps if isinstance(step, (Slice, Part, Reorder))]
    return places if any(isinstance(step, (Slice, Part)) for step in places) else []


def _followers(pairing: Pairing, known: tuple[Roles, Roles]) -> Iterator[tuple[str, Pairing | None]]:
    """Yield each other role that either layer has with the pair of it, None where that does not fit."""
    (a, role), (b, other) = known[0][pairing.source], known[1][pairing.target]
    if role != other:
        return
    for follower in dict.fromkeys((*a.roles, *b.roles)):
        if follower != role:
            yield follower, _pair(pairing.transform, a, b, (role, follower))


def _pair(transform: Transform, a: Layer, b: Layer, roles: tuple[str, str]) -> Pairing | None:
    role, follower = roles
    if follower not in a.roles or follower not in b.roles or is_turned(a, follower) != is_turned(b, follower):
        return None
    source, target = a.roles[follower], b.roles[follower]
    steps: list[Transform] = []
    for place in _places(transform):
        layer = b if isinstance(place, Part) else a
        if place.axis != int(is_turned(layer, role)):
            return None
        moved = replace(place, axis=int(is_turned(layer, follower)))
        if isinstance(moved, Slice):
            moved = replace(moved, origin=source.shape)
        steps.append(replace(moved, shape=target.shape) if isinstance(moved, Part) else moved)
    change = chained(*steps)
    try:
        fits = change.output_shape(source.shape) == target.shape
    except ValueError:
        fits = False
    return Pairing(source.name, target.name, "structure", 1.0, change) if fits else None


def _given_layers(sides: LayeredSides, ruled: Sequence[Pairing]) -> list[Pair]:
    """Layers that the user's pairs join one to one: the rest of their parameters follows."""
    if not ruled:
        return []
    left, right = sides.roles
    layers = [(left[p.source][0], right[p.target][0]) for p in ruled]
    joined = {(a.path, b.path): (a, b) for a, b in layers}
    sources, targets = Counter(path for path, _ in joined), Counter(path for _, path in joined)
    return [pair for (x, y), pair in joined.items() if sources[x] == targets[y] == 1]


def _pair_roles(a: Layer, b: Layer, confidence: float, evidence: Evidence | None) -> Iterator[Pairing]:
    for role, mine in a.roles.items():
        if role in b.roles and a.shapes[role] == b.shapes[role]:
            theirs = b.roles[role]
            transform = transform_between(a, b, role)
            found = evidence or ("name" if mine.name == theirs.name else "rule" if a.path == b.path else "structure")
            yield Pairing(mine.name, theirs.name, found, confidence, transform)


def _unsure(pairing: Pairing, note: str) -> Pairing:
    return replace(pairing, confidence=min(pairing.confidence, CONFIDENCE_OF_DOUBTED), note=note)


def _free(pairing: Pairing, named: tuple[set[str], set[str]]) -> bool:
    return pairing.source not in named[0] and pairing.target not in named[1]


@dataclass
class Matching:
    """Pairs of layers with their confidence, those of `other forms` apart, pairings of fused layers, what is open.

    `notes` say, by the name of the source, why a pair of weights is not sure.
    """

    pairs: list[Sure] = field(default_factory=list)
    other_forms: list[Sure] = field(default_factory=list)
    fused: list[Pairing] = field(default_factory=list)
    ambiguous: list[Ambiguity] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)
    paired: Names = field(default_factory=lambda: (set(), set()))

    def take(self, pairs: Sequence[Sure], ambiguous: Sequence[Ambiguity] = ()) -> None:
        """Add pairs, whose names are then `paired`, and what is open beside them."""
        self.pairs += pairs
        self.ambiguous += ambiguous
        self.paired = _joined(self.paired, _names_of(pairs))

    @property
    def known(self) -> list[Pair]:
        """The pairs that are sure enough to teach, without those of other forms."""
        return [pair for pair, sure in self.pairs if sure >= SURE]

    def names(self, *, even: bool = False) -> Names:
        """Names on each side whose layers are paired, or that are ambiguous.

        `even` leaves out groups that are short of partners: some may be layers of another form.
        """
        groups = [one for one in self.ambiguous if not even or len(one.sources) == len(one.targets)]
        return _joined(self.paired, _names_in(groups))


def _names_of(pairs: Sequence[Sure]) -> Names:
    """The names on each side of paired layers."""
    return {p.name for (a, _), _ in pairs for p in a.roles.values()}, {
        p.name for (_, b), _ in pairs for p in b.roles.values()
    }


def _names_in(groups: Sequence[Ambiguity]) -> Names:
    return {name for one in groups for name in one.sources}, {name for one in groups for name in one.targets}


def match_in_stages(sides: LayeredSides, named: Names, given: Sequence[Pair], ordered: bool) -> Matching:
    """Match what the rules have not `named`; pairs of layers that they have `given` are sure.

    `ordered` says that both sides stand in the order of execution, which then is evidence.
    """
    free = _FreeLayers(sides, named)
    matching = Matching()
    matching.take([(pair, 1.0) for pair in given])
    reserved = reserve_fused(*([plain_layer(layer) for layer in side] for side in free.whole(matching.names())))
    _match_plain(matching, free, reserved, ordered)
    open_layers = free.whole(_joined(matching.paired, reserved))
    if triples := match_numbered_projections(*open_layers, matching.known):
        matching.ambiguous = []
        matching.take(triples)
        _match_plain(matching, free, reserved, ordered)
    other = match_other_forms(*free.whole(matching.names(even=True)), matching.known, ordered)
    matching.ambiguous = _left_open(matching.ambiguous, other)
    inside = _settle_inside(matching, other, free, sides, ordered=ordered)
    turned = settle_orientations([*matching.pairs, *other.pairs, *inside.pairs], sides.parameters, named[0])
    count = len(matching.pairs)
    fused = [*other.pairings, *inside.pairings]
    paired = [pair for pair, _ in turned.pairs]
    notes = note_shifted(paired, free.whole(_names_of(turned.pairs))) | turned.notes
    notes |= note_input_orders(paired[len(given) :], free.whole((set(), set())))
    return Matching(turned.pairs[:count], turned.pairs[count:], fused, [*inside.ambiguous, *turned.ambiguous], notes)


def _settle_inside(
    matching: Matching, other: OtherForms, free: _FreeLayers, sides: LayeredSides, *, ordered: bool
) -> InPlaces:
    """Settle what is open in the places of both sides that are one; what stays open is all that does."""
    pieces = {one.source for one in other.pairings}, {one.target for one in other.pairings}
    gone = _joined(_joined(matching.paired, _names_of(other.pairs)), pieces)
    settled = [pair for pair, sure in (*matching.pairs, *other.pairs) if sure >= SURE]
    groups = [*matching.ambiguous, *other.ambiguous]
    return settle_in_places(free.whole(gone), sides.parameters, settled, groups, ordered=ordered)


def _left_open(groups: Sequence[Ambiguity], other: OtherForms) -> list[Ambiguity]:
    """The groups without what layers of other forms take; what is one against one then is a pair, and no others are."""
    of_source = {name: group for group in groups for name in group.sources}
    within = [
        (pair, sure)
        for pair, sure in other.pairs
        if all(_is_within(of_source.get(mine.name), pair[1], role) for role, mine in pair[0].roles.items())
    ]
    other.pairs[:] = [one for one in other.pairs if one not in within]
    taken = _joined(_names_of(other.pairs), _names_in(other.ambiguous))
    rest = [left for group in groups if (left := group.without(*taken)).sources and left.targets]
    single = {(group.sources, group.targets) for group in rest if len(group.sources) == len(group.targets) == 1}
    for (a, b), sure in within:
        if all(((mine.name,), (b.roles[role].name,)) in single for role, mine in a.roles.items()):
            other.pairs.append(((a, b), sure))
    settled = _names_of(other.pairs)
    return [left for group in rest if (left := group.without(*settled)).sources and left.targets]


def _is_within(group: Ambiguity | None, target: Layer, role: str) -> bool:
    return group is not None and role in target.roles and target.roles[role].name in group.targets


def _match_plain(found: Matching, free: _FreeLayers, reserved: Names, ordered: bool) -> None:
    for layers in (free.whole, free.loose):
        layered = match_layers(*layers(_joined(found.names(), reserved)), found.known, ordered)
        found.take(layered.pairs, layered.ambiguous)


def _joined(one: Names, other: Names) -> Names:
    return one[0] | other[0], one[1] | other[1]


class _FreeLayers:
    """The layers of both sides without the parameters that rules have `named`."""

    def __init__(self, sides: LayeredSides, named: Names) -> None:
        tied = [{p.name for p in side.parameters if p.tied_to} for side in sides.parameters]
        own = (read_layers(side, names) for side, names in zip(sides.parameters, named, strict=True))
        self._loose = cut_alike(*own)
        self._whole = [remaining(layers, ties) for layers, ties in zip(self._loose, tied, strict=True)]
        self._last: list[tuple[set[str], list[Layer]]] = [(set(), layers) for layers in self._whole]

    def whole(self, gone: Names) -> tuple[list[Layer], list[Layer]]:
        """The layers without the names that are gone; a tied tensor stands under its first name.

        More and more are gone from stage to stage: what is left is looked for among what was left before.
        """
        for side, names in enumerate(gone):
            before, left = self._last[side]
            self._last[side] = names, remaining(left if before <= names else self._whole[side], names)
        return self._last[0][1], self._last[1][1]

    def loose(self, gone: Names) -> tuple[list[Layer], list[Layer]]:
        """The layers as what they hold beside biases and statistics."""
        left, right = (remaining(layers, names) for layers, names in zip(self._loose, gone, strict=True))
        return without_optional_roles(left), without_optional_roles(right)
