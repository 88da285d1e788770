"""Schedules that differ late, or behind the end of one of them, are found; those that never differ are not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from align.core.verdicts import Outcome
from align.lint.lint_models import lint_models

if TYPE_CHECKING:
    from align.lint.compare_settings import LintResult

pytestmark = pytest.mark.frameworks

SIDES = Path(__file__).with_name("schedule_sides.py")


@pytest.fixture(autouse=True)
def _no_stray_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])


def lint(reference: str, candidate: str, steps: int | None = None) -> LintResult:
    return lint_models(f"{SIDES}:{reference}", f"{SIDES}:{candidate}", steps=steps)


@pytest.mark.parametrize(
    ("reference", "candidate", "first"),
    [
        ("constant", "stairs_port", 100),
        ("constant", "inverse_port", 50),
        ("constant", "natural_port", 40),
        ("late", "constant_port", 2000),
        ("late_function", "constant_port", 2000),
        ("late_part", "constant_port", 1501),
        ("constant", "late_port", 2000),
        ("restarts", "cosine_port", 10),
        ("one_decays", "other_decays_port", 1),
    ],
)
def test_the_first_step_is_found_however_late_it_comes(reference: str, candidate: str, first: int) -> None:
    result = lint(reference, candidate)
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert {one.rule for one in result.findings} == {"learning-rate-schedule"}
    assert f"at step {first}" in result.findings[0].reference_setting


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        ("stairs", "stairs_port"),
        ("late", "late_function"),
        ("late_stairs", "late_port"),
        ("settled", "cosine_port"),
        ("one_decays", "one_decays_port"),
        ("restarts", "restarts"),
    ],
)
def test_what_changes_alike_gives_no_finding(reference: str, candidate: str) -> None:
    result = lint(reference, candidate)
    assert (result.findings, result.not_compared) == ((), ())
    assert result.verdict.outcome is Outcome.ALIGNED


def test_steps_behind_the_end_of_one_schedule_are_told_and_may_be_left_out() -> None:
    assert "after the 10 steps that one side's schedule covers" in lint("restarts", "cosine_port").findings[0].effect
    assert lint("restarts", "cosine_port", steps=10).findings == ()
