"""The rooms are as their docstrings, the picture and docs/architecture.md say; import-linter holds the rest."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "align"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
ROOMS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
MOST_ROOMS, MOST_MODULES = 27, 25
MOST_PROSE, MOST_LINES = 8, 650
MOST_IMPORTS = 0.06  # of all lines; 10 % where each thought had a file of its own
# A reader who wants to know what a call does has as many files to open; comparable tools: 15 to 60.
MOST_FILES = {"inspect": 33, "convert": 46, "loss": 54, "map": 57, "forward": 98, "step": 121}
CALLS = {
    "inspect": "inspect net.pth",
    "convert": "convert net.pth net.ckpt",
    "loss": "loss a.log b.log",
    "map": "map original.py:model port.py:model",
    "forward": "forward original.py:model port.py:model --inputs original.py:inputs",
    "step": "step original.py:training port.py:training --batch original.py:batch",
}
# Not one room's: these hold all of them against something.
ACROSS = {"attacks", "benchmarks", "conformance", "planted"}
REGISTRY = PACKAGE / "core" / "load_code.py"


class Facts(NamedTuple):
    """What the tests ask of a file.

    Its docstring, the modules that it imports, those (or names in them) that it imports as soon as it is loaded, and
    the rooms that its texts name a module of.
    """

    docstring: str
    imports: frozenset[str]
    at_once: frozenset[str]
    named: frozenset[str]


@cache
def facts(path: Path) -> Facts:
    """Read a file once for all tests: parsing all of them takes seconds, and keeping their trees 200 MB."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = [*ast.walk(tree)]
    imports = frozenset(name for node in nodes for name in imported(node)[:1])
    at_once = frozenset(name for node in run_at_once(tree) for name in imported(node))
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    named = frozenset(room for text in texts for room in re.findall(r"^align\.(\w+)\.", text))
    return Facts(ast.get_docstring(tree) or "", imports, at_once, named)


