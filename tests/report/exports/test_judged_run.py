from __future__ import annotations

import json

import pytest

from align.core.verdicts import Outcome
from align.errors import RunFolderError
from align.report.exports.judged_run import judged_run
from align.runs.unfinished_runs import mark_begun, mark_ended


def states(path):
    return {rung.name: rung.state for rung in judged_run(path).ladder.rungs}


def test_rungs_are_as_the_climb_left_them(climbed):
    run = judged_run(climbed.path)
    assert run.ladder.verdict.outcome is Outcome.NOT_ALIGNED
    assert [rung.state for rung in run.ladder.rungs] == [
        "not run", "passed", "could not compare", "not available", "failed", "blocked", "stale",
    ]  # fmt: skip
    assert [rung.name for rung in run.ladder.rungs if run.holds(rung)] == ["parameters", "forward", "curve"]


def test_a_result_that_was_replaced_since_is_stale_and_a_run_that_did_not_end_could_not_compare(climbed, samples):
    climbed.write(samples.open_map(), {})
    mark = mark_begun(climbed.path, "forward")
    mark_ended(climbed.path, "forward", mark)
    run = judged_run(climbed.path)
    told = {rung.name: rung for rung in run.ladder.rungs}
    assert told["parameters"].state == "stale"
    assert told["forward"].state == "could not compare"
    assert mark.since in told["forward"].reason
    assert run.ladder.verdict.outcome is Outcome.NOT_COMPARED


def test_without_a_climb_each_result_is_a_rung_with_what_it_finds_at_fault(samples, tmp_path):
    run = judged_run(samples.write_sample_run(tmp_path / "run", ("map", "forward", "step")))
    told = {rung.kind: rung for rung in run.ladder.rungs}
    assert [told[kind].state for kind in ("map", "convert", "forward", "step", "loss")] == [
        "passed", "not run", "failed", "failed", "not run",
    ]  # fmt: skip
    assert (told["forward"].culprits[0].line, told["step"].culprits[0].line) == ("resnet.py:214", "resnet.py:88")
    assert "align convert" in told["convert"].reason
    assert run.ladder.verdict.outcome is Outcome.NOT_ALIGNED
    aligned = judged_run(samples.write_sample_run(tmp_path / "other", ("map", "convert")))
    assert aligned.ladder.verdict.outcome is Outcome.ALIGNED


@pytest.mark.parametrize("change", [{"rungs": [{"name": "forward"}]}, {"created": "yesterday"}, {"rungs": None}])
def test_a_damaged_ladder_is_refused(climbed, change):
    document = json.loads(climbed.file("ladder").read_text(encoding="utf-8"))
    climbed.file("ladder").write_text(json.dumps(document | change), encoding="utf-8")
    with pytest.raises(RunFolderError, match="not what it should be"):
        judged_run(climbed.path)


def test_a_state_that_nobody_knows_is_no_pass(climbed):
    text = climbed.file("ladder").read_text(encoding="utf-8")
    climbed.file("ladder").write_text(text.replace('"state": "blocked"', '"state": "fine"'), encoding="utf-8")
    with pytest.raises(RunFolderError, match="no rung is fine"):
        judged_run(climbed.path)


def test_a_folder_that_is_none_is_refused(tmp_path):
    with pytest.raises(RunFolderError, match="not found"):
        judged_run(tmp_path / "nothing")
