"""Each room keeps its limits in `thresholds.py`, or several `..._thresholds.py`, with why and where each comes from.

A room of few limits has no table: a file of five lines would only be one more to open. There they stand at the top of
the module that uses them, and say the same of themselves.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import align

ROOT = Path(align.__file__).parent
TABLES = sorted(ROOT.glob("*/*thresholds.py"))
WITHOUT_TABLE = {path.parent for path in ROOT.glob("*/__init__.py")} - {table.parent for table in TABLES}
MOST_WITHOUT_TABLE = 12
ORIGIN = re.compile(r"\b(Measured|Source|Choice): \S")
SHORTEST_REASON = 20
EXEMPT = re.compile(r"# (format|no limit): \S")


def is_number(node: ast.AST | None) -> bool:
    """A number, an expression of numbers, or a tuple of such."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (int, float)) and not isinstance(node.value, bool)
    if isinstance(node, ast.UnaryOp):
        return is_number(node.operand)
    if isinstance(node, ast.BinOp):
        return is_number(node.left) and is_number(node.right)
    return isinstance(node, ast.Tuple) and bool(node.elts) and all(map(is_number, node.elts))


def constants(path: Path) -> list[tuple[str, ast.stmt]]:
    """The numbers that a module names at its top."""
    found = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names = [one.id for target in targets for one in getattr(target, "elts", [target]) if isinstance(one, ast.Name)]
        if is_number(getattr(node, "value", None)):
            found += [(name, node) for name in names if name.isupper()]
    return found


@cache
def outside(room: str) -> list[str]:
    """Numbers that stand in another module of a room, but for those that say `# format: ...` or `# no limit: ...`."""
    modules = [path for path in sorted((ROOT / room).rglob("*.py")) if path not in TABLES]
    return [f"{path.relative_to(ROOT)}:{node.lineno} {name}" for path in modules for name, node in limits(path)]


def limits(path: Path) -> list[tuple[str, ast.stmt]]:
    """The numbers that a module names at its top and that decide."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [(name, node) for name, node in constants(path) if not EXEMPT.search(lines[node.lineno - 1])]


def modules_with_limits() -> list[Path]:
    """The tables, and the modules with limits of rooms that have none."""
    others = [path for room in sorted(WITHOUT_TABLE) for path in sorted(room.rglob("*.py"))]
    return [*TABLES, *(path for path in others if limits(path))]


@pytest.mark.parametrize("table", modules_with_limits(), ids=lambda table: f"{table.parent.name}/{table.stem}")
def test_each_limit_says_why_it_is_there_and_where_its_number_comes_from(table: Path) -> None:
    tree = ast.parse(table.read_text(encoding="utf-8"))
    follows = {one.lineno: other for one, other in zip(tree.body, tree.body[1:], strict=False)}
    assert limits(table)
    for name, node in limits(table):
        text = _text(follows.get(node.lineno))
        origin = ORIGIN.search(text)
        assert origin, f"{name} needs a text below it that ends in Measured:, Source: or Choice:"
        assert len(text[: origin.start()].strip()) >= SHORTEST_REASON, f"{name} does not say why it is there"


def _text(node: ast.stmt | None) -> str:
    value = node.value if isinstance(node, ast.Expr) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def test_a_name_of_a_limit_stands_once() -> None:
    names = Counter(name for table in modules_with_limits() for name, _ in limits(table))
    assert not [name for name, count in names.items() if count > 1]


def test_a_limit_is_used() -> None:
    tables = modules_with_limits()
    texts = [path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py") if path not in tables]
    words = Counter(word for text in texts for word in set(re.findall(r"[A-Z][A-Z0-9_]+", text)))
    for table in tables:
        found = Counter(re.findall(r"[A-Z][A-Z0-9_]+", table.read_text(encoding="utf-8")))
        words.update(word for word, count in found.items() if count > 1)
    assert not [name for table in tables for name, _ in limits(table) if not words[name]]


@pytest.mark.parametrize("room", sorted(path.parent.name for path in ROOT.glob("*/__init__.py")))
def test_numbers_that_decide_stand_in_the_table_of_their_room(room: str) -> None:
    most = MOST_WITHOUT_TABLE if ROOT / room in WITHOUT_TABLE else 0
    assert len(outside(room)) <= most, outside(room)
