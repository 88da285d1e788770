from __future__ import annotations

import json
from dataclasses import replace

import pytest

from align.errors import RunFolderError
from align.report.open_run import summarize_run
from align.runs.run_folder import clear_mark, mark_begun, mark_ended


def test_a_rung_that_was_not_run_is_not_run_and_never_aligned(samples, tmp_path):
    summary = summarize_run(samples.write_sample_run(tmp_path / "run", ("map",)))
    assert {rung.name: rung.state for rung in summary.rungs} == {
        "map": "passed",
        "convert": "not run",
        "forward": "not run",
        "step": "not run",
        "loss": "not run",
    }
    assert summary.exit_code == 0


def test_a_rung_names_the_hashes_that_it_was_made_from(samples, tmp_path):
    rung = summarize_run(samples.write_sample_run(tmp_path / "run")).rungs[2]
    assert rung.made_from is not None
    assert len(rung.made_from["reference"]["sha256"]) == 64
    assert rung.made_from["candidate"] == {"text": "ports.resnet:build"}


@pytest.mark.parametrize("damage", [{"verdict": None}, {"verdict": {"outcome": "splendid"}}, {"schema": "other/1"}])
def test_a_damaged_result_is_refused_by_name(samples, tmp_path, damage):
    run = samples.write_sample_run(tmp_path / "run")
    document = json.loads((run / "forward.json").read_text(encoding="utf-8")) | damage
    (run / "forward.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(RunFolderError, match=r"forward\.json"):
        summarize_run(run)


@pytest.mark.parametrize(
    ("ended", "said"), [("failed", "failed (no map)"), ("interrupted", "interrupted"), ("", "has not ended")]
)
def test_a_result_older_than_a_run_that_did_not_end_passes_nothing(samples, tmp_path, ended, said):
    run = samples.write_sample_run(tmp_path / "run", ("map",))
    begun = mark_begun(run, "map")
    mark_ended(run, "map", replace(begun, ended=ended, reason="no map"))
    summary = summarize_run(run)
    rung = summary.rungs[0]
    assert (rung.state, summary.exit_code) == ("could not compare", 2)
    assert rung.reason.startswith(f"a run that began {begun.since}")
    assert said in rung.reason
    assert "the result is older than that: aligned" in rung.reason
    assert rung.unfinished is not None
    assert rung.unfinished["pid"] == begun.pid
    clear_mark(run, "map")
    assert summarize_run(run).exit_code == 0


def test_a_rung_whose_only_run_failed_is_not_passed_over(samples, tmp_path):
    run = samples.write_sample_run(tmp_path / "run", ("map",))
    mark_begun(run, "lint")
    outcomes = {rung.name: rung.state for rung in summarize_run(run).rungs}
    assert outcomes == {
        "map": "passed",
        "convert": "not run",
        "lint": "could not compare",
        "forward": "not run",
        "step": "not run",
        "loss": "not run",
    }


def test_results_beside_the_ladder_are_rungs_where_they_are_there(samples, tmp_path):
    run = samples.write_sample_run(tmp_path / "run", ("map", "diff"))
    summary = summarize_run(run)
    assert [rung.name for rung in summary.rungs] == ["map", "convert", "diff", "forward", "step", "loss"]
    assert summary.rungs[2].state == "failed"
    assert summary.exit_code == 1


def test_a_folder_with_a_result_beside_the_ladder_alone_can_be_summarized(samples, tmp_path):
    assert summarize_run(samples.write_sample_run(tmp_path / "run", ("diff",))).exit_code == 1


def test_what_is_asked_before_a_training_step_stands_between_forward_and_step(samples, tmp_path):
    run = samples.write_sample_run(tmp_path / "run", ("determinism", "initial", "nonfinite", "params", "step"))
    rungs = {rung.name: rung.state for rung in summarize_run(run).rungs}
    assert list(rungs) == ["map", "convert", "forward", "params", "initial", "determinism", "nonfinite", "step", "loss"]
    assert [name for name, outcome in rungs.items() if outcome == "not run"] == ["map", "convert", "forward", "loss"]
    assert "params" not in {rung.name for rung in summarize_run(samples.write_sample_run(tmp_path / "other")).rungs}
