from __future__ import annotations

import json
from dataclasses import replace

import pytest

from align.cli.main import main
from align.core.verdicts import Outcome
from align.errors import RunFolderError
from align.report.judged_run import judged_run
from align.report.write_report import as_junit, as_markdown
from align.runs.climb_ladder import evidence_facts, file_facts, read_facts
from align.runs.run_folder import RunFolder, mark_begun, mark_ended
from align.runs.rung import LadderResult, RungResult, judge_ladder


def states(path):
    return {rung.name: rung.state for rung in judged_run(path).rungs}


def test_rungs_are_as_the_climb_left_them(climbed):
    run = judged_run(climbed.path)
    assert run.verdict.outcome is Outcome.NOT_ALIGNED
    assert [rung.state for rung in run.rungs] == [
        "not run", "passed", "could not compare", "not available", "failed", "blocked", "stale",
    ]  # fmt: skip
    assert [rung.name for rung in run.rungs if run.document(rung)] == ["parameters", "forward", "curve"]


def test_a_result_that_was_replaced_since_is_stale_and_a_run_that_did_not_end_could_not_compare(climbed, samples):
    climbed.write(samples.open_map(), {})
    mark = mark_begun(climbed.path, "forward")
    mark_ended(climbed.path, "forward", mark)
    run = judged_run(climbed.path)
    told = {rung.name: rung for rung in run.rungs}
    assert told["parameters"].state == "stale"
    assert told["forward"].state == "could not compare"
    assert mark.since in told["forward"].reason
    assert run.verdict.outcome is Outcome.NOT_COMPARED


def judged_map(samples, tmp_path, **facts):
    """A climb of one rung that passed, whose result and inputs are there."""
    run = RunFolder(samples.write_sample_run(tmp_path / "run", ("map",)))
    evidence = evidence_facts(run.path, [run.file("map")])
    rung = RungResult("parameters", "passed", "all decided", kind="map", evidence=evidence, **facts)
    run.write(LadderResult("run", (rung,), judge_ladder((rung,))), {})
    return run


@pytest.mark.parametrize("role", ["path", "text", "source"])
def test_a_result_whose_input_has_changed_is_stale_and_one_whose_input_is_elsewhere_is_not(samples, tmp_path, role):
    file = tmp_path / "port.py"
    file.write_text("1")
    one = read_facts({"candidate": file if role == "path" else f"{file}:build"})
    run = judged_map(
        samples, tmp_path, **({"sources": {str(file): file_facts(file)}} if role == "source" else {"made_from": one})
    )
    assert states(run.path) == {"parameters": "passed"}
    file.write_text("2")
    told = judged_run(run.path)
    assert (told.rungs[0].state, told.verdict.outcome) == ("stale", Outcome.NOT_COMPARED)
    assert told.rungs[0].reason.endswith("port.py has changed since")
    file.unlink()  # as where the folder was copied to another machine
    assert states(run.path) == {"parameters": "passed"}


def test_a_result_that_is_gone_is_said_to_be_gone(samples, tmp_path):
    run = judged_map(samples, tmp_path)
    run.file("map").unlink()
    rung = judged_run(run.path).rungs[0]
    assert (rung.state, rung.reason) == ("stale", "it had passed, and map.json is gone")


def test_a_command_that_could_not_run_is_told_once_and_no_older_result_is_made_up(samples, tmp_path):
    run = RunFolder(samples.write_sample_run(tmp_path / "run", ("map",)))
    mark_ended(run.path, "map", replace(mark_begun(run.path, "map"), ended="failed", reason="no module named x"))
    (run.path / "shown").mkdir()
    text = run.path / "shown" / "parameters.txt"
    text.write_text("$ align map\n")
    rung = RungResult(
        "parameters", "could not compare", "no module named x", kind="map", evidence=evidence_facts(run.path, [text])
    )
    run.write(LadderResult("run", (rung,), judge_ladder((rung,))), {})
    told = judged_run(run.path)
    assert told.rungs == (rung,)
    assert told.document(rung) is None
    assert as_markdown(told).count("is older") == as_junit(told).count("is older") == 0


