"""Metrics that two logs share are compared under whatever names; what cannot be compared is told, never an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from align.curves.evaluate_criteria import compare_others, read_other_metrics
from align.curves.loss_log import RAW, LogTable, LossLog, Series
from align.curves.place_on_axis import place_on_axis
from align.curves.presets import PRESETS
from align.errors import StepsPerEpochError

if TYPE_CHECKING:
    from align.curves.loss_log import Curve, OtherMetric, Phase, Window

STEPS = 20
LOSSES = np.linspace(3.0, 1.0, STEPS)
RATES = np.full(STEPS, 0.1)


def _series(values: np.ndarray, window: Window = RAW, phase: Phase = "training") -> Series:
    return Series(np.arange(len(values)), values, np.zeros(len(values)), window, phase)


def _log(label: str, loss_name: str = "loss", /, **metrics: np.ndarray | Series) -> LossLog:
    columns = {name: one if isinstance(one, Series) else _series(one) for name, one in metrics.items()}
    rows = np.arange(STEPS)
    table = LogTable(rows, rows + 1, None, {loss_name: _series(LOSSES), **columns})
    return LossLog(label, "made", table, loss_name, "global step", 1)


def _compare(reference: LossLog, candidate: LossLog, metric: str = "loss") -> dict[str, OtherMetric]:
    found, notes = compare_others(reference, candidate, metric, place_on_axis)
    assert notes == ()
    return {one.metric: one for one in found}


def test_metrics_are_found_under_the_names_of_either_log() -> None:
    left = _log("torch", "train_loss", learning_rate=RATES, grad_norm=LOSSES, loss_cls=LOSSES, eval_loss=LOSSES)
    right = _log("port", lr=RATES, global_norm=LOSSES * 1.05, loss_cls=LOSSES * 1.5, acc=LOSSES)
    found = _compare(left, right)
    assert list(found) == ["grad_norm", "lr", "loss_cls"]
    assert [(one.within, one.first_divergent_step) for one in found.values()] == [(20, None), (20, None), (0, 1)]
    assert (found["loss_cls"].largest_difference, found["loss_cls"].largest_at) == (1.5, 1)


def test_the_compared_metric_is_none_of_the_others_and_the_loss_is_one_of_those_of_another() -> None:
    left, right = _log("torch", "train/loss", learning_rate=RATES), _log("port", lr=RATES)
    assert list(_compare(left, right)) == ["lr"]
    assert list(_compare(left, right, "lr")) == ["loss"]


@pytest.mark.parametrize("name", ["step_time_ms", "data_time", "eta_s", "epoch", "iter", "tokens_per_second", "memory"])
def test_times_and_counters_are_no_results(name: str) -> None:
    log = _log("some", **{name: LOSSES})
    assert _compare(log, log) == {}


@pytest.mark.parametrize("name", ["train_loss_step", "top_1_acc", "samples_seen_loss", "loss_scale", "val_loss"])
def test_names_that_hold_such_a_word_can_still_be_results(name: str) -> None:
    log = _log("some", **{name: LOSSES})
    assert [one.within for one in _compare(log, log).values()] == [STEPS]


def test_a_metric_differs_from_where_it_leaves_its_limit_and_stays() -> None:
    rates = RATES.copy()
    rates[3] = 1.0
    rates[10:] = 0.2
    found = _compare(_log("torch", lr=RATES), _log("port", lr=rates))["lr"]
    assert (found.first_divergent_step, found.last_divergent_step) == (11, None)
    rates[15:] = 0.1
    found = _compare(_log("torch", lr=RATES), _log("port", lr=rates))["lr"]
    assert (found.first_divergent_step, found.last_divergent_step) == (11, 15)
    rates[10:] = 0.1
    single = _compare(_log("torch", lr=RATES), _log("port", lr=rates))["lr"]
    assert (single.within, single.first_divergent_step, single.largest_at) == (19, None, 4)


def test_nan_on_one_side_is_an_infinite_difference_and_on_both_none() -> None:
    lost = np.where(np.arange(STEPS) == 5, np.nan, 0.1)
    one = _compare(_log("torch", lr=RATES), _log("port", lr=lost))["lr"]
    assert (one.within, one.largest_difference, one.largest_at) == (19, np.inf, 6)
    assert _compare(_log("torch", lr=lost), _log("port", lr=lost))["lr"].within == STEPS


def test_what_cannot_be_placed_or_compared_is_told() -> None:
    def place(log: LossLog, metric: str) -> Curve:
        if metric == "accuracy":
            raise StepsPerEpochError(log.label, "it shows no complete epoch")
        return place_on_axis(log, metric)

    left, right = _log("torch", acc=LOSSES, lr=RATES), _log("port", acc=LOSSES, lr=RATES)
    found, (note,) = compare_others(left, right, "loss", place)
    assert [one.metric for one in found] == ["lr"]
    assert note.startswith("accuracy was not compared: ")
    assert "Hint" not in note


def test_metrics_without_a_common_step_are_told() -> None:
    early, late = (Series(rows, RATES[:10], np.zeros(10)) for rows in (np.arange(10), np.arange(10, 20)))
    found, notes = compare_others(_log("torch", lr=early), _log("port", lr=late), "loss", place_on_axis)
    assert (found, notes) == ((), ("lr was not compared: the logs have it at no common step",))


def test_of_training_in_one_log_and_of_validation_in_the_other_is_no_shared_metric() -> None:
    assert _compare(_log("torch", accuracy=_series(LOSSES, phase="validation")), _log("port", accuracy=LOSSES)) == {}


def test_rates_and_scales_are_taken_of_either_log() -> None:
    beside = read_other_metrics(_log("torch", lr=RATES), _log("port", loss_scale=LOSSES), "loss", place_on_axis)
    assert beside.others == beside.notes == ()
    assert beside.lr[0] is not None
    assert beside.loss_scale[1] is not None
    assert beside.lr[1] is beside.loss_scale[0] is None


def test_other_metrics_are_held_to_the_criteria_that_were_asked_for() -> None:
    left, right = _log("torch", grad_norm=LOSSES), _log("port", grad_norm=LOSSES * 1.01)
    (found,), _ = compare_others(left, right, "loss", place_on_axis)
    assert found.within == STEPS
    (found,), _ = compare_others(left, right, "loss", place_on_axis, PRESETS["exact"])
    assert found.within == 0


def test_many_metrics_cost_in_proportion_to_their_number(growth) -> None:
    def compare(count: int) -> None:
        sides = (_log(side, **{f"metric_{number}": LOSSES for number in range(count)}) for side in ("a", "b"))
        assert len(_compare(*sides)) == count

    assert growth(compare, 60) < 2.2
