"""The benchmark of situations: what it expects can be met and missed, and each way to go wrong is counted."""

from __future__ import annotations

import importlib
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

pytestmark = pytest.mark.frameworks

OUTCOMES = {"aligned", "not aligned", "could not compare"}


@pytest.fixture(scope="module")
def script() -> Any:
    return importlib.import_module("odd_situations")


@pytest.fixture(scope="module")
def situations(script: Any) -> dict[str, list[Any]]:
    return {name: importlib.import_module(f"situations.{name}").SITUATIONS for name in script.CLASSES}


@pytest.fixture(scope="module")
def runner() -> Any:
    return importlib.import_module("_run_situations")


def named(situations: dict[str, list[Any]], kind: str, name: str, twin: str) -> Any:
    (one,) = (one for one in situations[kind] if (one.name, one.twin) == (name, twin))
    return one


def test_there_are_many_of_each_class_and_each_is_named_once(situations: dict[str, list[Any]], assert_each) -> None:
    def is_well_made(kind: str) -> None:
        names = [(one.name, one.twin) for one in situations[kind]]
        assert len(names) == len(set(names))
        assert {"clean", "faulty"} == {twin for _, twin in names}

    assert_each(is_well_made, situations)
    assert sum(map(len, situations.values())) >= 120


def test_a_fault_is_never_right_to_pass_in_silence(situations: dict[str, list[Any]]) -> None:
    every = [one for several in situations.values() for one in several]
    assert all(one.expected and set(one.expected) <= OUTCOMES for one in every)
    assert [one.name for one in every if one.twin == "faulty" and "aligned" in one.expected and not one.caveat] == []


@pytest.mark.parametrize(
    ("twin", "got", "told", "wrong"),
    [
        ("clean", "aligned", "all agree", ""),
        ("clean", "not aligned", "1 differs", "false alarm"),
        ("clean", "could not compare", "no", "refused"),
        ("faulty", "not aligned", "the HEAD differs", ""),
        ("faulty", "not aligned", "1 differs", "unsaid"),
        ("faulty", "aligned", "all agree", "false aligned"),
        ("faulty", "crash", "ValueError", "crash"),
        ("faulty", "slow", "", "slow"),
    ],
)
def test_an_outcome_is_held_against_what_is_right(
    situations: dict[str, list[Any]], runner: Any, twin: str, got: str, told: str, wrong: str
) -> None:
    name = {"clean": "idle head", "faulty": "idle head with other values"}[twin]
    assert runner.wrong(named(situations, "hooks", name, twin), got, told) == wrong


def test_twins_are_told_apart_with_their_figures(situations: dict[str, list[Any]], runner: Any) -> None:
    clean, faulty = (runner.run(named(situations, "randomness", "no randomness", twin)) for twin in ("clean", "faulty"))
    assert (clean["got"], clean["wrong"]) == ("aligned", "")
    assert (faulty["got"], faulty["wrong"]) == ("not aligned", "")
    assert clean["factor"] < 1 < faulty["factor"]
    assert "x limit" in faulty["figures"][0]


def test_what_a_user_would_see_as_a_traceback_is_a_crash(situations: dict[str, list[Any]], runner: Any) -> None:
    def broken() -> Any:
        raise ZeroDivisionError

    one = named(situations, "randomness", "no randomness", "clean")
    found = runner.run(type(one)("broken", "clean", broken, one.candidate, one.inputs))
    assert (found["got"], found["wrong"]) == ("crash", "crash")
    assert "ZeroDivisionError" in found["said"]


def test_a_situation_that_ends_the_process_is_a_crash_and_the_next_ones_are_run(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, last = {"name": "first", "wrong": ""}, {"name": "last", "wrong": ""}
    running = {"class": "hooks", "name": "second", "twin": "clean"}
    answers = {"0": {"situations": [first], "running": running, "failed": "exit -6"}, "2": {"situations": [last]}}
    monkeypatch.setattr(script, "in_process", lambda _script, given: answers[given[-1]])
    found = script._class("hooks", "")
    assert [(one["name"], one["wrong"]) for one in found] == [("first", ""), ("second", "crash"), ("last", "")]


@pytest.mark.parametrize("what", ["false aligned", "refused", "unsaid", "crash", "slow"])
def test_one_of_these_misses_its_bar_and_one_false_alarm_does_not(script: Any, what: str) -> None:
    def missed(*wrong: str) -> bool:
        total = script.sums([{"wrong": one, "seconds": 1.0} for one in wrong])
        return any(total[one] > most for one, most in script.BARS.items())

    assert not missed("", "false alarm")
    assert missed("", "false alarm", "false alarm")
    assert missed("", what)


def test_no_alarm_in_500_runs_bounds_the_rate_at_six_in_a_thousand() -> None:
    clean_runs = importlib.import_module("_clean_runs")
    assert clean_runs.bound(0, 500) == pytest.approx(0.006, rel=0.01)
    assert clean_runs.bound(1, 500) > clean_runs.bound(0, 500)
    assert clean_runs.bound(0, 0) == 1.0


def test_a_seed_stands_for_one_clean_pair_that_agrees() -> None:
    clean_runs = importlib.import_module("_clean_runs")
    (draw,) = clean_runs.draws(3, 1)
    assert draw == next(islice(clean_runs.draws(0, 9), 3, None))
    assert clean_runs.compared(draw)["got"] == "aligned"
