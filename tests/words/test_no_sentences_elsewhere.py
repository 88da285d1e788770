"""Rooms that judge name keys and facts; what people read stands in the catalogues of `align/words`."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import align
from align.errors import AlignError

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(align.__file__).parent
# What rooms still word themselves, and how many files of each do; a number only ever goes down.
WORDING = ("report", "cli", "words", "errors")  # rooms that may
STILL_WORDED: dict[str, int] = {}
# Errors that a room words where it raises them, instead of by a key of the catalogue; these numbers go down as well.
STILL_WORDED_ERRORS: dict[str, int] = {}
WORD = re.compile(r"(?:^|\s)[A-Za-z']{2,}(?=[\s,;:.]|$)")
EXPRESSION = re.compile(r"\(\?|\[\^")
# Errors are worded by their classes, and beside them what is given to them: reasons, hints, lists of faults.
ERRORS = ("error", "hint", "fault", "faults", "problem", "problems", "msg")
# Plugins say what they are, so that adding one is adding a file; beside that stand words of other programs, and code.
PLUGINS = ("summary", "printed", "script", "scriptforms")


# Parts without a part of their own and without a text: most of a tree, which need not be asked.
LEAVES = (ast.expr_context, ast.Name, ast.operator, ast.cmpop, ast.boolop, ast.unaryop, ast.alias)


class Told(NamedTuple):
    """What a file says: texts of three words and more, lines in which an error is given one, and ids."""

    texts: tuple[str, ...]
    errors: tuple[int, ...]
    literals: frozenset[str]


@cache
def told(path: Path) -> Told:
    """Read a file once for all tests, and keep nothing of its tree: all of them would fill 200 MB."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = [text for text in _texts(tree, set()) if _is_sentence(text) and not EXPRESSION.search(text)]
    nodes = [node for node in ast.walk(tree) if isinstance(node, (ast.Call, ast.Subscript))]
    calls = [node for node in nodes if isinstance(node, ast.Call) and _name(node.func) in align_errors()]
    literals = [node.slice for node in nodes if isinstance(node, ast.Subscript) and _name(node.value) == "Literal"]
    return Told(
        tuple(texts),
        tuple(call.lineno for call in calls if any(_is_sentence(_text(one)) for one in ast.walk(call))),
        frozenset(_text(word) for literal in literals for word in ast.walk(literal)),
    )


def sentences(path: Path) -> list[str]:
    """Texts of three words and more, but for docstrings, errors, words of plugins and regular expressions."""
    return [text for text in told(path).texts if text not in _words_of_literals()]


def _is_sentence(text: str) -> bool:
    return len(WORD.findall(text)) > 2


def _texts(node: ast.AST, apart: set[int]) -> Iterator[str]:
    """The texts in a node, but for those in parts of it that stand apart, whose ids are noted on the way down."""
    apart.update(map(id, _apart(node)))
    if id(node) in apart:
        return
    if text := _text(node):
        yield text
    elif not isinstance(node, ast.JoinedStr):
        for inner in ast.iter_child_nodes(node):
            if not isinstance(inner, LEAVES):
                yield from _texts(inner, apart)


@cache
def _words_of_literals() -> frozenset[str]:
    """Words of a `Literal` anywhere in the package: they are ids."""
    return frozenset().union(*(told(path).literals for path in ROOT.rglob("*.py")))


def _apart(node: ast.AST) -> list[ast.AST]:
    """The parts of a node in which texts are no sentences of results."""
    if isinstance(node, ast.FunctionDef):
        return [node] if _is_of_errors(node) else _given_to_errors(node)
    if isinstance(node, ast.Dict):
        return [key for key in node.keys if key is not None]  # names of facts are ids
    return [node] if _is_apart(node) else [node.slice] if isinstance(node, ast.Subscript) else []


def _is_apart(node: ast.AST) -> bool:
    if isinstance(node, (ast.Raise, ast.Assert)):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    if isinstance(node, ast.ClassDef):
        return any(_name(base).endswith("Enum") for base in node.bases)
    if isinstance(node, ast.Call):
        return _name(node.func) == "compile" or any(map(_is_of_errors, (node.func, *_called_on(node))))
    if isinstance(node, ast.AnnAssign) and _name(node.annotation) == "TypeAlias":
        return True
    return getattr(node, "arg", "") in PLUGINS or any(map(_is_of_errors, _assigned(node)))


def _given_to_errors(function: ast.FunctionDef) -> list[ast.AST]:
    """What is assigned to names that stand in a `raise`, or in the call of an error."""
    nodes = [node for node in ast.walk(function) if not isinstance(node, LEAVES)]
    raising = [node for node in nodes if _raises(node)]
    given = {inner.id for node in raising for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    assigned = [node for node in nodes if any(_name(one) in given for one in _assigned(node))]
    return [
        node.value for node in assigned if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value
    ]


def _raises(node: ast.AST) -> bool:
    return isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and _name(node.func).endswith("Error"))


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
    return _name(node).lower().endswith((*ERRORS, *PLUGINS))


def _name(node: ast.AST) -> str:
    return str(getattr(node, "attr", getattr(node, "id", getattr(node, "name", ""))))


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values)
    return ""


def _rooms(*apart: str) -> list[tuple[str, list[Path]]]:
    rooms = [room for room in ROOT.iterdir() if room.is_dir() and room.name not in (*apart, "__pycache__")]
    return [(room.name, sorted(room.rglob("*.py"))) for room in rooms]


def test_a_room_words_no_more_than_it_is_known_to() -> None:
    found = {room: sum(bool(sentences(path)) for path in paths) for room, paths in _rooms(*WORDING)}
    assert {room: count for room, count in found.items() if count} == STILL_WORDED


@cache
def align_errors() -> set[str]:
    return {name for name, one in vars(align.errors).items() if isinstance(one, type) and issubclass(one, AlignError)}


def test_a_room_words_no_more_errors_than_it_is_known_to() -> None:
    found = {room: sum(len(told(path).errors) for path in paths) for room, paths in _rooms("errors", "words")}
    assert {room: count for room, count in found.items() if count} == STILL_WORDED_ERRORS


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
        ('summary: str = "files of such a kind"', []),
        ('Rung("one", summary="what it compares of both")', []),
        ('Rung("one", reason="what it compares of both")', ["what it compares of both"]),
        ('_TIMES_PRINTED = {"time for each step": "step_time_s"}', []),
        ('TWICE = f"each step of [^|]*{step}"', []),
        ('def one():\n    why = "it has no such thing"\n    raise ValueError(why)', []),
        ('def one():\n    why = "it has no such thing"\n    return why', ["it has no such thing"]),
        ('def one_fault():\n    return "it has no such thing"', []),
        ('facts["share of the batch"] = {"share of the rest": 1}', []),
        ('class Outcome(enum.Enum):\n    NO = "it has no such thing"', []),
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
