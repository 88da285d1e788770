"""Every module imports, and the command line helps, in a fresh process where no framework can be imported."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import subprocess
import sys

import pytest

import align
import align.cli
from align.cli.main import COMMAND_FOLDERS

FRAMEWORKS = ("torch", "mindspore", "mindcv", "transformers", "onnx", "onnxruntime")
HEAVY = (*FRAMEWORKS, "numpy", "pandas", "scipy", "typer", "rich", "ml_dtypes")
VERBS = sorted(
    info.name.replace("_", "-")
    for folder in COMMAND_FOLDERS
    for info in pkgutil.iter_modules(importlib.import_module(folder).__path__)
    if info.name != "main" and not info.ispkg
)

BLOCK = f"""
import sys
from importlib.machinery import PathFinder

class WithoutFrameworks:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return None if name.partition(".")[0] in {FRAMEWORKS!r} else PathFinder.find_spec(name, path, target)

sys.meta_path = [WithoutFrameworks if finder is PathFinder else finder for finder in sys.meta_path]
"""
IMPORT_ALL = f"""{BLOCK}
import importlib, json, pkgutil
import align
names = [info.name for info in pkgutil.walk_packages(align.__path__, "align.")]
for name in names:
    importlib.import_module(name)
print(json.dumps(names))
"""
# Each code in a process that has nothing of align yet; what others made, which takes long to import, is there already.
FORKS = f"""{BLOCK}
import json, os, sys, tempfile, traceback, warnings
import numpy, pandas, rich.console, scipy.optimize, typer

def run(code):
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as failed:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which only NumPy's library has
            child = os.fork()
        if child == 0:
            os.dup2(said.fileno(), 1), os.dup2(failed.fileno(), 2)
            try:
                exec(code, {{}})
                status = 0
            except SystemExit as end:
                status = end.code or 0
            except BaseException:
                traceback.print_exc()
                status = 1
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0), failed.seek(0)
        return status, said.read(), failed.read()

assert not [name for name in sys.modules if name.startswith("align")]
print(json.dumps([run(code) for code in json.loads(sys.argv[1])]))
"""
MAIN = f"{BLOCK}\nfrom align.cli.main import main\nsys.exit(main())"


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def in_forks(codes: list[str]) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of each code."""
    result = python(FORKS, json.dumps(codes))
    assert result.returncode == 0, result.stderr
    return [(status, said, failed) for status, said, failed in json.loads(result.stdout)]


def test_the_blocker_really_blocks() -> None:
    for framework in FRAMEWORKS:
        assert f"No module named '{framework}'" in python(f"{BLOCK}\nimport {framework}").stderr


def test_every_module_imports_with_all_frameworks_blocked() -> None:
    result = python(IMPORT_ALL)
    assert result.returncode == 0, result.stderr
    names = json.loads(result.stdout)
    assert {
        "align.core.registry",
        "align.models.frameworks.torch",
        "align.models.frameworks.mindspore",
        "align.cli.main",
    } <= set(names)


def test_importing_align_imports_nothing_heavy() -> None:
    result = python("import align, sys; print(*sys.modules)")
    assert result.returncode == 0, result.stderr
    assert not {name.partition(".")[0] for name in result.stdout.split()} & set(HEAVY)


def test_help_of_each_command_needs_no_framework_and_says_what_it_does() -> None:
    start = "import sys\nfrom align.cli.main import main\nsys.exit(main([{verb!r}, '--help']))"
    assert VERBS
    told = dict(zip(VERBS, in_forks([start.format(verb=verb) for verb in VERBS]), strict=True))
    expected = dict.fromkeys(VERBS, (0, True, ""))
    assert {verb: (code, f"align {verb}" in said, failed) for verb, (code, said, failed) in told.items()} == expected


def test_help_lists_every_command() -> None:
    result = python(MAIN, "--help")
    assert result.returncode == 0, result.stderr
    assert [verb for verb in VERBS if verb not in result.stdout] == []
    assert "Exit codes: 0 aligned, 1 not aligned, 2 could not compare or could not run" in " ".join(
        result.stdout.split()
    )


def test_help_imports_no_capability_and_nothing_slow() -> None:
    code = f"{BLOCK}\nfrom align.cli.main import main\nmain(['--help'])\nprint('MODULES', *sys.modules)"
    loaded = python(code).stdout.partition("MODULES")[2].split()
    assert loaded
    assert [
        name
        for name in loaded
        if name in {"pandas", "regex", "scipy", "numpy"} or re.match(r"align\.(?!cli\b|core\b|errors\b|words\b)", name)
    ] == []


def test_the_version_is_printed() -> None:
    result = python(MAIN, "--version")
    assert (result.returncode, result.stdout) == (0, f"align {align.__version__}\n")


def test_plugins_that_need_a_missing_framework_stay_listed_with_their_install_line() -> None:
    result = python(MAIN, "plugins", "--json")
    assert result.returncode == 0, result.stderr
    states = {(row["room"], row["name"]): row["state"] for row in json.loads(result.stdout)}
    assert 'pip install "mindalign[torch]"' in states["frameworks", "torch"]
    assert 'pip install "mindalign[mindspore]"' in states["frameworks", "mindspore"]
    assert states["frameworks", "arrays"] == "ready"


def test_plugins_are_printed_as_a_table_too() -> None:
    result = python(MAIN, "plugins")
    assert result.returncode == 0, result.stderr
    assert "mindspore" in result.stdout


def test_each_public_name_is_imported_on_first_use() -> None:
    use = "import align\nassert {name!r} in dir(align)\nassert callable(align.{name}), align.{name}"
    assert align.__all__
    told = dict(zip(align.__all__, in_forks([use.format(name=name) for name in align.__all__]), strict=True))
    assert {name: failed for name, (code, _, failed) in told.items() if code or failed} == {}


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'compare_everything'"):
        align.compare_everything  # noqa: B018
