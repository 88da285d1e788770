"""Logits held against each other position by position, and the first tokens that two decodings choose otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import rounded_as
from align.core.measurements import smallest_factor
from align.core.verdicts import Coverage, Outcome, Verdict
from align.evaluation.generation_result import LogitsComparison, PositionComparison, TokenDifference
from align.measure.limits import limit_for
from align.measure.measure_arrays import measure
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.core.dtypes import Array
    from align.core.measurements import Limit, Measurement
    from align.evaluation.generation_result import LogitsOf


class LogitsNoise:
    """The reference's logits in its own precision and in float64, from which all limits come.

    Both are (sequences, positions, vocabulary); `wide` is None where the reference cannot run in float64.
    """

    def __init__(self, ordinary: Array, wide: Array | None) -> None:
        known = wide is not None and rounded_as(wide.dtype.name) == "float64" and wide.shape == ordinary.shape
        self._ordinary, self._wide = ordinary, wide if known else None

    def limit(self, a: Array, b: Array, place: tuple[slice, slice]) -> tuple[Measurement, Limit]:
        """Measure two arrays of logits at some sequences and positions, with the limit of what is measured."""
        measurement = measure(a[place], b[place])
        noise = None if self._wide is None else measure(self._wide[place], self._ordinary[place])
        return measurement, limit_for(measurement, (a.dtype.name, b.dtype.name), noise)


def compare_logits(logits: LogitsOf, expected: Array, found: Array, noise: LogitsNoise) -> LogitsComparison:
    """Compare logits (sequences, positions, vocabulary) at every position."""
    positions = tuple(_compare_position(index, expected, found, noise) for index in range(expected.shape[1]))
    first = next((index for index, one in enumerate(positions) if one.outcome == "not aligned"), None)
    return LogitsComparison(logits, positions, first)


def first_token_differences(
    logits: LogitsOf, continuation: Array, reference: Array, found: Array, noise: LogitsNoise
) -> Iterator[TokenDifference]:
    """Yield the first new token of each sequence that greedy decoding by `found` chooses otherwise.

    `continuation` are the reference's new tokens (sequences, tokens), `reference` and `found` logits over its text, the
    last of which choose them. Up to the first difference both decodings have read the same, so no other text is needed.
    """
    before = reference.shape[1] - continuation.shape[1]
    tokens = greedy_tokens(found[:, before:])
    for sequence, unlike in enumerate(continuation != tokens):
        if not unlike.any():
            continue
        step = int(unlike.argmax())
        a, b = int(continuation[sequence, step]), int(tokens[sequence, step])
        place = slice(sequence, sequence + 1), slice(before + step, before + step + 1)
        _, limit = noise.limit(reference, found, place)
        scores = reference[sequence, before + step]
        margin = float(scores[a]) - float(scores[b])
        tie = margin <= 2 * limit.max_abs
        yield TokenDifference(logits, sequence, step, a, b, margin, limit.max_abs, tie)


def judge_generation(
    comparisons: Sequence[LogitsComparison], differences: Sequence[TokenDifference], prompt: int
) -> Verdict:
    """Aligned if the candidate's logits are within their limits, with its cache too, and no token differs but by a tie.

    What the reference's own cache changes decides nothing about the candidate.
    """
    own = [one for one in comparisons if one.logits != "reference with cache"]
    positions = [position for one in own for position in one.positions]
    compared = sum(position.outcome != "not comparable" for position in positions)
    coverage = Coverage(sentence("generate_unit.logits_of_a_position"), compared, len(positions) - compared)
    wrong = next((one for one in own if one.first_divergent is not None), None)
    if wrong is not None:
        return Verdict(Outcome.NOT_ALIGNED, _blame(wrong, prompt), coverage)
    lost = [one for one in differences if not one.tie and one.logits != "reference with cache"]
    if lost:
        reason = sentence("generate_verdict.token_differs", step=lost[0].step, sequence=lost[0].sequence)
        return Verdict(Outcome.NOT_ALIGNED, reason, coverage)
    if compared < len(positions) or not positions:
        return Verdict(Outcome.NOT_COMPARED, sentence("generate_verdict.not_finite"), coverage)
    ties = sum(one.tie and one.logits == "candidate" for one in differences)
    return Verdict(Outcome.ALIGNED, sentence("generate_verdict.agree", cached=len(own) > 1, ties=ties), coverage)


def _blame(wrong: LogitsComparison, prompt: int) -> str:
    position = wrong.positions[wrong.first_divergent or 0].position
    step = position + 1 - prompt  # of the token that these logits choose
    token = sentence("generate_place.prompt_token", number=position + 1)
    if step >= 0:
        token = sentence("generate_place.new_token", number=step)
    own = wrong.logits == "candidate"
    return sentence("generate_verdict.logits_differ" if own else "generate_verdict.cache_changes_logits", token=token)


def _compare_position(index: int, expected: Array, found: Array, noise: LogitsNoise) -> PositionComparison:
    measurement, limit = noise.limit(expected, found, (slice(None), slice(index, index + 1)))
    alike = 0 if measurement.non_finite_mismatch else measurement.nan_reference + measurement.inf_reference
    if alike == measurement.count:
        return PositionComparison(index, "not comparable", None, None, None)
    factor = smallest_factor(measurement, limit)
    return PositionComparison(index, "aligned" if factor <= 1.0 else "not aligned", measurement, limit, factor)


def greedy_tokens(logits: Array) -> Array:
    """The first of the tokens with the largest logit, for logits (..., vocabulary)."""
    return np.asarray(logits.argmax(-1), np.int64)
