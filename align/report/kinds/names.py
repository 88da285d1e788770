"""A name map shown: the counts of both sides, how names were paired, and all that is open or left out, by reason."""

from __future__ import annotations

import re
from collections import Counter
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from align.core.align_sequences import grouped
from align.errors import UsageError
from align.names.map_export import lines_for_unmatched, open_choices
from align.names.user_rules import fold_names, fold_ranges
from align.report.blocks import (
    NONE,
    Block,
    Column,
    Facts,
    Lines,
    Row,
    Table,
    Tone,
    fold_rows,
    format_bytes,
    format_number,
    format_shape,
    layer_name,
    table_columns,
    verdict_block,
)
from align.report.thresholds import SHORT_TABLE_ROWS, TABLE_ROWS
from align.words.catalogue import listed, say, word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


def map_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.map` document; `show_all` lists every pair and both sides' parameters, in runs."""
    name_map = document["name_map"]
    return [
        _summary(document["source"], document["target"]),
        *([_evidence(name_map["pairings"])] if name_map["pairings"] else []),
        *(parameter_tables(document) if show_all and document.get("source_parameters") else []),
        *pair_table(name_map["pairings"], document.get("source_parameters", ()), show_all=show_all),
        *_notes(name_map["pairings"]),
        *_ambiguous(name_map["ambiguous"], document),
        *_by_reason("map.unmatched", name_map["unmatched"], "bad"),
        *_may_pair(name_map["unmatched"], document),
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
    columns = (Column(""), *table_columns("word.source:path word.target:path"))
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
    columns = table_columns("map.evidence map.pairs:number map.transformed:number map.lowest_confidence:number")
    return Table(say("map.paired", count=format_number(len(pairings))), columns, tuple(rows))


def _notes(pairings: list[dict[str, Any]]) -> list[Block]:
    """What is to be known of some pairs, each note once with the source names that it holds for."""
    noted = grouped(
        (note, names if len(places) == 1 else f"{names} ({len(places)})")
        for (note, names), places in fold_ranges([((p["note"], p["source"]), None) for p in pairings if p["note"]])
    )
    lines = [say("map.noted", note=note, names=listed(names)) for note, names in noted.items()]
    return [Lines(say("map.notes"), tuple(lines), "open")] if lines else []


def _ambiguous(groups: list[dict[str, Any]], document: dict[str, Any]) -> list[Block]:
    """The groups, those that repeat in each block once, each with the lines that would settle it."""
    if not groups:
        return []
    choices = [(tuple(group["sources"]), tuple(group["targets"]), group["reason"]) for group in groups]
    lines, to_write = [], []
    for choice in open_choices(choices, _shapes(document)):
        sides = " | ".join(listed(fold_names(names)) for names in (choice.sources, choice.targets))
        repeated = {"count": choice.blocks} if choice.blocks > 1 else {"count": 0}
        lines.append(say("map.ambiguous_group", sides=sides, reason=choice.reason, **repeated))
        to_write += [line for lines_of_one in choice.lines for line in lines_of_one.split("\n")]
        to_write += [say("map.more_lines", count=choice.left_out)] if choice.left_out else []
    title = say("map.ambiguous", count=format_number(len(groups)))
    return [Lines(title, tuple(lines), "open"), *_to_write(to_write)]


def _to_write(lines: Sequence[str]) -> list[Block]:
    return [Lines(say("map.to_write"), tuple(lines), "plain", commands=True)] if lines else []


def _may_pair(unmatched: list[dict[str, Any]], document: dict[str, Any]) -> list[Block]:
    """The lines that would pair what is left on both sides, of very many the first."""
    rows = [(one["side"], one["name"], one.get("suggestions", ())) for one in unmatched]
    lines = lines_for_unmatched(rows, _shapes(document))
    shown = lines[:SHORT_TABLE_ROWS]
    shown += [say("map.more_lines", count=len(lines) - len(shown))] if len(lines) > len(shown) else []
    return [Lines(say("map.may_pair"), tuple(shown), "plain", commands=True)] if lines else []


def _shapes(document: dict[str, Any]) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    left, right = (
        {one["name"]: tuple(one["shape"]) for one in document.get(f"{side}_parameters", ())}
        for side in ("source", "target")
    )
    return left, right


def _by_reason(title: str, entries: list[dict[str, Any]], tone: Tone) -> list[Block]:
    if not entries:
        return []
    groups = grouped(((entry["side"], entry["reason"]), entry) for entry in entries)
    lines = tuple(_reason_line(side, reason, own) for (side, reason), own in groups.items())
    return [Lines(say(title, count=format_number(len(entries))), lines, tone)]


def _reason_line(side: str, reason: str, entries: list[dict[str, Any]]) -> str:
    names = listed(fold_names(entry["name"] for entry in entries))
    closest = sorted({name for entry in entries for name in entry.get("suggestions", ())})
    hint = say("map.closest", names=listed(fold_names(closest))) if closest else ""
    return (
        say("map.reason_line", side=word("word", side), count=format_number(len(entries)), reason=reason, names=names)
        + hint
    )


def _listed(title: str, lines: Sequence[str]) -> list[Block]:
    return [Lines(say(title), tuple(lines), "open")] if lines else []


def pair_table(
    pairings: Sequence[dict[str, Any]], parameters: Sequence[dict[str, Any]], *, show_all: bool
) -> list[Table]:
    """Return one table of the pairs; of many unlike ones the least sure, or with `show_all` every one."""
    facts = {parameter["name"]: _parameter_facts(parameter) for parameter in parameters}
    rows = [((p["source"], p["target"]), _likeness(p, *facts.get(p["source"], ("", "")))) for p in pairings]
    runs = [(texts, [pairings[place] for place in places], rows[places[0]][1]) for texts, places in fold_ranges(rows)]
    shown = (
        runs
        if show_all or len(runs) <= TABLE_ROWS
        else sorted(runs, key=lambda run: _lowest(run[1]))[:SHORT_TABLE_ROWS]
    )
    if not shown:
        return []
    columns = (
        Column(say("word.source")),  # in full, over several lines if need be: there are few
        Column(say("word.target")),
        Column(say("map.pairs"), "number"),
        Column(say("map.evidence")),
        Column(say("map.confidence"), "number"),
        Column(say("map.shape"), "words"),  # with what is done to the values: no part of it may be missing
        Column(say("map.holds"), "path", wide=True),
        Column(say("word.note"), "path", wide=True),
    )
    hidden = len(pairings) - sum(len(own) for _, own, _ in shown)
    note = say("map.more_pairs", count=hidden) if hidden else ""
    title = say("map.some_pairs" if hidden else "map.all_pairs")
    return [Table(title, columns, tuple(_pair_row(*run) for run in shown), note)]


def parameter_tables(document: dict[str, Any]) -> list[Table]:
    """Return a table of each side's parameters: name, how many, shape and what they hold."""
    columns = table_columns("map.parameter map.tensors:number map.shape map.holds:path")
    tables = []
    for side in ("source", "target"):
        parameters = document.get(f"{side}_parameters", ())
        runs = fold_ranges([((parameter["name"],), _parameter_facts(parameter)) for parameter in parameters])
        rows = tuple(Row((text, _count(places), *_parameter_facts(parameters[places[0]]))) for (text,), places in runs)
        tables.append(Table(say("map.parameters_of", label=document[side]["label"]), columns, rows))
    return tables


def transform_text(transform: dict[str, Any]) -> str:
    """Show a transform's table form in a few words, "-" where the bytes stay the same."""
    if transform["op"] == "identity":
        return NONE
    if transform["op"] == "chain":
        return listed([*map(transform_text, transform["steps"])], ", then ")
    if transform["op"] in ("slice", "part"):
        zeros = [f"{start}:{stop}" for start, stop in transform.get("zeros", ())]
        return say("map.piece", **{name: transform[name] for name in ("op", "start", "stop", "axis")}, zeros=zeros)
    if transform["op"] in ("sum", "share"):
        return say("map.term", number=transform["term"] + 1, of=transform["of"])
    details = ", ".join(f"{value}" for key, value in transform.items() if key not in ("op", "from"))
    return f"{transform['op']} {details}"


def _parameter_facts(parameter: dict[str, Any]) -> tuple[str, str]:
    """Shape, and dtype with what is special: a buffer, frozen, tied."""
    special = [say("map.buffer")] if parameter["buffer"] else []
    special += [say("map.frozen")] if parameter["trainable"] is False and not parameter["buffer"] else []
    special += [say("map.tied", name=parameter["tied_to"])] if parameter["tied_to"] else []
    return str(parameter["shape"]), listed([parameter["dtype"], *special])


def _likeness(pairing: dict[str, Any], shape: str, holds: str) -> tuple[str, ...]:
    """What pairs of one row have in common: evidence, shape and transform, what they hold, note."""
    changed = pairing["transform"]["op"] != "identity"
    form = f"{shape} {transform_text(pairing['transform']) if changed or not shape else ''}".strip()
    return pairing["evidence"], form, holds, pairing["note"]


def _pair_row(texts: tuple[str, ...], pairings: Sequence[dict[str, Any]], alike: tuple[str, ...]) -> Row:
    evidence, form, holds, note = alike
    shown = word("evidence_short", evidence), format_number(_lowest(pairings)), form, holds, note
    return Row((*texts, _count(pairings), *shown))


def _count(run: Sequence[object]) -> str:
    return format_number(len(run)) if len(run) > 1 else ""


def _lowest(pairings: Sequence[dict[str, Any]]) -> float:
    return min(float(pairing["confidence"]) for pairing in pairings)


# A judged map shown: its faults by kind, names that differ only in their numbers as one.


def check_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.check` document; of many unlike faults of a kind the first, or with `show_all` every one."""
    groups = grouped((fault["code"], fault) for fault in document["faults"])
    unused = document["unused_rules"]
    return [
        *(_kind(code, faults, show_all=show_all) for code, faults in groups.items()),
        *([Lines(say("map.unused_rules"), tuple(unused), "open")] if unused else []),
        verdict_block(document["verdict"]),
    ]


def _kind(code: str, faults: Sequence[dict[str, Any]], *, show_all: bool) -> Lines:
    lines = [
        say("check.line", name=name + (f" ({len(group)})" if len(group) > 1 else ""), message=group[0]["message"])
        for name, group in fold_rows(faults, lambda fault: (fault["subject"], fault["message"]))
    ]
    shown = lines if show_all else lines[:TABLE_ROWS]
    more = [say("check.more", count=format_number(len(lines) - len(shown)))] if len(shown) < len(lines) else []
    return Lines(say(f"check.{code}", count=format_number(len(faults))), (*shown, *more), "bad")


# A trace folder shown: what was run, the tree of calls with the figures of what they returned, and where it ends.

INDENT = "  "
FIGURES = ("min", "max", "mean", "rms")
FURTHER = ("magnitude", "rounding")


def trace_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.trace` document; `show_all` shows where calls came from and what they were given too."""
    return [
        _trace_facts(document),
        *([_tree(document["calls"], show_all=show_all)] if document["calls"] else []),
        _end(document),
    ]


