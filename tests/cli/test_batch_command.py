"""`align batch` on real files: eight ranks and six steps in worker processes, with planted faults."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from align.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

JOB = '[[diff]]\nreference = "ref/rank{rank}/step{step}.npz"\ncandidate = "port/rank{rank}/step{step}.npz"\n'
RANKS, STEPS = 4, 3


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for rank in range(RANKS):
        for step in range(STEPS):
            for side in ("ref", "port"):
                write(tmp_path / side / f"rank{rank}" / f"step{step}.npz", rank, step)
    (tmp_path / "job.toml").write_text(JOB, encoding="utf-8")
    return tmp_path


def write(path: Path, rank: int, step: int, **other: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    whole, shard = np.random.default_rng(step), np.random.default_rng(1000 + rank * 10 + step)
    tensors = {
        "norm.weight": whole.normal(size=16).astype(np.float32),
        "expert.weight": shard.normal(size=(4, 4)).astype(np.float32),
        "bias": np.zeros(4, np.float32),
    }
    np.savez(path, **(tensors | other))


def batch(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code = main(["batch", "job.toml", "--workers", "1", "--json", *arguments])
    said = capfd.readouterr()
    return code, json.loads(said.out) if said.out else said.err


def states(document: dict[str, Any]) -> dict[str, str]:
    return {one["id"]: one["state"] for one in document["tasks"] if one["state"] != "aligned"}


def test_clean_ranks_are_aligned_and_sharded_tensors_no_alarm(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, found = batch(capfd)
    assert (code, found["verdict"]["outcome"], found["unequal"], found["groups"]) == (0, "aligned", [], [])
    assert (found["ranks"], found["steps"]) == ([0, 1, 2, 3], [0, 1, 2])


def test_a_weight_that_drifts_on_one_rank_names_rank_step_and_tensor(
    job: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for step in (1, 2):
        write(job / f"port/rank2/step{step}.npz", 2, step, **{"norm.weight": np.ones(16, np.float32)})
    code, found = batch(capfd)
    assert code == 1
    assert (found["first"]["step"], found["first"]["ranks"], found["first"]["layer"]) == (1, [2], "norm.weight")
    assert [(one["kind"], one["ranks"]) for one in found["groups"]] == [("aligned", [0, 1, 3]), ("odd", [2])]
    assert [(one["name"], one["ranks"], one["step"]) for one in found["unequal"]] == [("norm.weight", [2], 1)]
    assert main(["batch", "job.toml", "--workers", "1"]) == 1
    shown = capfd.readouterr().out
    first, *rest = shown.splitlines()
    assert first.startswith("NOT ALIGNED: 2 of 12 tasks are not aligned, first at norm.weight on rank 2 at step 1")
    assert all(len(line) <= 100 for line in rest if not line.startswith("  align diff "))  # a command is not broken


def test_a_corrupt_file_and_a_missing_one_cost_their_tasks_only(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (job / "port/rank1/step0.npz").write_bytes(b"PK\x03\x04 cut off")
    (job / "ref/rank3/step2.npz").unlink()
    code, found = batch(capfd)
    assert code == 2
    assert states(found) == {"diff-step0-rank1": "failed", "diff-step2-rank3-reference": "missing"}
    failed = next(one for one in found["tasks"] if one["state"] == "failed")
    assert failed["attempts"] == 2
    assert "step0.npz" in failed["error"]
    assert failed["hint"]
    assert sum(one["state"] == "aligned" for one in found["tasks"]) == RANKS * STEPS - 2


def test_a_run_goes_on_where_it_was_and_repeats_what_changed(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert batch(capfd, "--run", "run")[0] == 0
    write(job / "port/rank3/step1.npz", 3, 1, bias=np.ones(4, np.float32))
    code, found = batch(capfd, "--run", "run")
    assert code == 1
    assert [one["id"] for one in found["tasks"] if not one["reused"]] == ["diff-step1-rank3"]
    assert main(["report", "run"]) == 1
    assert "layers_by_rank" in (job / "run" / "report.ipynb").read_text(encoding="utf-8")
    assert "Layers by rank" in (job / "run" / "report.html").read_text(encoding="utf-8")
    assert json.loads((job / "run" / "batch.json").read_text())["schema"] == found["schema"]


# The command, interrupted by itself as soon as it has kept the first outcome: from outside it could have ended by then.
INTERRUPTED = """
import os, signal
from align.batch.run_batch import KeptOutcomes
from align.cli.main import run
keep = KeptOutcomes.keep
def keep_and_interrupt(*arguments):
    keep(*arguments)
    os.kill(os.getpid(), signal.SIGINT)
