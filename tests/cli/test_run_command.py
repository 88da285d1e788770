"""`align run` as a user types it: what it refuses, how it ends, what it prints, and that it goes on where it was."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from align.cli.main import main
from align.runs.run_folder import RunFolder

ROWS = "step,loss\n" + "".join(f"{step},{7 - step / 10}\n" for step in range(1, 31))


@pytest.fixture
def logs(tmp_path, monkeypatch):
    """A project of two logs, as the current folder; nothing of it needs a framework."""
    monkeypatch.chdir(tmp_path)
    for side in ("torch", "mindspore"):
        (tmp_path / f"{side}.csv").write_text(ROWS)
    (tmp_path / "align.toml").write_text(
        '[reference]\nlog = "torch.csv"\n[candidate]\nlog = "mindspore.csv"\n[run]\nrungs = ["curve"]\n'
    )
    return tmp_path


def states(folder):
    return {rung["name"]: rung["state"] for rung in RunFolder(folder).read("ladder")["rungs"]}


def test_all_that_was_asked_for_has_passed_ends_with_0_and_names_the_report(logs, capsys):
    assert main(["run"]) == 0
    told = capsys.readouterr().out
    assert "aligned: 1 rung passed" in told
    assert "align report align-run" in told
    assert states(logs / "align-run") == {"curve": "passed"}


def test_a_failure_ends_with_1_and_says_where_what_printed_it_and_what_to_type_next(logs, capsys):
    (logs / "mindspore.csv").write_text(ROWS.replace(",5.", ",9."))
    assert main(["run"]) == 1
    told = capsys.readouterr().out
    assert told.startswith("curve: FAILED. ")
    assert "\n    cat align-run/shown/curve.txt\n" in told
    assert told.endswith("after the change, run:\n    align run\n")
    assert "NOT ALIGNED: curve failed" in told
    assert Path("align-run/shown/curve.txt").read_text().startswith("$ align loss torch.csv mindspore.csv")


def test_a_corrected_log_is_compared_again_and_one_that_is_as_it_was_is_not(logs, capsys):
    (logs / "mindspore.csv").write_text(ROWS.replace(",5.", ",9."))
    assert main(["run"]) == 1
    (logs / "mindspore.csv").write_text(ROWS)
    assert main(["run"]) == 0
    written = (logs / "align-run" / "loss.json").stat().st_mtime_ns
    assert main(["run"]) == 0
    assert (logs / "align-run" / "loss.json").stat().st_mtime_ns == written
    assert main(["run", "--from", "curve"]) == 0
    assert (logs / "align-run" / "loss.json").stat().st_mtime_ns > written


def test_the_second_run_says_what_is_mended_and_so_do_the_page_and_the_text_for_a_pull_request(logs, capsys):
    (logs / "mindspore.csv").write_text(ROWS.replace(",5.", ",9."))
    assert main(["run"]) == 1
    assert "Since the run" not in capsys.readouterr().out
    (logs / "mindspore.csv").write_text(ROWS)
    assert main(["--lang", "zh", "run"]) == 0
    assert re.search(
        r"与 \d{4}-\d\d-\d\d \d\d:\d\d UTC 的运行相比：新增 0 项，已修正 1 项，仍存在 0 项。", capsys.readouterr().out
    )
    assert main(["-q", "run"]) == 0
    assert "Since" not in capsys.readouterr().out
    (logs / "mindspore.csv").write_text(ROWS.replace(",5.", ",9."))
    assert main(["run"]) == 1
    assert re.search(r"\nSince the run of .* UTC: 1 new, 0 mended, 0 still there\.\n", capsys.readouterr().out)
    assert main(["report", "align-run", "--markdown", "run.md"]) == 1
    text = Path("run.md").read_text()
    assert "UTC: 1 new, 0 mended, 0 still there." in text
    assert "**New: 2**\n\n- curve: failed, where it was passed." in text


def test_one_log_given_for_both_sides_proves_nothing(logs, capsys):
    (logs / "align.toml").write_text((logs / "align.toml").read_text().replace("mindspore.csv", "torch.csv"))
    assert main(["run"]) == 2
    told = " ".join(capsys.readouterr().out.split())
    assert "curve: COULD NOT COMPARE. both logs are one file: torch.csv" in told
    assert "Hint: name the log of each training" in told


def test_json_prints_the_ladder_and_nothing_else(logs, capsys):
    assert main(["run", "--json", "--folder", "other"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == RunFolder(logs / "other").read("ladder")
    assert not (logs / "align-run").exists()


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["run", "--only", "curves"], "there is no rung curves"),
        (["run", "--from", "curve", "--only", "curve"], "both --from and --only are given"),
        (["run", "--project", "other.toml"], "project file not found: other.toml"),
        (["run", "--folder", "torch.csv"], "is not a folder"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is(logs, capsys, typed, said):
    assert main(typed) == 2
    told = capsys.readouterr()
    assert (told.out, said in told.err) == ("", True)
    assert not (logs / "align-run").exists()


def test_the_names_of_the_rungs_stand_in_the_hint_of_a_wrong_one(logs, capsys):
    assert main(["run", "--only", "optimizer step"]) == 2
    assert "gradients, optimizer, curve" in capsys.readouterr().err


def test_a_folder_without_a_project_file_names_init(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["run"]) == 2
    assert "`align init`" in capsys.readouterr().err


def test_a_log_that_is_not_there_is_named_before_anything_runs(logs, capsys):
    (logs / "mindspore.csv").unlink()
    assert main(["run"]) == 2
    assert "mindspore.csv is not there (candidate log)" in capsys.readouterr().err
    assert not (logs / "align-run").exists()


def test_a_log_that_is_not_there_is_named_though_the_other_side_has_none(logs, capsys):
    (logs / "align.toml").write_text('[candidate]\nlog = "no.log"\n[training]\nbatch = ["a.npz", "b.py:batch"]\n')
    assert main(["run"]) == 2
    told = capsys.readouterr().err
    for said in ("no.log is not there (candidate log)", "a.npz is not there (batch 1)", "b.py is not there (batch 2)"):
        assert said in told


def test_what_is_asked_for_and_not_available_is_no_pass(logs, capsys):
    (logs / "align.toml").write_text((logs / "align.toml").read_text().replace('["curve"]', '["curve", "metric"]'))
    assert main(["run"]) == 2
    told = " ".join(capsys.readouterr().out.split())
    assert "incomplete: metric (not available)" in told
    assert "to compare metric too, add these lines to align.toml, each under its table: model =" in told


def test_a_line_to_paste_is_never_broken_however_long_it_is(logs, capsys):
    name = "a folder of " + "many words " * 12
    (logs / "mindspore.csv").write_text(ROWS.replace(",5.", ",9."))
    assert main(["run", "--folder", name]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert f"    align run --folder {shlex.quote(name)}" in lines
    assert f"    cat {shlex.quote(name + '/shown/curve.txt')}" in lines


def test_what_lacks_a_line_of_the_project_file_is_told_once_with_lines_that_can_be_pasted(logs, capsys):
    (logs / "align.toml").write_text('[run]\nrungs = ["loss", "optimizer", "curve"]\n')
    assert main(["run"]) == 2
    lines = capsys.readouterr().out.split("Next\n")[1].splitlines()
    assert lines == [
        "  to compare loss, optimizer too, add these lines to align.toml, each under its table:",
        '    training = "file.py:function"  # under [reference]',
        '    training = "file.py:function"  # under [candidate]',
        '    batch = "file.py:function"  # under [training]',
        "  to compare curve too, add these lines to align.toml, each under its table:",
        '    log = "train.log"  # under [reference]',
        '    log = "train.log"  # under [candidate]',
    ]


def test_a_damaged_ladder_says_what_to_remove(logs, capsys):
    (logs / "align-run").mkdir()
    (logs / "align-run" / "ladder.json").write_text("{")
    assert main(["run"]) == 2
    assert capsys.readouterr().err.endswith("rm align-run/ladder.json\n")
