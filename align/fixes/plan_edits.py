"""A small plan of edits: keywords that a confirmed change writes into the call that makes the layer."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.fixes.planned_edits import PlannedEdits, RefusedFix, SourceEdit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.forward.forward_result import Culprit

_CHANGE = re.compile(r"(\w+(?:\.\w+)*)\((?:\.\.\., )?(.*)\)")


def plan_edits(culprits: Sequence[Culprit], model: Any) -> PlannedEdits:
    """Return the edits of all culprits that stand at one line each."""
    import inspect

    groups: dict[tuple[str, str], list[Culprit]] = {}
    for one in culprits:
        groups.setdefault((one.line, one.change), []).append(one)
    edits, refused, texts = [], [], {}
    for (line, change), own in groups.items():
        layers = tuple(dict.fromkeys(one.candidate for one in own))
        name, _, number = line.rpartition(":")
        file = next((p for p in _files(model, inspect) if str(p).endswith(name)), None)
        if file is None or not (match := _CHANGE.fullmatch(change)):
            refused.append(RefusedFix(layers, own[0].cause, "fix_refused.no_package", {"file": name}))
            continue
        text = texts.get(file) or file.read_bytes().decode()
        before = next(
            ast.get_source_segment(text, node)
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Call)
            and node.lineno == int(number)
            and ast.unparse(node.func).endswith(match[1].split(".")[-1])
        )
        after = before
        for argument in match[2].split(", "):
            key = argument.partition("=")[0]
            found = re.search(rf"\b{key}\s*=\s*[^,)]+", after)
            after = after.replace(found[0], argument) if found else f"{after[:-1]}, {argument})"
        lines = text.splitlines(keepends=True)
        at = int(number) - 1
        lines[at] = lines[at].replace(before, after)
        texts[file] = "".join(lines)
        edits.append(SourceEdit(str(file), int(number), before, after, layers, own[0].cause, {}))
    return PlannedEdits(tuple(edits), tuple(refused), texts)


def _files(model: Any, inspect: Any) -> list[Path]:
    found = []
    for _, cell in model.cells_and_names():
        for cls in type(cell).__mro__:
            if not cls.__module__.startswith(("mindspore", "builtins", "pybind")):
                found.append(Path(inspect.getfile(cls)))
    return list(dict.fromkeys(found))
