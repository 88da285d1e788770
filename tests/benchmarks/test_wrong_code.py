"""The benchmark of wrong code: what is written where, and how what is said of it is judged."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from _code_faults import FAULTS, CodeFault
from wrong_code import FOLDER, of_culprit, with_slip, word

TEXT = (FOLDER / "port.py").read_text(encoding="utf-8")
FAULT = CodeFault(
    "Router", "tokens", "scores, axis=-1)\n        top", "scores, axis=1)\n        top", ("softmax-axis",)
)


def test_each_slip_fits_once_and_has_a_name_of_its_own() -> None:
    assert len({(one.port, one.name) for one in FAULTS}) == len(FAULTS)
    for one in FAULTS:
        written, right = with_slip(TEXT, one)
        lines = written.splitlines()
        first = one.wrong.splitlines()[0]
        assert any(first in lines[number - 1] for number in right), one.name


def said(cause: str = "", lines: tuple[str, ...] = (), difference: str = "result", code: Any = None) -> dict[str, Any]:
    inside = {"lines": [*lines], "difference": difference} if lines else None
    return {"cause": cause, "inside": inside, "code": code, "line": lines[0] if lines else ""}


@pytest.mark.parametrize(
    ("culprit", "expected"),
    [
        (said("softmax-axis"), "right"),
        (said("scaled"), "false"),
        (said(), "unknown"),
        (said(lines=("port.py:7",)), "right"),
        (said(lines=("port.py:8",)), "false"),
        (said(lines=("port.py:9", "port.py:8", "port.py:6", "port.py:7")), "line"),
    ],
)
def test_what_is_said_of_a_slip_is_judged(culprit: dict[str, Any], expected: str) -> None:
    assert of_culprit(culprit, FAULT, {7}) == expected


def test_the_worst_part_decides_and_a_fault_that_passes_is_false() -> None:
    told = {"verdict": "not aligned", "culprits": [said("softmax-axis"), said("scaled")]}
    assert word(told, FAULT, {7}) == "false"
    assert word({**told, "verdict": "aligned"}, FAULT, {7}) == "false"
    assert word({**told, "culprits": [said("softmax-axis"), said()]}, FAULT, {7}) == "right"
