"""Each room keeps its limits in `thresholds.py`, or several `..._thresholds.py`, with why and where each comes from."""

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
# How many numbers of each room stand outside its table still; a count only ever goes down.
STILL_ELSEWHERE: dict[str, int] = {}
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
    found = []
    for path in sorted((ROOT / room).rglob("*.py")):
        lines = path.read_text(encoding="utf-8").splitlines()
        if path not in TABLES:
            named = [(name, node) for name, node in constants(path) if not EXEMPT.search(lines[node.lineno - 1])]
            found += [f"{path.relative_to(ROOT)}:{node.lineno} {name}" for name, node in named]
    return found


@pytest.mark.parametrize("table", TABLES, ids=lambda table: f"{table.parent.name}/{table.stem}")
def test_each_limit_says_why_it_is_there_and_where_its_number_comes_from(table: Path) -> None:
    tree = ast.parse(table.read_text(encoding="utf-8"))
    follows = {one.lineno: other for one, other in zip(tree.body, tree.body[1:], strict=False)}
    assert constants(table)
    for name, node in constants(table):
        text = _text(follows.get(node.lineno))
        origin = ORIGIN.search(text)
        assert origin, f"{name} needs a text below it that ends in Measured:, Source: or Choice:"
        assert len(text[: origin.start()].strip()) >= SHORTEST_REASON, f"{name} does not say why it is there"


def _text(node: ast.stmt | None) -> str:
    value = node.value if isinstance(node, ast.Expr) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def test_a_name_of_a_limit_stands_once() -> None:
    names = Counter(name for table in TABLES for name, _ in constants(table))
    assert not [name for name, count in names.items() if count > 1]


def test_a_limit_is_used() -> None:
    texts = [path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py") if path not in TABLES]
    tables = [table.read_text(encoding="utf-8") for table in TABLES]
    words = Counter(word for text in texts for word in set(re.findall(r"[A-Z][A-Z0-9_]+", text)))
    for table in tables:
        words.update(word for word, count in Counter(re.findall(r"[A-Z][A-Z0-9_]+", table)).items() if count > 1)
    assert not [name for table in TABLES for name, _ in constants(table) if not words[name]]


@pytest.mark.parametrize("room", sorted(path.parent.name for path in ROOT.glob("*/__init__.py")))
def test_numbers_that_decide_stand_in_the_table_of_their_room(room: str) -> None:
    assert len(outside(room)) == STILL_ELSEWHERE.get(room, 0), outside(room)