def _trace_facts(document: dict[str, Any]) -> Facts:
    head = document["head"] or {}
    facts = [(say("trace.folder"), document["folder"])]
    if head:
        inputs = (f"{name} {one['dtype']}{one['shape']}" for name, one in head["inputs"].items())
        run = {key: head[key] for key in ("mode", "direction", "seed")}
        facts += [
            (say("trace.model"), f"{head['side']} ({head['framework']})"),
            (say("trace.mode"), say("trace.mode_fact", **run)),
            (say("trace.inputs"), listed([*inputs])),
        ]
    tensors = say(
        "trace.tensors_fact", tensors=format_number(document["tensors"]), size=format_bytes(document["nbytes"])
    )
    noise = (
        say("trace.noise_fact", count=format_number(document["noise"]))
        if document["noise"]
        else document["noise_missing"]
    )
    facts += [(say("trace.tensors"), tensors), (say("trace.noise"), noise)]
    facts += [(say("trace.parameters"), format_number(document["parameters"]))]
    return Facts(say("trace.title"), tuple(facts))


def _tree(calls: list[dict[str, Any]], *, show_all: bool) -> Table:
    tensors = [tensor for call in calls for tensor in call["outputs"]]
    further = tuple(name for name in FURTHER if any(_further(tensor, name) is not None for tensor in tensors))
    columns = (
        *table_columns("trace.call:words trace.class word.shape"),
        Column(say("word.dtype"), wide=not show_all),
        *(Column(say(f"trace.{name}"), "number") for name in FIGURES),
        *(Column(say(f"trace.{name}"), "number") for name in further),
        Column(say("trace.non_finite"), "number"),
        Column(say("trace.place"), "path", wide=not show_all),
    )
    return Table(say("trace.calls"), columns, tuple(row for call in calls for row in _rows(call, further)))


