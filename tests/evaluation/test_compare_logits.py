from __future__ import annotations

import numpy as np
import pytest

from align.core.verdicts import Outcome
from align.evaluation.compare_generation import (
    LogitsComparison,
    TokenDifference,
    compare_logits,
    first_token_differences,
    greedy_tokens,
    judge_generation,
)
from align.measure.limits import OutputNoise

GENERATOR = np.random.default_rng(0)
LOGITS = GENERATOR.standard_normal((2, 5, 20)).astype(np.float32)  # two sequences, a prompt of 3, 3 new tokens
NOISE = OutputNoise(LOGITS, LOGITS + GENERATOR.normal(0, 1e-7, LOGITS.shape))
PROMPT = 3


def compared(found: np.ndarray, logits: str = "candidate") -> LogitsComparison:
    return compare_logits(logits, LOGITS, found, NOISE)  # type: ignore[arg-type]


def changed(position: int, by: float = 1.0) -> np.ndarray:
    found = LOGITS.copy()
    found[:, position:] += np.float32(by)
    return found


def differences(found: np.ndarray, reference: np.ndarray = LOGITS) -> list[TokenDifference]:
    continuation = greedy_tokens(reference[:, PROMPT - 1 :])
    return list(first_token_differences("candidate", continuation, reference, found, NOISE))


def test_equal_logits_are_aligned_at_every_position() -> None:
    result = compared(LOGITS.copy())
    assert result.first_divergent is None
    assert [one.outcome for one in result.positions] == ["aligned"] * 5
    assert judge_generation([result], [], PROMPT).outcome is Outcome.ALIGNED


@pytest.mark.parametrize(("position", "said"), [(0, "token 1 of the prompt"), (2, "new token 0"), (3, "new token 1")])
def test_the_first_position_that_differs_is_named_by_the_token_that_it_chooses(position: int, said: str) -> None:
    result = compared(changed(position))
    assert result.first_divergent == position
    verdict = judge_generation([result], [], PROMPT)
    assert verdict.outcome is Outcome.NOT_ALIGNED
    assert f"differ, first those for {said} (counted from 0)" in verdict.reason


def test_a_cache_that_changes_the_candidate_is_told_from_a_candidate_that_differs() -> None:
    clean, cached = compared(LOGITS.copy()), compared(changed(3), "candidate with cache")
    reason = judge_generation([clean, cached], [], PROMPT).reason
    assert reason.startswith(
        "without a cache the candidate agrees; with its cache its logits change, first those for new"
    )


def test_the_references_own_cache_decides_nothing_about_the_candidate() -> None:
    clean, cached = compared(LOGITS.copy()), compared(changed(3), "reference with cache")
    assert judge_generation([clean, cached], [], PROMPT).outcome is Outcome.ALIGNED


def test_another_token_is_found_where_it_first_appears() -> None:
    found = LOGITS.copy()
    found[0, PROMPT, 7] = 9.0
    (one,) = differences(found)
    assert (one.sequence, one.step, one.candidate, one.tie) == (0, 1, 7, False)
    assert one.reference == int(LOGITS[0, PROMPT].argmax())
    assert one.margin == pytest.approx(LOGITS[0, PROMPT].max() - LOGITS[0, PROMPT, 7])


@pytest.mark.parametrize(("lead", "tie"), [(1e-6, True), (1e-3, False)])
def test_tokens_within_the_noise_are_a_tie_and_others_are_not(lead: float, tie: bool) -> None:
    reference = LOGITS.copy()
    reference[1, PROMPT, [4, 5]] = 5.0, 5.0 - lead
    found = reference.copy()
    found[1, PROMPT, [4, 5]] = found[1, PROMPT, [5, 4]]
    (one,) = differences(found, reference)
    assert (one.sequence, one.step, one.reference, one.candidate, one.tie) == (1, 1, 4, 5, tie)


def test_a_tie_is_said_and_is_no_fault() -> None:
    tie = TokenDifference("candidate", 0, 1, 3, 4, 1e-7, 1e-6, tie=True)
    verdict = judge_generation([compared(LOGITS.copy())], [tie], PROMPT)
    assert verdict.outcome is Outcome.ALIGNED
    assert "1 sequence may differ after a tie" in verdict.reason


def test_another_token_that_no_rounding_explains_is_not_aligned() -> None:
    other = TokenDifference("candidate", 1, 2, 3, 4, 0.5, 1e-6, tie=False)
    verdict = judge_generation([compared(LOGITS.copy())], [other], PROMPT)
    assert verdict.outcome is Outcome.NOT_ALIGNED
    assert verdict.reason == "new token 2 (counted from 0) of sequence 1 differs by more than rounding"


def test_nan_on_one_side_differs_and_on_both_is_not_compared() -> None:
    broken = LOGITS.copy()
    broken[:, 1:] = np.nan
    assert compared(broken).first_divergent == 1
    both = compare_logits("candidate", broken, broken, NOISE)
    assert [one.outcome for one in both.positions] == ["aligned"] + ["not comparable"] * 4
    assert judge_generation([both], [], PROMPT).outcome is Outcome.NOT_COMPARED


def test_without_noise_the_table_gives_the_limit() -> None:
    limit = compare_logits("candidate", LOGITS, LOGITS, OutputNoise(LOGITS, None)).positions[0].limit
    assert limit is not None
    assert limit.source == "dtype"
