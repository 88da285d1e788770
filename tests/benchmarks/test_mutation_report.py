"""The figures of the mutation benchmark: nothing planted is no pass, and each bar can be missed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from _mutation_report import print_report, summary

CLEAN = {"verdict": "aligned", "reason": "all agree", "culprits": []}
RIGHT = {
    "name": "epsilon @ norm: eps=0.001",
    "kind": "epsilon",
    "family": "settings",
    "moves": "output",
    "moved": {"output": 3.0, "layers": {"norm": 9.0}},
    "verdict": "not aligned",
    "reason": "1 of 2 differs",
    "culprits": [],
    "detected": True,
    "right layer": True,
    "cause": True,
    "strangers": 0,
    "linted": None,
}


def bench(*records: dict[str, Any], **case: Any) -> list[dict[str, Any]]:
    return [{"case": "one", "mutations": list(records), "before": CLEAN, "after": CLEAN, "undone": True, **case}]


def test_all_found_on_a_clean_port_is_a_pass() -> None:
    figures = summary(bench(RIGHT))
    assert figures["rates"] == {"detected": 1.0, "right layer": 1.0, "cause": 1.0, "explained": None}
    assert figures["passed"]


def test_nothing_planted_is_no_pass() -> None:
    assert not summary(bench())["passed"]
    assert summary(bench())["rates"]["detected"] is None


@pytest.mark.parametrize(
    "wrong", [{"detected": False}, {"right layer": False}, {"cause": False}, {"strangers": 1}], ids=str
)
def test_each_miss_fails_and_is_printed(wrong: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    found = bench({**RIGHT, **wrong})
    assert not summary(found)["passed"]
    print_report(found, summary(found))
    assert "WRONG one: epsilon @ norm" in capsys.readouterr().out


@pytest.mark.parametrize(
    "alarm", [{"after": {**CLEAN, "verdict": "not aligned"}}, {"undone": False}, {"failed": "exit -11"}], ids=str
)
def test_a_port_that_is_not_clean_or_dies_fails(alarm: dict[str, Any]) -> None:
    assert not summary(bench(RIGHT, **alarm))["passed"]


def test_wrong_code_is_to_be_explained_in_three_of_four_cases() -> None:
    code = {**RIGHT, "family": "code", "cause": None}
    told, silent = {**code, "explained": True}, {**code, "explained": False}
    assert summary(bench(told, told, told, silent))["rates"]["explained"] == 0.75
    assert summary(bench(told, told, told, silent))["passed"]
    assert not summary(bench(told, told, silent))["passed"]


def test_what_moves_nothing_is_undecidable_and_no_miss() -> None:
    unseen = {**RIGHT, "moves": "nothing", "detected": False, "right layer": False, "cause": False}
    assert summary(bench(RIGHT, unseen))["passed"]
    assert summary(bench(RIGHT, unseen))["total"]["nothing"] == 1


def test_a_fault_shown_in_another_batch_is_a_miss(capsys: pytest.CaptureFixture[str]) -> None:
    assert summary(bench({**RIGHT, "right batch": True}))["rates"]["right batch"] == 1.0
    found = bench({**RIGHT, "right batch": False})
    assert not summary(found)["passed"]
    print_report(found, summary(found))
    assert "not in the right batch" in capsys.readouterr().out


def test_a_case_that_cannot_be_run_in_a_way_is_told_and_fails_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    found = [*bench(RIGHT), {"case": "two bfloat16", "mutations": [], "cannot": "no such kernel"}]
    assert summary(found)["passed"]
    print_report(found, summary(found))
    assert "CANNOT two bfloat16: no such kernel" in capsys.readouterr().out