def _further(tensor: dict[str, Any], name: str) -> Any:
    """A figure that only some traces have."""
    return (tensor if name == "rounding" else tensor["statistics"] or {}).get(name)


def _rows(call: dict[str, Any], further: tuple[str, ...]) -> Iterator[Row]:
    """One row a tensor; a call that returned none has one too."""
    path = re.split(r"[./]", call["module"])[-1] if call["depth"] else call["module"]
    name = INDENT * call["depth"] + layer_name(path, call["call"])
    if not call["outputs"]:
        note = "" if call["returned"] else say("trace.not_returned")
        yield Row(
            (name, call["class_name"], note, *[""] * (len(FIGURES) + len(further) + 2), call["place"]),
            "plain" if call["returned"] else "bad",
        )
    for place, tensor in enumerate(call["outputs"]):
        first = (name, call["class_name"]) if place == 0 else ("", "")
        output = f"{tensor['name']} " if tensor["name"] else ""
        figures = tensor["statistics"] or {}
        shown = tuple(format_number(figures.get(key)) for key in FIGURES)
        odd = figures.get("nan", 0) + figures.get("inf", 0)
        cells = (
            *first,
            output + format_shape(tensor["shape"]),
            tensor["dtype"],
            *shown,
            *(format_number(_further(tensor, key)) for key in further),
            format_number(odd) if odd else "",
            call["place"],
        )
        yield Row(cells, "bad" if odd else "plain")


