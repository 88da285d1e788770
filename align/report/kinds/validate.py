"""A validation shown: the metric of each combination, then the samples on which the models differ."""

from __future__ import annotations

from typing import Any

from align.report.rendering.blocks import Block, Column, Facts, Row, Table, findings_blocks, verdict_block
from align.report.rendering.format_values import as_float, format_number, format_percentage
from align.report.thresholds import INDEXES_SHOWN
from align.words.catalogue import say, word

PARTS = ("model", "weights", "data", "metric")
OWN_WEIGHTS = ("weights-differ", "weights-unknown")


def validate_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.validate` document; `show_all` lists the index of every sample that was kept."""
    outputs = document["outputs"]
    return [
        _combinations(document),
        _outputs(outputs, show_all=show_all),
        *(_worst(outputs["worst"]) if show_all or outputs["flipped"] or as_float(outputs["factor"]) > 1.0 else []),
        *findings_blocks(document["findings"]),
        verdict_block(document["verdict"]),
    ]


def _combinations(document: dict[str, Any]) -> Table:
    columns = (
        *(Column(say(f"validate.{part}")) for part in PARTS),
        Column(say("validate.value"), "number"),
        Column(say("validate.difference"), "number"),
        Column(say("validate.agrees")),
    )
    own = {part for row in document["combinations"] for part in row["exchanged"]}
    own |= {"weights"} if any(finding["code"] in OWN_WEIGHTS for finding in document["findings"]) else set()
    rows = tuple(_combination(row, own) for row in document["combinations"])
    title = say("validate.title", metric=document["metrics"][0])
    return Table(title, columns, rows, say("validate.limit_note", limit=format_number(document["limit"])))


def _combination(row: dict[str, Any], own: set[str]) -> Row:
    """Whose part each is; a part that both sides share is nobody's."""
    other = "candidate" if row["model"] == "reference" else "reference"
    cells = [word("word", row["model"])]
    for part in PARTS[1:]:
        whose = other if part in row["exchanged"] else row["model"]
        cells.append(word("word", whose) if part in own else say("validate.shared"))
    is_reference = row["model"] == "reference" and not row["exchanged"]
    figures = (format_number(row["value"], 6), "" if is_reference else format_number(row["difference"]))
    agrees = "" if is_reference else say("validate.yes" if row["agrees"] else "validate.no")
    return Row((*cells, *figures, agrees), "plain" if is_reference else "good" if row["agrees"] else "bad")


def _outputs(outputs: dict[str, Any], *, show_all: bool) -> Facts:
    measured, limit = outputs["measurement"], outputs["limit"]
    bounds = {"max_abs": format_number(limit["max_abs"]), "rmse": format_number(limit["rmse"])}
    facts = [
        (say("validate.samples"), format_number(outputs["samples"])),
        (say("forward.max_abs_long"), format_number(measured["max_abs"])),
        (
            say("forward.limit"),
            say("forward.limit_in_force", source=word("limit_source", limit["source"]), **bounds),
        ),
        (say("forward.smallest_limit"), say("forward.would_pass", factor=format_number(outputs["factor"]))),
        (say("validate.flipped"), _flips(outputs)),
    ]
    if indexes := outputs["indexes"]:
        shown = indexes if show_all else indexes[:INDEXES_SHOWN]
        rest = outputs["flipped"] - len(shown)
        more = say("word.and_more", count=format_number(rest)) if rest else ""
        facts.append((say("validate.indexes"), ", ".join(map(format_number, shown)) + more))
    return Facts(say("validate.outputs"), tuple(facts), "good" if as_float(outputs["factor"]) <= 1.0 else "bad")


def _flips(outputs: dict[str, Any]) -> str:
    part, whole = outputs["flipped"], outputs["samples"]
    text = say(
        "validate.flips", part=format_number(part), whole=format_number(whole), share=format_percentage(part, whole)
    )
    return text + (say("validate.ties", count=format_number(outputs["ties"])) if outputs["ties"] else "")


def _worst(samples: list[dict[str, Any]]) -> list[Block]:
    """The samples that differ most; columns of classes stay empty, and are left out, where there are none."""
    if not samples:
        return []
    columns = (
        Column(say("validate.index"), "number"),
        Column(say("validate.label"), "number"),
        Column(say("word.reference"), "number"),
        Column(say("word.candidate"), "number"),
        Column(say("forward.max_abs_long"), "number"),
        Column(say("validate.margin"), "number"),
        Column(say("validate.limit"), "number"),
        Column(say("word.note")),
    )
    return [Table(say("validate.worst"), columns, tuple(map(_sample, samples)))]


def _sample(sample: dict[str, Any]) -> Row:
    flipped = sample["margin"] is not None
    keys = ("label", "reference", "candidate")
    classes = tuple(str(sample[key]) if flipped else "" for key in keys)
    lead = tuple(format_number(sample[key]) if flipped else "" for key in ("margin", "limit"))
    note = say("validate.tie" if sample["tie"] else "validate.flip") if flipped else ""
    cells = (format_number(sample["index"]), *classes, format_number(sample["difference"]), *lead, note)
    return Row(cells, "bad" if flipped and not sample["tie"] else "plain")
