"""What two language models say of one text: logits of each token, with and without cache, and what follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from align.core.verdicts import ShownResult

if TYPE_CHECKING:
    from align.core.measurements import Limit, Measurement
    from align.core.verdicts import Finding, LayerOutcome, Verdict

LogitsOf = Literal["candidate", "candidate with cache", "reference with cache"]


@dataclass(frozen=True, slots=True)
class PositionComparison:
    """The logits at one position, of all sequences; `position` counts the tokens of the text from 0.

    `factor` is the multiple of the limit at which they would pass; figures are None where none can be had.
    """

    position: int
    outcome: LayerOutcome
    measurement: Measurement | None
    limit: Limit | None
    factor: float | None


@dataclass(frozen=True, slots=True)
class LogitsComparison:
    """Logits over one text: the candidate's against the reference's, or with cache against those of one model without.

    `first_divergent` is an index into `positions`, None if none is outside its limit.
    """

    logits: LogitsOf
    positions: tuple[PositionComparison, ...]
    first_divergent: int | None


@dataclass(frozen=True, slots=True)
class TokenDifference:
    """The first token of one sequence that greedy decoding chooses otherwise than the reference without cache.

    `step` counts the new tokens from 0. `margin` is by how much the reference prefers its token; it is a `tie`, in
    which neither is wrong, if that is less than rounding may move two logits by, each by `limit`.
    """

    logits: LogitsOf
    sequence: int
    step: int
    reference: int
    candidate: int
    margin: float
    limit: float
    tie: bool


@dataclass(frozen=True, slots=True)
class GenerationComparison(ShownResult):
    """Two language models on the same prompts, and `tokens` new tokens that the reference chooses.

    `prompts` is the shape of the prompts, (sequences, tokens); `continuations` are the reference's new tokens.
    """

    result_kind = "generate"
    reference: str
    candidate: str
    prompts: tuple[int, int]
    tokens: int
    continuations: tuple[tuple[int, ...], ...]
    comparisons: tuple[LogitsComparison, ...]
    differences: tuple[TokenDifference, ...]
    findings: tuple[Finding, ...]
    inputs: dict[str, dict[str, object]]
    environment: dict[str, dict[str, str]]
    verdict: Verdict
