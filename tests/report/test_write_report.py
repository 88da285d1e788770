from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import nbformat
import numpy as np
import pytest

import align
from align.errors import FrameworkMissingError, RunFolderError
from align.report.judged_run import judged_run
from align.report.write_report import write_exports, write_report
from align.runs.run_folder import COMMANDS, KINDS, claim_run_folder, schema_of
from align.words.catalogue import VARIABLE

CHINESE = re.compile("[\u4e00-\u9fff]")
REPORT_PACKAGES = ("matplotlib", "nbformat", "nbclient", "ipykernel", "pandas", "IPython")
BLOCKER = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "mindspore"):
            raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Blocker())
"""


RERUN = """
from pathlib import Path
import nbformat
from align.core.protocols import silent
from align.report.write_report import execute_notebook
notebook = nbformat.read("run/report.ipynb", as_version=4)
for name in ("torch", "mindspore"):
    probe = f"try:\\n    import {name}\\nexcept ImportError as error:\\n    print(error)"
    notebook.cells.append(nbformat.v4.new_code_cell(probe))
execute_notebook(notebook, Path("run").resolve(), silent)
print(*(cell.outputs[0].text for cell in notebook.cells[-2:]))
"""


@pytest.fixture(scope="module")
def noted(samples, tmp_path_factory):
    """What a run that was only mapped leaves, reported without a page though it had one, and all that was told."""
    run = samples.write_sample_run(tmp_path_factory.mktemp("noted") / "run", ("map",))
    (run / "report.html").write_text("old", encoding="utf-8")
    told = []
    return write_report(str(run), html=False, progress=lambda *step: told.append(step)), told


def executed_outputs(path):
    cells = nbformat.read(path, as_version=4).cells
    return {cell.id: cell.outputs for cell in cells if cell.cell_type == "code"}


def test_a_real_kernel_executes_every_cell_without_a_word_on_stderr(reported):
    outputs = executed_outputs(reported.notebook)
    assert len(outputs) > 8
    assert outputs.pop("parameters") == []
    for cell, own in outputs.items():
        assert [output.output_type for output in own] == ["execute_result"], cell
    assert "image/png" in outputs["forward-depth"][0].data
    assert "shortcut.convolution" in outputs["forward-first"][0].data["text/html"]
    assert "image/png" in outputs["step-gradients"][0].data
    assert "image/png" in outputs["step-updates"][0].data
    assert "the way is cut" in outputs["step-first"][0].data["text/html"]


def test_the_summary_holds_every_rung_and_the_hashes_of_the_results(reported):
    summary = json.loads(reported.summary.read_text(encoding="utf-8"))
    assert summary["schema"] == "mindalign.report/3"
    assert summary["outcome"] == "not aligned"
    assert [rung["name"] for rung in summary["rungs"]] == ["map", "convert", "forward", "step", "loss"]
    assert set(summary["made_from"]) == {"map", "convert", "forward", "step", "loss"}
    assert all(len(source["sha256"]) == 64 for source in summary["made_from"].values())


def test_the_notebook_reruns_with_both_frameworks_blocked(reported, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(BLOCKER, encoding="utf-8")
    (tmp_path / "run").mkdir()
    for path in reported.notebook.parent.iterdir():
        (tmp_path / "run" / path.name).write_bytes(path.read_bytes())
    checkout = str(Path(align.__file__).parents[1])
    path = os.pathsep.join([str(tmp_path), checkout])
    done = subprocess.run(
        [sys.executable, "-c", RERUN],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["torch is blocked", " mindspore is blocked"]


def test_a_partial_run_is_reported_with_the_rest_not_run(noted):
    paths, _ = noted
    html = executed_outputs(paths.notebook)["open"][0].data["text/html"]
    assert html.count("not run") == 4


def test_without_a_page_an_older_page_does_not_stay(noted):
    paths, _ = noted
    assert paths.html is None
    assert paths.notebook.is_file()
    assert not paths.notebook.with_name("report.html").exists()


def test_nothing_but_the_three_files_is_left_in_the_run_folder(reported):
    names = {path.name for path in reported.notebook.parent.iterdir()}
    results = {"map.json", "convert.json", "forward.json", "step.json", "loss.json", "resnet50.pth"}
    assert names == results | {"report.ipynb", "report.html", "report.json"}


def test_progress_is_told_cell_by_cell(noted):
    _, told = noted
    assert told[-1][1] == told[-1][2]
    assert len(told) > 5


def test_a_report_is_written_in_another_language_without_a_new_run(samples, tmp_path, monkeypatch):
    run = samples.write_sample_run(tmp_path / "run", ("map",))
    summaries = []
    for language, title, state in (("zh", "# 迁移模型的计算结果", "未运行"), ("en", "# Does the port", "not run")):
        monkeypatch.setenv(VARIABLE, language)
        paths = write_report(run, html=False)
        prose = [one.source for one in nbformat.read(paths.notebook, as_version=4).cells if one.cell_type == "markdown"]
        assert prose[0].startswith(title)
        assert {bool(CHINESE.search(text)) for text in prose} == {language == "zh"}
        html = executed_outputs(paths.notebook)["open"][0].data["text/html"]
        assert html.count(state) == 4
        summaries.append({**json.loads(paths.summary.read_text(encoding="utf-8")), "created": ""})
    assert summaries[0] == summaries[1]


def test_a_result_with_a_lost_field_stops_the_report_and_writes_nothing(samples, tmp_path):
    run = samples.write_sample_run(tmp_path / "run", ("map",))
    document = json.loads((run / "map.json").read_text(encoding="utf-8"))
    del document["name_map"]
    (run / "map.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(RunFolderError, match=r"map\.json.*name_map") as caught:
        write_report(run)
    assert caught.value.exit_code == 2
    assert not list(run.glob("report.*"))


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(RunFolderError, match="holds no results") as caught:
        write_report(tmp_path)
    assert all(f"`{COMMANDS.get(kind, kind)} --run DIR`" in caught.value.hint for kind in KINDS)


def test_a_report_is_made_beside_a_run_that_is_going_on(samples, tmp_path):
    run = samples.write_sample_run(tmp_path / "run", ("map", "forward"))
    with claim_run_folder(run, "forward"):
        summary = json.loads(write_report(run, html=False).summary.read_text(encoding="utf-8"))
    assert summary["outcome"] == "could not compare"
    assert any("has not ended" in str(rung["reason"]) for rung in summary["rungs"])


def test_a_missing_package_is_named_with_the_install_line(samples, tmp_path, monkeypatch):
    monkeypatch.setattr("align.report.write_report.PACKAGES", ("nbformat", "no_such_notebook", "no_such_plots"))
    with pytest.raises(FrameworkMissingError) as caught:
        write_report(samples.write_sample_run(tmp_path / "run"), html=False)
    assert "no_such_notebook, no_such_plots" in caught.value.message
    assert 'pip install "mindalign[report]"' in caught.value.hint


def test_the_base_installation_makes_the_page_without_plots_and_says_so(samples, tmp_path):
    run = samples.write_sample_run(tmp_path / "run", ("map", "forward", "loss"))
    (run / "report.ipynb").write_text("of an older run", encoding="utf-8")
    code = BLOCKER.replace('("torch", "mindspore")', repr(REPORT_PACKAGES)).replace(
        "raise ImportError", "raise ModuleNotFoundError"
    )
    code = code.replace("import sys\n", "import importlib.util as util, sys\nfind = util.find_spec\n", 1)
    code += f"util.find_spec = lambda name, *rest: None if name in {REPORT_PACKAGES!r} else find(name, *rest)\n"
    code += "from align.cli.main import main\nsys.exit(main(sys.argv[1:]))\n"
    made = subprocess.run([sys.executable, "-c", code, "report", str(run)], capture_output=True, text=True, check=False)
    assert made.returncode == 1, made.stderr
    assert 'The notebook and the plots are left out: pip install "mindalign[report]"' in made.stderr
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "The plots are left out for want of matplotlib" in page
    assert '<figure class="plot"' not in page
    assert json.loads((run / "report.json").read_text(encoding="utf-8"))["outcome"] == "not aligned"
    assert not (run / "report.ipynb").exists()


def test_the_users_own_start_up_files_are_not_run_and_a_running_event_loop_is_no_obstacle(
    samples, tmp_path, monkeypatch
):
    async def inside():
        return write_report(samples.write_sample_run(tmp_path / "run", ("map",)), html=False)

    startup = tmp_path / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00-boom.py").write_text("raise SystemExit('boom')", encoding="utf-8")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    assert asyncio.run(inside()).notebook.is_file()


def test_a_ladder_with_a_lost_field_stops_the_report_and_writes_nothing(samples, tmp_path):
    run = samples.write_sample_run(tmp_path / "run", ("map",))
    ladder = {"schema": schema_of("ladder"), "created": "", "rungs": [{"name": "forward"}]}
    (run / "ladder.json").write_text(json.dumps(ladder), encoding="utf-8")
    with pytest.raises(RunFolderError, match="culprits"):
        write_report(run)
    assert not list(run.glob("report.*"))


INTERRUPTED = """
import signal, sys
from align.report.write_report import write_report
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    write_report(sys.argv[1], progress=lambda *step: print(step, flush=True))
except KeyboardInterrupt:
    raise SystemExit(130)