def _end(document: dict[str, Any]) -> Lines:
    if document["complete"]:
        uncalled = document["uncalled"]
        said = say("trace_finding.uncalled", count=len(uncalled), modules=uncalled, share=document["uncalled_share"])
        return Lines("", (said,), "open") if uncalled else Lines("", (say("trace.complete"),), "good")
    running = document["running"]
    lines = [say("trace.ends_in", module=layer_name(running[-1])) if running else say("trace.cut_short")]
    lines += [say("trace.running", modules=" > ".join(map(layer_name, running)))] if len(running) > 1 else []
    lines += [document["failure"]] if document["failure"] else []
    return Lines("", tuple(lines), "bad")


# What one pair of a name map rests on, told in the place of the whole map.


def explained_pairs(document: dict[str, Any], name: str) -> list[str]:
    """What the pairs of a parameter of either side rest on, or why it has none; raises UsageError for no such name."""
    name_map = document["name_map"]
    pairs = [pairing for pairing in name_map["pairings"] if name in (pairing["source"], pairing["target"])]
    lines = [line for pairing in pairs for line in _explained_pair(pairing, name_map)]
    for group in name_map["ambiguous"]:
        if name in (*group["sources"], *group["targets"]):
            lines.append(say("explain.open", name=name, reason=group["reason"]))
            lines += [say("explain.rival", side=side, names=fold_names(group[side])) for side in ("sources", "targets")]
    for kind in ("unmatched", "dropped"):
        lines += [
            say(f"explain.{kind}", name=name, reason=parameter["reason"])
            for parameter in name_map[kind]
            if parameter["name"] == name
        ]
    if not lines:
        known = [
            parameter["name"] for side in ("source", "target") for parameter in document.get(f"{side}_parameters", ())
        ]
        raise UsageError.of("names_error.no_parameter", name=name, closest=get_close_matches(name, known, 3))
    return lines


def _adds_up(pair: dict[str, Any]) -> bool:
    change = pair["transform"]
    return any(step["op"] == "sum" for step in change.get("steps", (change,)))


def _explained_pair(pair: dict[str, Any], name_map: dict[str, Any]) -> list[str]:
    form = transform_text(pair["transform"])
    facts = {"source": pair["source"], "target": pair["target"], "form": "" if form == NONE else form}
    found = word("evidence", pair["evidence"])
    lines = [say("explain.pair", **facts), say("explain.found", evidence=found, confidence=pair["confidence"])]
    lines += [say("explain.note", note=pair["note"])] if pair["note"] else []
    terms = dict.fromkeys(pairing["source"] for pairing in name_map["pairings"] if pairing["target"] == pair["target"])
    if _adds_up(pair) and len(terms) > 1:
        lines.append(say("explain.added_up", names=[name for name in terms if name != pair["source"]]))
    flow = sorted(name_map.get("flow", ()), key=lambda step: step["uses"][0])
    for at, step in enumerate(flow):
        if (step["source"], step["target"]) == (pair["source"], pair["target"]):
            places = {"first": step["uses"][0] + 1, "second": step["uses"][1] + 1, "kind": step["kind"]}
            lines.append(say("explain.place", **places, rows=step["rows"], width=step["width"]))
            lines.append(say(f"explain.by_{step['by']}", rivals=step["rivals"]))
            around = (flow[:at][-1:], flow[at + 1 : at + 2])
            before, behind = (own[0]["source"] if own else say("explain.nothing") for own in around)
            lines.append(say("explain.around", before=before, behind=behind))
            break
    return lines
