from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import align
from align.cli.main import main

CHECKOUT = Path(align.__file__).parents[1]


@pytest.fixture(scope="module")
def samples():
    path = Path(__file__).parents[1] / "report" / "sample_runs.py"
    spec = importlib.util.spec_from_file_location("sample_runs_of_the_command", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_command_prints_the_rungs_and_its_paths_and_ends_with_the_worst_code(samples, tmp_path, capsys):
    run = samples.write_sample_run(tmp_path / "run", ("map", "forward"))
    assert main(["report", str(run)]) == 1
    printed = capsys.readouterr().out
    for name in ("report.ipynb", "report.html", "report.json"):
        assert f"Written: {run / name}" in printed
        assert (run / name).is_file()
    assert "not run" in printed
    assert "NOT ALIGNED" in printed


def test_aligned_rungs_end_with_0_and_no_page_is_written_unless_wanted(samples, tmp_path, capsys):
    run = samples.write_sample_run(tmp_path / "run", ("map", "convert"))
    assert main(["report", str(run), "--no-html"]) == 0
    assert "report.html" not in capsys.readouterr().out
    assert not (run / "report.html").exists()


def test_json_prints_the_summary_and_nothing_else(samples, tmp_path, capsys):
    run = samples.write_sample_run(tmp_path / "run", ("loss",))
    assert main(["report", str(run), "--no-html", "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((run / "report.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("prepare", ["missing", "empty"])
def test_a_folder_that_is_no_run_folder_ends_with_2_and_a_hint(tmp_path, capsys, prepare):
    folder = tmp_path / "run"
    if prepare == "empty":
        folder.mkdir()
    assert main(["report", str(folder)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert str(folder) in captured.err
    assert "Hint:" in captured.err
    assert "Traceback" not in captured.err


def test_a_user_sees_no_noise_of_the_kernel(samples, tmp_path):
    run = samples.write_sample_run(tmp_path / "run", ("map",))
    done = subprocess.run(
        [sys.executable, "-W", "default", "-m", "align.cli.main", "report", str(run)],
        cwd=CHECKOUT,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0
    assert done.stderr == ""


WITHOUT_THE_EXTRA = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Blocker())
from align.cli.main import main
code = main(sys.argv[1:])
import align
print(align.inspect_checkpoint(sys.argv[2] + "/resnet50.npz")._repr_html_()[:23])
sys.exit(code)
"""


def test_markdown_and_junit_need_neither_a_framework_nor_the_extra(samples, tmp_path):
    from align.report.write_report import PACKAGES

    run = samples.write_sample_run(tmp_path / "run", ("map", "forward"))
    np.savez(run / "resnet50.npz", weight=np.ones(2, np.float32))
    before = {path.name for path in run.iterdir()}
    files = {"--markdown": tmp_path / "run.md", "--junit": tmp_path / "run.xml"}
    given = [str(part) for option in files.items() for part in option]
    script = WITHOUT_THE_EXTRA.format(blocked=(*PACKAGES, "torch", "mindspore"))
    done = subprocess.run(
        [sys.executable, "-c", script, "report", str(run), *given],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "NOT ALIGNED: forward failed" in " ".join(done.stdout.split())
    assert '<div class="ma-result">' in done.stdout
    assert all(f"Written: {path}" in done.stdout for path in files.values())
    assert files["--markdown"].read_text(encoding="utf-8").startswith("## Port: NOT ALIGNED")
    assert files["--junit"].read_text(encoding="utf-8").startswith("<?xml")
    assert {path.name for path in run.iterdir()} == before


def test_json_beside_an_export_prints_its_rungs(samples, tmp_path, capsys):
    run = samples.write_sample_run(tmp_path / "run", ("map", "convert"))
    assert main(["report", str(run), "--junit", str(tmp_path / "run.xml"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"].startswith("mindalign.ladder/")
    assert [rung["state"] for rung in told["rungs"]] == ["passed", "passed", *["not run"] * 3]


@pytest.mark.parametrize("fault", ["one file", "no folder", "no run"])
def test_an_export_that_cannot_be_written_leaves_nothing(samples, tmp_path, capsys, fault):
    run = samples.write_sample_run(tmp_path / "run", ("map",)) if fault != "no run" else tmp_path / "run"
    junit = tmp_path / "there" / "run.xml" if fault == "no folder" else tmp_path / "one"
    given = ["--markdown", str(tmp_path / "one")] if fault == "one file" else []
    assert main(["report", str(run), "--junit", str(junit), *given]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Hint:" in captured.err
    assert not junit.exists()
