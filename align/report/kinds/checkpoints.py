"""A conversion shown: what was written, whether it was read back, how values changed, and what was left out."""

from __future__ import annotations

import math
from math import prod
from typing import TYPE_CHECKING, Any

from align.core.align_sequences import grouped
from align.core.parameters import EPSILON
from align.names.user_rules import fold_names
from align.report.blocks import (
    LOWEST_DECADE,
    Block,
    Column,
    Facts,
    Lines,
    Row,
    Table,
    as_float,
    escape_control_characters,
    fold_rows,
    format_bytes,
    format_number,
    format_percentage,
    format_shape,
    renamed,
    table_columns,
    verdict_block,
)
from align.report.thresholds import (
    HASH_DIGITS,
    INSPECTED_ENTRIES_SHOWN,
    LIST_LINES,
    LONGEST_ENTRY,
    LONGEST_LEFT_OUT,
    SHORT_TABLE_ROWS,
    TABLE_ROWS,
)
from align.words.catalogue import listed, say, word

if TYPE_CHECKING:
    from collections.abc import Iterable

    from align.report.blocks import Tone


def convert_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.convert` document; `show_all` lists every tensor."""
    return [
        _written(document),
        *([_by_transform(document["tensors"])] if document["tensors"] else []),
        *_renamed([tensor for tensor in document["tensors"] if tensor["source"] not in ("", tensor["target"])]),
        *([_converted_tensors(document["tensors"])] if show_all and document["tensors"] else []),
        *_state_blocks(document, show_all=show_all),
        *_dropped_in_conversion(document["dropped"]),
        *_conversion_lines("convert.left_out", _left_out(document.get("left_out", {}))),
        *_conversion_lines("convert.ties", (" = ".join(names) for names in document["ties"])),
        *_conversion_lines("convert.warnings", document["warnings"]),
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
        *([(say("convert.content"), _content(document))] if verified else []),
        (say("word.versions"), versions),
    )
    title = "convert.title" if document["files"] else "convert.dry_run"
    return Facts(say(title), facts, "good" if verified else "open")


def _content(document: dict[str, Any]) -> str:
    """The first digits of the hash of all tensors; older documents know SHA-256 alone."""
    kind, _, digits = (document.get("content_hash") or f"sha256:{document['content_sha256']}").partition(":")
    return f"{kind} {digits[:HASH_DIGITS]}"


def _state_blocks(document: dict[str, Any], *, show_all: bool) -> list[Block]:
    """What became of the optimizer's state; documents of before this could be have none."""
    state = document.get("state")
    if state is None:
        return []
    steps = say("convert.no_steps") if state["steps"] is None else format_number(state["steps"])
    facts = (
        (say("convert.state_of"), f"{state['optimizer']} ({state['file']})"),
        (say("convert.state_for"), state["port"]),
        (say("convert.state_steps"), steps),
        (say("convert.state_order"), state["order"]),
    )
    groups = tuple(
        Row((str(number), format_number(len(group["parameters"])), _settings(group["settings"])))
        for number, group in enumerate(state["groups"])
    )
    columns = table_columns("convert.state_group:number convert.state_parameters:number convert.state_settings")
    tensors = document.get("state_tensors", [])
    return [
        Facts(say("convert.state"), facts),
        Table(say("convert.state_groups"), columns, groups),
        *(block for key, title in STATE_LISTS.items() for block in _conversion_lines(title, state[key])),
        *([_converted_tensors(tensors, "convert.state_tensors")] if show_all and tensors else []),
    ]


STATE_LISTS = {
    "carried": "convert.state_carried",
    "made": "convert.state_made",
    "lost": "convert.state_lost",
    "differs": "convert.state_differs",
}


def _settings(settings: dict[str, Any]) -> str:
    """What is set, but for what is off and what says how it is computed."""
    return ", ".join(f"{name} {value}" for name, value in settings.items() if value not in (None, False))


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
    groups = grouped((str(tensor["transform"].get("op", "")), tensor) for tensor in tensors)
    rows = tuple(
        Row((word("transform", op), format_number(len(own)), format_number(sum(prod(t["shape"]) for t in own))))
        for op, own in groups.items()
    )
    columns = table_columns("convert.transform convert.tensors:number convert.elements:number")
    return Table(say("convert.by_transform"), columns, rows)


def _renamed(tensors: list[dict[str, Any]]) -> list[Block]:
    """What became of the last part of each name; where that stayed, the path before it changed."""
    groups = grouped(((_last(tensor["source"]), _last(tensor["target"])), tensor) for tensor in tensors)
    rows = tuple(
        Row((old, new, format_number(len(own)), f"{own[0]['source']} -> {own[0]['target']}"))
        for (old, new), own in sorted(groups.items(), key=lambda group: -len(group[1]))[:SHORT_TABLE_ROWS]
    )
    columns = table_columns("word.source word.target convert.tensors:number convert.example:path")
    return [Table(say("convert.renamed"), columns, rows)] if rows else []


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _converted_tensors(tensors: list[dict[str, Any]], title: str = "convert.all_tensors") -> Table:
    columns = table_columns("word.source:path word.target:path word.shape word.dtype convert.transform")
    rows = tuple(
        Row((t["source"], t["target"], str(tuple(t["shape"])), t["dtype"], word("transform", t["transform"]["op"])))
        for t in tensors
    )
    return Table(say(title), columns, rows)


def _dropped_in_conversion(dropped: dict[str, str]) -> list[Block]:
    groups = grouped((reason, name) for name, reason in dropped.items())
    lines = (
        say("convert.dropped_line", count=format_number(len(names)), reason=reason, names=listed(fold_names(names)))
        for reason, names in groups.items()
    )
    return _conversion_lines("convert.dropped", lines)


def _left_out(entries: dict[str, str]) -> Iterable[str]:
    first = list(entries.items())[:LIST_LINES]
    shown = [_entry(name, what, LONGEST_LEFT_OUT) for name, what in first]
    return [
        *shown,
        *([say("word.and_more", count=format_number(more)).strip()] if (more := len(entries) - len(shown)) else []),
    ]


def _conversion_lines(title: str, lines: Iterable[str]) -> list[Block]:
    listed = tuple(lines)
    return [Lines(say(title), listed, "open" if title.endswith("warnings") else "plain")] if listed else []


# Two checkpoints compared, shown: the worst tensor with all its figures, then what differs, folded, worst first.
#
# Relative figures stand beside the largest difference, and their multiple of the dtype's epsilon beside them: about 1
# is rounding, whatever the scale of the tensor.

FIGURES = ("max_abs", "max_rel", "relative_l2")

Tensor = dict[str, Any]


def diff_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.diff` document; `show_all` neither folds nor cuts."""
    tensors = document["tensors"]
    differing = sorted((one for one in tensors if one["outcome"] == "values differ"), key=_badness, reverse=True)
    unlike = [one for one in tensors if one["outcome"] in ("shapes differ", "dtypes differ")]
    same_value = [one["reference"] for one in tensors if one["outcome"] == "equal" and not one["identical"]]
    unchanged = document["unchanged"]
    blocks: list[Block | None] = [
        _sides(document),
        _worst(differing[0]) if differing else None,
        _differences(differing, show_all=show_all) if differing else None,
        *_relations(document, show_all=show_all),
        _diff_lines("diff.unlike", map(_unlike, unlike), show_all=show_all, tone="bad"),
        _names("diff.missing", document["missing"], show_all=show_all, tone="bad"),
        _names("diff.extra", document["extra"], show_all=show_all, tone="bad"),
        _diff_lines("diff.dropped", _dropped_in_diff(document["dropped"], show_all=show_all), show_all=show_all),
        _names("diff.equal_in_value", same_value, show_all=show_all),
        None if unchanged is None else _unchanged(unchanged, len(tensors), show_all=show_all),
        _diff_lines("diff.warnings", document["warnings"], show_all=True, tone="open"),
        verdict_block(document["verdict"]),
    ]
    return [block for block in blocks if block is not None]


def _relations(document: dict[str, Any], *, show_all: bool) -> Iterable[Block]:
    """How tensors that differ hang together, and the lines of a map; documents of before this could be have none."""
    related = [tensor for tensor in document["tensors"] if tensor.get("relations")]
    folded = [(renamed(one), [one]) for one in related] if show_all else fold_rows(related, _related)
    lines = (say("word.labelled", label=_counted(name, own), text=_relation(own[0])) for name, own in folded)
    if block := _diff_lines("diff.relations", lines, show_all=show_all, tone="open"):
        yield block
    if mending := document.get("map_lines"):
        yield Lines(say("diff.map_lines"), tuple(mending), "plain", commands=True)


def _related(tensor: Tensor) -> tuple[str, str]:
    return renamed(tensor), _relation(tensor)


def _counted(name: str, tensors: list[Tensor]) -> str:
    return f"{name} ({format_number(len(tensors))})" if len(tensors) > 1 else name


def _relation(tensor: Tensor) -> str:
    """What relates it, with how exactly; several are open."""
    said = [
        say("diff.within_units", relation=one["says"], units=format_number(one["units"]))
        if one["units"]
        else one["says"]
        for one in tensor["relations"]
    ]
    return said[0] if len(said) == 1 else say("diff.one_of", relations=said)


def _sides(document: dict[str, Any]) -> Facts:
    outcomes = [tensor["outcome"] for tensor in document["tensors"]]
    facts = [
        (word("word", side), f"{document[side]} ({document[f'{side}_format']})") for side in ("reference", "candidate")
    ]
    identical = sum(tensor["identical"] for tensor in document["tensors"])
    if document["strip"]:
        facts.append((say("diff.strip"), " ".join(document["strip"])))
    facts.append((say("diff.paired"), format_number(len(outcomes))))
    facts.append((say("diff.identical"), format_number(identical)))
    counts = {outcome: outcomes.count(outcome) for outcome in ("values differ", "dtypes differ", "shapes differ")}
    facts += [(word("tensor_outcome", outcome), format_number(count)) for outcome, count in counts.items() if count]
    return Facts(say("diff.title"), tuple(facts))


def _worst(tensor: Tensor) -> Facts:
    figures = tensor["measurement"]
    place = say("forward.at_index", index=format_shape(figures["worst"])) if figures["worst"] else ""
    part, whole = figures["mismatched"], figures["count"]
    counts = {"part": format_number(part), "whole": format_number(whole)}
    facts = [
        (say("diff.tensor"), f"{renamed(tensor)}  {format_shape(tensor['candidate_shape'])} {_dtypes(tensor)}"),
        (say("forward.max_abs_long"), format_number(figures["max_abs"]) + place),
        (say("forward.max_rel"), format_number(figures["max_rel"])),
        (say("diff.means"), f"{format_number(figures['mean_abs'])}, {format_number(figures['rmse'])}"),
        (say("forward.relative_l2_long"), format_number(figures["relative_l2"])),
        (say("forward.cosine"), format_number(figures["cosine"], 9)),
        (say("diff.moved"), say("forward.mismatched_share", share=format_percentage(part, whole), **counts)),
        (say("diff.by_size"), _by_size(figures)),
    ]
    if figures["non_finite_mismatch"]:
        facts.append((say("forward.non_finite"), say("forward.non_finite_counts", **figures)))
    return Facts(say("diff.worst"), tuple(facts), "bad")


def _by_size(figures: dict[str, Any]) -> str:
    """Say which share of the elements differs by how much, `1e-08: 12 %` being from there to ten times as much."""
    decades = [(LOWEST_DECADE + place, count) for place, count in enumerate(figures["decades"]) if count][::-1]
    return ", ".join(f"1e{power:+03d}: {format_percentage(count, figures['count'])}" for power, count in decades)


def _differences(tensors: list[Tensor], *, show_all: bool) -> Table:
    """Tensors whose names differ only in numbers share a row, with the worst figure of each kind."""
    alike = fold_rows(
        tensors, lambda one: (renamed(one), (_dtypes(one), one["measurement"]["non_finite_mismatch"] > 0))
    )
    folded = [(renamed(one), [one]) for one in tensors] if show_all else alike
    shown = folded if show_all else folded[:TABLE_ROWS]
    columns = table_columns(
        "diff.tensor:path diff.count:number word.dtype forward.max_abs:number diff.max_rel:number "
        "forward.relative_l2:number diff.epsilons:number diff.moved:number diff.non_finite:number"
    )
    rows = tuple(_difference_row(name, group) for name, group in shown)
    hidden = len(folded) - len(shown)
    notes = [say("diff.note"), *([say("diff.more_rows", count=format_number(hidden))] if hidden else [])]
    return Table(say("diff.differences"), columns, rows, " ".join(notes))


def _difference_row(name: str, tensors: list[Tensor]) -> Row:
    measured = [tensor["measurement"] for tensor in tensors]
    worst = {
        figure: max((as_float(m[figure]) for m in measured if m[figure] is not None), default=None)
        for figure in FIGURES
    }
    epsilon = _epsilon(tensors[0])
    multiple = None if epsilon is None or worst["relative_l2"] is None else worst["relative_l2"] / epsilon
    non_finite = sum(m["non_finite_mismatch"] for m in measured)
    cells = (
        name,
        format_number(len(tensors)) if len(tensors) > 1 else "",
        _dtypes(tensors[0]),
        *(format_number(worst[figure]) for figure in FIGURES),
        format_number(multiple, 2),
        format_percentage(sum(m["mismatched"] for m in measured), sum(m["count"] for m in measured)),
        format_number(non_finite) if non_finite else "",
    )
    return Row(cells, "bad")


def _badness(tensor: Tensor) -> tuple[bool, float, float]:
    """Worse is larger: NaN or Inf on one side, then the relative difference, of which a zero reference has no end."""
    figures = tensor["measurement"]
    relative = figures["relative_l2"]
    return (
        figures["non_finite_mismatch"] > 0,
        math.inf if relative is None else as_float(relative),
        as_float(figures["max_abs"]),
    )


def _epsilon(tensor: Tensor) -> float | None:
    """Epsilon of the coarser of the two dtypes; None if none of them is rounded."""
    known = [EPSILON[dtype] for side in ("reference", "candidate") if (dtype := tensor[f"{side}_dtype"]) in EPSILON]
    return max(known, default=None)


def _dtypes(tensor: Tensor) -> str:
    ours, theirs = tensor["reference_dtype"], tensor["candidate_dtype"]
    return str(ours) if ours == theirs else f"{ours} | {theirs}"


def _unlike(tensor: Tensor) -> str:
    sides, name = ("reference", "candidate"), renamed(tensor)
    if tensor["outcome"] == "dtypes differ":
        return say("diff.dtypes_line", name=name, **{side: tensor[f"{side}_dtype"] for side in sides})
    shapes = {side: format_shape(tensor[f"{side}_shape"]) for side in sides}
    line = say("diff.shapes_line", name=name, **shapes)
    return say("word.labelled", label=line, text=tensor["note"]) if tensor["note"] else line


def _unchanged(names: list[str], paired: int, *, show_all: bool) -> Lines:
    listed = names if show_all else fold_names(names)  # folded, but never cut: this list is what was asked for
    moved = say("diff.unchanged_count", unchanged=format_number(len(names)), moved=format_number(paired - len(names)))
    return Lines(say("diff.unchanged"), (moved, *listed))


def _dropped_in_diff(dropped: dict[str, str], *, show_all: bool) -> Iterable[str]:
    """Names of one reason share a line."""
    reasons = grouped((reason, name) for name, reason in dropped.items())
    return (
        say("word.labelled", label=listed(own if show_all else fold_names(own)), text=why)
        for why, own in reasons.items()
    )


def _names(title: str, names: Iterable[str], *, show_all: bool, tone: Any = "plain") -> Lines | None:
    listed = list(names)
    return _diff_lines(title, listed if show_all else fold_names(listed), show_all=show_all, tone=tone)


def _diff_lines(title: str, lines: Iterable[str], *, show_all: bool, tone: Any = "plain") -> Lines | None:
    listed = tuple(lines)
    if not listed:
        return None
    shown = listed if show_all else listed[:LIST_LINES]
    hidden = len(listed) - len(shown)
    more = (say("diff.more_lines", count=format_number(hidden)),) if hidden else ()
    return Lines(say(title), (*shown, *more), tone)


# A checkpoint shown: what it is, its tensors folded by name, and what else is in the file.


def inspect_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.inspect` document; `show_all` lists every tensor in a row of its own."""
    tensors = document["tensors"]
    strided = [tensor["name"] for tensor in tensors if not tensor["contiguous"]]
    return [
        _checkpoint(document),
        *([_entries(document)] if any(entry["key"] for entry in document["entries"]) else []),
        *([_by_dtype(tensors), _inspected_tensors(tensors, show_all=show_all)] if tensors else []),
        *_inspection_lines("inspect.ties", (" = ".join(names) for names in document["ties"]), show_all=show_all),
        *_inspection_lines("inspect.strided", strided, show_all=show_all),
        *_inspection_lines(
            "inspect.overlaps", (" / ".join(names) for names in document["overlaps"]), show_all=show_all
        ),
        *_inspection_lines("inspect.other", _others(document["other"]), show_all=show_all),
        *_inspection_lines("inspect.notes", document["notes"], show_all=True, tone="open"),
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
    columns = (*table_columns("inspect.key:path inspect.tensors:number inspect.size:number"), Column(""))
    rows = []
    for entry in document["entries"]:
        key = escape_control_characters(entry["key"], LONGEST_ENTRY) or say("inspect.top")
        taken = say("inspect.taken") if entry["key"] == document["key"] else ""
        rows.append(Row((key, format_number(entry["tensors"]), format_bytes(entry["nbytes"]), taken)))
    return Table(say("inspect.entries"), columns, tuple(rows))


def _by_dtype(tensors: list[dict[str, Any]]) -> Table:
    groups = grouped((tensor["dtype"], tensor) for tensor in tensors)
    rows = []
    for dtype, group in groups.items():
        elements, nbytes = sum(prod(one["shape"]) for one in group), sum(one["nbytes"] for one in group)
        rows.append(Row((dtype, format_number(len(group)), format_number(elements), format_bytes(nbytes))))
    columns = (
        Column(say("word.dtype")),
        *(Column(say(f"inspect.{key}"), "number") for key in ("tensors", "elements", "size")),
    )
    return Table(say("inspect.by_dtype"), columns, tuple(rows))


def _inspected_tensors(tensors: list[dict[str, Any]], *, show_all: bool) -> Table:
    """Tensors of one shape and dtype whose names differ only in numbers share a row; its size is that of all."""
    if show_all:
        folded = [(one["name"], [one]) for one in tensors]
    else:
        folded = fold_rows(tensors, lambda one: (one["name"], (tuple(one["shape"]), one["dtype"])))
    shown = folded if show_all else folded[:INSPECTED_ENTRIES_SHOWN]
    columns = table_columns("inspect.name:path inspect.count:number word.shape word.dtype inspect.size:number")
    rows = tuple(_tensor_row(name, group) for name, group in shown)
    hidden = len(folded) - len(shown)
    note = say("inspect.more_rows", count=format_number(hidden)) if hidden else ""
    return Table(say("inspect.all_tensors"), columns, rows, note)


def _tensor_row(name: str, own: list[dict[str, Any]]) -> Row:
    count = format_number(len(own)) if len(own) > 1 else ""
    nbytes = format_bytes(sum(tensor["nbytes"] for tensor in own))
    return Row((name, count, format_shape(own[0]["shape"]), own[0]["dtype"], nbytes))


def _others(other: dict[str, str]) -> Iterable[str]:
    return (_entry(name, what, LONGEST_ENTRY) for name, what in other.items())


def _entry(name: str, what: str, longest: int) -> str:
    label, text = (escape_control_characters(one, longest) for one in (name, what))
    return say("word.labelled", label=label, text=text)


def _inspection_lines(title: str, lines: Iterable[str], *, show_all: bool, tone: Tone = "plain") -> list[Block]:
    listed = tuple(lines)
    if not listed:
        return []
    shown = listed if show_all else listed[:LIST_LINES]
    more = (
        (say("inspect.more_lines", count=format_number(len(listed) - len(shown))),) if len(listed) > len(shown) else ()
    )
    return [Lines(say(title), (*shown, *more), tone)]
