"""A checkpoint shown: what it is, its tensors folded by name, and what else is in the file."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from align.names.fold_names import fold_alike
from align.report.rendering.blocks import Block, Column, Facts, Lines, Row, Table
from align.report.rendering.format_values import escape_control_characters, format_bytes, format_number, format_shape
from align.report.thresholds import INSPECTED_ENTRIES_SHOWN, LIST_LINES, LONGEST_ENTRY
from align.words.catalogue import say, word

if TYPE_CHECKING:
    from collections.abc import Iterable

    from align.report.rendering.blocks import Tone


def inspect_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.inspect` document; `show_all` lists every tensor in a row of its own."""
    tensors = document["tensors"]
    strided = [tensor["name"] for tensor in tensors if not tensor["contiguous"]]
    return [
        _checkpoint(document),
        *([_entries(document)] if any(entry["key"] for entry in document["entries"]) else []),
        *([_by_dtype(tensors), _tensors(tensors, show_all=show_all)] if tensors else []),
        *_listed("inspect.ties", (" = ".join(names) for names in document["ties"]), show_all=show_all),
        *_listed("inspect.strided", strided, show_all=show_all),
        *_listed("inspect.overlaps", (" / ".join(names) for names in document["overlaps"]), show_all=show_all),
        *_listed("inspect.other", _others(document["other"]), show_all=show_all),
        *_listed("inspect.notes", document["notes"], show_all=True, tone="open"),
        *([Lines("", (say("inspect.choose"),), "open")] if document["key"] is None else []),
    ]


def _checkpoint(document: dict[str, Any]) -> Facts:
    facts = [
        (say("inspect.file"), document["path"]),
        (say("inspect.size"), _size_on_disk(document["files"])),
        (say("inspect.format"), document["format"]),
        (say("inspect.naming"), word("naming", document["naming"] or "unknown")),
    ]
    metadata = {name: value for name, value in document["metadata"].items() if name != "format"}
    facts += [
        (escape_control_characters(name, LONGEST_ENTRY), escape_control_characters(value, LONGEST_ENTRY))
        for name, value in metadata.items()
    ]
    if document["key"]:
        facts.append((say("inspect.entry"), escape_control_characters(document["key"], LONGEST_ENTRY)))
    if document["key"] is not None:
        facts.append((say("inspect.tensors"), _totals(document["tensors"])))
    if document["crc_unchecked"]:
        facts.append((say("inspect.crc"), say("inspect.crc_unchecked")))
    if document.get("crc_checked"):
        facts.append((say("inspect.crc"), say("inspect.crc_checked")))
    return Facts(say("inspect.title"), tuple(facts))


def _size_on_disk(files: dict[str, int]) -> str:
    total = format_bytes(sum(files.values()))
    return total if len(files) == 1 else say("inspect.in_files", size=total, count=len(files))


def _totals(tensors: list[dict[str, Any]]) -> str:
    elements = sum(prod(tensor["shape"]) for tensor in tensors)
    nbytes = sum(tensor["nbytes"] for tensor in tensors)
    return say(
        "inspect.totals", tensors=format_number(len(tensors)), elements=_elements(elements), size=format_bytes(nbytes)
    )


def _elements(count: int) -> str:
    return say("inspect.one_element") if count == 1 else say("inspect.many_elements", count=format_number(count))


def _entries(document: dict[str, Any]) -> Table:
    columns = (
        Column(say("inspect.key"), "path"),
        Column(say("inspect.tensors"), "number"),
        Column(say("inspect.size"), "number"),
        Column(""),
    )
    rows = tuple(
        Row(
            (
                escape_control_characters(entry["key"], LONGEST_ENTRY) or say("inspect.top"),
                format_number(entry["tensors"]),
                format_bytes(entry["nbytes"]),
                say("inspect.taken") if entry["key"] == document["key"] else "",
            )
        )
        for entry in document["entries"]
    )
    return Table(say("inspect.entries"), columns, rows)


def _by_dtype(tensors: list[dict[str, Any]]) -> Table:
    groups: dict[str, list[dict[str, Any]]] = {}
    for tensor in tensors:
        groups.setdefault(tensor["dtype"], []).append(tensor)
    rows = tuple(
        Row(
            (
                dtype,
                format_number(len(own)),
                format_number(sum(prod(tensor["shape"]) for tensor in own)),
                format_bytes(sum(tensor["nbytes"] for tensor in own)),
            )
        )
        for dtype, own in groups.items()
    )
    columns = (
        Column(say("word.dtype")),
        *(Column(say(f"inspect.{key}"), "number") for key in ("tensors", "elements", "size")),
    )
    return Table(say("inspect.by_dtype"), columns, rows)


def _tensors(tensors: list[dict[str, Any]], *, show_all: bool) -> Table:
    """Tensors of one shape and dtype whose names differ only in numbers share a row; its size is that of all."""
    if show_all:
        folded = [(tensor["name"], [place]) for place, tensor in enumerate(tensors)]
    else:
        folded = fold_alike((tensor["name"], (tuple(tensor["shape"]), tensor["dtype"])) for tensor in tensors)
    shown = folded if show_all else folded[:INSPECTED_ENTRIES_SHOWN]
    columns = (
        Column(say("inspect.name"), "path"),
        Column(say("inspect.count"), "number"),
        Column(say("word.shape")),
        Column(say("word.dtype")),
        Column(say("inspect.size"), "number"),
    )
    rows = tuple(_row(name, [tensors[place] for place in places]) for name, places in shown)
    hidden = len(folded) - len(shown)
    note = say("inspect.more_rows", count=format_number(hidden)) if hidden else ""
    return Table(say("inspect.all_tensors"), columns, rows, note)


def _row(name: str, own: list[dict[str, Any]]) -> Row:
    count = format_number(len(own)) if len(own) > 1 else ""
    nbytes = format_bytes(sum(tensor["nbytes"] for tensor in own))
    return Row((name, count, format_shape(own[0]["shape"]), own[0]["dtype"], nbytes))


def _others(other: dict[str, str]) -> Iterable[str]:
    return (
        f"{escape_control_characters(name, LONGEST_ENTRY)}: {escape_control_characters(what, LONGEST_ENTRY)}"
        for name, what in other.items()
    )


def _listed(title: str, lines: Iterable[str], *, show_all: bool, tone: Tone = "plain") -> list[Block]:
    listed = tuple(lines)
    if not listed:
        return []
    shown = listed if show_all else listed[:LIST_LINES]
    more = (
        (say("inspect.more_lines", count=format_number(len(listed) - len(shown))),) if len(listed) > len(shown) else ()
    )
    return [Lines(say(title), (*shown, *more), tone)]
