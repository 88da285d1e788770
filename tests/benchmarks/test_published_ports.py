"""The page of published ports, from a folder with one made-up case and without any package."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from published_ports import cell, faults, moved, package_of, page, relative

from align.forward.forward_result import Culprit

FAULT = {
    "cause": "max-pool-padding",
    "words": "other borders",
    "sureness": "confirmed",
    "change": 'nn.MaxPool2d(pad_mode="pad")',
    "class": "MaxPool2d",
    "layers": ["pool.0", "pool.1"],
    "lines": ["net.py:3", "net.py:4", "net.py:5", "net.py:6"],
}
PORT = {"case": "one", "port": "zoo 1.0", "original": "park 2.0", "model": "Net", "reason": "layer x differs"}


def test_a_port_with_a_fault_has_a_row_with_line_cause_and_movement() -> None:
    found = [{**PORT, "verdict": "not aligned", "faults": [FAULT], "moved": 1.5, "rounding": 1e-6}]
    text = page(found)
    row = next(line for line in text.splitlines() if line.startswith("| zoo 1.0"))
    for said in ("park 2.0", "`net.py:3`, `net.py:4`, `net.py:5` and 1 more", "other borders", "1.5 (1,500,000 ×)"):
        assert said in row
    assert "1 of 1 ports compute something else" in text
    assert "`pool.{0…1} (2)`" in text
    assert "Layer x differs." in text


def test_a_clean_port_and_one_that_cannot_be_opened_are_listed_apart() -> None:
    clean = {**PORT, "verdict": "aligned", "faults": [], "moved": 2e-7, "rounding": 1e-7}
    text = page([clean, {"case": "two", "failed": "exit 1: no such package"}])
    assert "0 of" not in text
    assert "- zoo 1.0, Net (`one`): moves the output by 2e-07 (2.0 ×)" in text
    assert "- two: exit 1: no such package" in text


def test_a_port_that_is_merely_suspected_is_not_counted_as_found() -> None:
    sure = {**PORT, "verdict": "not aligned", "faults": [FAULT], "moved": 1.5, "rounding": 1e-6}
    guess = {**sure, "case": "two", "faults": [FAULT | {"sureness": "suspected"}]}
    found, suspected = page([sure, guess]).split("## Suspected, and not shown")
    assert "1 of 2 ports compute something else" in found
    assert "`two`" not in found
    assert "`two`" in suspected
    assert "other borders (suspected)" in suspected


def test_the_movement_is_relative_and_infinite_for_other_shapes() -> None:
    ones = [np.ones(4)]
    assert relative(ones, [np.full(4, 1.5)]) == pytest.approx(0.5)
    assert relative(ones, ones) == 0.0
    assert relative(ones, [np.ones(3)]) == float("inf")
    assert moved({"moved": 1.0, "rounding": 0.0}) == "1 (inf ×)"
    assert cell("a|b") == "a\\|b"


def test_culprits_of_one_cause_and_change_are_one_fault() -> None:
    def culprit(name: str, line: str, cause: str = "max-pool-padding") -> Culprit:
        known = dict.fromkeys(Culprit.__slots__, "")
        return Culprit(**{**known, "candidate": name, "cause": cause, "line": line, "candidate_class": "nn.MaxPool2d"})

    found = faults([culprit("a", "x.py:1"), culprit("b", "x.py:1"), culprit("c", "x.py:2", "gelu-approximation")])
    assert [(one["layers"], one["lines"], one["class"]) for one in found] == [
        (["a", "b"], ["x.py:1"], "MaxPool2d"),
        (["c"], ["x.py:2"], "MaxPool2d"),
    ]


def test_code_of_no_package_is_no_published_port() -> None:
    class Own:
        pass

    assert package_of(Own()) == ""
