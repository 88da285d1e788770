from __future__ import annotations

import pytest

from align.core.verdicts import Coverage, Outcome, Verdict
from align.errors import NotAlignedError


def verdict(outcome: Outcome) -> Verdict:
    return Verdict(outcome, "3 of 9 layers differ", Coverage("layers", compared=9))


@pytest.mark.parametrize("outcome", Outcome)
def test_a_verdict_has_no_truth_value(outcome: Outcome) -> None:
    with pytest.raises(TypeError, match="neither true nor false"):
        bool(verdict(outcome))


@pytest.mark.parametrize(
    ("outcome", "code"), [(Outcome.ALIGNED, 0), (Outcome.NOT_ALIGNED, 1), (Outcome.NOT_COMPARED, 2)]
)
def test_the_exit_code_follows_from_the_outcome(outcome: Outcome, code: int) -> None:
    assert verdict(outcome).exit_code == code


def test_only_aligned_satisfies_a_test_suite() -> None:
    verdict(Outcome.ALIGNED).require_aligned()
    for outcome in (Outcome.NOT_ALIGNED, Outcome.NOT_COMPARED):
        with pytest.raises(NotAlignedError, match="3 of 9 layers differ"):
            verdict(outcome).require_aligned()


def test_nothing_compared_is_never_aligned() -> None:
    with pytest.raises(ValueError, match="nothing was compared"):
        Verdict(Outcome.ALIGNED, "all of nothing agrees", Coverage("layers", compared=0))
