"""Named presets: what each asks for, at its edges, and what no preset forgives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from align.core.verdicts import Outcome
from align.curves.judge_curves import judge_curves
from align.curves.loss_log import Curve
from align.curves.place_on_axis import pair_curves
from align.curves.presets import GUIDE, PRESETS, CurveLimits, Preset, find_preset, limits_for
from align.errors import UsageError

PAGE = (Path(__file__).parents[2] / "docs" / "loss-statistics.md").read_text(encoding="utf-8")
POINTS = 200
DESCENT = 2.0 * np.exp(-np.arange(POINTS) / 80.0) + 1.0
JITTER = np.random.default_rng(0).standard_normal(POINTS)


def _curve(values: object, resolution: float = 0.0, metric: str = "loss") -> Curve:
    numbers = np.asarray(values, np.float64)
    return Curve("some.log", metric, 1 + np.arange(len(numbers)), numbers, np.full(len(numbers), resolution))


def _judge(reference: Curve, candidate: Curve, preset: Preset):
    return judge_curves(reference, candidate, pair_curves(reference, candidate), preset=preset)


def _passes(reference: Curve, candidate: Curve, name: str) -> bool:
    return _judge(reference, candidate, PRESETS[name]).verdict.outcome is Outcome.ALIGNED


@pytest.mark.parametrize("name", PRESETS)
def test_equal_curves_pass_and_curves_of_twice_the_loss_fail_in_each_preset(name: str) -> None:
    for size in (1.0, 1e-4):
        curve = _curve(DESCENT * size)
        comparison = _judge(curve, curve, PRESETS[name])
        assert comparison.verdict.outcome is Outcome.ALIGNED
        assert comparison.preset == name
        if name != "reprod_log":
            assert not _passes(curve, _curve(DESCENT * size * 2), name)


@pytest.mark.parametrize(
    ("name", "within", "outside"),
    [
        ("guide", DESCENT + 0.0049, DESCENT + 0.031),
        ("openrlhf", DESCENT + 0.0199, DESCENT + 0.0201),
        ("megatron", DESCENT * 1.049, DESCENT * 1.051),
        ("reprod_log", DESCENT + 0.9e-6, DESCENT + 1.1e-6),
        ("exact", DESCENT, DESCENT + 1e-12),
    ],
)
def test_each_preset_passes_just_inside_its_limit_and_fails_just_outside(
    name: str, within: np.ndarray, outside: np.ndarray
) -> None:
    assert _passes(_curve(DESCENT), _curve(within), name)
    assert not _passes(_curve(DESCENT), _curve(outside), name)


@pytest.mark.parametrize("name", ["megatron", "reprod_log", "exact"])
def test_one_point_fails_where_every_one_is_asked_for(name: str) -> None:
    spiked = DESCENT.copy()
    spiked[70] *= 1.06
    comparison = _judge(_curve(DESCENT), _curve(spiked), PRESETS[name])
    assert comparison.verdict.outcome is Outcome.NOT_ALIGNED
    failed = [criterion for criterion in comparison.criteria if not criterion.passed]
    assert [(criterion.name, criterion.value) for criterion in failed] == [("points outside of every loss's limit", 1)]
    assert comparison.first_divergent_step == 71
    assert _passes(_curve(DESCENT), _curve(spiked), "guide")


def test_a_first_loss_that_fails_alone_is_where_the_curves_part() -> None:
    changed = DESCENT.copy()
    changed[0] += 0.02
    for name in ("guide", "exact"):
        comparison = _judge(_curve(DESCENT), _curve(changed), PRESETS[name])
        assert (comparison.first_divergent_step, comparison.trouble) == (1, "first loss differs")


@pytest.mark.parametrize(("resolution", "digits"), [(1e-3, 3), (1e-6, 6)])
def test_exact_holds_to_the_printed_digits(resolution: float, digits: int) -> None:
    printed = _curve(np.round(DESCENT, digits), resolution)
    assert _passes(_curve(DESCENT), printed, "exact")
    assert _passes(printed, printed, "exact")
    for place in (0, 120):
        neighbour = printed.values.copy()
        neighbour[place] = round(neighbour[place] + resolution, digits)
        assert not _passes(printed, _curve(neighbour, resolution), "exact")


@pytest.mark.parametrize("metric", ["lr", "grad_norm", "tokens"])
def test_exact_asks_all_metrics_to_be_equal(metric: str) -> None:
    assert _passes(_curve(DESCENT, metric=metric), _curve(DESCENT, metric=metric), "exact")
    assert not _passes(_curve(DESCENT, metric=metric), _curve(DESCENT * (1 + 1e-9), metric=metric), "exact")


def test_a_gradient_norm_is_known_by_any_of_its_names() -> None:
    names = ("grad_norm", "global_norm", "train/grad_norm", "grad norm")
    assert {limits_for(name, 1.0).mean_rel for name in names} == {0.1}


def test_an_absolute_limit_is_held_to_a_tenth_of_the_loss_in_own_presets_too() -> None:
    own = Preset("own", CurveLimits("ours", mean_abs=1.0, mean_rel=0.0))
    assert limits_for("loss", 2.0, own) == CurveLimits(
        "ours, absolute limits capped at 10% of the mean loss", mean_abs=0.2, mean_rel=0.0
    )
    assert limits_for("loss", 20.0, own) == own.loss


def test_an_unknown_preset_is_answered_with_those_that_are_known() -> None:
    with pytest.raises(UsageError, match="no preset 'strict'; known: exact, guide, megatron, openrlhf, reprod_log"):
        find_preset("strict")
    assert find_preset("guide") is GUIDE


def _tiny_drift() -> Curve:
    return _curve(DESCENT + 1e-6 * JITTER + np.linspace(0.0, 1e-4, POINTS))


def test_a_drift_within_published_limits_is_told_and_passes() -> None:
    comparison = _judge(_curve(DESCENT), _tiny_drift(), GUIDE)
    assert comparison.verdict.outcome is Outcome.ALIGNED
    assert all(test.drifts for test in comparison.drift)
    assert [test.slope for test in comparison.drift] == pytest.approx([1e-4] * 2, rel=0.05)
    assert any(note.startswith("the difference drifts") and note.endswith("within the limits")
               for note in comparison.notes)  # fmt: skip


def test_jitter_of_the_same_size_is_not_told_to_drift() -> None:
    comparison = _judge(_curve(DESCENT), _curve(DESCENT + 1e-4 * JITTER), GUIDE)
    assert len(comparison.drift) == 2
    assert not any(test.drifts for test in comparison.drift)
    assert not any("drift" in note for note in comparison.notes)


def test_the_rounding_of_a_slow_curve_is_no_drift() -> None:
    slow = 0.12341 + 1e-7 * np.arange(POINTS)
    for printed in (_curve(np.round(slow, 3), 1e-3), _curve(np.round(slow, 4), 1e-4)):
        comparison = _judge(_curve(slow), printed, GUIDE)
        assert [test.drifts for test in comparison.drift] == [False, False]


def test_a_drift_beyond_the_printed_digits_is_found_in_them() -> None:
    printed = _curve(np.round(DESCENT + 0.002 * JITTER + np.linspace(0.0, 0.005, POINTS), 3), 1e-3)
    assert all(test.drifts for test in _judge(_curve(DESCENT), printed, GUIDE).drift)


DRIFTLESS = Preset("own", CurveLimits("ours", mean_abs=0.01, mean_rel=0.0, drift=True))


def test_a_drift_fails_a_preset_that_asks_for_none() -> None:
    comparison = _judge(_curve(DESCENT), _tiny_drift(), DRIFTLESS)
    assert comparison.verdict.outcome is Outcome.NOT_ALIGNED
    assert "tests that find a drift: 2, allowed 0" in comparison.verdict.reason
    assert _judge(_curve(DESCENT), _curve(DESCENT + 1e-4 * JITTER), DRIFTLESS).verdict.outcome is Outcome.ALIGNED


def test_a_drift_that_could_not_be_tested_is_told_and_no_criterion() -> None:
    comparison = _judge(_curve(DESCENT[:15]), _curve(DESCENT[:15]), DRIFTLESS)
    assert comparison.drift == ()
    assert not any("drift" in criterion.name for criterion in comparison.criteria)
    assert any("drift could not be tested" in note for note in comparison.notes)
    assert "drift could not be tested" in comparison.verdict.reason


def test_a_difference_that_wanders_passes_with_the_word_that_drift_could_not_be_tested() -> None:
    comparison = _judge(_curve(DESCENT), _curve(DESCENT + 0.004 * np.sin(np.arange(POINTS) / 50)), GUIDE)
    assert comparison.verdict.outcome is Outcome.ALIGNED
    assert "drift could not be tested" in comparison.verdict.reason


def test_a_first_loss_that_a_preset_does_not_ask_for_is_no_criterion() -> None:
    comparison = _judge(_curve(DESCENT), _curve(DESCENT), PRESETS["openrlhf"])
    assert [criterion.name.split(",")[0] for criterion in comparison.criteria[:1]] == ["mean loss"]


@pytest.mark.parametrize("name", PRESETS)
def test_the_page_has_a_row_for_each_preset(name: str) -> None:
    assert f"\n| `{name}` |" in PAGE
