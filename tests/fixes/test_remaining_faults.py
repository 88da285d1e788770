"""What a run after a fix finds is told apart: gone, left, new or made worse; if it fails, all is put back."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from align.core.documents import to_json_data
from align.core.verdicts import Coverage, Outcome, Verdict
from align.errors import CannotRunError
from align.fixes.fix_port import Executed, PlannedFix, apply_fix
from align.fixes.fix_result import FixJob, FixResult, faults_after
from align.fixes.plan_changes import FileChange, FilePlace, PlannedChanges
from align.report.kinds.culprits import fix_blocks
from align.runs.project_file import ProjectSide
from align.runs.run_folder import RunFolder, as_document

if TYPE_CHECKING:
    from pathlib import Path

VERDICT = Verdict(Outcome.NOT_ALIGNED, "2 of 3 layer outputs differ", Coverage("layer outputs", 3))


def culprit(layer: str, part: str = "layer", cause: str = "epsilon") -> dict[str, Any]:
    return {"candidate": layer, "part": part, "cause": cause, "line": "port.py:3", "sureness": "confirmed"}


def row(layer: str, outcome: str, alone: str = "") -> dict[str, Any]:
    return {"candidate": layer, "outcome": outcome, "isolated": {"outcome": alone} if alone else None}


BEFORE = {
    "layers": [row("a", "not aligned", "not aligned"), row("b", "not aligned", "aligned"), row("c", "not aligned")],
    "culprits": [culprit("a"), culprit("a", "code"), culprit("d")],
    "verdict": to_json_data(VERDICT),
}
AFTER = {**BEFORE, "culprits": [culprit("d"), culprit("b"), culprit("c")]}


def test_each_part_is_gone_left_new_or_worse_and_the_worst_stands_first() -> None:
    found = [(one.candidate, one.part, one.state) for one in faults_after(BEFORE, AFTER)]
    assert found == [
        ("b", "layer", "worse"),
        ("c", "layer", "new"),
        ("d", "layer", "left"),
        ("a", "layer", "gone"),
        ("a", "code", "gone"),
    ]


@pytest.fixture
def fix(tmp_path: Path) -> PlannedFix:
    """A change of one file that is planned, in a run folder with the comparison that it comes from."""
    file, run = tmp_path / "port.py", tmp_path / "run"
    file.write_bytes(b"eps = 1e-3\n")
    run.mkdir()
    write(run, BEFORE)
    change = FileChange(FilePlace(file, file, tmp_path), b"eps = 1e-3\n", b"eps = 1e-5\n")
    line = ("forward", "a.py:f", "port.py:f", "--run", str(run))
    job = FixJob(ProjectSide("port.py:f"), run, tmp_path, line, line, ("fix", "--run", str(run)))
    result = FixResult(
        "a.py:f", "port.py:f", "planned", 3, 0, (), (), (), None, "", "", (), ("align fix --apply",), VERDICT
    )
    return PlannedFix(job, BEFORE, PlannedChanges((change,), (), ()), result)


def write(run: Path, document: dict[str, Any]) -> None:
    import json

    whole = {"schema": "mindalign.forward/2", **document}
    RunFolder(run).file("forward").write_text(json.dumps(whole))


def test_what_is_made_worse_is_said_first_with_the_command_that_puts_all_back(fix: PlannedFix) -> None:
    def run_again(_command: object, _first: Path | None) -> Executed:
        write(fix.job.run, {**AFTER, "verdict": to_json_data(VERDICT)})
        return Executed(1, "", "")

    result = apply_fix(fix, run_again)
    assert result.verdict is not None
    assert result.verdict.exit_code == 1
    assert "1 part was made worse" in result.verdict.reason
    assert result.next_commands == (fix.job.undo,)
    first = fix_blocks(as_document(result, {}))[0]
    assert first.lines == (f"1 part made worse. To put all back:\n{fix.job.undo}",)
    assert (fix.job.root / "port.py").read_bytes() == b"eps = 1e-5\n"


@pytest.mark.parametrize("stop", [None, KeyboardInterrupt])
def test_all_is_put_back_if_the_run_afterwards_comes_to_no_comparison(
    fix: PlannedFix, stop: type[BaseException] | None
) -> None:
    def run_again(_command: object, _first: Path | None) -> Executed:
        assert (fix.job.root / "port.py").read_bytes() == b"eps = 1e-5\n"
        if stop:
            raise stop
        return Executed(2, "", "align: building port.py:f failed: ImportError: no lib\nHint: look at port.py:1\n")

    with pytest.raises(stop or CannotRunError, match=None if stop else "all files were put back: .*ImportError"):
        apply_fix(fix, run_again)
    assert (fix.job.root / "port.py").read_bytes() == b"eps = 1e-3\n"
    assert not (fix.job.run / "fix").exists()


def test_what_is_edited_during_the_run_afterwards_stays_and_is_named(fix: PlannedFix) -> None:
    port = fix.job.root / "port.py"

    def run_again(_command: object, _first: Path | None) -> Executed:
        port.write_bytes(b"eps = 7\n")
        return Executed(2, "", "align: building port.py:f failed: NameError\n")

    with pytest.raises(CannotRunError, match=r"edited during that run: \S*port.py") as raised:
        apply_fix(fix, run_again)
    assert port.read_bytes() == b"eps = 7\n"
    assert (fix.job.run / "fix" / "1" / "1_port.py").read_bytes() == b"eps = 1e-3\n"
    assert "fix/1" in raised.value.hint


def test_the_run_afterwards_is_known_by_a_clock_that_stands_still(fix: PlannedFix) -> None:
    path = RunFolder(fix.job.run).file("forward")
    state = path.stat()

    def run_again(_command: object, _first: Path | None) -> Executed:
        path.rename(path.with_name("old"))
        write(fix.job.run, {**AFTER, "verdict": to_json_data(VERDICT)})
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
        return Executed(1, "", "")

    assert apply_fix(fix, run_again).state == "applied"
