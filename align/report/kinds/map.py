"""A name map shown: the counts of both sides, how names were paired, and all that is open or left out, by reason."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from align.names.fold_names import fold_names
from align.names.number_ranges import fold_ranges
from align.report.kind_parts.map_tables import pair_table, parameter_tables
from align.report.rendering.blocks import Block, Column, Lines, Row, Table, Tone, verdict_block
from align.report.rendering.format_values import NONE, format_number
from align.words.catalogue import say, word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


def map_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.map` document; `show_all` lists every pair and both sides' parameters, in runs."""
    name_map = document["name_map"]
    return [
        _summary(document["source"], document["target"]),
        *([_evidence(name_map["pairings"])] if name_map["pairings"] else []),
        *(parameter_tables(document) if show_all and document.get("source_parameters") else []),
        *pair_table(name_map["pairings"], document.get("source_parameters", ()), show_all=show_all),
        *_notes(name_map["pairings"]),
        *_ambiguous(name_map["ambiguous"]),
        *_by_reason("map.unmatched", name_map["unmatched"], "bad"),
        *_by_reason("map.dropped", name_map["dropped"], "plain"),
        *_listed("map.unused_rules", fold_names(name_map["unused_rules"])),
        *_listed("map.warnings", document.get("warnings", ())),
        verdict_block(document["verdict"], ("source", "target")),
    ]


def _summary(source: dict[str, Any], target: dict[str, Any]) -> Table:
    facts: dict[str, Callable[[dict[str, Any]], str]] = {
        "label": lambda side: side["label"],
        "framework": lambda side: side["framework"] or NONE,
        "tensors": lambda side: format_number(side["tensors"]),
        "parameters": lambda side: format_number(side["elements"]),
        "trainable": lambda side: format_number(side["trainable_elements"]),
        "buffers": lambda side: format_number(side["buffers"]),
        "dtypes": lambda side: ", ".join(f"{dtype} × {count}" for dtype, count in side["dtypes"].items()) or NONE,
        "ties": lambda side: _ties(side["ties"]) or say("word.none"),
    }
    rows = tuple(Row((say(f"map.{key}"), fact(source), fact(target))) for key, fact in facts.items())
    columns = (Column(""), Column(say("word.source"), "path"), Column(say("word.target"), "path"))
    return Table(say("map.title"), columns, rows)


def _ties(ties: Iterable[Sequence[str]]) -> str:
    return "; ".join(" = ".join(texts) for texts, _ in fold_ranges([((a, b), None) for a, b in ties]))


def _evidence(pairings: list[dict[str, Any]]) -> Table:
    rows = []
    for evidence, count in Counter(p["evidence"] for p in pairings).most_common():
        own = [p for p in pairings if p["evidence"] == evidence]
        changed = sum(p["transform"]["op"] != "identity" for p in own)
        lowest = min(float(p["confidence"]) for p in own)
        rows.append(
            Row((word("evidence", evidence), format_number(count), format_number(changed), format_number(lowest)))
        )
    columns = (
        Column(say("map.evidence")),
        Column(say("map.pairs"), "number"),
        Column(say("map.transformed"), "number"),
        Column(say("map.lowest_confidence"), "number"),
    )
    return Table(say("map.paired", count=format_number(len(pairings))), columns, tuple(rows))


def _notes(pairings: list[dict[str, Any]]) -> list[Block]:
    """What is to be known of some pairs, each note once with the source names that it holds for."""
    noted: dict[str, list[str]] = {}
    for (note, names), places in fold_ranges([((p["note"], p["source"]), None) for p in pairings if p["note"]]):
        noted.setdefault(note, []).append(names if len(places) == 1 else f"{names} ({len(places)})")
    lines = [say("map.noted", note=note, names=", ".join(names)) for note, names in noted.items()]
    return [Lines(say("map.notes"), tuple(lines), "open")] if lines else []


def _ambiguous(groups: list[dict[str, Any]]) -> list[Block]:
    if not groups:
        return []
    lines = []
    for group in groups:
        sides = " | ".join(", ".join(fold_names(group[side])) for side in ("sources", "targets"))
        lines.append(say("map.ambiguous_group", sides=sides, reason=group["reason"]))
    return [Lines(say("map.ambiguous", count=format_number(len(groups))), tuple(lines), "open")]


def _by_reason(title: str, entries: list[dict[str, Any]], tone: Tone) -> list[Block]:
    if not entries:
        return []
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for entry in entries:
        groups.setdefault((entry["side"], entry["reason"]), []).append(entry)
    lines = tuple(_reason_line(side, reason, own) for (side, reason), own in groups.items())
    return [Lines(say(title, count=format_number(len(entries))), lines, tone)]


def _reason_line(side: str, reason: str, entries: list[dict[str, Any]]) -> str:
    names = ", ".join(fold_names(entry["name"] for entry in entries))
    closest = sorted({name for entry in entries for name in entry.get("suggestions", ())})
    hint = say("map.closest", names=", ".join(fold_names(closest))) if closest else ""
    return (
        say("map.reason_line", side=word("word", side), count=format_number(len(entries)), reason=reason, names=names)
        + hint
    )


def _listed(title: str, lines: Sequence[str]) -> list[Block]:
    return [Lines(say(title), tuple(lines), "open")] if lines else []
