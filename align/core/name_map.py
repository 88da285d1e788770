"""The name map: which parameter of the source is which of the target, how that was found, and what is open."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from align.core.thresholds import SURE
from align.core.transforms import IDENTITY, Transform

if TYPE_CHECKING:
    from collections.abc import Container

    from align.core.dtypes import Array

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
    """

    source: str
    target: str
    evidence: Evidence
    confidence: float
    transform: Transform = IDENTITY
    note: str = ""

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
    """A parameter without a counterpart, and the names that come closest."""

    name: str
    side: SideName
    reason: str
    suggestions: tuple[str, ...] = ()


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
        object.__setattr__(self, "by_source", {p.source: p for p in reversed(self.pairings)})

    @property
    def complete(self) -> bool:
        """True if every parameter of both sides is paired or dropped with a reason."""
        return bool(self.pairings) and not self.ambiguous and not self.unmatched


SideOf = Literal["reference", "candidate"]


SIDES: tuple[SideOf, SideOf] = ("reference", "candidate")
