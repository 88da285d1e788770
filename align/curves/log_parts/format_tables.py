"""The tables of `mappings/log_formats/`: formats of logs as data, a file for each family.

`[[console]]` tells of lines (align/curves/line_formats/console_lines.py), `[[table]]` of columns (known_tables.py).
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from align.core.about import CHECKOUT, beside_package
from align.errors import MappingRuleError
from align.words.catalogue import say

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from pathlib import Path

_FOLDER = "log_formats"
_KINDS = ("console", "table")


@cache
def format_tables(kind: Literal["console", "table"]) -> tuple[tuple[Path, dict[str, Any]], ...]:
    """Return all tables of a kind, each with its file; raises MappingRuleError if the installation lacks them."""
    folder = beside_package("mappings", _FOLDER)
    if folder is None:
        raise MappingRuleError(CHECKOUT / "mappings" / _FOLDER, MappingRuleError.MISSING)
    files = sorted((folder / _FOLDER).glob("*.toml"))
    return tuple((path, table) for path in files for table in read_format_tables(path).get(kind, []))


@cache
def read_format_tables(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Read one file; raises MappingRuleError if it holds anything but lists of tables of a known kind."""
    try:
        document: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MappingRuleError(path, f"not TOML: {error}") from error
    if not all(kind in _KINDS and isinstance(tables, list) for kind, tables in document.items()):
        raise MappingRuleError(path, say("log_table.kinds", kinds=_KINDS))
    return document


def check_keys(path: Path, table: dict[str, Any], known: set[str]) -> None:
    """Raise MappingRuleError if a table has a key that is not known."""
    if unknown := sorted(set(table) - known):
        name = table.get("name", "?")
        raise MappingRuleError(path, say("log_table.keys", name=name, unknown=unknown, known=sorted(known)))
