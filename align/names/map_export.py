"""A map result written for other programs, or as the editable map file: the suffix of the path tells.

As a table, CSV or JSON it has one row for each pair and each name that is not paired.
"""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

from align.core.atomic_files import write_text
from align.core.transforms import Identity
from align.errors import UsageError
from align.names.map_file import write_map
from align.names.map_file_parts.map_lines import OURS
from align.names.map_file_parts.map_text import SCHEMA
from align.names.map_verdict import refuse_doubled
from align.names.open_choices import lines_for_unmatched, open_choices
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from align.core.parameters import Parameter, Shape
    from align.core.transforms import Transform
    from align.names.map_file import KeptLines
    from align.names.map_result import MapResult


SUFFIXES = (".toml", ".csv", ".json")
COLUMNS = (
    "source", "target", "transform", "evidence", "confidence", "status", "source_shape", "target_shape",
    "source_dtype", "target_dtype", "note",
)  # fmt: skip


def check_suffix(path: Path) -> None:
    """Raise UsageError for a path that no form of a map goes with."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError.of("names_error.no_form_of_map", name=path.name, suffixes=[*SUFFIXES])


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
        choices = _choices(result)
        write_map(path, result.name_map, kept, expand=expand, tried=result.tried, choices=choices)
    else:
        write_text(path, _as_csv(result) if path.suffix.lower() == ".csv" else _as_json(result))


def _choices(result: MapResult) -> list[list[str]]:
    left, right = (
        {parameter.name: parameter.shape for parameter in side}
        for side in (result.source_parameters, result.target_parameters)
    )
    groups = ((one.sources, one.targets, one.reason) for one in result.name_map.ambiguous)
    unmatched = [(one.side, one.name, one.suggestions) for one in result.name_map.unmatched]
    lines = lines_for_unmatched(unmatched, (left, right))
    told = [say("map_file.may_pair", mark=OURS), *(f"{OURS}   {line}" for line in lines)]
    return [*(one.as_comments() for one in open_choices(groups, (left, right))), *([told] if lines else [])]


def _as_csv(result: MapResult) -> str:
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    table.writeheader()
    table.writerows(map_rows(result))
    return text.getvalue()


def _as_json(result: MapResult) -> str:
    sides = dict(zip(("source", "target"), result.name_map.frameworks, strict=True))
    return json.dumps({"schema": SCHEMA, **sides, "rows": map_rows(result)}, indent=1, ensure_ascii=False) + "\n"


def map_rows(result: MapResult) -> list[dict[str, Any]]:
    """Return the rows: pairs in the source's order, then what is ambiguous, unmatched and dropped.

    `status` is paired, ambiguous, unmatched or dropped. `source` or `target` is "" where there is none; `confidence` is
    None for what is not paired. Shapes read `2x3`, "" for a scalar; a transform is its table as JSON, "" for none.
    """
    sources = {parameter.name: parameter for parameter in result.source_parameters}
    targets = {parameter.name: parameter for parameter in result.target_parameters}
    return [{**row, **_facts(row, sources, targets)} for row in _rows(result)]


def _rows(result: MapResult) -> Iterator[dict[str, Any]]:
    name_map = result.name_map
    for p in name_map.pairings:
        yield _row("paired", p.note, p.source, p.target) | {
            "transform": _as_text(p.transform), "evidence": p.evidence, "confidence": p.confidence
        }  # fmt: skip
    for group in name_map.ambiguous:
        for name in group.sources:
            yield _row("ambiguous", f"{group.reason}; one of: {', '.join(group.targets)}", name, "")
        for name in group.targets:
            yield _row("ambiguous", f"{group.reason}; one of: {', '.join(group.sources)}", "", name)
    for one in name_map.unmatched:
        close = f"; close: {', '.join(one.suggestions)}" if one.suggestions else ""
        yield _row("unmatched", one.reason + close, *_on_side(one.side, one.name))
    for drop in name_map.dropped:
        yield _row("dropped", drop.reason, *_on_side(drop.side, drop.name))


def _row(status: str, note: str, source: str, target: str) -> dict[str, Any]:
    filled = {"source": source, "target": target, "confidence": None, "status": status, "note": note}
    return dict.fromkeys(COLUMNS, "") | filled


def _on_side(side: str, name: str) -> tuple[str, str]:
    return (name, "") if side == "source" else ("", name)


def _as_text(transform: Transform) -> str:
    return "" if isinstance(transform, Identity) else json.dumps(transform.as_table())


def _facts(
    row: Mapping[str, Any], sources: Mapping[str, Parameter], targets: Mapping[str, Parameter]
) -> dict[str, str]:
    found = {"source": sources.get(row["source"]), "target": targets.get(row["target"])}
    shapes = {f"{side}_shape": shape_text(one.shape) if one else "" for side, one in found.items()}
    return shapes | {f"{side}_dtype": one.dtype if one else "" for side, one in found.items()}


def shape_text(shape: Shape) -> str:
    """`2x3` for (2, 3).

    >>> shape_text((2, 3)), shape_text(())
    ('2x3', '')
    """
    return "x".join(map(str, shape))
