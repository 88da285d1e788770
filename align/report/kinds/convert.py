"""A conversion shown: what was written, whether it was read back, how values changed, and what was left out."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from align.names.fold_names import fold_names
from align.report.rendering.blocks import Block, Column, Facts, Lines, Row, Table, verdict_block
from align.report.rendering.format_values import escape_control_characters, format_number
from align.report.thresholds import HASH_DIGITS, LIST_LINES, LONGEST_LEFT_OUT, SHORT_TABLE_ROWS
from align.words.catalogue import say, word

if TYPE_CHECKING:
    from collections.abc import Iterable


def convert_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.convert` document; `show_all` lists every tensor."""
    return [
        _written(document),
        *([_by_transform(document["tensors"])] if document["tensors"] else []),
        *_renamed([tensor for tensor in document["tensors"] if tensor["source"] not in ("", tensor["target"])]),
        *([_tensors(document["tensors"])] if show_all and document["tensors"] else []),
        *_dropped(document["dropped"]),
        *_listed("convert.left_out", _left_out(document.get("left_out", {}))),
        *_listed("convert.ties", (" = ".join(names) for names in document["ties"])),
        *_listed("convert.warnings", document["warnings"]),
        _conclusion(document["verdict"]),
    ]


def _written(document: dict[str, Any]) -> Facts:
    verified = bool(document["verified"])
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    facts = (
        (say("word.source"), f"{document['source']} ({document['source_format']})"),
        *([(say("convert.key"), document["key"])] if document["key"] else []),
        (say("convert.destination"), f"{document['destination']} ({document['destination_format']})"),
        *([(say("convert.files"), format_number(len(document["files"])))] if len(document["files"]) > 1 else []),
        (say("convert.names"), say("convert.names_as_in", origin=document["names"], framework=document["framework"])),
        (say("convert.tensors"), format_number(len({tensor["target"] for tensor in document["tensors"]}))),
        (say("convert.verified"), say(_verification(document))),
        *([(say("convert.content"), f"sha256 {document['content_sha256'][:HASH_DIGITS]}")] if verified else []),
        (say("word.versions"), versions),
    )
    title = "convert.title" if document["files"] else "convert.dry_run"
    return Facts(say(title), facts, "good" if verified else "open")


def _conclusion(verdict: dict[str, Any]) -> Lines:
    """What was not read back was not to be compared: "could not compare" would be the wrong word for it."""
    if verdict["outcome"] == "could not compare":
        return Lines("", (verdict["reason"],), "open")
    return verdict_block(verdict, ("source", "target"))


def _verification(document: dict[str, Any]) -> str:
    if not document["files"]:
        return "convert.not_written"
    return "convert.read_back" if document["verified"] else "convert.not_read_back"


def _by_transform(tensors: list[dict[str, Any]]) -> Table:
    groups: dict[str, list[dict[str, Any]]] = {}
    for tensor in tensors:
        groups.setdefault(str(tensor["transform"].get("op", "")), []).append(tensor)
    rows = tuple(
        Row((word("transform", op), format_number(len(own)), format_number(sum(prod(t["shape"]) for t in own))))
        for op, own in groups.items()
    )
    columns = (
        Column(say("convert.transform")),
        Column(say("convert.tensors"), "number"),
        Column(say("convert.elements"), "number"),
    )
    return Table(say("convert.by_transform"), columns, rows)


def _renamed(tensors: list[dict[str, Any]]) -> list[Block]:
    """What became of the last part of each name; where that stayed, the path before it changed."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for tensor in tensors:
        groups.setdefault((_last(tensor["source"]), _last(tensor["target"])), []).append(tensor)
    rows = tuple(
        Row((old, new, format_number(len(own)), f"{own[0]['source']} -> {own[0]['target']}"))
        for (old, new), own in sorted(groups.items(), key=lambda group: -len(group[1]))[:SHORT_TABLE_ROWS]
    )
    columns = (
        Column(say("word.source")),
        Column(say("word.target")),
        Column(say("convert.tensors"), "number"),
        Column(say("convert.example"), "path"),
    )
    return [Table(say("convert.renamed"), columns, rows)] if rows else []


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _tensors(tensors: list[dict[str, Any]]) -> Table:
    columns = (
        Column(say("word.source"), "path"),
        Column(say("word.target"), "path"),
        Column(say("word.shape")),
        Column(say("word.dtype")),
        Column(say("convert.transform")),
    )
    rows = tuple(
        Row((t["source"], t["target"], str(tuple(t["shape"])), t["dtype"], word("transform", t["transform"]["op"])))
        for t in tensors
    )
    return Table(say("convert.all_tensors"), columns, rows)


def _dropped(dropped: dict[str, str]) -> list[Block]:
    groups: dict[str, list[str]] = {}
    for name, reason in dropped.items():
        groups.setdefault(reason, []).append(name)
    lines = (
        say("convert.dropped_line", count=format_number(len(names)), reason=reason, names=", ".join(fold_names(names)))
        for reason, names in groups.items()
    )
    return _listed("convert.dropped", lines)


def _left_out(entries: dict[str, str]) -> Iterable[str]:
    listed = list(entries.items())[:LIST_LINES]
    shown = [
        f"{escape_control_characters(name, LONGEST_LEFT_OUT)}: {escape_control_characters(what, LONGEST_LEFT_OUT)}"
        for name, what in listed
    ]
    return [
        *shown,
        *([say("word.and_more", count=format_number(more)).strip()] if (more := len(entries) - len(shown)) else []),
    ]


def _listed(title: str, lines: Iterable[str]) -> list[Block]:
    listed = tuple(lines)
    return [Lines(say(title), listed, "open" if title.endswith("warnings") else "plain")] if listed else []
