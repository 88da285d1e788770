"""What the page says of each rung: from the ladder, from newer results, or from the results alone."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from align.core.verdicts import Outcome
from align.report.judged_run import judged_run
from align.report.page_html import page_html, page_rungs, rung_section
from align.runs.run_folder import RunFolder, mark_begun
from align.runs.rung import RungResult

climbed = runpy.run_path(str(Path(__file__).with_name("conftest.py")))["climb"]


@pytest.fixture
def run(samples, tmp_path):
    return RunFolder(samples.write_sample_run(tmp_path / "run"))


def states(rungs):
    return {rung.result.name: rung.result.state for rung in rungs}


def test_the_ladder_tells_the_states_and_results_beside_it_stand_behind(run):
    climbed(run)
    judged = judged_run(run.path)
    rungs, verdict = page_rungs(judged), judged.verdict
    assert [rung.title for rung in rungs] == [
        "parameters", "weights", "data", "forward", "metric", "gradients", "optimizer", "loss curve"
    ]  # fmt: skip
    assert states(rungs)["data"] == "not available"
    assert states(rungs)["loss"] == "failed"
    assert verdict.outcome is Outcome.NOT_ALIGNED
    assert verdict.reason == ("forward, gradients, optimizer, loss curve failed. forward: 105 of 120 layers differ")


def test_of_rungs_that_read_one_result_the_first_that_failed_shows_it(run):
    climbed(run)
    rungs = {rung.result.name: rung for rung in page_rungs(judged_run(run.path))}
    assert rungs["gradients"].told_under == ""
    assert rungs["optimizer"].told_under == rungs["gradients"].anchor


def test_blocked_stale_and_not_run_are_said_and_never_passed(run):
    waiting = {
        "weights": RungResult("", "stale", "it had passed", kind="convert"),
        "forward": RungResult("", "blocked", "parameters must pass first", kind="forward"),
        "gradients": RungResult("", "not run", kind="step"),
        "optimizer": RungResult("", "not run", kind="step"),
    }
    climbed(run, **waiting)
    run.file("loss").unlink()
    judged = judged_run(run.path)
    rungs, verdict = page_rungs(judged), judged.verdict
    assert {name: states(rungs)[name] for name in waiting} == {
        "weights": "stale", "forward": "blocked", "gradients": "not run", "optimizer": "not run"
    }  # fmt: skip
    assert [rung.document is None for rung in rungs if rung.result.name in waiting] == [False, True, True, True]
    assert verdict.outcome is Outcome.NOT_COMPARED


def test_a_result_that_was_replaced_since_the_climb_is_stale_and_has_not_passed(run, samples):
    climbed(run)
    run.write(samples.sample_forward(diverges=False), {})
    judged = judged_run(run.path)
    rungs, verdict = page_rungs(judged), judged.verdict
    assert states(rungs)["forward"] == "stale"
    assert "forward" not in verdict.reason
    assert "it had failed, and its result has been replaced since" in page_html(run)


def test_a_run_that_did_not_come_to_its_end_leaves_its_rung_open(run):
    climbed(run)
    mark_begun(run.path, "forward")
    rung = next(rung for rung in page_rungs(judged_run(run.path)) if rung.result.name == "forward")
    assert rung.result.state == "could not compare"
    assert "has not ended" in rung.result.reason


def test_without_a_ladder_the_results_are_the_rungs_and_what_was_not_run_says_so(samples, tmp_path):
    run = RunFolder(samples.write_sample_run(tmp_path / "run", ("map", "forward")))
    judged = judged_run(run.path)
    rungs, verdict = page_rungs(judged), judged.verdict
    assert states(rungs) == {
        "map": "passed", "convert": "not run", "forward": "failed", "step": "not run", "loss": "not run"
    }  # fmt: skip
    assert verdict.reason == "forward failed: 105 of 120 layers differ"


def test_a_climb_that_ended_before_any_result_has_a_page_too(tmp_path):
    run = RunFolder.create(tmp_path)
    climbed(run, environment=replace(RungResult("", "could not compare", "no mindspore"), kind="doctor"))
    judged = judged_run(run.path)
    rungs, verdict = page_rungs(judged), judged.verdict
    assert states(rungs)["environment"] == "could not compare"
    assert verdict.outcome is Outcome.NOT_COMPARED


def test_a_command_that_could_not_run_says_what_to_do_and_what_to_type(run):
    missing = RungResult("", "could not compare", "no module named a", hint="install a", commands=("align map a b",))
    climbed(run, metric=missing)
    (rung,) = (one for one in page_rungs(judged_run(run.path)) if one.result.name == "metric")
    section = rung_section(rung, {}, {})
    assert "install a" in section
    assert "align map a b" in section
