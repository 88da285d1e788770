"""Every module imports, and the command line helps, in a fresh process where no framework can be imported."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

import align
import align.cli
from align.cli.given import find_commands

FRAMEWORKS = ("torch", "mindspore", "mindcv", "transformers", "onnx", "onnxruntime")
POSIX_ONLY = ("fcntl", "resource", "pwd", "grp", "termios")  # what Windows lacks
HEAVY = (*FRAMEWORKS, "numpy", "pandas", "scipy", "typer", "rich", "ml_dtypes", "xxhash")
VERBS = sorted(find_commands())

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
# In one process: no module needs itself (test_architecture.py), so that it does not matter what came before.
EACH_HELP = f"""{BLOCK}
import contextlib, io, json, sys
from align.cli.main import main
told = {{}}
for verb in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(io.StringIO()) as failed:
        code = main([verb, "--help"])
    told[verb] = code, f"align {{verb}}" in said.getvalue(), failed.getvalue()
print(json.dumps(told))
"""
EACH_NAME = f"""{BLOCK}
import align
assert align.__all__
assert not [name for name in align.__all__ if name in vars(align)]
assert [name for name in align.__all__ if name not in dir(align) or not callable(getattr(align, name))] == []
"""
MAIN = f"{BLOCK}\nfrom align.cli.main import main\nsys.exit(main())"


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def test_the_blocker_really_blocks() -> None:
    for framework in FRAMEWORKS:
        assert f"No module named '{framework}'" in python(f"{BLOCK}\nimport {framework}").stderr


def test_every_module_imports_with_all_frameworks_and_the_modules_of_posix_blocked() -> None:
    result = python(IMPORT_ALL.replace(repr(FRAMEWORKS), repr(FRAMEWORKS + POSIX_ONLY)))
    assert result.returncode == 0, result.stderr
    names = json.loads(result.stdout)
    assert {
        "align.core.load_code",
        "align.models.frameworks.torch",
        "align.models.frameworks.mindspore",
        "align.cli.main",
    } <= set(names)


def test_importing_align_imports_nothing_heavy() -> None:
    result = python("import align, sys; print(*sys.modules)")
    assert result.returncode == 0, result.stderr
    assert not {name.partition(".")[0] for name in result.stdout.split()} & set(HEAVY)


def test_checkpoints_are_read_converted_and_mapped_with_numpy_and_little_else(tmp_path) -> None:
    import numpy as np

    absent = ("scipy", "pandas", "regex", "yaml", "fastjsonschema", "matplotlib", "nbformat", "filelock")
    np.savez(tmp_path / "a.npz", **{"conv.weight": np.ones((2, 3, 3, 3), np.float32)})
    lines = [["convert", "a.npz", "b.safetensors"], ["inspect", "b.safetensors"], ["diff", "a.npz", "b.safetensors"]]
    lines += [["map", "a.npz", "b.safetensors", "--out", "map.json"]]
    code = f"""{BLOCK.replace(repr(FRAMEWORKS), repr(FRAMEWORKS + absent))}
import os
from align.cli.main import main
os.chdir(sys.argv[1])
print([main(line) for line in {lines!r}], file=sys.stderr)
"""
    assert python(code, str(tmp_path)).stderr == "[0, 0, 0, 0]\n"
    fewer = code.replace("'filelock'", "'filelock', 'xxhash'").replace(repr(lines), repr(lines[1:]))
    assert "'xxhash'" in fewer
    assert python(fewer, str(tmp_path)).stderr == "[0, 0, 0]\n", "only convert needs a fast hash"
    assert (
        "FrameworkMissingError"
        in python(f"""{BLOCK.replace(repr(FRAMEWORKS), repr(FRAMEWORKS + absent))}
from align.report.open_run import pair_frame
try:
    pair_frame({{"name_map": {{"pairings": []}}}})
except Exception as error:
    print(type(error).__name__, error.hint)
""").stdout
    )


def test_help_of_each_command_needs_no_framework_and_says_what_it_does() -> None:
    assert VERBS
    result = python(EACH_HELP, *VERBS)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == {verb: [0, True, ""] for verb in VERBS}


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
    result = python(EACH_NAME)
    assert result.returncode == 0, result.stderr


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'compare_everything'"):
        align.compare_everything  # noqa: B018
