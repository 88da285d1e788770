"""The name map: which parameter of the source is which of the target, how that was found, and what is open."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from align.core.align_sequences import grouped
from align.core.piece_transforms import (
    Share,
    Sum,
    apart_from_whole,
    around_sum,
    cut_fault,
    cuts_of,
    parts_of,
    sum_step,
    summed,
)
from align.core.thresholds import SURE
from align.core.transforms import IDENTITY, Add, Scale, Transform, chained

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from align.core.parameters import Array, Shape

Evidence = Literal["user", "rule", "name", "structure", "file", "trial", "dataflow", "values", "family"]
SideName = Literal["source", "target"]
FrameworkName = Literal["torch", "mindspore"]
Frameworks = tuple[FrameworkName | None, FrameworkName | None]  # of both sides; None where it is not known
FRAMEWORKS: dict[str, FrameworkName] = {"torch": "torch", "mindspore": "mindspore"}


@dataclass(frozen=True, slots=True)
class Pairing:
    """One source parameter that is one target parameter.

    `confidence` in [0, 1] is about rivals, not a probability. 1: no other layer could take the place of either, the
    paths are equal, the user or a trial said so, or every exchange with a rival loses full evidence; else it falls
    with the narrowest lead over a rival. A lead below `SETTLED` (in names/layers/exchange_evidence.py) pairs nothing.
    What holds the same values in another form has 0.9 at most; the pieces of a fused layer 0.7 by name and 0.6 by
    number, 0.9 only for torch's packed attention, since no shape tells whether they are interleaved. From
    `SURE` on a pair is called sure; one below it is the best reading of names, to be confirmed by values.
    `terms` are the other pairings of the same sum, if it is of one; the map that it stands in tells them.
    """

    source: str
    target: str
    evidence: Evidence
    confidence: float
    transform: Transform = IDENTITY
    note: str = ""
    terms: tuple[Pairing, ...] = field(default=(), repr=False, compare=False)

    @property
    def sure(self) -> bool:
        """Tell whether the pair may be relied on without a trial."""
        return self.confidence >= SURE or self.evidence == "user"


@dataclass(frozen=True, slots=True)
class FlowPlace:
    """Where the two tensors of a pair were seen in the flow of the data, and that the same rows go into both uses.

    `kind` is what is done there (product, scale, table ...), `uses` the number of the use in either side's run, counted
    from 0; `rows` of `width` numbers go in. `by`: that alone (place), an order that was tried (choice) of so many
    tensors that they go into (`rivals`), what stands before it (after), or the outputs (given, forced).
    """

    source: str
    target: str
    kind: str
    uses: tuple[int, int]
    rows: int
    width: int
    by: str
    rivals: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """A parameter that is left out on purpose."""

    name: str
    side: SideName
    reason: str


@dataclass(frozen=True, slots=True)
class Fill:
    """A tensor that the target has and the source lacks: what it is filled with, and where the value comes from."""

    name: str
    value: Array
    reason: str
    transform: Transform = IDENTITY


@dataclass(frozen=True, slots=True)
class LayerChoice:
    """The user's word on layers: those whose prefix matches the glob are of this kind (a rule's kind or id)."""

    pattern: str
    kind: str

    def __str__(self) -> str:
        return f"{self.pattern}={self.kind}"


@dataclass(frozen=True, slots=True)
class Ambiguity:
    """Several assignments are equally good; `sources` and `targets` belong together as groups."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    reason: str

    def without(self, sources: Container[str], targets: Container[str]) -> Ambiguity:
        """Return the group without these names."""
        left = tuple(name for name in self.sources if name not in sources)
        return Ambiguity(left, tuple(name for name in self.targets if name not in targets), self.reason)


@dataclass(frozen=True, slots=True)
class Unmatched:
    """A parameter without a counterpart, the names that come closest, and the layer of the other side that lacks it."""

    name: str
    side: SideName
    reason: str
    suggestions: tuple[str, ...] = ()
    lacking_layer: str = ""


