"""Formats of console lines, made from the `[[console]]` tables of `mappings/log_formats/`."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any

from align.curves.line_formats.console_lines import ConsoleLines
from align.curves.log_parts.format_tables import check_keys, format_tables
from align.curves.log_parts.window_words import find_window
from align.errors import AlignError, MappingRuleError

if TYPE_CHECKING:
    from pathlib import Path

_TUPLES = ("lines", "validation", "header", "loss", "left_out")
_KNOWN = {field.name for field in fields(ConsoleLines)} - {"path"}
_COUNTS = ("global step", "step in epoch", "epoch")


@cache
def console_formats() -> tuple[ConsoleLines, ...]:
    """Return all formats of console lines; raises MappingRuleError if a table is none."""
    return tuple(read_console_table(path, table) for path, table in format_tables("console"))


def read_console_table(path: Path, table: dict[str, Any]) -> ConsoleLines:
    """Make one format; raises MappingRuleError with what is wrong, of expressions when they are used."""
    check_keys(path, table, _KNOWN)
    name = table.get("name", "?")
    if table.get("counts", "epoch") not in _COUNTS:
        raise MappingRuleError(path, f"{name}: counts must be one of {', '.join(_COUNTS)}, not {table['counts']!r}")
    try:
        return ConsoleLines(**_values(table), path=path)
    except (TypeError, ValueError, KeyError, AttributeError, AlignError) as error:
        raise MappingRuleError(path, f"{name}: {error}") from error


def _values(table: dict[str, Any]) -> dict[str, Any]:
    given = dict(table)
    for key in _TUPLES:
        if key in given:
            given[key] = (given[key],) if isinstance(given[key], str) else tuple(given[key])
    if "window" in given:
        given["window"] = find_window(given["window"])
    given["windows"] = {metric: find_window(text) for metric, text in given.get("windows", {}).items()}
    given["points"] = tuple((step, float(loss)) for step, loss in given["points"])
    return given
