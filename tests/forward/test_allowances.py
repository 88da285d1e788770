"""Limits of single layers: which rule is in force, and what it makes of the measured limit."""

from __future__ import annotations

import math

import pytest

from align.core.traces import Limit
from align.forward.forward_result import NO_ALLOWANCES, AcceptedDeviation, Allowances, LayerLimit

MEASURED = Limit(1e-4, 1e-5, "noise")


def test_a_multiple_of_the_measured_limit_is_the_users() -> None:
    assert LayerLimit("*", factor=2.0).in_place_of(MEASURED) == Limit(2e-4, 2e-5, "user")


@pytest.mark.parametrize(
    ("rule", "max_abs", "rmse"),
    [
        (LayerLimit("*", max_abs=1e-3, rmse=1e-6), 1e-3, 1e-6),
        (LayerLimit("*", max_abs=1e-3), 1e-3, 1e-3),
        (LayerLimit("*", rmse=1e-6), math.inf, 1e-6),
    ],
)
def test_absolute_bounds_take_its_place_and_a_mean_is_never_above_the_largest(
    rule: LayerLimit, max_abs: float, rmse: float
) -> None:
    assert rule.in_place_of(MEASURED) == Limit(max_abs, rmse, "user")


@pytest.mark.parametrize(
    ("paths", "factor"),
    [
        (("decoder.1.softmax", "dec.1.sm"), 2.0),
        (("x", "decoder.1.softmax"), 2.0),
        (("decoder.1", "dec.1"), 5.0),
        (("", ""), 7.0),
        (("encoder", "enc"), 1.0),
    ],
)
def test_the_first_glob_that_fits_a_path_of_either_side_wins(paths: tuple[str, str], factor: float) -> None:
    rules = LayerLimit("*.softmax", factor=2.0), LayerLimit("decoder.*", factor=5.0), LayerLimit("", factor=7.0)
    assert Allowances(rules).limit(MEASURED, *paths).max_abs == pytest.approx(factor * 1e-4)
    assert NO_ALLOWANCES.limit(MEASURED, *paths) is MEASURED


def test_globs_that_fit_nothing_are_named_of_limits_and_of_accepted_deviations() -> None:
    rules = Allowances((LayerLimit("a.*", 2.0), LayerLimit("b", 2.0)), (AcceptedDeviation("A*", "why"),))
    assert list(rules.unused(["a.1", "c"])) == ["b", "A*"]
