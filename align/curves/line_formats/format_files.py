"""Reads `mappings/log_formats/`: formats of logs as data, a file for each family."""

from __future__ import annotations

import re
import sys
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any

from align.core.about import CHECKOUT, beside_package
from align.curves.line_formats.console_lines import ConsoleLines
from align.curves.log_parts.window_words import find_window
from align.errors import AlignError, MappingRuleError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FOLDER = "log_formats"
_TUPLES = ("lines", "validation", "header", "loss", "left_out")
_KNOWN = {field.name for field in fields(ConsoleLines)}
_COUNTS = ("global step", "step in epoch", "epoch")


@cache
def console_formats() -> tuple[ConsoleLines, ...]:
    """Return all formats of console lines; raises MappingRuleError if a file is none or the installation lacks them."""
    folder = beside_package("mappings", _FOLDER)
    if folder is None:
        raise MappingRuleError(
            CHECKOUT / "mappings" / _FOLDER, "the rule files are missing; the installation is broken"
        )
    return tuple(one for path in sorted((folder / _FOLDER).glob("*.toml")) for one in read_console_formats(path))


def read_console_formats(path: Path) -> Iterator[ConsoleLines]:
    """Yield the formats of one file; raises MappingRuleError with what is wrong."""
    try:
        document: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MappingRuleError(path, f"not TOML: {error}") from error
    tables = document.get("console", [])
    if set(document) - {"console"} or not isinstance(tables, list):
        raise MappingRuleError(path, "expected [[console]] tables and nothing else")
    for table in tables:
        yield _console(path, table)


def _console(path: Path, table: dict[str, Any]) -> ConsoleLines:
    name = table.get("name", "?")
    if unknown := sorted(set(table) - _KNOWN):
        raise MappingRuleError(path, f"{name}: unknown keys {', '.join(unknown)}; known: {', '.join(sorted(_KNOWN))}")
    if table.get("counts", "epoch") not in _COUNTS:
        raise MappingRuleError(path, f"{name}: counts must be one of {', '.join(_COUNTS)}, not {table['counts']!r}")
    given = dict(table)
    for key in _TUPLES:
        if isinstance(given.get(key), str):
            given[key] = (given[key],)
        elif key in given:
            given[key] = tuple(given[key])
    try:
        given["points"] = tuple((step, float(loss)) for step, loss in given["points"])
        if "window" in given:
            given["window"] = find_window(given["window"])
        given["windows"] = {metric: find_window(text) for metric, text in given.get("windows", {}).items()}
        made = ConsoleLines(**given)
        _ = made.record, made.line, made.pair, made.record_start
    except (TypeError, ValueError, KeyError, AttributeError, re.error, AlignError) as error:
        raise MappingRuleError(path, f"{name}: {error}") from error
    return made
