"""A map result written for other programs, or as the editable map file: the suffix of the path tells."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

from align.core.atomic_files import write_text
from align.errors import UsageError
from align.names.judging.doubled_targets import refuse_doubled
from align.names.map_file import write_map
from align.names.map_file_parts.map_text import SCHEMA
from align.names.map_rows import COLUMNS, map_rows

if TYPE_CHECKING:
    from pathlib import Path

    from align.names.map_file import KeptLines
    from align.names.map_result import MapResult

SUFFIXES = (".toml", ".csv", ".json")


def check_suffix(path: Path) -> None:
    """Raise UsageError for a path that no form of a map goes with."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"a map cannot be written as {path.name}", f"end the name in one of: {', '.join(SUFFIXES)}")


def is_editable(path: Path) -> bool:
    """Tell whether a path is that of an editable map file, which may hold lines of the user's."""
    return path.suffix.lower() == ".toml"


def write_map_file(path: Path, result: MapResult, kept: KeptLines | None = None, *, expand: bool = False) -> None:
    """Write a map as TOML, CSV or JSON, whole or not at all; the latter two have a row for each name.

    Raises UsageError for another suffix, DestinationError if it cannot be written, MapError for a target made twice.
    """
    check_suffix(path)
    refuse_doubled(result.name_map, path)
    if is_editable(path):
        write_map(path, result.name_map, kept, expand=expand)
    else:
        write_text(path, _as_csv(result) if path.suffix.lower() == ".csv" else _as_json(result))


def _as_csv(result: MapResult) -> str:
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    table.writeheader()
    table.writerows(map_rows(result))
    return text.getvalue()


def _as_json(result: MapResult) -> str:
    sides = dict(zip(("source", "target"), result.name_map.frameworks, strict=True))
    return json.dumps({"schema": SCHEMA, **sides, "rows": map_rows(result)}, indent=1, ensure_ascii=False) + "\n"
