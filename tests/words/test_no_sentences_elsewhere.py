"""Rooms that judge name keys and facts; what people read stands in the catalogues of `align/words`."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import align

ROOT = Path(align.__file__).parent
# What rooms still word themselves, and how many files of each do; a number only ever goes down.
WORDING = ("report", "cli", "words", "errors")  # rooms that may
STILL_WORDED = {
    "checkpoints": 18,
    "convert": 7,
    "core": 6,
    "curves": 67,
    "models": 14,
    "names": 9,
    "rules": 3,
    "training": 9,
}
WORD = re.compile(r"(?:^|\s)[A-Za-z']{2,}(?=[\s,;:.]|$)")
# Errors are worded by their classes, and beside them their hints and the faults that they list.
ERRORS = ("Error", "error", "hint", "faults", "msg")


def sentences(path: Path) -> list[str]:
    """Texts of three words and more, but for docstrings, errors and regular expressions."""
    tree = _tree(path)
    apart = {id(inner) for node in ast.walk(tree) if _apart(node) for inner in ast.walk(node)}
    apart |= {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for inner in ast.walk(node)
        if inner is not node
    }
    texts = (_text(node) for node in ast.walk(tree) if id(node) not in apart)
    return [
        text for text in texts if len(WORD.findall(text)) > 2 and "(?" not in text and text not in _words_of_literals()
    ]


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def _words_of_literals() -> frozenset[str]:
    """Words of a `Literal` anywhere in the package: they are ids."""
    nodes = (node for path in ROOT.rglob("*.py") for node in ast.walk(_tree(path)) if isinstance(node, ast.Subscript))
    literals = [node.slice for node in nodes if getattr(node.value, "id", "") == "Literal"]
    return frozenset(_text(word) for literal in literals for word in ast.walk(literal))


def _apart(node: ast.AST) -> bool:
    if isinstance(node, (ast.Raise, ast.Assert)):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    if isinstance(node, ast.Call):
        return _name(node.func) == "compile" or any(map(_is_of_errors, (node.func, *_called_on(node))))
    if isinstance(node, ast.FunctionDef):
        return node.name.endswith(ERRORS)
    return any(map(_is_of_errors, _assigned(node)))


def _called_on(call: ast.Call) -> list[ast.AST]:
    """The list that a call adds to, and the class that `partial` fills in."""
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("append", "extend"):
        return [call.func.value]
    return [*call.args[:1]] if _name(call.func) == "partial" else []


def _assigned(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) else []


def _is_of_errors(node: ast.AST) -> bool:
    return _name(node).endswith(ERRORS) or _name(node).lower().endswith(ERRORS)


def _name(node: ast.AST) -> str:
    return str(getattr(node, "attr", getattr(node, "id", "")))


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values)
    return ""


def test_a_room_words_no_more_than_it_is_known_to() -> None:
    found = {
        room.name: sum(bool(sentences(path)) for path in room.rglob("*.py"))
        for room in ROOT.iterdir()
        if room.is_dir() and room.name not in (*WORDING, "__pycache__")
    }
    assert {room: count for room, count in found.items() if count} == STILL_WORDED


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('reason = f"{n} layers of it differ"', ["{} layers of it differ"]),
        ('def one():\n    """It says what it does."""', []),
        ('raise ValueError("it has no such thing")', []),
        ('error = UsageError("it has no such thing", "give it one of these")', []),
        ('HINT = "give it one of these"', []),
        ('faults += ["it has no such thing"]', []),
        ('faults.append("it has no such thing")', []),
        ('found.append("it has no such thing")', ["it has no such thing"]),
        ('def one_faults():\n    yield "it has no such thing"', []),
        ('run(partial(UserCodeError, "running it there alone"))', []),
        ('NAME = re.compile(r"one of these (?P<name>x)")', []),
        ('sentence("step_verdict.faults", count=1)', []),
        ('kind = "not aligned"', []),
        ('kind = "reference with cache"', []),
        ('msg = "no batch was compared"', []),
    ],
)
def test_what_counts_as_a_sentence(code: str, found: list[str], tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(code, encoding="utf-8")
    assert sentences(tmp_path / "code.py") == found