def imported(node: ast.AST) -> list[str]:
    """The module that a statement imports, first, and what it takes from it, which may be a module too."""
    if isinstance(node, ast.ImportFrom):
        return [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def run_at_once(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a file that run when it is loaded: no functions, and nothing that is for type checkers."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.If) and getattr(inner.test, "id", "") == "TYPE_CHECKING":
            for other in inner.orelse:
                yield from (other, *run_at_once(other))
        elif isinstance(inner, ast.stmt) and not isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from (inner, *run_at_once(inner))


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def layers() -> list[list[str]]:
    """The layers of the contract, from top to bottom."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (one for one in document["tool"]["importlinter"]["contracts"] if one["id"] == "rooms")
    return [[name.strip(" ()") for name in layer.split("|")] for layer in contract["layers"]]


def test_the_rooms_can_be_counted() -> None:
    assert len(ROOMS) <= MOST_ROOMS
    assert set(ROOMS) <= {name for layer in layers() for name in layer}


def test_no_folder_holds_more_modules_than_one_takes_in() -> None:
    counts = {path.parent: len(list(path.parent.glob("*.py"))) for path in PACKAGE.rglob("__init__.py")}
    assert {folder: count for folder, count in counts.items() if count > MOST_MODULES} == {}


@pytest.mark.parametrize("room", [room for room in ROOMS if room != "errors"])
def test_a_room_uses_what_its_docstring_says(room: str) -> None:
    docstring = " ".join(facts(PACKAGE / room / "__init__.py").docstring.split())
    assert "Offers" in docstring
    said = set(re.findall(r"\w+", docstring.rpartition("Uses ")[2])) & set(ROOMS)
    files = (PACKAGE / room).rglob("*.py")
    used = {name.split(".")[1] for path in files for name in facts(path).imports if name.startswith("align.")}
    assert said - {"errors"} == used - {room, "errors"}


def test_sub_rooms_are_guarded_and_open_nothing_at_their_door() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    guarded = {name for one in contracts for name in one.get("protected_modules", ())}
    doors = [path for path in PACKAGE.rglob("__init__.py") if path.relative_to(PACKAGE).parts[1:-1]]
    assert {path.relative_to(PACKAGE).parts[0] for path in doors} <= {
        name.split(".")[1] for name in guarded if name.endswith(".*.*")
    }
    # The contract sees what stands inside a sub-room, not the package: its door must lead nowhere.
    assert [path for path in doors if len(path.relative_to(PACKAGE).parts) == 3 and facts(path).imports] == []


def test_no_module_imports_the_package_itself() -> None:
    inside = [path for path in modules() if path != PACKAGE / "__init__.py"]
    assert inside
    assert [path for path in inside if "align" in facts(path).imports] == []


def test_no_module_needs_itself_by_way_of_others_when_it_is_loaded() -> None:
    """So that it does not matter which module of the package a program imports first."""
    names = {
        path: ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in modules()
    }
    needed = {name: facts(path).at_once & {*names.values()} for path, name in names.items()}
    assert sum(map(len, needed.values())) > len(needed)
    assert len([*TopologicalSorter(needed).static_order()]) == len(names)


def test_no_room_names_a_module_of_another_in_a_text() -> None:
    """Only the registry imports by name; a dotted name elsewhere would be an import that no contract sees."""
    rooms = {path: path.relative_to(PACKAGE).parts[0] for path in modules() if path != REGISTRY}
    assert [(path, name) for path, own in rooms.items() for name in facts(path).named & {*ROOMS} - {own}] == []


def test_each_module_says_why_in_few_lines_and_stays_small() -> None:
    def is_as_it_should_be(path: Path) -> bool:
        said = facts(path).docstring
        prose = [line for line in said.splitlines() if line and not line.startswith(" ")]  # examples are indented
        return 0 < len(prose) <= MOST_PROSE and len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES

    assert [path for path in modules() if not is_as_it_should_be(path)] == []


def test_little_of_the_code_is_imports() -> None:
    lines = [line for path in modules() for line in path.read_text(encoding="utf-8").splitlines()]
    imports = [line for line in lines if re.match(r"\s*(?:from [\w.]+ import |import )", line)]
    assert len(lines) > 50_000
    assert len(imports) / len(lines) < MOST_IMPORTS


def run_through(calls: list[str]) -> list[int]:
    """The number of files of `align` that each call runs code of, in the current folder; modules and classes apart."""
    import align.cli.main as command

    counts = []
    for call in calls:
        files: set[str] = set()

        def look(frame: FrameType, event: str, _: object, files: set[str] = files) -> None:
            if event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
                files.add(frame.f_code.co_filename)

        sys.setprofile(look)
        assert command.main(call.split()) in (0, 1), call
        sys.setprofile(None)
        counts.append(len([name for name in files if name.startswith(f"{PACKAGE}{os.sep}")]))
    return counts


@pytest.mark.frameworks
def test_a_call_runs_through_no_more_files_than_a_reader_can_follow(tmp_path: Path) -> None:
    for source in (ROOT / "examples" / "first_port").glob("*.py"):
        (tmp_path / source.name).write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    for log, shift in (("a.log", 0.0), ("b.log", 1e-3)):
        lines = (f"step {step} loss {2 / (step + 1) + shift * (step > 100):.6f}\n" for step in range(200))
        (tmp_path / log).write_text("".join(lines), encoding="utf-8")
    code = (
        f"import json, runpy, sys, torch; sys.path.insert(0, '.'); import original\n"
        f"torch.save(original.model().state_dict(), 'net.pth')\n"
        f"found = runpy.run_path({__file__!r})['run_through']({[*CALLS.values()]!r}); print(json.dumps(found))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    counts = dict(zip(CALLS, json.loads(done.stdout.splitlines()[-1]), strict=True))
    assert {name: count for name, count in counts.items() if count > MOST_FILES[name]} == {}, counts


def test_tests_stand_where_the_rooms_do() -> None:
    folders = {path.parent for path in (ROOT / "tests").rglob("test_*.py")} - {ROOT / "tests"}
    places = {folder.relative_to(ROOT / "tests") for folder in folders}
    assert {place for place in places if place.parts[0] not in ACROSS and not (PACKAGE / place).is_dir()} == set()


def test_the_picture_shows_the_rooms_as_they_are() -> None:
    spec = importlib.util.spec_from_file_location("draw_rooms", ROOT / "docs" / "draw_rooms.py")
    assert spec is not None
    assert spec.loader is not None
    drawing = importlib.util.module_from_spec(spec)
    sys.modules["draw_rooms"] = drawing
    spec.loader.exec_module(drawing)
    assert (ROOT / "docs" / "architecture.svg").read_text(encoding="utf-8") == drawing.draw(), (
        "the rooms changed: run python docs/draw_rooms.py"
    )
    assert "architecture.svg" in PAGE


@pytest.mark.parametrize("page", ["README.md", *sorted(path.name for path in (ROOT / "docs").glob("*.md"))])
def test_every_place_that_a_page_names_is_there(page: str) -> None:
    text = (ROOT / page if page == "README.md" else ROOT / "docs" / page).read_text(encoding="utf-8")
    named = re.findall(r"`((?:align|mappings|tests|docs)/[\w/.-]+)`", text)
    modules = re.findall(r"(?:from|import) (align(?:\.\w+)+)", text)
    if page != "extending.md":  # it names files that its reader makes, and has tests of its own
        assert [name for name in named if not (ROOT / name).exists()] == []
    assert [name for name in modules if importlib.util.find_spec(name) is None] == []


def test_every_function_that_a_way_of_the_page_leads_through_is_there() -> None:
    stations = re.findall(r"^\d+\. `align/([\w/]+)\.py` `([\w.]+)`", PAGE, re.MULTILINE)
    assert len(stations) > 30
    missing = []
    for module, name in stations:
        value: object = importlib.import_module(f"align.{module.replace('/', '.')}")
        for part in name.split("."):
            value = getattr(value, part, None)
        if value is None:
            missing.append((module, name))
    assert missing == []


def test_every_room_is_described_on_the_page() -> None:
    assert [room for room in ROOMS if f"`align/{room}/`" not in PAGE] == []
