"""A name map shown: the counts of both sides, how names were paired, and all that is open or left out, by reason."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from align.core.folding import fold_names
from align.report.blocks import Block, Column, Lines, Row, Table, Tone, verdict_block
from align.report.numbers import NONE, number
from align.report.texts import say, word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FIRST_PAIRS = 8
FEW_PAIRS = 20


def map_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.map` document; `show_all` lists every pairing."""
    name_map = document["name_map"]
    return [
        _summary(document["source"], document["target"]),
        *([_evidence(name_map["pairings"])] if name_map["pairings"] else []),
        *_pairings(name_map["pairings"], document.get("source_parameters", ()), show_all=show_all),
        *_ambiguous(name_map["ambiguous"]),
        *_by_reason("map.unmatched", name_map["unmatched"], "bad"),
        *_by_reason("map.dropped", name_map["dropped"], "plain"),
        *_unused(name_map["unused_rules"]),
        verdict_block(document["verdict"], ("source", "target")),
    ]


def _summary(source: dict[str, Any], target: dict[str, Any]) -> Table:
    facts: dict[str, Callable[[dict[str, Any]], str]] = {
        "label": lambda side: side["label"],
        "framework": lambda side: side["framework"] or NONE,
        "tensors": lambda side: number(side["tensors"]),
        "parameters": lambda side: number(side["elements"]),
        "trainable": lambda side: number(side["trainable_elements"]),
        "buffers": lambda side: number(side["buffers"]),
        "dtypes": lambda side: ", ".join(f"{dtype} × {count}" for dtype, count in side["dtypes"].items()) or NONE,
        "ties": lambda side: "; ".join(f"{a} = {b}" for a, b in side["ties"]) or say("word.none"),
    }
    rows = tuple(Row((say(f"map.{key}"), fact(source), fact(target))) for key, fact in facts.items())
    columns = (Column(""), Column(say("word.source"), "path"), Column(say("word.target"), "path"))
    return Table(say("map.title"), columns, rows)


def _evidence(pairings: list[dict[str, Any]]) -> Table:
    rows = []
    for evidence, count in Counter(p["evidence"] for p in pairings).most_common():
        own = [p for p in pairings if p["evidence"] == evidence]
        changed = sum(p["transform"]["op"] != "identity" for p in own)
        lowest = min(float(p["confidence"]) for p in own)
        rows.append(Row((word("evidence", evidence), number(count), number(changed), number(lowest))))
    columns = (
        Column(say("map.evidence")),
        Column(say("map.pairs"), "number"),
        Column(say("map.transformed"), "number"),
        Column(say("map.lowest_confidence"), "number"),
    )
    return Table(say("map.paired", count=number(len(pairings))), columns, tuple(rows))


def _pairings(pairings: list[dict[str, Any]], parameters: Iterable[dict[str, Any]], *, show_all: bool) -> list[Block]:
    shown = pairings if show_all or len(pairings) <= FEW_PAIRS else sorted(pairings, key=_sure)[:FIRST_PAIRS]
    if not shown:
        return []
    columns = (
        Column(say("word.source"), "path"),
        Column(say("word.target"), "path"),
        Column(say("map.evidence")),
        Column(say("map.confidence"), "number"),
        Column(say("map.shape"), "path"),
        Column(say("map.holds"), "path", wide=True),
        Column(say("word.note"), "path", wide=True),
    )
    facts = {parameter["name"]: parameter for parameter in parameters}
    rows = tuple(Row((p["source"], p["target"], *_found(p, facts.get(p["source"])), p["note"])) for p in shown)
    hidden = len(pairings) - len(shown)
    note = say("map.more_pairs", count=number(hidden)) if hidden else ""
    return [Table(say("map.some_pairs" if hidden else "map.all_pairs"), columns, rows, note)]


def _sure(pairing: dict[str, Any]) -> tuple[float, bool]:
    return float(pairing["confidence"]), pairing["transform"]["op"] == "identity"


def _found(pairing: dict[str, Any], parameter: dict[str, Any] | None) -> tuple[str, str, str, str]:
    changed = pairing["transform"]["op"] != "identity"
    shape = str(parameter["shape"]) if parameter else ""
    return (
        word("evidence_short", pairing["evidence"]),
        number(pairing["confidence"]),
        f"{shape} {transform_text(pairing['transform']) if changed or not shape else ''}".strip(),
        _holds(parameter) if parameter else "",
    )


def _holds(parameter: dict[str, Any]) -> str:
    """Dtype, and what is special: a buffer, frozen, tied."""
    special = [say("map.buffer")] if parameter["buffer"] else []
    special += [say("map.frozen")] if parameter["trainable"] is False and not parameter["buffer"] else []
    special += [say("map.tied", name=parameter["tied_to"])] if parameter["tied_to"] else []
    return ", ".join([parameter["dtype"], *special])


def transform_text(transform: dict[str, Any]) -> str:
    """Show a transform's table form in a few words, "-" where the bytes stay the same."""
    if transform["op"] == "identity":
        return NONE
    if transform["op"] == "chain":
        return ", then ".join(map(transform_text, transform["steps"]))
    details = ", ".join(f"{value}" for key, value in transform.items() if key not in ("op", "from"))
    return f"{transform['op']} {details}"


def _ambiguous(groups: list[dict[str, Any]]) -> list[Block]:
    if not groups:
        return []
    lines = []
    for group in groups:
        sides = " | ".join(", ".join(fold_names(group[side])) for side in ("sources", "targets"))
        lines.append(say("map.ambiguous_group", sides=sides, reason=group["reason"]))
    return [Lines(say("map.ambiguous", count=number(len(groups))), tuple(lines), "open")]


def _by_reason(title: str, entries: list[dict[str, Any]], tone: Tone) -> list[Block]:
    if not entries:
        return []
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for entry in entries:
        groups.setdefault((entry["side"], entry["reason"]), []).append(entry)
    lines = tuple(_reason_line(side, reason, own) for (side, reason), own in groups.items())
    return [Lines(say(title, count=number(len(entries))), lines, tone)]


def _reason_line(side: str, reason: str, entries: list[dict[str, Any]]) -> str:
    names = ", ".join(fold_names(entry["name"] for entry in entries))
    closest = sorted({name for entry in entries for name in entry.get("suggestions", ())})
    hint = say("map.closest", names=", ".join(fold_names(closest))) if closest else ""
    return (
        say("map.reason_line", side=word("word", side), count=number(len(entries)), reason=reason, names=names) + hint
    )


def _unused(rules: list[str]) -> list[Block]:
    return [Lines(say("map.unused_rules"), tuple(rules), "open")] if rules else []