KeptOutcomes.keep = keep_and_interrupt
run()
"""


def test_an_interrupt_says_how_to_go_on_and_keeps_what_is_done(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    options = ["job.toml", "--workers", "1", "--run", "run"]
    command = [sys.executable, "-c", INTERRUPTED, "batch", *options]
    ended = subprocess.run(command, cwd=job, capture_output=True, text=True, check=False)
    assert ended.returncode == 130
    assert f"to continue: align batch {' '.join(options)}" in ended.stderr
    code, found = batch(capfd, "--run", "run")
    assert code == 0
    assert [one["reused"] for one in found["tasks"]].count(True) == 1
    assert len(found["tasks"]) == RANKS * STEPS


def test_checkpoints_are_checked_and_converted_as_tasks(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(job / "ref/rank0/step0.npz", 0, 0, bias=np.array([1, np.nan], np.float32))
    text = '[[check]]\nfile = "ref/rank{rank}/step0.npz"\n'
    text += (
        '[[convert]]\nsource = "ref/rank{rank}/step1.npz"\ndestination = "out/rank{rank}.safetensors"\nfamily = ""\n'
    )
    (job / "job.toml").write_text(text.replace('family = ""\n', 'target = "torch"\n'), encoding="utf-8")
    code, found = batch(capfd, "--run", "run")
    assert code == 1, found
    assert states(found) == {"check-rank0": "not aligned"}
    assert sorted(path.name for path in (job / "out").glob("*.safetensors")) == [
        f"rank{r}.safetensors" for r in range(4)
    ]
    (job / "out/rank1.safetensors").unlink()
    code, found = batch(capfd, "--run", "run")
    assert [one["id"] for one in found["tasks"] if not one["reused"]] == ["convert-rank1"]


def test_a_job_file_with_a_fault_and_options_that_exclude_each_other_are_refused(
    job: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["batch", "job.toml", "--workers", "1", "--dask", "tcp://127.0.0.1:1"]) == 2
    assert main(["batch", "job.toml", "--memory", "much"]) == 2
    (job / "job.toml").write_text("[[diff]]\nx = 1\n", encoding="utf-8")
    assert main(["batch", "job.toml"]) == 2
    said = capfd.readouterr().err
    assert "line 1: unknown key diff.x" in said
    assert said.count("Hint:") == 3


def test_no_framework_is_imported_where_none_is_needed(job: Path) -> None:
    code = (
        "import sys\n"
        "from align.batch.run_task import run_task\n"
        "from align.batch.read_job import read_job\n"
        "from align.batch.run_batch import run_batch\n"
        "from pathlib import Path\n"
        "figures = run_task(read_job(Path('job.toml')).tasks[0].task)\n"
        "assert figures['outcome'] == 'aligned', figures\n"
        "assert not {'torch', 'mindspore', 'distributed', 'fsspec'} & set(sys.modules), 'imported'\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=job, check=True)


def test_two_folders_are_a_job_without_a_file(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (job / "port/rank1/step1.npz").unlink()
    write(job / "port/rank0/step2.npz", 0, 2, bias=np.ones(4, np.float32))
    assert main(["diff", "ref", "port", "--batch", "--json", "--run", "run"]) == 2
    found = json.loads(capfd.readouterr().out)
    assert states(found) == {"diff-step2-rank0": "not aligned", "diff-step1-rank1-candidate": "missing"}
    assert (job / "run/batch.json").is_file()
    assert main(["convert", "ref", "out", "--batch", "--target", "torch", "--json"]) == 0
    assert len([*(job / "out").rglob("*.safetensors")]) == RANKS * STEPS
    assert main(["diff", "ref", "port", "--batch", "--unchanged"]) == 2
    assert "--unchanged cannot be given" in capfd.readouterr().err


def test_dumps_are_compared_layer_by_layer(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(job / "port/rank2/step1.npz", 2, 1, bias=np.ones(4, np.float32))
    assert main(["forward", "ref", "port", "--batch", "--json"]) == 1
    found = json.loads(capfd.readouterr().out)
    assert states(found) == {"forward-step1-rank2": "not aligned"}
    assert (found["first"]["ranks"], "bias" in found["first"]["layer"]) == ([2], True)
    assert [(one["kind"], one["ranks"]) for one in found["groups"]] == [("aligned", [0, 1, 3]), ("odd", [2])]


def test_batch_takes_two_folders_and_refuses_each_option_that_it_would_not_heed(
    job: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for command in ("diff", "forward"):
        assert main([command, "ref", "--batch"]) == 2
        assert "--batch takes two folders" in capfd.readouterr().err
    for option in (["--no-power"], ["--seed", "3"], ["--candidate-dtype", "float16"]):
        assert main(["forward", "ref", "port", "--batch", *option]) == 2
        assert f"{option[0]} cannot be given" in capfd.readouterr().err


def test_a_switch_that_is_off_reaches_the_tasks(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "ref", "out", "--batch", "--target", "torch", "--no-verify", "--json", "--run", "run"]) == 0
    kept = [json.loads(path.read_text())["outcome"]["figures"] for path in (job / "run" / "tasks").glob("*.json")]
    assert [one["content_hash"] for one in kept] == [None] * (RANKS * STEPS)


def test_the_commands_to_type_next_run_and_show_the_task_alone(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(job / "port/rank1/step1.npz", 1, 1, **{"norm.weight": np.ones(16, np.float32)})
    (job / "port/rank0/step0.npz").write_bytes(b"PK\x03\x04 cut off")
    (job / "job.toml").write_text(JOB + 'strip = ["norm."]\n', encoding="utf-8")
    code, found = batch(capfd)
    departs, failed = (shlex.split(command) for command in found["next_commands"])
    assert (code, departs[:2], departs[-2:]) == (2, ["align", "diff"], ["--strip", "norm."])
    assert main(departs[1:]) == 1
    assert "weight" in capfd.readouterr().out
    assert main(failed[1:]) == 2
    assert "rank0/step0.npz" in capfd.readouterr().err


def test_exports_name_what_a_job_finds_at_fault(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(job / "port/rank1/step1.npz", 1, 1, **{"norm.weight": np.ones(16, np.float32)})
    (job / "port/rank0/step0.npz").unlink()
    assert batch(capfd, "--run", "run")[0] == 2
    assert main(["report", "run", "--junit", "run.xml", "--markdown", "run.md"]) == 2
    error = ET.parse(job / "run.xml").find(".//testcase[@name='many ranks and steps']/error")
    assert error is not None
    assert "norm.weight on rank 1: 1 rank is not aligned, and the other 3 ranks are" in (error.text or "")
    assert "rank 1 of the candidate holds other values than 3 other ranks from step 1 on" in (error.text or "")
    assert "diff-step0-rank0-candidate" in (error.text or "")
    assert "align diff" in (error.text or "")
    assert "norm.weight on rank 1" in (job / "run.md").read_text(encoding="utf-8")


def test_tasks_that_fail_alike_are_one_entry(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (job / "m.json").write_text("{}", encoding="utf-8")
    (job / "job.toml").write_text(JOB + 'map = "m.json"\n', encoding="utf-8")
    assert main(["batch", "job.toml", "--workers", "1"]) == 2
    said = capfd.readouterr().out
    assert "diff-step0-rank0 and 11 others: failed" in said
    assert "diff-step1-rank1" not in said


def test_layers_that_could_not_be_compared_are_told(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(job / "port/rank2/step1.npz", 2, 1, bias=np.zeros((2, 2), np.float32))
    assert main(["forward", "ref", "port", "--batch", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert {one["id"]: one["not_comparable"] for one in found["tasks"] if one["not_comparable"]} == {
        "forward-step1-rank2": 1
    }
    assert "1 layer was not comparable, the first in forward-step1-rank2" in found["verdict"]["reason"]