@dataclass(frozen=True, slots=True)
class NameMap:
    """Pairings in the source's order, and everything that was not paired, each with its reason.

    `frameworks` says whose names the two sides have. `by_source` holds the first pairing of each source: one that is
    cut has several, as a target that is joined has. `flow` holds where pairs were seen in the flow of the data.
    """

    source: str
    target: str
    pairings: tuple[Pairing, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    ambiguous: tuple[Ambiguity, ...] = ()
    unmatched: tuple[Unmatched, ...] = ()
    unused_rules: tuple[str, ...] = ()
    frameworks: Frameworks = (None, None)
    flow: tuple[FlowPlace, ...] = field(default=(), compare=False)
    by_source: dict[str, Pairing] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pairings", with_terms(self.pairings))
        object.__setattr__(self, "by_source", {p.source: p for p in reversed(self.pairings)})

    @property
    def complete(self) -> bool:
        """True if every parameter of both sides is paired or dropped with a reason."""
        return bool(self.pairings) and not self.ambiguous and not self.unmatched


SideOf = Literal["reference", "candidate"]


SIDES: tuple[SideOf, SideOf] = ("reference", "candidate")


def cut_faults(pairings: Iterable[Pairing], shapes: Mapping[str, Shape]) -> dict[str, str]:
    """Each source of these shapes that is cut so that a value of it is used never, or twice -> what is wrong.

    A source of which something is made whole as well is not.
    """
    made = grouped((pairing.source, pairing.transform) for pairing in pairings)
    found = {name: cut_fault(transforms, shapes[name]) for name, transforms in made.items() if name in shapes}
    return {name: fault for name, fault in found.items() if fault}


# What a pairing means to be in the target. The terms of a sum are compared as the sum that they come to, whichever side
# has the terms: what each of them is says nothing.


def with_terms(pairings: Sequence[Pairing]) -> tuple[Pairing, ...]:
    """Return the pairings, each of which knows the others of its sum."""
    steps = {at: step for at, pairing in enumerate(pairings) if (step := sum_step(pairing.transform)) and not step.each}
    if not steps:
        return tuple(pairings)
    groups = grouped((_sum_place(pairings[at], step), at) for at, step in steps.items())
    whole = [*pairings]
    for places in groups.values():
        for at in places:
            others = (pairings[other] for other in places if steps[other].term != steps[at].term)
            whole[at] = replace(pairings[at], terms=tuple(replace(pairing, terms=()) for pairing in others))
    return tuple(whole)


def _sum_place(pairing: Pairing, step: Sum | Share) -> tuple[object, ...]:
    """What all terms of a sum have in common."""
    if isinstance(step, Share):
        return step.op, pairing.source, cuts_of(pairing.transform)
    return step.op, pairing.target, parts_of(pairing.transform)


def for_gradients(name_map: NameMap) -> NameMap:
    """The map for what is known of gradients: each term of a sum has that of the sum.

    What is added to a value changes none, and a factor of the value divides them.
    """
    return replace(name_map, pairings=tuple(map(_of_changed_value, map(as_gradient, name_map.pairings))))


def _of_changed_value(pairing: Pairing) -> Pairing:
    steps = pairing.transform.steps
    if not any(isinstance(step, (Add, Scale)) for step in steps):
        return pairing
    changed = (replace(step, of_gradient=True) if isinstance(step, (Add, Scale)) else step for step in steps)
    return replace(pairing, transform=chained(*changed))


def without_sums(name_map: NameMap) -> NameMap:
    """The map without the terms of sums: what training makes of each says nothing of the other side."""
    left = tuple(one for one in name_map.pairings if sum_step(one.transform) is None)
    return name_map if len(left) == len(name_map.pairings) else replace(name_map, pairings=left)


def as_gradient(pairing: Pairing) -> Pairing:
    """The pairing in such a map."""
    if sum_step(pairing.transform) is None:
        return pairing
    steps = (replace(one, each=True) if isinstance(one, (Sum, Share)) else one for one in pairing.transform.steps)
    return replace(pairing, transform=chained(*steps), terms=())


def meant_value(pairing: Pairing, source: Mapping[str, Array]) -> Array:
    """What is meant to be at the pairing's place in the target, made of the source's values; of a sum all of it."""
    before, after = around_sum(pairing.transform)
    values = [before.apply(source[pairing.source])]
    step = sum_step(pairing.transform)
    if isinstance(step, Sum) and pairing.terms:
        ordered = sorted((pairing, *pairing.terms), key=term_of)
        values = [around_sum(one.transform)[0].apply(source[one.source]) for one in ordered]
    return after.apply(summed(values))


def written_value(pairing: Pairing, source: Mapping[str, Array]) -> Array:
    """What a conversion writes there: as it is meant, but zeros in all targets of a sum but the first."""
    made, step = meant_value(pairing, source), sum_step(pairing.transform)
    return step.apply(made) if isinstance(step, Share) else made


def held_value(pairing: Pairing, target: Mapping[str, Array]) -> Array:
    """What is there in the target; where the source is a sum, what all of its targets hold together."""
    if not isinstance(sum_step(pairing.transform), Share):
        return _at_place(pairing, target)
    after = around_sum(pairing.transform)[1]
    values = []
    for one in sorted((pairing, *pairing.terms), key=term_of):
        held, other = _at_place(one, target), around_sum(one.transform)[1]
        values.append(held if other == after else after.apply(other.inverse(None, None).apply(held)))
    return summed(values)


def term_of(pairing: Pairing) -> int:
    """Which term of a sum the pairing is, the first if it is of none."""
    step = sum_step(pairing.transform)
    return 0 if step is None else step.term


def _at_place(pairing: Pairing, target: Mapping[str, Array]) -> Array:
    held, place = target[pairing.target], apart_from_whole(pairing.transform)[1]
    return held[place.region] if place is not None and place.shape == held.shape else held
