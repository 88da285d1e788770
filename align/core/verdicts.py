"""Verdicts: what was decided, over how much, and why; findings, the facts worth telling beside them; and results.

The rooms that make results stand below the one that shows them, so the registry finds that one when it is needed.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, NoReturn

from align.core.load_code import result_views
from align.errors import NotAlignedError

if TYPE_CHECKING:
    import pandas as pd

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding; `code` is a stable id (`weights-differ`), `subject` the layer, name or step, `facts` its figures."""

    code: str
    severity: Severity
    subject: str
    message: str
    facts: dict[str, float | int | str] = field(default_factory=dict)


class Outcome(enum.Enum):
    """What a comparison decided; "not compared" is worse than aligned. What is only predicted proves nothing."""

    ALIGNED = "aligned"
    NOT_ALIGNED = "not aligned"
    NOT_COMPARED = "could not compare"
    PREDICTED = "within the prediction"

    @property
    def exit_code(self) -> int:
        """0 aligned, 1 not aligned, 2 could not compare, or within a prediction."""
        return {"aligned": 0, "not aligned": 1}.get(self.value, 2)


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of each side a verdict rests on; `unit` says of what (layers, tensors, steps).

    `excluded` were left out by a rule or by the user, `unmatched` had no counterpart.
    """

    unit: str
    compared: int
    excluded: int = 0
    unmatched_reference: int = 0
    unmatched_candidate: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome with the reason in one sentence and its coverage. It has no truth value: ask for the outcome.

    `caveats` are what it does not rest on, a few words each.
    """

    outcome: Outcome
    reason: str
    coverage: Coverage
    caveats: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.outcome is Outcome.ALIGNED and self.coverage.compared < 1:
            raise ValueError("nothing was compared, so nothing is aligned")

    def __bool__(self) -> NoReturn:
        raise TypeError("a verdict is neither true nor false: compare verdict.outcome with Outcome.ALIGNED")

    @property
    def exit_code(self) -> int:
        """Exit code of a command that ends with this verdict."""
        return self.outcome.exit_code

    def require_aligned(self) -> None:
        """Raise NotAlignedError unless the outcome is ALIGNED; for use in a test suite."""
        if self.outcome is not Outcome.ALIGNED:
            raise NotAlignedError(self.reason)


class ShownResult:
    """A base without fields for frozen dataclasses with slots; `result_kind` says what kind of document they make."""

    __slots__ = ()
    result_kind: ClassVar[str]

    def to_frame(self) -> pd.DataFrame:
        """Return the rows of the result: layers, tensors, parameters, steps or whatever it lists, in its order.

        Names of columns are those of the document that the result is written as.
        """
        return result_views().result_frame(self)

    def _repr_html_(self) -> str:
        """Show a notebook the headline and one table."""
        return result_views().result_html(self)


LayerOutcome = Literal["aligned", "not aligned", "not comparable", "accepted"]


@dataclass(frozen=True, slots=True)
class Failure:
    """What a command prints in the place of its result where it was asked for JSON and could not run.

    `code` is the exit code, `kind` the class of the error in `align.errors`.
    """

    code: int
    kind: str
    message: str
    hint: str
    result_kind = "error"
