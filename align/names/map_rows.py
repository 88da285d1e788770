"""A map result as rows, one for each pair and each name that is not paired: for a table, a CSV or a JSON file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from align.core.transforms import Identity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.core.parameters import Parameter, Shape
    from align.core.transforms import Transform
    from align.names.map_result import MapResult

COLUMNS = (
    "source", "target", "transform", "evidence", "confidence", "status", "source_shape", "target_shape",
    "source_dtype", "target_dtype", "note",
)  # fmt: skip


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
