"""What is said of a loss that differs: that its function is right only where that was measured."""

from __future__ import annotations

import pytest

from align.core.verdicts import Outcome
from align.runs.rung import judge_loss

VERDICT = {
    "outcome": "aligned",
    "reason": "4 gradients of parameters agree, each layer alone",
    "exit_code": 0,
    "coverage": {"unit": "gradients", "compared": 4, "excluded": 0, "unmatched_reference": 0, "unmatched_candidate": 0},
    "caveats": [],
}


@pytest.mark.parametrize(
    ("alone", "outcome", "said"),
    [(1.0, Outcome.NOT_ALIGNED, "comes from the model"), (1.2, Outcome.NOT_ALIGNED, "not measured"),
     (None, Outcome.NOT_ALIGNED, "not measured")],
)  # fmt: skip
def test_a_loss_is_called_right_only_where_it_was_taken_of_the_references_outputs(
    alone: float | None, outcome: Outcome, said: str
) -> None:
    loss = {"step": 1, "reference": 1.0, "candidate": 1.2, "alone": alone, "limit": 1e-5}
    judged = judge_loss({"losses": [loss], "culprits": [], "findings": [], "verdict": VERDICT})
    assert judged.outcome is outcome
    assert said in str(judged.reason)
