"""The initial values of two sides, compared as distributions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from align.core.verdicts import ShownResult

if TYPE_CHECKING:
    from align.core.parameters import Shape
    from align.core.verdicts import Finding, Verdict

InitialOutcome = Literal[
    "same", "distributions differ", "values differ", "random on one side", "structures differ", "shapes differ"
]
Family = Literal["constant", "fixed", "uniform", "normal", "truncated normal", "orthogonal", "other", "not finite"]


@dataclass(frozen=True, slots=True)
class Distribution:
    """What the initial values of a parameter look like on one side.

    `fixed` are values that are the same for every seed and not all equal. `scale` is the constant, the bound of a
    uniform distribution, the standard deviation of a normal one (before the cut of a truncated one, at two of them),
    the gain of orthogonal rows, None for other families. `mean` and `std` are of what was drawn. `scheme` says what the
    scale follows from, "" if it is a number of its own, and `formula` how. `held` is the share of the elements that
    hold one value whatever the seed, as the row of a padding index; the family is that of the others.
    """

    family: Family
    mean: float
    std: float
    scale: float | None
    scheme: str = ""
    formula: str = ""
    held: float = 0.0


@dataclass(frozen=True, slots=True)
class InitialParameter:
    """A pair of parameters.

    `statistic` is the largest distance of the two distribution functions (Kolmogorov-Smirnov), over `samples` elements
    of each side, and `p_value` how likely such a distance is by chance; None where nothing was tested. `write` is what
    draws as the reference does on the candidate's side, "" where the values agree or nothing does in one call.
    """

    reference: str
    candidate: str
    shape: Shape
    outcome: InitialOutcome
    samples: int
    statistic: float | None
    p_value: float | None
    reference_values: Distribution
    candidate_values: Distribution
    write: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class InitialValues(ShownResult):
    """All pairs, those that differ first; `seeds` is how often each side was built.

    `alpha` is the chance of a false alarm in the whole comparison, `level` that for each of the `tests`.
    """

    result_kind = "initial"
    reference: str
    candidate: str
    seeds: int
    samples: int
    alpha: float
    level: float
    tests: int
    parameters: tuple[InitialParameter, ...]
    findings: tuple[Finding, ...]
    verdict: Verdict
