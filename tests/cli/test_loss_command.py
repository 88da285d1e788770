"""`align loss` as a user runs it: exit codes, JSON, the run folder, messages instead of tracebacks."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from align.cli.main import main
from align.runs.run_folder import RunFolder

if TYPE_CHECKING:
    from pathlib import Path

CSV = "step,loss\n0,2.302585\n1,2.251293\n2,2.190871\n"
MONITOR = "".join(f"epoch: 1 step: {i}, loss is {loss}\n" for i, loss in ((1, 2.302585), (2, 2.251293), (3, 2.190871)))


@pytest.fixture
def logs(tmp_path: Path) -> tuple[Path, Path]:
    reference, candidate = tmp_path / "torch.csv", tmp_path / "port.log"
    reference.write_text(CSV, encoding="utf-8")
    candidate.write_text(MONITOR, encoding="utf-8")
    return reference, candidate


def test_equal_logs_end_with_0_and_say_so(logs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["loss", *map(str, logs)]) == 0
    output = capsys.readouterr().out
    assert "first loss" in output
    assert "3 common steps" in output


def test_logs_that_differ_end_with_1_and_name_the_step(
    logs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    logs[1].write_text(MONITOR.replace("2.251293", "2.9"), encoding="utf-8")
    assert main(["loss", *map(str, logs)]) == 1
    output = capsys.readouterr().out
    assert re.search(r"first outside\s+2 ", output)
    assert "differs from the second step" in output


def test_logs_without_a_common_step_end_with_2(logs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    logs[1].write_text("step,loss\n50,2.0\n60,1.9\n", encoding="utf-8")
    assert main(["loss", *map(str, logs)]) == 2
    assert "no common step" in capsys.readouterr().out


def test_the_title_says_what_the_verdict_says(logs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    lines = MONITOR.splitlines(keepends=True)
    for text, title, code in (
        (MONITOR, "The curves stay together", 0),
        (lines[0] + lines[1], "The curves are not aligned: one log ends before the other", 1),
        (lines[2], "The curves could not be compared", 2),
        (MONITOR.replace("2.251293", "2.9"), "The curves are not aligned: differs from the second step", 1),
        (MONITOR.replace("2.251293", "2.9").replace("2.190871", "2.9"), "The curves part at step 2", 1),
    ):
        logs[1].write_text(text, encoding="utf-8")
        assert main(["loss", *map(str, logs)]) == code
        assert title in capsys.readouterr().out.splitlines()[0]


def test_json_is_the_whole_document_with_hashes(logs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["loss", *map(str, logs), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "mindalign.loss/3"
    assert document["verdict"]["outcome"] == "aligned"
    assert (document["points"]["step"], document["points"]["count"]) == ([1, 2, 3], 3)
    assert set(document["made_from"]) == {"reference", "candidate"}
    assert len(document["made_from"]["reference"]["sha256"]) == 64


def test_the_result_goes_into_the_run_folder(logs: tuple[Path, Path], tmp_path: Path) -> None:
    assert main(["loss", *map(str, logs), "--run", str(tmp_path / "run")]) == 0
    document = RunFolder.open(tmp_path / "run").read("loss")
    assert document is not None
    assert document["metric"] == "loss"


def test_one_log_alone_is_described(logs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["loss", str(logs[0])]) == 0
    output = capsys.readouterr().out
    assert "global steps, from 0" in output
    assert "3, global step 1 … 3, every 1" in output


def test_one_log_alone_is_described_in_json_and_kept(
    logs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["loss", str(logs[1]), "--json", "--run", str(tmp_path / "run")]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "mindalign.log/3"
    assert (document["format"], document["counting"], document["points"]) == ("lossmonitor", "step in epoch", 3)
    kept = json.loads((tmp_path / "run" / "log.json").read_text(encoding="utf-8"))
    assert kept["points"] == 3


def test_gaps_repeats_nan_and_notes_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.csv"
    rows = "".join(f"{step},{loss}\n" for step, loss in ((1, 2.5), (2, 2.4), (2, 2.4), (5, "nan"), (6, 2.0), (7, 1.9)))
    log.write_text("step,loss\n" + rows, encoding="utf-8")
    assert main(["loss", str(log)]) == 0
    output = capsys.readouterr().out
    assert "2 … 5" in output
    assert "printed twice with the same value" in output
    assert any(line.split()[-2:] == ["5", "│"] for line in output.splitlines() if "NaN or Inf at" in line)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "it is empty"),
        ("hello\n", "such as line 1:"),
        ("epoch,step,loss\n1,10,2\n2,10,1\n", "prints only some steps"),
    ],
)
def test_a_log_that_cannot_be_used_ends_with_2_and_one_message(
    content: str, said: str, logs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    logs[1].write_text(content, encoding="utf-8")
    assert main(["loss", *map(str, logs)]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert "Hint:" in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_a_failed_comparison_writes_nothing(logs: tuple[Path, Path], tmp_path: Path) -> None:
    assert main(["loss", str(logs[0]), str(tmp_path / "nowhere.log"), "--run", str(tmp_path / "run")]) == 2
    assert not (tmp_path / "run").exists()


def test_options_reach_their_side(logs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    logs[1].write_text("epoch,iter,loss\n0,0,2.302585\n1,0,2.190871\n2,0,2.1\n", encoding="utf-8")
    logs[0].write_text(CSV + "3,2.15\n4,2.1\n5,2.05\n", encoding="utf-8")
    options = ["--candidate-steps-per-epoch", "2", "--candidate-base", "0", "--reference-base", "0", "--last-step", "5"]
    assert main(["loss", *map(str, logs), *options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["points"]["step"] == [1, 3, 5]


def _curve(offset: float, step: float = 0.0) -> str:
    rows = (f"{i},{2.3 - 0.01 * i + offset * (-1) ** i + step:.6f}\n" for i in range(1, 41))
    return "step,loss\n" + "".join(rows)


def test_further_runs_of_the_reference_say_how_much_may_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offsets = {"reference": 0.0, "second": 0.03, "third": -0.03, "candidate": 0.02, "off": 0.02}
    paths = {name: tmp_path / f"{name}.csv" for name in offsets}
    for name, path in paths.items():
        path.write_text(_curve(offsets[name], 0.4 if name == "off" else 0.0), encoding="utf-8")
    logs = {name: str(path) for name, path in paths.items()}
    runs = ["--reference-runs", logs["second"], logs["third"]]
    assert main(["loss", logs["reference"], logs["candidate"], *runs]) == 0
    assert "runs of the reference" in capsys.readouterr().out
    assert main(["loss", logs["reference"], logs["off"], *runs]) == 1
    capsys.readouterr()
    assert (
        main(["loss", "--json", "--reference-runs", logs["second"], "--metric", "loss", logs["reference"], logs["off"]])
        == 1
    )
    assert json.loads(capsys.readouterr().out)["reference_runs"] == [logs["reference"], logs["second"]]
    assert main(["loss", *runs, logs["reference"], logs["candidate"]]) == 2
    assert "REFERENCE" in capsys.readouterr().err.upper()
    assert main(["loss", logs["reference"], *runs]) == 2
    assert "--reference-runs needs two logs, and one is given" in capsys.readouterr().err
    assert main(["loss", logs["reference"], logs["off"], logs["second"]]) == 2


def test_steps_that_see_other_numbers_of_samples_are_matched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fine, coarse = tmp_path / "fine.csv", tmp_path / "coarse.csv"
    fine.write_text("step,loss\n" + "".join(f"{i},{3.0 - i / 64!r}\n" for i in range(1, 41)), encoding="utf-8")
    means = (f"{i},{3.0 - (2 * i - 0.5) / 64!r}\n" for i in range(1, 21))
    coarse.write_text("step,loss\n" + "".join(means), encoding="utf-8")
    assert main(["loss", str(fine), str(coarse)]) == 1
    assert main(["loss", str(fine), str(coarse), "--steps-per", "2:1"]) == 0
    capsys.readouterr()
    for wrong in ("2", "0:1", "a:b", "1:-1"):
        assert main(["loss", str(fine), str(coarse), "--steps-per", wrong]) == 2
        assert "such as 2:1" in capsys.readouterr().err


def test_a_plot_is_written_as_png_and_as_nothing_else(
    logs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "curves.png"
    assert main(["loss", *map(str, logs), "--plot", str(picture)]) == 0
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert main(["loss", *map(str, logs), "--plot", str(tmp_path / "curves.pdf")]) == 2
    assert not (tmp_path / "curves.pdf").exists()
    assert "ends in .png" in capsys.readouterr().err


def test_a_file_of_several_jobs_is_refused_or_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "- INFO - {{ Epoch:[  1/  2], step:[  {step}/ {total}], loss: {loss}, per_step_time: 10ms, lr: 0.1 }}\n"
    text = "".join(line.format(step=i, total=total, loss=2.5) for total in (20, 30) for i in range(1, 4))
    log = tmp_path / "two.log"
    log.write_text(text, encoding="utf-8")
    assert main(["loss", str(log)]) == 2
    assert "mixes 2 jobs" in capsys.readouterr().err
    assert main(["loss", str(log), "--job", "2"]) == 0
    assert main(["loss", str(log), str(log), "--reference-job", "1", "--candidate-job", "2"]) == 0
    assert main(["loss", str(log), "--job", "3"]) == 2
    assert "give a number from 1 to 2" in capsys.readouterr().err


def test_the_project_file_names_presets_and_patterns(
    logs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    logs[1].write_text("it 1 costs 2.303\nit 2 costs 2.252\nit 3 costs 2.191\n", encoding="utf-8")
    project = tmp_path / "align.toml"
    project.write_text(
        "[loss]\ncandidate_pattern = 'it (?P<step>[0-9]+) costs (?P<loss>[0-9.]+)'\n"
        "[loss.presets.mine]\nevery_abs = 1e-4\nevery_rel = 0.0\n",
        encoding="utf-8",
    )
    assert main(["loss", *map(str, logs)]) == 0
    assert main(["loss", *map(str, logs), "--preset", "mine"]) == 1
    assert main(["loss", *map(str, logs), "--preset", "yours"]) == 2
    assert "exact" in capsys.readouterr().err
    project.rename(tmp_path / "other.toml")
    assert main(["loss", *map(str, logs)]) == 2
    assert main(["loss", *map(str, logs), "--project", "other.toml"]) == 0


@pytest.mark.parametrize(
    "options",
    [
        ["--plot", "x.png"],
        ["--reference-runs", "x.csv"],
        ["--preset", "exact"],
        ["--last-step", "5"],
        ["--steps-per", "2:1"],
        ["--candidate-rank", "7"],
    ],
)
def test_what_takes_two_logs_is_refused_with_one(
    options: list[str], logs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["loss", str(logs[0]), *options]) == 2
    assert "needs two logs, and one is given" in capsys.readouterr().err


def test_one_judge_at_a_time_and_none_in_its_own_cause(
    logs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    both = [str(log) for log in logs]
    assert main(["loss", *both, "--preset", "exact", "--reference-runs", both[0]]) == 2
    assert "let one of them judge" in capsys.readouterr().err
    assert main(["loss", *both, "--reference-runs", both[1]]) == 2
    assert "the candidate is one of the runs of the reference" in capsys.readouterr().err
