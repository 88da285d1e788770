"""Each class of trouble told from curves of several shapes, lengths, noises and printed digits, and no other one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from align.core.verdicts import Outcome
from align.curves.classify_trouble import TROUBLES
from align.curves.evaluate_criteria import OtherMetrics
from align.curves.judge_curves import judge_curves
from align.curves.loss_log import Curve, OtherMetric, Skips
from align.curves.next_commands import NEXT
from align.curves.place_on_axis import pair_curves

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.curves.loss_log import CurveComparison

Values = np.ndarray
SHAPES: dict[str, Callable[[Values], Values]] = {  # over the share of the training that is done, from 0 to 1
    "exponential": lambda done: 2.0 * np.exp(-4.0 * done) + 0.3,
    "fast at first": lambda done: 8.0 * np.exp(-15.0 * done) + 2.0,
    "power law": lambda done: 9.0 / np.sqrt(1.0 + 40.0 * done) + 1.0,
    "straight": lambda done: 3.0 - 2.0 * done,
}


def _late(done: Values, since: float = 0.125, scale: float = 0.1) -> Values:
    """Grow from 0 to 1 within about `scale` of the training."""
    return 1.0 - np.exp(-np.clip(done - since, 0.0, None) / scale)


def _from_step(values: Values, at: int) -> Values:
    return np.where(np.arange(len(values)) >= at, 1.0, 0.0)


# What a planted trouble makes of (the reference's losses, the share done, a middle step).
PLANTS: dict[str, dict[str, Callable[[Values, Values, int], Values]]] = {
    "first loss differs": {"all": lambda loss, done, at: loss * 1.05},
    "differs from the second step": {
        "all later": lambda loss, done, at: loss * (1.0 + 0.1 * _from_step(loss, 1)),
        "half of the steps": lambda loss, done, at: loss + 0.1 * loss * np.sqrt(_from_step(loss, 1) * (0.1 + done)),
    },
    "slow drift": {
        "down": lambda loss, done, at: loss - 0.15 * np.ptp(loss) * done,
        "up": lambda loss, done, at: loss + 0.03 * np.ptp(loss) * done**2,
    },
    "plateau above the reference": {
        "gap": lambda loss, done, at: loss + 0.25 * np.ptp(loss) * _late(done),
        "soon": lambda loss, done, at: loss + 0.5 * loss * _late(done, 0.05),
    },
    "stays below the reference": {"gap": lambda loss, done, at: loss - 0.15 * np.ptp(loss) * _late(done)},
    "spike": {
        "some points": lambda loss, done, at: (
            loss + 30.0 * loss[at] * (_from_step(loss, at) - _from_step(loss, at + 5))
        ),
        "decaying": lambda loss, done, at: (
            loss + _from_step(loss, at) * 3.0 * loss[at] * np.exp(-np.clip(done - done[at], 0, None) * 40.0)
        ),
    },
    "explosion": {
        "stays": lambda loss, done, at: loss + _from_step(loss, at) * 3.0 * loss[0],
        "grows": lambda loss, done, at: (
            loss + _from_step(loss, at) * 0.2 * loss[0] * 1.3 ** np.clip(np.arange(len(loss)) - at, 0, 30)
        ),
    },
    "rising": {
        "slowly": lambda loss, done, at: np.where(
            done < 0.25, loss, loss[len(loss) // 4] + 1.2 * np.ptp(loss) * (done - 0.25)
        )
    },
    "constant loss": {"all": lambda loss, done, at: np.full(len(loss), loss[0])},
    "NaN": {"to the end": lambda loss, done, at: np.where(_from_step(loss, at), np.nan, loss)},
    "broken off": {"in the middle": lambda loss, done, at: loss[:at]},
    "differs later": {
        "to and fro": lambda loss, done, at: (
            loss * (1.0 + 0.08 * _from_step(loss, at) * (-1.0) ** np.arange(len(loss)))
        ),
        "at once": lambda loss, done, at: loss * (1.0 + 0.05 * _from_step(loss, at)),
    },
}
CASES = [(name, way) for name, ways in PLANTS.items() for way in ways]


def _curve(values: Values, *, digits: int | None = None, metric: str = "loss", skipped: Values | None = None) -> Curve:
    unit = 0.0 if digits is None else 10.0**-digits
    printed = values if digits is None else np.round(values, digits)
    count = len(values)
    return Curve("some.log", metric, np.arange(1, count + 1), printed, np.full(count, unit), skips=_skips(skipped))


def _skips(skipped: Values | None) -> Skips | None:
    ends = np.zeros(0, int) if skipped is None else np.flatnonzero(skipped) + 1
    return Skips(ends - 1, ends, np.ones(len(ends), int)) if len(ends) else None


def _judge(reference: Curve, candidate: Curve, beside: OtherMetrics | None = None) -> CurveComparison:
    pairs = pair_curves(reference, candidate)
    return judge_curves(reference, candidate, pairs, beside=beside or OtherMetrics())


def _batches(count: int, noise: float, seed: int = 0) -> Values:
    """What the batches add to the loss of either side; the first one nothing."""
    factors = 1.0 + noise * np.random.default_rng(seed).normal(size=count)
    return np.append(1.0, factors[1:])


def _planted(
    case: tuple[str, str], shape: str, count: int, noise: float, digits: int | None, every: int = 1
) -> CurveComparison:
    done = np.arange(count) / count
    losses, batches = SHAPES[shape](done), _batches(count, noise)
    planted = PLANTS[case[0]][case[1]](losses, done, count // 2)
    rounding = 1.0 + 1e-7 * np.random.default_rng(1).normal(size=len(planted))
    factors = 1.0 if case[0] == "constant loss" else batches[: len(planted)] * rounding
    sides = (_curve(values, digits=digits) for values in (losses * batches, planted * factors))
    return _judge(*(replace(side, steps=side.steps * every) for side in sides))


@pytest.mark.parametrize("noise", [0.0, 0.03])
@pytest.mark.parametrize("count", [500, 3000])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("case", CASES, ids=": ".join)
def test_a_planted_trouble_gets_its_class(case: tuple[str, str], shape: str, count: int, noise: float) -> None:
    for digits in (None, 4) if count == 500 else (4,):
        comparison = _planted(case, shape, count, noise, digits)
        assert (comparison.verdict.outcome, comparison.trouble) == (Outcome.NOT_ALIGNED, case[0])
        assert "{" not in comparison.next_command
        assert "align " in comparison.next_command


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("case", CASES, ids=": ".join)
def test_sparse_logs_show_all_classes_but_those_of_the_first_steps(case: tuple[str, str], shape: str) -> None:
    comparison = _planted(case, shape, 400, 0.02, 4, every=10)
    seen = case[0] not in {"first loss differs", "differs from the second step"}
    assert (comparison.trouble == case[0]) is seen
    if comparison.trouble == "NaN":
        assert comparison.next_command.startswith("align nonfinite FACTORY --batch BATCH --steps ")
    elif comparison.trouble not in {"broken off", "points missing"}:
        assert comparison.next_command.startswith(
            "align forward REFERENCE CANDIDATE, as the losses of step 1 could not"
        )


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.03])
@pytest.mark.parametrize("count", [1, 2, 9, 60, 500])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_clean_port_has_no_trouble(shape: str, count: int, noise: float) -> None:
    losses = SHAPES[shape](np.arange(count) / count) * _batches(count, noise)
    comparison = _judge(_curve(losses), _curve(losses * (1.0 + 1e-6 * _batches(count, 1.0, seed=2))))
    assert (comparison.verdict.outcome, comparison.trouble) == (Outcome.ALIGNED, "")


def _own_noise(kind: str, count: int, seed: int) -> Values:
    rng = np.random.default_rng(seed)
    if kind == "heavy tails":
        return np.asarray(rng.standard_t(4, count))
    noise = rng.normal(size=count)
    return noise if kind == "white" else np.convolve(noise, 0.6 ** np.arange(12))[:count]


@pytest.mark.parametrize("kind", ["white", "heavy tails", "like its neighbours"])
@pytest.mark.parametrize(("larger", "trouble"), [(1.0, "noise of its own"), (3.0, "noise of another size")])
@pytest.mark.parametrize("shape", SHAPES)
def test_other_batches_make_noise_around_the_same_course(shape: str, larger: float, trouble: str, kind: str) -> None:
    for seed in range(3):
        for count in (300, 2000):
            losses = SHAPES[shape](np.arange(count) / count)
            left, right = (1.0 + 0.05 * _own_noise(kind, count, 2 * seed + side) for side in (0, 1))
            comparison = _judge(_curve(losses * left), _curve(losses * (1.0 + larger * (right - 1.0))))
            assert comparison.trouble == trouble
            assert "align validate REFERENCE CANDIDATE --data" in comparison.next_command


@pytest.mark.parametrize("noise", [0.01, 0.05])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_loss_that_only_its_batches_move_does_not_descend(shape: str, noise: float) -> None:
    for count in (60, 500):
        losses, batches = SHAPES[shape](np.arange(count) / count), _batches(count, noise)
        comparison = _judge(_curve(losses * batches), _curve(losses[0] * batches))
        assert comparison.trouble == "not descending"
        assert "align diff FIRST LAST --unchanged" in comparison.next_command


STEPS = 300
DONE = np.arange(STEPS) / STEPS
LOSSES = SHAPES["exponential"](DONE) * _batches(STEPS, 0.02)
PARTS_AT_100 = LOSSES * (1.0 + 0.3 * _late(DONE, 0.33))
DECAYED, WARMED = np.where(DONE < 0.33, 0.1, 0.01), 0.1 * np.minimum(1.0, (1 + np.arange(STEPS)) / 99)


def _rates(reference: Values, candidate: Values) -> OtherMetrics:
    apart = np.flatnonzero(reference != candidate)
    compared = OtherMetric("lr", STEPS, STEPS - len(apart), int(apart[0]) + 1 if len(apart) else None, 0.0, None)
    return OtherMetrics((compared,), (_curve(reference, metric="lr"), _curve(candidate, metric="lr")))


@pytest.mark.parametrize("rates", [DECAYED, WARMED])
def test_curves_that_part_where_the_schedule_changes_send_to_the_learning_rate(rates: Values) -> None:
    comparison = _judge(_curve(LOSSES), _curve(PARTS_AT_100), _rates(rates, rates))
    assert comparison.trouble == "differs from a change of the learning rate"
    assert "--metric lr # around step 100" in comparison.next_command


@pytest.mark.parametrize("since", [0.1, 0.25, 0.42, 0.7])
def test_curves_that_part_elsewhere_do_not(since: float) -> None:
    comparison = _judge(_curve(LOSSES), _curve(LOSSES * (1.0 + 0.3 * _late(DONE, since))), _rates(DECAYED, DECAYED))
    assert comparison.trouble in {"slow drift", "plateau above the reference", "differs later"}


def test_rates_that_part_before_the_losses_are_the_class_and_elsewhere_are_looked_at_first() -> None:
    rates = _rates(np.full(STEPS, 0.1), DECAYED)
    assert _judge(_curve(LOSSES), _curve(PARTS_AT_100), rates).trouble == "differs from a change of the learning rate"
    spiked = LOSSES.copy()
    spiked[50:52] += 100.0
    comparison = _judge(_curve(LOSSES), _curve(spiked), rates)
    assert comparison.trouble == "spike"
    assert comparison.next_command.startswith(
        "align loss REFERENCE CANDIDATE --metric lr # they differ from step 100 on; then align forward"
    )


@pytest.mark.parametrize(("first", "last"), [(100, 110), (294, STEPS)])
def test_steps_skipped_to_no_end_are_a_persistent_overflow(first: int, last: int) -> None:
    skipped = (np.arange(STEPS) >= first) & (np.arange(STEPS) < last)
    comparison = _judge(_curve(LOSSES), _curve(PARTS_AT_100, skipped=skipped))
    assert comparison.trouble == "persistent overflow"
    assert f"after step {first} on both sides" in comparison.next_command
    both = _judge(_curve(LOSSES, skipped=skipped), _curve(PARTS_AT_100, skipped=skipped))
    assert both.trouble == "plateau above the reference"


def test_steps_that_only_one_side_skipped_right_before_the_curves_part_come_first() -> None:
    skipped = (np.arange(STEPS) >= 97) & (np.arange(STEPS) < 100)
    comparison = _judge(_curve(LOSSES), _curve(PARTS_AT_100, skipped=skipped))
    assert comparison.trouble == "persistent overflow"
    assert "after step 97 on both sides" in comparison.next_command
    both = _judge(_curve(LOSSES, skipped=skipped), _curve(PARTS_AT_100, skipped=skipped))
    assert both.trouble == "plateau above the reference"


def test_a_search_for_the_loss_scale_at_the_beginning_is_no_persistent_overflow() -> None:
    comparison = _judge(_curve(LOSSES), _curve(PARTS_AT_100, skipped=np.arange(STEPS) < 8))
    assert comparison.trouble == "plateau above the reference"


@pytest.mark.parametrize(("fall", "trouble"), [(30.0, "persistent overflow"), (1e9, "plateau above the reference")])
def test_a_loss_scale_that_keeps_falling_is_a_persistent_overflow(fall: float, trouble: str) -> None:
    falling = _curve(np.maximum(2.0 ** (24 - np.arange(STEPS) // fall), 1.0), metric="loss_scale")
    steady = _curve(np.full(STEPS, 65536.0), metric="loss_scale")
    found = _judge(_curve(LOSSES), _curve(PARTS_AT_100), OtherMetrics(loss_scale=(steady, falling)))
    assert found.trouble == trouble
    assert (
        _judge(_curve(LOSSES), _curve(PARTS_AT_100), OtherMetrics(loss_scale=(falling, falling))).trouble
        != "persistent overflow"
    )


def test_a_log_that_breaks_off_after_nan_at_a_step_of_its_own_has_nan() -> None:
    reference = replace(_curve(LOSSES[9::10]), steps=np.arange(10, STEPS + 1, 10))
    comparison = _judge(reference, _curve(np.append(LOSSES[:123], np.nan)))
    assert comparison.trouble == "NaN"
    assert "weights after step 123" in comparison.next_command
    assert "batch of step 124" in comparison.next_command


def test_a_learning_rate_that_is_another_one_throughout_is_no_plateau() -> None:
    rates = np.full(STEPS, 0.1)
    comparison = _judge(_curve(rates, metric="lr"), _curve(rates * 1.5, metric="lr"))
    assert comparison.trouble == "another factor"


@given(
    st.lists(
        st.tuples(*[st.floats(-1e300, 1e300) | st.sampled_from([0.0, 1.0, np.nan, np.inf])] * 2),
        min_size=1,
        max_size=60,
    ),
    st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_whatever_the_curves_are_the_class_goes_with_the_verdict(points: list[tuple[float, float]], walk: bool) -> None:
    columns = np.array(points, np.float64).reshape(-1, 2)
    with np.errstate(all="ignore"):
        columns = np.cumsum(np.clip(columns, -1.0, 1.0), axis=0) if walk else columns
    comparison = _judge(_curve(columns[:, 0]), _curve(columns[:, 1]))
    assert (comparison.verdict.outcome is Outcome.NOT_ALIGNED) is bool(comparison.trouble)


def test_every_class_has_a_name_and_commands_of_its_own() -> None:
    assert len({trouble.name for trouble in TROUBLES}) == len(TROUBLES)
    assert len({NEXT[trouble.name] for trouble in TROUBLES}) == len(TROUBLES)
