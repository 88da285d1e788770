"""The project speaks of itself alone, and its layout is what it says."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
TEXT = {".py", ".md", ".toml", ".txt", ".cfg", ".yaml", ".yml", ".ipynb", ".html", ".css", ".svg", ".json", ""}
# Written in pieces so that this file does not find itself.
HOME_FOLDERS = re.compile(r"(?<![\w.])/(?:" + "|".join(["work", "home", "root", "Users"]) + r")/[\w.-]+")
# These say nothing of what a variable holds: none lives longer than three lines below its first.
WORDLESS = frozenset({"one", "own", "found", "told", "held", "made", "alike", "asked"})
LONGEST_LIFE = 3
PRIVATE_HOSTS = re.compile(r"\b(?!self\.)(?:\w[\w-]*\.)+(?:internal|corp|local|lan)\b(?!\w|\()")


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False).stdout.decode()
    files = [ROOT / name for name in listed.split("\0") if name]
    return [path for path in files or ROOT.rglob("*") if path.is_file() and ".venv" not in path.parts]


def test_no_file_names_a_machine_or_a_persons_folder() -> None:
    found = []
    for path in tracked_files():
        if path.suffix in TEXT:
            text = path.read_text(encoding="utf-8", errors="replace")
            found += [f"{path.relative_to(ROOT)}: {hit[0]}" for hit in HOME_FOLDERS.finditer(text)]
            found += [f"{path.relative_to(ROOT)}: {hit[0]}" for hit in PRIVATE_HOSTS.finditer(text)]
    assert found == []


def test_the_search_for_machines_finds_one() -> None:
    assert HOME_FOLDERS.search("see /" + "home/somebody/model.pth")
    assert PRIVATE_HOSTS.search("https://mirror.company" + ".internal/simple")


def test_no_test_folder_has_a_package_file() -> None:
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_the_mappings_hold_the_known_kinds_of_rules_only() -> None:
    folders = {path.name for path in (ROOT / "mappings").iterdir() if path.is_dir() and list(path.rglob("*.toml"))}
    assert "layers" in folders
    assert folders <= {
        "advice",
        "api",
        "ascend",
        "crash",
        "gpu",
        "fused",
        "hyperparameters",
        "layers",
        "log_formats",
        "models",
        "pitfalls",
    }


def test_no_variable_with_a_name_that_says_nothing_lives_long() -> None:
    places = []
    for path in sorted((ROOT / "align").rglob("*.py")):
        for line, name in long_lived_wordless(path.read_text(encoding="utf-8")):
            places.append(f"{path.relative_to(ROOT)}:{line}: {name}")
    assert places == []


def test_the_search_for_names_that_say_nothing_finds_them() -> None:
    code = """
def short(items):
    found = []
    found += [one for one in items]
    return found

def long(items, own):
    def inner(made):
        return made
    total = [one for one in items]
    total += items
    total += items

    return [one + own for one in total]
"""
    assert sorted(name for _, name in long_lived_wordless(code)) == ["one", "own"]


def long_lived_wordless(text: str) -> list[tuple[int, str]]:
    """The first line and the name of each variable of a function that has such a name and lives too long."""
    if not re.search(rf"\b(?:{'|'.join(sorted(WORDLESS))})\b", text):
        return []
    lines: dict[tuple[ast.AST, str], list[int]] = {}
    for function, name, line in names_in(ast.parse(text)):
        lines.setdefault((function, name), []).append(line)
    return [(min(at), name) for (_, name), at in lines.items() if max(at) - min(at) > LONGEST_LIFE]


def names_in(tree: ast.AST) -> Iterator[tuple[ast.AST, str, int]]:
    """Each such name in a function, with the innermost function that it is in."""
    waiting: list[tuple[ast.AST, ast.AST | None]] = [(tree, None)]
    while waiting:
        node, function = waiting.pop()
        name = node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else ""
        if name in WORDLESS and function is not None:
            yield function, name, node.lineno  # type: ignore[attr-defined]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            function = None if isinstance(node, ast.ClassDef) else node
        waiting += [(inner, function) for inner in ast.iter_child_nodes(node)]
