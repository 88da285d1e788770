from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from align.core.traces import Limit
from align.core.verdicts import Outcome
from align.evaluation.validate_models import (
    Combination,
    OutputDifference,
    Scores,
    Setup,
    find_causes,
    judge_validation,
    list_combinations,
    metric_limit,
)
from align.measure.measure_arrays import measure

SIDES = ("reference", "candidate")


def values(faulty, parts=("data", "metric", "weights"), model=0.0):
    """The metric of all setups where each faulty part of the candidate takes 0.1 away."""
    found = {}
    for owner, weights, data, metric in product(SIDES, SIDES, SIDES, SIDES):
        whose = {"weights": weights, "data": data, "metric": metric}
        shared = any(whose[part] == "candidate" for part in ("data", "metric") if part not in parts)
        if (owner == "reference" and weights != "reference") or shared:
            continue
        if owner == "candidate" and "weights" not in parts and weights == "reference":
            continue
        wrong = sum(whose[part] == "candidate" for part in faulty)
        found[Setup(owner, weights, data, metric)] = 0.9 - 0.1 * wrong - model * (owner == "candidate")
    return found


def rows(faulty, parts=("data", "metric", "weights"), model=0.0, within=True):
    """The rows where the outputs are outside their limits with faulty weights, or a faulty model."""
    known = {
        (weights, data): within and not model and not (weights == "candidate" and "weights" in faulty)
        for weights, data in product(SIDES, SIDES)
    }
    return list_combinations(values(faulty, parts, model), known, 1e-6)


def outputs(flipped=0, ties=0):
    figures = measure(np.ones(2), np.ones(2))
    return OutputDifference(8, figures, Limit(1.0, 1.0, "noise"), 0.0, flipped, ties, (), ())


@pytest.mark.parametrize("part", ["data", "metric", "weights"])
def test_the_one_part_whose_exchange_helps_is_the_cause(part) -> None:
    assert find_causes(rows([part])) == ((part,), ())


def test_two_causes_are_needed_together() -> None:
    assert find_causes(rows(["data", "weights"])) == (("data", "weights"), ())


def test_what_no_exchange_removes_is_the_model() -> None:
    assert find_causes(rows(["data"], model=0.05)) == (("model",), ())


def test_parts_that_help_equally_are_all_named() -> None:
    both = values(["data"]) | {setup: 0.9 for setup in values([]) if setup.metric == "reference"}
    found = list_combinations(both, dict.fromkeys(product(SIDES, SIDES), True), 1e-6)
    assert find_causes(found) == (("data",), (("metric",),))
    assert (
        "the reference's data or metric would remove"
        in judge_validation(found, outputs(), ("m", "m"), (8, 8, 1)).reason
    )


def test_nothing_that_differs_has_no_cause() -> None:
    found = rows([])
    assert find_causes(found) == ((), ())
    assert judge_validation(found, outputs(), ("accuracy", "accuracy"), (8, 8, 1)).outcome is Outcome.ALIGNED


def test_every_exchange_of_what_a_candidate_has_of_its_own_is_a_row_and_no_other() -> None:
    named = [(row.model, row.exchanged) for row in rows([], parts=("data",))]
    own = ("candidate", ())
    assert named == [("reference", ()), own, ("candidate", ("data",)), ("reference", ("data",))]
    assert len(rows([])) == 1 + 8 + 2


def test_equal_metrics_of_outputs_that_differ_do_not_agree() -> None:
    found = rows([], parts=(), within=False)
    assert not found[1].agrees
    verdict = judge_validation(found, outputs(flipped=3, ties=1), ("accuracy", "accuracy"), (8, 8, 1))
    assert verdict.outcome is Outcome.NOT_ALIGNED
    assert "2 of 8 predictions differ" in verdict.reason


def test_equal_figures_from_parts_known_to_be_unlike_do_not_agree() -> None:
    known = dict.fromkeys(product(SIDES, SIDES), True)
    assert find_causes(list_combinations(values([]), known, 1e-6, {"data"})) == (("data",), ())
    assert find_causes(list_combinations(values([]), known, 1e-6, ["data", "metric"])) == (("data", "metric"), ())


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("of_reference", "of_candidate", "outcome", "said"),
    [
        (NAN, NAN, Outcome.NOT_COMPARED, "m is NaN on both sides: the outputs are within their limits"),
        (INF, 0.5, Outcome.NOT_COMPARED, "m is Inf of the reference, 0.5 of the candidate: the outputs are within"),
        (-INF, INF, Outcome.NOT_COMPARED, "m is -Inf of the reference, Inf of the candidate"),
        (0.5, NAN, Outcome.NOT_ALIGNED, "m is 0.5 of the reference, NaN of the candidate: the outputs are within"),
    ],
)
def test_a_metric_that_is_no_number_names_the_metric_and_the_side(
    of_reference: float, of_candidate: float, outcome: Outcome, said: str
) -> None:
    found = tuple(
        Combination(model, (), value, 0.0, agrees=False)
        for model, value in zip(SIDES, (of_reference, of_candidate), strict=True)
    )
    verdict = judge_validation(found, outputs(), ("m", "m"), (8, 8, 1))
    assert verdict.outcome is outcome
    assert verdict.reason.startswith(said)


def test_metrics_of_two_names_are_both_named() -> None:
    found = tuple(Combination(model, (), NAN, 0.0, agrees=False) for model in SIDES)
    assert "auc and own is NaN on both" in judge_validation(found, outputs(), ("auc", "own"), (8, 8, 1)).reason


def test_nothing_but_nan_in_the_outputs_could_not_be_compared() -> None:
    assert judge_validation(rows([]), outputs(), ("accuracy", "accuracy"), (8, 8, 0)).outcome is Outcome.NOT_COMPARED


def test_samples_of_one_side_alone_are_counted() -> None:
    coverage = judge_validation(rows([]), outputs(), ("accuracy", "accuracy"), (8, 5, 1)).coverage
    assert (coverage.compared, coverage.unmatched_reference, coverage.unmatched_candidate) == (5, 3, 0)


def test_a_score_of_a_batch_counts_by_its_size() -> None:
    scores = Scores()
    scores.add(np.array(1.0), 3)
    scores.add(np.array([0.0]), 1)
    assert (scores.value, scores.samples, scores.low, scores.high) == (0.75, 4, 0.0, 1.0)


def test_the_limit_of_a_metric_grows_with_noise_and_with_close_calls() -> None:
    scores, still, moved = Scores(), Scores(), Scores()
    scores.add(np.array([0.0, 1.0]), 2)
    still.add(np.zeros(2), 2)
    moved.add(np.array([0.0, 1e-3]), 2)
    assert metric_limit(scores, still, 0) == pytest.approx(5e-7)
    assert metric_limit(scores, None, 0) == pytest.approx(5e-5)
    assert metric_limit(scores, moved, 0) == pytest.approx(5e-3, rel=1e-3)
    assert metric_limit(scores, still, 1) == pytest.approx(0.5, rel=1e-3)
