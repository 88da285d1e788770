"""docs/ci.md: its example, its action, its hooks and its tests for pytest, each run by the real tool."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ROWS = [7 - step / 10 for step in range(1, 31)]
SPIKE = tuple(range(11, 21))
ENVIRONMENT = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


@pytest.fixture
def logs(page):
    """Writes both logs; the port's is higher at some steps."""

    def write(*spikes):
        for name, steps in (("torch", ()), ("mindspore", spikes)):
            rows = (f"{step},{loss * (3 if step in steps else 1)}\n" for step, loss in enumerate(ROWS, 1))
            Path(f"{name}.csv").write_text("step,loss\n" + "".join(rows))

    write()
    return write


def run(*command, **extra):
    """Run a program in the current folder; returns its exit code and all that it prints."""
    done = subprocess.run(
        command, env={**os.environ, **ENVIRONMENT, **extra}, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def run_pytest(*arguments):
    return run(
        sys.executable, "-W", "error", "-m", "pytest", "-p", "align.testing", "-p", "no:cacheprovider", *arguments
    )


def test_the_example_holds_a_run_against_a_baseline(page, logs):
    logs(30)
    assert page.run_commands(0) == [0, 0]
    logs(*SPIKE)
    assert page.run_commands(1) == [1]


def test_rungs_are_tests_of_pytest_and_assert_aligned_holds_in_one(page, logs):
    Path("test_port.py").write_text(page.blocks("python")[0])
    code, told = run_pytest("--align", "-v")
    assert (code, "align.toml::curve PASSED" in told, "3 passed" in told) == (0, True, True), told
    logs(*SPIKE)
    code, told = run_pytest("--align", "-q")
    assert (code, "3 failed" in told) == (1, True), told
    assert "step 11: spike" in told
    assert "FAILED align.toml::curve" in told
    assert "Traceback" not in told


def test_without_a_project_pytest_says_so_and_without_the_option_nothing_is_added(page, logs):
    Path("test_one.py").write_text("def test_one(): pass\n")
    code, told = run_pytest("-q")
    assert (code, "1 passed" in told) == (0, True), told
    code, told = run_pytest("--align", "--align-project", "other.toml")
    assert (code, "other.toml" in told) == (4, True), told


def test_the_entry_point_is_the_plugin():
    written = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert '[project.entry-points.pytest11]\n"align.testing" = "align.testing"\n' in written


def test_a_commit_that_breaks_the_port_is_stopped_by_the_hook(page, logs, tmp_path_factory):
    hooks = tmp_path_factory.mktemp("hooks")
    shutil.copy(ROOT / ".pre-commit-hooks.yaml", hooks)
    for folder in (hooks, Path()):
        assert run("git", "init", "-q", str(folder))[0] == 0
    assert run("git", "-C", str(hooks), "add", "-A")[0] == 0
    assert run("git", "-C", str(hooks), "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "hooks")[0] == 0
    (block,) = (yaml.safe_load(one) for one in page.blocks("yaml") if "repos:" in one)
    (repository,) = block["repos"]
    assert {hook["id"] for hook in repository["hooks"]} <= {one["id"] for one in hooks_of_this_repository()}
    repository |= {"repo": str(hooks), "rev": run("git", "-C", str(hooks), "rev-parse", "HEAD")[1].strip()}
    repository["hooks"] = [{"id": "align-run"}]  # which needs no framework here
    Path(".pre-commit-config.yaml").write_text(yaml.safe_dump(block))
    run("git", "add", ".pre-commit-config.yaml", "align.toml")
    for spikes, end, said in (((), 0, "Passed"), (SPIKE, 1, "curve: FAILED.")):
        logs(*spikes)
        code, told = run(sys.executable, "-m", "pre_commit", "run", "--all-files", PRE_COMMIT_HOME=str(hooks / "home"))
        assert (code, said in told) == (end, True), told


def hooks_of_this_repository():
    return yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("spikes", "status", "baseline"), [(SPIKE, "1", ""), (SPIKE, "2", "no.json")])
def test_the_steps_of_the_action_write_its_files_and_end_as_the_run_does(page, logs, spikes, status, baseline):
    logs(*spikes)
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    steps = {step["name"]: step for step in action["runs"]["steps"]}
    assert all("${{" not in step.get("run", "") for step in steps.values()), "an input would be run as code"
    given = {"PROJECT": action["inputs"]["project"]["default"], "BASELINE": baseline}
    files = {"GITHUB_STEP_SUMMARY": "summary.md", "GITHUB_OUTPUT": "output"}
    assert run("bash", "-euo", "pipefail", "-c", steps["Run"]["run"], **given, **files)[0] == 0
    assert Path("output").read_text() == f"status={status}\n"
    assert run("bash", "-c", steps["Result"]["run"], STATUS=status)[0] == int(status)
    outputs = [Path(action["outputs"][name]["value"]) for name in ("sarif", "junit")]
    assert [file.is_file() for file in outputs] == [not baseline, not baseline]
    assert Path("summary.md").is_file() is not bool(baseline)


def test_the_page_names_every_input_of_the_action_and_every_hook(page):
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    assert all(f"| `{name}` |" in page.text for name in action["inputs"])
    assert all(f"`{hook['id']}`" in page.text for hook in hooks_of_this_repository())
    assert all(isinstance(yaml.safe_load(block), dict) for block in page.blocks("yaml"))