def test_terminal_summary_page_and_exports_tell_the_rungs_alike(samples, tmp_path, capsys):
    run = RunFolder(samples.write_sample_run(tmp_path / "run", ("map",)))
    evidence = evidence_facts(run.path, [run.file("map")])
    rungs = (
        RungResult("parameters", "passed", "all decided", kind="map", evidence=evidence),
        RungResult("weights", "not run", kind="convert"),
        RungResult("metric", "not available", "no data", asked=False, settle='[metric] data = "data.py:data"'),
    )
    run.write(LadderResult("run", rungs, judge_ladder(rungs)), {})
    assert main(["report", str(run.path)]) == 2
    told = " ".join(capsys.readouterr().out.split())
    assert "COULD NOT COMPARE: incomplete: weights (not run)" in told
    assert "align run --folder run --from weights" in told
    summary = run.read("report")
    assert [(one["name"], one["state"]) for one in summary["rungs"]] == [(one.name, one.state) for one in rungs]
    assert summary["outcome"] == summary["verdict"]["outcome"] == "could not compare"
    notebook = (run.path / "report.ipynb").read_text(encoding="utf-8")
    page = (run.path / "report.html").read_text(encoding="utf-8")
    for text in (notebook, page, as_markdown(judged_run(run.path))):
        assert "COULD NOT COMPARE" in text
        assert "incomplete: weights (not run)" in text
        assert "data.py:data" in text
    assert main(["report", str(run.path), "--junit", str(tmp_path / "run.xml")]) == 2
    assert "data.py:data" in (tmp_path / "run.xml").read_text(encoding="utf-8")


def test_a_result_that_no_climb_has_judged_has_not_passed(climbed, samples):
    document = json.loads(climbed.file("ladder").read_text(encoding="utf-8"))
    document["rungs"][5] |= {"state": "not run", "blocked_by": ""}
    climbed.file("ladder").write_text(json.dumps(document | {"created": "2020-01-01T00:00:00+00:00"}), encoding="utf-8")
    climbed.write(samples.clean_step(), {})
    assert states(climbed.path)["gradients"] == "stale"


def test_results_that_no_rung_left_stand_behind_but_for_those_of_a_former_way(climbed, samples):
    document = json.loads(climbed.file("ladder").read_text(encoding="utf-8"))
    climbed.write(samples.sample_diff(), {})  # of the rung weights, which converts now
    climbed.file("ladder").write_text(json.dumps(document | {"created": "2199-01-01T00:00:00+00:00"}), encoding="utf-8")
    assert "diff" not in states(climbed.path)
    climbed.file("ladder").write_text(json.dumps(document | {"created": "2020-01-01T00:00:00+00:00"}), encoding="utf-8")
    assert states(climbed.path)["diff"] == "failed"


def test_a_reason_of_several_failures_says_whose_it_is(samples, tmp_path):
    run = judged_run(samples.write_sample_run(tmp_path / "run", ("forward", "loss")))
    assert run.verdict.reason == "forward, loss curve failed. forward: 105 of 120 layers differ"


def test_without_a_climb_each_result_is_a_rung_with_what_it_finds_at_fault(samples, tmp_path):
    run = judged_run(samples.write_sample_run(tmp_path / "run", ("map", "forward", "step")))
    told = {rung.kind: rung for rung in run.rungs}
    assert [told[kind].state for kind in ("map", "convert", "forward", "step", "loss")] == [
        "passed", "not run", "failed", "failed", "not run",
    ]  # fmt: skip
    assert (told["forward"].culprits[0].line, told["step"].culprits[0].line) == ("resnet.py:214", "resnet.py:88")
    assert "align convert" in told["convert"].reason
    assert run.verdict.outcome is Outcome.NOT_ALIGNED
    aligned = judged_run(samples.write_sample_run(tmp_path / "other", ("map", "convert")))
    assert aligned.verdict.outcome is Outcome.ALIGNED


@pytest.mark.parametrize("change", [{"rungs": [{"name": "forward"}]}, {"created": "yesterday"}, {"rungs": None}])
def test_a_damaged_ladder_is_refused(climbed, change):
    document = json.loads(climbed.file("ladder").read_text(encoding="utf-8"))
    climbed.file("ladder").write_text(json.dumps(document | change), encoding="utf-8")
    with pytest.raises(RunFolderError, match=r"is damaged|not what mindalign writes"):
        judged_run(climbed.path)


def test_a_state_that_nobody_knows_is_no_pass(climbed):
    text = climbed.file("ladder").read_text(encoding="utf-8")
    climbed.file("ladder").write_text(text.replace('"state": "blocked"', '"state": "fine"'), encoding="utf-8")
    with pytest.raises(RunFolderError, match=r"state must be one of .* not 'fine'"):
        judged_run(climbed.path)


def test_a_folder_that_is_none_is_refused(tmp_path):
    with pytest.raises(RunFolderError, match="not found"):
        judged_run(tmp_path / "nothing")
