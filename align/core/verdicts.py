"""Verdicts: what was decided, over how much, and why; and findings, the facts worth telling beside them."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Literal, NoReturn

from align.errors import NotAlignedError

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
    """What a comparison decided; "not compared" is worse than aligned."""

    ALIGNED = "aligned"
    NOT_ALIGNED = "not aligned"
    NOT_COMPARED = "could not compare"

    @property
    def exit_code(self) -> int:
        """0 aligned, 1 not aligned, 2 could not compare."""
        return {"aligned": 0, "not aligned": 1, "could not compare": 2}[self.value]


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
            msg = "nothing was compared, so nothing is aligned"
            raise ValueError(msg)

    def __bool__(self) -> NoReturn:
        msg = "a verdict is neither true nor false: compare verdict.outcome with Outcome.ALIGNED"
        raise TypeError(msg)

    @property
    def exit_code(self) -> int:
        """Exit code of a command that ends with this verdict."""
        return self.outcome.exit_code

    def require_aligned(self) -> None:
        """Raise NotAlignedError unless the outcome is ALIGNED; for use in a test suite."""
        if self.outcome is not Outcome.ALIGNED:
            raise NotAlignedError(self.reason)


LayerOutcome = Literal["aligned", "not aligned", "not comparable", "accepted"]