"""


def test_an_interrupt_stops_the_report_quietly_and_nothing_is_written(samples, tmp_path):
    run = samples.write_sample_run(tmp_path / "run")
    command = [sys.executable, "-c", INTERRUPTED, str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.readline()  # the first cell is done, the kernel works
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=600)
    assert process.returncode == 130
    assert said == ""
    assert not list(run.glob("report.*"))


def test_a_kernel_that_cannot_start_is_reported_in_its_own_words(samples, tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'ImportError: libfoo is missing' >&2\nexit 1\n", encoding="utf-8")
    broken.chmod(0o755)
    run = samples.write_sample_run(tmp_path / "run", ("map",))
    script = f"import sys; sys.executable = {str(broken)!r}\n" + BROKEN
    command = [sys.executable, "-W", "default", "-c", script, str(run)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 2, done.stderr
    assert "ImportError: libfoo is missing" in done.stderr
    assert "Traceback" not in done.stderr


BROKEN = """
from align.cli.main import main
raise SystemExit(main(["report", sys.argv[1]]))
"""


def test_sections_without_a_result_are_left_out_and_the_folder_is_a_parameter(samples, tmp_path):
    paths = write_report(samples.write_sample_run(tmp_path / "run", ("map",)), html=False)
    cells = nbformat.read(paths.notebook, as_version=4).cells
    shown = [cell.source.splitlines()[0] for cell in cells if cell.cell_type == "markdown"]
    assert [line for line in shown if line.startswith(("## Forward", "## Training", "## Beside", "## Speed"))] == []
    assert any(line.startswith("## Name map") for line in shown)
    assert all(after.cell_type == "code" for cell, after in pairwise(cells) if cell.cell_type == "markdown")
    (parameters,) = [cell for cell in cells if "parameters" in cell.metadata.get("tags", [])]
    assert parameters.source.startswith('folder = "."')


def test_a_failing_plot_changes_no_verdict(samples, tmp_path):
    run = samples.write_sample_run(tmp_path / "run", ("forward",))
    document = json.loads((run / "forward.json").read_text(encoding="utf-8"))
    document["layers"][15]["measurement"]["decades"] = [2**62] * 20  # counts, but more than an axis shows
    (run / "forward.json").write_text(json.dumps(document), encoding="utf-8")
    paths = write_report(run)
    page = paths.html.read_text(encoding="utf-8")
    assert json.loads(paths.summary.read_text(encoding="utf-8"))["outcome"] == "not aligned"
    assert "Differences of the first divergent layer” could not be drawn" in page
    assert "forward failed: 105 of 120 layers differ" in page
    outputs = executed_outputs(paths.notebook)
    assert "image/png" in outputs["forward-depth"][0].data
    assert [output.output_type for output in outputs["forward-histogram"]] == ["execute_result"]


def test_curves_and_verdicts_are_written_for_tensorboard(climbed, tmp_path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    write_exports(climbed.path, tensorboard=tmp_path / "events")
    ladder = judged_run(climbed.path).ladder
    read = EventAccumulator(str(tmp_path / "events"), size_guidance={"scalars": 0})
    read.Reload()
    passed = {
        tag.partition("/")[2]: read.Scalars(tag)[0].value for tag in read.Tags()["scalars"] if tag.startswith("passed/")
    }
    judged = ("passed", "failed", "could not compare")
    assert passed == {rung.name: float(rung.state == "passed") for rung in ladder.rungs if rung.state in judged}
    assert 0.0 in passed.values()
    points = json.loads((climbed.path / "loss.json").read_text(encoding="utf-8"))["points"]
    curve = read.Scalars("loss/candidate")
    assert [event.step for event in curve] == points["step"]
    assert np.allclose([event.value for event in curve], points["candidate"])
    assert read.Tags()["tensors"] == ["align"]
    assert b"NOT ALIGNED" in read.Tensors("align")[0].tensor_proto.string_val[0]
