"""A run beside one that was accepted: what counts as new, what as mended, and what the file keeps."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from align.core.verdicts import Coverage, Outcome, Verdict
from align.errors import RunFolderError, UsageError
from align.forward.forward_result import AcceptedDeviation, Allowances, LayerLimit
from align.runs.baseline import (
    LAST,
    RecordedRung,
    RunRecord,
    commit_of,
    compare_with_baseline,
    fingerprint,
    keep_last_run,
    read_baseline,
    read_difference,
    read_last_run,
    read_record,
    record_run,
    write_baseline,
)
from align.runs.climb_ladder import file_facts
from align.runs.project_file import Project
from align.runs.run_folder import RunFolder
from align.runs.rung import Culprit, LadderResult, RungResult, judge_ladder
from align.words.catalogue import sentence

VERDICT = Verdict(Outcome.NOT_ALIGNED, "forward failed", Coverage("rungs", 1))
EPSILON = Culprit("layers.0.norm", "norm-eps", "port.py:7:9", "nn.LayerNorm(8, epsilon=1e-5)")


def record(*rungs, allowed=None, files=None):
    return RunRecord(rungs, allowed or {}, files or {}, {})


def rung(state="passed", culprits=(), compared=5, name="forward"):
    folder = RunFolder.__new__(RunFolder)  # no result is read: the rung has no evidence
    ladder = LadderResult("run", (RungResult(name, state, "why", kind="forward", culprits=culprits),), VERDICT)
    object.__setattr__(folder, "path", __import__("pathlib").Path("run"))
    (recorded,) = record_run(ladder, folder, Project()).rungs
    return replace(recorded, compared=compared, unit="layers")


def against(before, now):
    found = compare_with_baseline("b.json", before, now, VERDICT)
    return [one.text for one in found.new], [one.text for one in found.mended], found


def test_the_same_fault_at_another_line_with_another_figure_is_known():
    measured = [sentence("ladder.loss_differs", candidate=value, reference=2.0, limit=1e-5) for value in (2.1, 2.2)]
    before = record(rung("failed", (EPSILON, Culprit("loss", measured[0]))))
    moved = replace(EPSILON, line="port.py:90:5")
    new, mended, found = against(before, record(rung("failed", (moved, Culprit("loss", measured[1])))))
    assert (new, mended, found.known, found.exit_code) == ([], [], 2, 0)


@pytest.mark.parametrize("other", [
    replace(EPSILON, place="layers.1.norm"),
    replace(EPSILON, cause="gelu-form"),
    replace(EPSILON, change="nn.LayerNorm(8, epsilon=1e-3)"),
    replace(EPSILON, cause=sentence("ladder.setting", candidate="eps=1", reference="eps=2")),
])  # fmt: skip
def test_another_place_cause_or_change_is_new_and_the_one_that_is_gone_is_mended(other):
    new, mended, found = against(record(rung("failed", (EPSILON,))), record(rung("failed", (other,))))
    assert len(new) == len(mended) == found.exit_code == 1
    assert found.known == 0
    assert found.new[0].line == EPSILON.line
    assert "layers.0.norm: norm-eps; write nn.LayerNorm(8, epsilon=1e-5)" in mended[0]


def test_a_rung_that_fails_or_can_no_longer_be_run_is_new_and_one_that_passes_is_mended():
    passed, failed, blocked = record(rung()), record(rung("failed", (EPSILON,))), record(rung("blocked"))
    assert against(passed, failed)[0] == [
        "forward: failed, where it was passed. why",
        "forward: layers.0.norm: norm-eps; write nn.LayerNorm(8, epsilon=1e-5)",
    ]
    assert against(failed, passed)[:2] == (
        [],
        [against(passed, failed)[0][1], "forward: passed, where it was failed. why"],
    )
    assert against(passed, blocked)[0] == ["forward: blocked, where it was passed. why"]
    assert against(passed, record())[0] == ["forward: not run, where it was passed"]
    assert against(blocked, blocked)[:2] == against(blocked, record())[:2] == ([], [])
    assert len(against(blocked, failed)[0]) == 2, "what was blocked has not been accepted"


def test_a_failure_without_a_place_is_known_by_why_it_failed():
    failed = rung("failed")
    other = replace(failed, findings=(replace(failed.findings[0], fingerprint="another"),))
    assert against(record(failed), record(failed))[0] == []
    assert len(against(record(failed), record(other))[0]) == 1


def test_less_that_is_compared_and_more_that_is_allowed_are_new():
    assert against(record(rung()), record(rung(compared=4)))[0] == ["forward: only 4 layers compared, where it was 5"]
    assert against(record(rung()), record(rung(compared=6)))[0] == []
    two, three = record(allowed={"limits.head": 2.0}), record(allowed={"limits.head": 3.0})
    assert against(two, three)[0] == ["the project file allows limits.head = 3.0, where it was 2.0"]
    assert against(three, two)[:2] == ([], ["the project file no longer allows limits.head = 3.0"])
    assert against(record(), two)[0] == ["the project file allows limits.head = 2.0, which it did not"]


def test_the_file_keeps_what_was_read_outside_of_the_run_folder_and_what_is_allowed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = RunFolder.create(tmp_path / "align-run")
    for path in (tmp_path / "port.py", folder.path / "map.toml"):
        path.write_text("# nothing")
    read = {role: {"path": str(path), **file_facts(path)} for role, path in
            (("candidate", tmp_path / "port.py"), ("map", folder.path / "map.toml"))}  # fmt: skip
    sources = {"numpy": {"version": "1.26"}}
    rungs = (
        RungResult("forward", "failed", "why", kind="forward", culprits=(EPSILON,), made_from=read, sources=sources),
    )
    allowances = Allowances((LayerLimit("head", 3.0), LayerLimit("*", rmse=1.0)), (AcceptedDeviation("tail", "known"),))
    project = Project(allowances=allowances, file=tmp_path / "align.toml")
    kept = record_run(LadderResult("align-run", rungs, judge_ladder(rungs)), folder, project)
    assert kept.files == {"port.py": file_facts(tmp_path / "port.py")["sha256"]}
    assert kept.versions == {"numpy": "1.26"}
    assert kept.allowances == {
        "limits.head": 3.0, "limits.*": {"max_abs": "Infinity", "rmse": 1.0}, "accepted.tail": "known"
    }  # fmt: skip
    write_baseline(tmp_path / "b.json", kept, VERDICT)
    assert read_baseline(tmp_path / "b.json") == kept
    changed = replace(kept, files={"port.py": "other"})
    assert compare_with_baseline("b.json", kept, changed, VERDICT).changed == ("port.py",)


def test_no_file_and_another_file_are_refused(tmp_path):
    with pytest.raises(UsageError, match="there is no baseline"):
        read_baseline(tmp_path / "b.json")
    (tmp_path / "b.json").write_text("{}")
    with pytest.raises(RunFolderError):
        read_baseline(tmp_path / "b.json")


def test_the_mark_of_a_finding_is_of_its_rung_too():
    assert fingerprint("forward", EPSILON) != fingerprint("gradients", EPSILON)
    assert isinstance(rung(), RecordedRung)


def test_a_tighter_bound_of_a_table_is_not_new():
    loose = record(allowed={"limits.head": {"max_abs": 1e-3, "rmse": 1e-4}})
    tight = record(allowed={"limits.head": {"max_abs": 1e-5, "rmse": 1e-4}})
    assert against(loose, tight)[:2] == ([], ["the project file no longer allows limits.head.max_abs = 0.001"])
    assert len(against(tight, loose)[0]) == 1


def test_a_run_that_judged_nothing_is_no_success(tmp_path):
    nothing = Verdict(Outcome.NOT_COMPARED, "no loss", Coverage("rungs", 0))
    assert compare_with_baseline("b.json", record(), record(), nothing).exit_code == 2
    assert compare_with_baseline("b.json", record(), record(), VERDICT).exit_code == 0
    with pytest.raises(UsageError, match="judged nothing"):
        write_baseline(tmp_path / "b.json", record(), nothing)
    assert list(tmp_path.iterdir()) == []


def ran(folder, *rungs):
    """What a climb that came to these rungs keeps of them in its folder; new and mended as texts, and how many stay."""
    found = keep_last_run(LadderResult("run", rungs, judge_ladder(rungs)), folder, Project())
    return found and ([one.text for one in found.new], [one.text for one in found.mended], found.known)


def test_a_run_is_held_against_the_last_one_of_its_folder_that_judged_each_rung(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    failed = RungResult("forward", "failed", "one differs", culprits=(EPSILON,))
    lint = RungResult("settings", "failed", "one differs", culprits=(replace(EPSILON, place="head"),))
    waits = replace(failed, state="blocked", culprits=())
    assert ran(folder, replace(lint, state="passed", culprits=()), failed) is None, "there is none before"
    new, mended, known = ran(folder, lint, waits)
    assert (len(new), mended, known) == (2, [], 0), "the rung settings failed, by one finding"
    assert all(text.startswith("settings: ") for text in new)
    new, mended, known = ran(folder, lint, failed)
    assert (new, mended, known) == ([], [], 2), "the rung forward was not tried in between"
    moved = replace(failed, culprits=(replace(EPSILON, line="port.py:9"), replace(EPSILON, place="tail")))
    new, mended, known = ran(folder, replace(lint, state="passed", culprits=()), moved)
    assert (len(new), len(mended), known) == (1, 2, 1)
    assert folder.read("against")["since"] == read_last_run(folder)["created"]


def test_a_run_that_judged_nothing_is_not_the_last_one_and_a_damaged_record_is_none(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    failed = RungResult("forward", "failed", "one differs", culprits=(EPSILON,))
    ran(folder, failed)
    kept = (folder.path / LAST).read_bytes()
    new, mended, _ = ran(folder, RungResult("forward", "could not compare", "no checkpoint"))
    assert (len(new), mended) == (1, [])
    assert (folder.path / LAST).read_bytes() == kept
    (folder.path / LAST).write_text("{}")
    assert ran(folder, failed) is None
    assert folder.read("against") is None, "it would tell of another run"
    assert read_record(read_last_run(folder)["record"]).rungs[0].findings[0].place == EPSILON.place


def test_what_another_version_kept_is_no_last_run_and_no_difference(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    failed = RungResult("forward", "failed", "one differs", culprits=(EPSILON,))
    ran(folder, failed)
    ran(folder, failed)
    assert read_difference(folder)["known"] == 1
    for name, schema in ((LAST, "baseline"), ("against.json", "against")):
        document = {"schema": f"mindalign.{schema}/2", "mindalign": "0.0.1", "created": "2026-01-01T00:00:00+00:00"}
        (folder.path / name).write_text(json.dumps(document))
    assert read_difference(folder) is None
    assert ran(folder, failed) is None
    assert ran(folder, failed) is not None, "it was written anew"


def test_no_code_is_kept_of_a_place_that_cannot_be_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("port.py").write_text("a = 1\n")
    folder = RunFolder.create(tmp_path / "run")
    places = ("port.py:1", "port.py:99", f"{'x' * 5000}.py:1")
    culprits = tuple(replace(EPSILON, place=str(number), line=line) for number, line in enumerate(places))
    ran(folder, RungResult("forward", "failed", "three differ", culprits=culprits))
    assert read_record(read_last_run(folder)["record"]).sources == {"port.py:1": "a = 1"}


def test_the_commit_of_a_folder_says_whether_it_was_edited_since(tmp_path):
    def git(*words):
        command = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    git("init", "-q")
    assert commit_of(tmp_path) == "", "there is none yet"
    (tmp_path / "port.py").write_text("a = 1\n")
    git("add", "port.py")
    git("commit", "-q", "-m", "port")
    (tmp_path / "below").mkdir()
    assert commit_of(tmp_path / "below") == git("rev-parse", "HEAD")
    (tmp_path / "port.py").write_text("a = 2\n")
    assert commit_of(tmp_path) == git("rev-parse", "HEAD") + "-dirty"
