"""Calls of fused operators in source files, read without running them: torch_npu is not there without a card."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from align.core.align_sequences import grouped
from align.core.verdicts import Finding
from align.errors import CannotRunError, MissingFileError
from align.models.function_source import methods_of, own_classes, shown
from align.models.thresholds import MOST_SOURCE_FILES
from align.rules.fused_rules import fused_rules
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.core.protocols import Model
    from align.rules.fused_rules import FusedOperator

OF_TORCH_NPU: Final = ("torch_npu.", "torch.ops.npu.")


@dataclass(frozen=True, slots=True)
class FusedCall:
    """A call in a file: its full name, `line` as `file.py:12`, and what it gives where that is written as a constant.

    Arguments behind `*` and `**` are not seen: `whole` is False where there are such.
    """

    name: str
    operator: FusedOperator | None
    line: str
    given: Mapping[str, object]
    whole: bool

    def findings(self) -> tuple[Finding, ...]:
        """What to look at in the call; of one that is not seen whole, nothing of what is absent."""
        if self.operator is None:
            return ()
        pitfalls = fused_rules().pitfalls
        seen = [
            pitfall
            for pitfall in self.operator.pitfalls_of(self.given)
            if self.whole or pitfalls[pitfall].when != "absent"
        ]
        name = self.name.rpartition(".")[2]
        return tuple(
            Finding(
                pitfall,
                "note",
                self.line,
                sentence("source_finding.fused", name=name, pitfall=sentence(f"fused_pitfall.{pitfall}")),
            )
            for pitfall in seen
        )


def fused_calls(side: str) -> tuple[FusedCall, ...]:
    """The calls of fused operators in a Python file, or in all files of a folder; a function behind it is left out.

    Raises CannotRunError for what cannot be read, MissingFileError for what is not there.
    """
    place, colon, function = side.rpartition(":")
    path = Path(place if colon and function.isidentifier() and not Path(side).exists() else side)
    if not path.exists():
        raise MissingFileError(path, "file")
    files = sorted(path.rglob("*.py"))[:MOST_SOURCE_FILES] if path.is_dir() else [path]
    calls: list[FusedCall] = []
    for file in files:
        try:
            tree = ast.parse(file.read_bytes(), str(file))
        except (OSError, SyntaxError, ValueError, RecursionError) as error:
            raise CannotRunError.of("scan_error.no_source", path=file, reason=error) from error
        calls += _in_tree(tree, str(file.relative_to(path)) if path.is_dir() else file.name)
    return tuple(calls)


def calls_in_model(model: Model) -> tuple[FusedCall, ...]:
    """The calls of fused operators in the methods of a model's own layers; code that cannot be read has none."""
    walk = getattr(model, "named_modules", None) or getattr(model, "cells_and_names", None)
    layers = [layer for _, layer in walk()] if walk else [model]
    classes = {cls: None for layer in layers for cls in own_classes(layer)}
    calls: dict[tuple[str, str], FusedCall] = {}
    for source in (one for cls in classes for one in methods_of(cls)):
        imports = _imports_of(source.file)
        for node, name, operator in _calls(source.node, imports):
            line = shown(source, node.lineno)
            calls[name, line] = FusedCall(name, operator, line, *_given(node, operator))
    return tuple(calls.values())


@cache
def _imports_of(file: str) -> dict[str, str]:
    try:
        return _imported(ast.parse(Path(file).read_bytes()))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return {}


def _in_tree(tree: ast.AST, file: str) -> list[FusedCall]:
    """The calls of a file in their order, by what its imports say names mean."""
    calls = sorted(_calls(tree, _imported(tree)), key=lambda one: (one[0].lineno, one[0].col_offset))
    return [
        FusedCall(name, operator, f"{file}:{node.lineno}", *_given(node, operator)) for node, name, operator in calls
    ]


def _calls(tree: ast.AST, names: Mapping[str, str]) -> Iterator[tuple[ast.Call, str, FusedOperator | None]]:
    known = fused_rules().by_name()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (name := _full_name(node.func, names)):
            operator = known.get(name)
            if operator is not None or (name.startswith(OF_TORCH_NPU) and "npu_" in name.rpartition(".")[2]):
                yield node, name, operator


def _imported(tree: ast.AST) -> dict[str, str]:
    """What the names mean that imports bind, at whatever depth they stand."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {
                bound.asname or bound.name.partition(".")[0]: bound.name
                if bound.asname
                else bound.name.partition(".")[0]
                for bound in node.names
            }
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {bound.asname or bound.name: f"{node.module}.{bound.name}" for bound in node.names}
    return names


def _full_name(node: ast.expr, names: Mapping[str, str]) -> str:
    """The full name of what is called; "" where it begins with no imported name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in names:
        return ""
    return ".".join([names[node.id], *reversed(parts)])


def _given(node: ast.Call, operator: FusedOperator | None) -> tuple[dict[str, object], bool]:
    """What a call gives by argument; None for a value that is not written there."""
    whole = not any(isinstance(keyword, ast.Starred) for keyword in node.args) and all(
        keyword.arg for keyword in node.keywords
    )
    if operator is None:
        return {}, whole
    by_place = [keyword for keyword in node.args if not isinstance(keyword, ast.Starred)] if whole else []
    given = dict(zip(operator.defaults, map(_constant, by_place), strict=False))
    return given | {keyword.arg: _constant(keyword.value) for keyword in node.keywords if keyword.arg}, whole


def _constant(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def by_name(calls: tuple[FusedCall, ...]) -> dict[str, list[FusedCall]]:
    """Calls by the name of what is called, the most frequent first."""
    counts = Counter(call.name for call in calls)
    return dict(sorted(grouped((call.name, call) for call in calls).items(), key=lambda one: -counts[one[0]]))
