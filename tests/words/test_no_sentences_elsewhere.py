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
    "checkpoints": 19,
    "convert": 7,
    "core": 6,
    "curves": 69,
    "evaluation": 8,
    "forward": 30,
    "lint": 8,
    "models": 16,
    "names": 12,
    "rules": 3,
    "runs": 3,
    "traces": 12,
    "training": 9,
}
WORD = re.compile(r"(?:^|\s)[A-Za-z']{2,}(?=[\s,;:.]|$)")
ERRORS = ("Error", "error", "hint", "msg")  # errors are worded by their classes, and their hints beside them


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def outcomes() -> set[str]:
    """Words of data: the members of all `Literal` types."""
    nodes = (node for path in ROOT.rglob("*.py") for node in ast.walk(parsed(path)))
    types = (node for node in nodes if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") == "Literal")
    return {text for one in types for inner in ast.walk(one) if (text := _text(inner))}


def sentences(path: Path) -> list[str]:
    """Texts of three words and more, but for docstrings, errors, outcomes and regular expressions."""
    tree = parsed(path)
    apart = {id(inner) for node in ast.walk(tree) if _apart(node) for inner in ast.walk(node)}
    apart |= {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for inner in ast.walk(node)
        if inner is not node
    }
    texts = (_text(node) for node in ast.walk(tree) if id(node) not in apart)
    found = [text for text in texts if text and len(WORD.findall(text)) > 2 and "(?" not in text]
    return [text for text in found if text not in outcomes()]


def _apart(node: ast.AST) -> bool:
    if isinstance(node, (ast.Raise, ast.Assert)):
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        return name.endswith(ERRORS) or name == "compile"
    return isinstance(node, ast.Assign) and any(
        str(getattr(one, "attr", getattr(one, "id", ""))).lower().endswith(ERRORS) for one in node.targets
    )


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
        ('NAME = re.compile(r"one of these (?P<name>x)")', []),
        ('sentence("step_verdict.faults", count=1)', []),
        ('outcome = "could not tell"', []),
    ],
)
def test_what_counts_as_a_sentence(code: str, found: list[str], tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(code, encoding="utf-8")
    assert sentences(tmp_path / "code.py") == found
