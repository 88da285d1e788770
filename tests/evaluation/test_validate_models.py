"""Validation of models without a framework: what is compared, exchanged, and refused."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.core.verdicts import Outcome
from align.errors import InputsError, MissingFileError, UsageError, UserCodeError
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

if TYPE_CHECKING:
    from align.evaluation.validate_models import Validation

GENERATOR = np.random.default_rng(0)
WEIGHT = GENERATOR.standard_normal((5, 4)).astype(np.float32)
X = GENERATOR.standard_normal((60, 4)).astype(np.float32)
LABELS = (X @ WEIGHT.T).argmax(-1)
LABELS[::3] = 0
DATA = [(X[start : start + 16], LABELS[start : start + 16]) for start in range(0, 60, 16)]
DARK = [(x * np.float32(0.5) - np.float32(0.3), y) for x, y in DATA]


def model(path: str, family: str, weight: np.ndarray = WEIGHT, function: Any = None) -> ArrayModel:
    layer = ArrayLayer(path, family, function or (lambda x, weight: x @ weight.T), {"weight": weight.copy()})
    return ArrayModel((layer,))


def reference(**options: Any) -> ArrayModel:
    return model("fc", "torch.nn.Linear", **options)


def port(**options: Any) -> ArrayModel:
    return model("head", "mindspore.nn.Dense", **options)


def half(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return (outputs.argmax(-1) == labels) * 0.5


def validate(candidate: ArrayModel | None = None, **options: Any) -> Validation:
    return align.validate_models(reference(), candidate or port(), **{"data": DATA, **options})


def rolled(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return np.roll(x @ weight.T, 1, -1)


def test_a_clean_port_is_aligned_over_all_samples() -> None:
    result = validate()
    assert result.verdict.outcome is Outcome.ALIGNED
    assert result.samples == (60, 60)
    assert result.combinations[0].value == result.combinations[1].value == np.mean((X @ WEIGHT.T).argmax(-1) == LABELS)
    assert (result.causes, result.findings, result.outputs.flipped) == ((), (), 0)


def test_a_port_that_computes_something_else_is_the_cause_itself() -> None:
    result = validate(port(function=rolled))
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert result.causes == ("model",)
    assert result.outputs.flipped == 60
    assert result.outputs.worst[0].reference != result.outputs.worst[0].candidate


def test_a_port_that_keeps_what_it_saw_is_to_be_run_on_several_batches() -> None:
    kept: list[Any] = []

    def stale(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        kept.append(x.mean(0))
        return (x + kept[0] - kept[-1]) @ weight.T

    late = validate(port(function=stale))
    assert late.outputs.first_batch == 2
    assert "first differ in batch 2, counted from 1" in late.verdict.reason
    assert "`align forward` with several `--inputs`" in late.verdict.reason
    at_once = validate(port(function=rolled))
    assert at_once.outputs.first_batch == 1
    assert at_once.verdict.reason.endswith("run `align forward`")
    assert validate().outputs.first_batch is None


def test_a_fault_that_flips_no_prediction_is_found_in_the_outputs() -> None:
    result = validate(port(function=lambda x, weight: x @ weight.T * np.float32(1.001)))
    assert result.outputs.flipped == 0
    assert result.combinations[1].difference == 0.0
    assert result.verdict.outcome is Outcome.NOT_ALIGNED


@pytest.mark.parametrize(
    ("options", "weight", "cause"),
    [
        ({"candidate_data": DARK}, WEIGHT, ("data",)),
        ({"candidate_metric": half}, WEIGHT, ("metric",)),
        ({}, WEIGHT[::-1], ("weights",)),
        ({"candidate_data": DARK, "candidate_metric": "accuracy"}, WEIGHT, ("data",)),
        ({"candidate_data": DATA, "candidate_metric": half}, WEIGHT, ("metric",)),
        ({"candidate_data": DATA, "candidate_metric": "accuracy"}, WEIGHT[::-1], ("weights",)),
        ({"candidate_data": DARK}, WEIGHT[::-1], ("data", "weights")),
        ({"candidate_data": DARK, "candidate_metric": half}, WEIGHT[::-1], ("data", "metric", "weights")),
    ],
)
def test_the_planted_causes_are_named_and_no_others(options: dict[str, Any], weight: Any, cause: Any) -> None:
    candidate = port(weight=weight)
    result = validate(candidate, **options)
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert (result.causes, result.alternatives) == (cause, ())
    assert np.array_equal(candidate.values()["head.weight"], weight)  # its own again


def test_a_wrong_model_with_wrong_data_is_not_blamed_on_the_data() -> None:
    assert validate(port(function=rolled), candidate_data=DARK).causes == ("model",)


def test_a_candidate_with_fewer_samples_is_told_and_not_aligned() -> None:
    result = validate(candidate_data=DATA[:3])
    assert result.samples == (60, 48)
    assert result.causes == ("data",)
    (finding,) = result.findings
    assert finding.message == (
        "of 48 common samples, 0 have other inputs, 0 other labels; the reference has 60 samples, the candidate 48"
    )


def test_outputs_of_other_shapes_are_refused() -> None:
    with pytest.raises(InputsError, match=r"differ in shape: ArrayModel returns \[16, 5\], ArrayModel \[16, 3\]"):
        validate(port(weight=WEIGHT[:3]))


def test_weights_that_no_map_carries_over_are_told() -> None:
    result = validate(ArrayModel((ArrayLayer("act", "torch.nn.ReLU", lambda x: x @ WEIGHT.T, {}),)))
    assert result.verdict.outcome is Outcome.ALIGNED
    assert [(finding.code, finding.severity) for finding in result.findings] == [("weights-unknown", "warning")]


def test_equal_predictions_by_other_weights_are_told() -> None:
    result = validate(port(weight=np.concatenate([WEIGHT[:4], WEIGHT[4:] * np.float32(1 + 1e-7)])))
    assert result.verdict.outcome is Outcome.ALIGNED
    assert [finding.code for finding in result.findings] == ["weights-differ"]


def test_a_reference_that_cannot_be_widened_is_judged_by_the_table() -> None:
    def only_float32(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        if weight.dtype != np.float32:
            raise TypeError("float32 only")
        return x @ weight.T

    result = align.validate_models(reference(function=only_float32), port(), data=DATA)
    assert result.verdict.outcome is Outcome.ALIGNED
    assert result.outputs.limit.source == "dtype"
    assert [finding.code for finding in result.findings] == ["noise-unmeasured"]


def test_only_so_many_samples_are_taken_as_asked_for() -> None:
    assert validate(limit_samples=20).samples == (20, 20)
    with pytest.raises(UsageError, match="the number of samples is 0"):
        validate(limit_samples=0)


def test_nan_on_one_side_is_not_aligned_and_on_both_not_compared() -> None:
    def broken(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return x @ weight.T * np.float32(np.nan)

    assert validate(port(function=broken)).verdict.outcome is Outcome.NOT_ALIGNED
    both = align.validate_models(reference(function=broken), port(function=broken), data=DATA)
    assert both.verdict.outcome is Outcome.NOT_COMPARED


def test_nan_in_one_logit_of_both_sides_is_left_out_and_said() -> None:
    def blind(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return x @ weight.T * np.array([1, 1, 1, 1, np.nan], np.float32)

    result = align.validate_models(reference(function=blind), port(function=blind), data=DATA)
    assert result.verdict.outcome is Outcome.ALIGNED
    assert result.verdict.caveats == ("60 of 300 output elements are NaN or Inf on both sides",)
    assert validate().verdict.caveats == ()
    assert validate(port(function=blind)).verdict.caveats == ()


def test_data_and_metrics_that_are_not_there_are_called_so() -> None:
    with pytest.raises(MissingFileError, match=r"data file not found: gone\.py"):
        validate(data="gone.py:data")
    with pytest.raises(MissingFileError, match=r"metric file not found: gone\.py"):
        validate(metric="gone.py:metric")


def test_a_score_that_rounding_flips_is_no_fault_of_a_port_whose_outputs_agree() -> None:
    edge = float((X @ WEIGHT.T).astype(np.float64)[0, 0])

    def above(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return outputs[:, 0] >= edge

    result = validate(port(function=lambda x, weight: np.nextafter(x @ weight.T, np.float32(-9))), metric=above)
    assert result.combinations[1].difference == pytest.approx(-1 / 60)
    assert result.verdict.outcome is Outcome.ALIGNED


def squared(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.square(outputs[:, 0])


def test_outputs_of_the_port_that_are_nan_are_told_as_its_own() -> None:
    result = validate(port(function=lambda x, weight: (x @ weight.T) * np.float32(np.nan)), metric=squared)
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert (
        "NaN of the candidate: NaN or Inf stand in the outputs of the candidate, the outputs diff"
        in result.verdict.reason
    )
    assert result.verdict.reason.startswith("squared is ")
    assert result.causes == ("model",)


def test_a_metric_of_the_candidate_that_is_nan_is_the_cause_and_named() -> None:
    def own(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return squared(outputs, labels) * np.nan

    result = validate(metric=squared, candidate_metric=own)
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert result.verdict.reason.startswith("squared and own is ")
    assert "NaN of the candidate: the outputs are within their limits; the cause is the metric" in result.verdict.reason
    (finding,) = result.findings
    assert (finding.code, finding.subject) == ("metrics-differ", "own")
    assert finding.message.endswith("one side gives NaN or Inf")


def test_a_metric_that_makes_nan_of_rounding_is_not_blamed_on_the_models() -> None:
    exact: list[np.ndarray] = []

    def fragile(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
        exact.append(outputs)
        same = any(np.array_equal(outputs, one) for one in exact[:1])
        return np.ones(len(outputs)) * (1.0 if same or outputs.dtype == np.float64 else np.nan)

    batch = [(np.ones((2, 4), np.float32), np.zeros(2, np.int64))]
    nudged = port(function=lambda x, weight: np.nextafter(x @ weight.T, np.float32(9)))
    result = validate(nudged, metric=fragile, data=batch)
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert (
        "the models agree, but fragile turns a difference in rounding into NaN: correct the metric"
        in result.verdict.reason
    )


def test_metrics_that_are_nan_on_the_same_samples_are_alike() -> None:
    def undefined(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return np.full(len(outputs), np.nan)

    result = validate(metric=undefined, candidate_metric=undefined)
    assert [finding.code for finding in result.findings] == []
    assert result.verdict.reason.startswith("undefined is NaN on both sides")


def test_a_metric_of_nan_could_not_be_compared() -> None:
    result = validate(metric=lambda outputs, labels: float("nan"))
    assert result.verdict.outcome is Outcome.NOT_COMPARED
    assert result.verdict.reason == "<lambda> is NaN on both sides: the outputs are within their limits"
    assert result.causes == ()


@pytest.mark.parametrize(
    ("metric", "error", "said"),
    [
        (lambda outputs, labels: outputs[100], UserCodeError, "the metric <lambda> failed: IndexError"),
        (lambda outputs, labels: outputs, InputsError, r"returned float32\[16, 5\] for 16 samples"),
        (lambda outputs, labels: "good", InputsError, "returned .* for 16 samples"),
        ("precision", InputsError, "no metric is called 'precision'"),
    ],
)
def test_a_metric_that_cannot_be_used_is_said_in_one_message(metric: Any, error: Any, said: str) -> None:
    with pytest.raises(error, match=said):
        validate(metric=metric)


def test_a_metric_may_change_what_it_gets() -> None:
    def greedy(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
        outputs *= 0
        labels *= 0
        return outputs[:, 0]

    assert validate(metric=greedy, candidate_metric="accuracy").outputs.measurement.reference_max > 0


def test_outputs_with_another_number_of_rows_than_samples_are_refused() -> None:
    squashed = {"function": lambda x, weight: (x @ weight.T).mean(0, keepdims=True)}
    with pytest.raises(InputsError, match=r"returns \[1, 5\] for 16 samples"):
        align.validate_models(reference(**squashed), port(**squashed), data=DATA)


def test_batches_are_let_go_as_soon_as_they_were_scored() -> None:
    alive: list[weakref.ref[np.ndarray]] = []

    class Stream:
        def __iter__(self) -> Any:
            for number in range(8):
                assert sum(one() is not None for one in alive) <= 1
                x = np.full((16, 4), number, np.float32)
                alive.append(weakref.ref(x))
                yield x, np.zeros(16, int)
                del x

    assert validate(data=Stream()).samples == (128, 128)
    assert len(alive) >= 8


def test_progress_ends_where_the_samples_end() -> None:
    seen: list[tuple[str, int, int]] = []
    validate(progress=lambda *step: seen.append(step))
    assert seen[-1] == ("reference data", 60, 60)
