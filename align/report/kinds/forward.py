"""A forward comparison shown: what is at fault first, then the layers in execution order.

A long run of layers that are aligned, or right alone, is one line, the table is cut in its middle: a reader looks for
the places where it goes wrong. The rows around the first of those, or else around the first divergent layer, stay.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from align.core.verdicts import Outcome
from align.names.fold_names import fold_alike, fold_names
from align.report.kind_parts.first_divergent import first_divergent_block
from align.report.kind_parts.forward_culprits import NEVER_GIVEN, culprit_blocks, is_culprit
from align.report.kind_parts.forward_functions import function_blocks
from align.report.kind_parts.forward_witness import witness_blocks
from align.report.kinds.power import power_blocks
from align.report.rendering.blocks import TONES, Block, Column, Lines, Row, Table, findings_blocks, verdict_block
from align.report.rendering.format_values import NONE, as_float, format_number, format_shape, layer_name, row_name
from align.report.thresholds import (
    FAULTS_NEVER_CUT,
    NAMES_ON_A_LINE,
    NAMES_PER_REASON,
    OPEN_REASONS_SHOWN,
    ROWS_AROUND_FAULT,
    ROWS_AT_END,
    SHORTEST_FOLD,
    TABLE_ROWS,
)
from align.words.catalogue import say, word

if TYPE_CHECKING:
    from collections.abc import Iterable


def forward_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.forward` document; `show_all` neither folds nor cuts the table of layers."""
    never_given = [one for one in document["findings"] if one["code"] == NEVER_GIVEN]
    return [
        *(Lines(say("forward.never_given"), (one["message"],), "bad") for one in never_given),
        *culprit_blocks(document, show_all=show_all),
        *([] if never_given or _is_covered(document) else [first_divergent_block(document)]),
        *([_layers(document, show_all=show_all)] if document["layers"] else []),
        *_reasons(document["layers"], show_all=show_all),
        *witness_blocks(document.get("witness"), show_all=show_all),
        *function_blocks(document.get("functions", []), show_all=show_all),
        *_bound(document.get("bindings", [])),
        *findings_blocks([one for one in document["findings"] if one not in never_given]),
        *_accepted(document.get("accepted", [])),
        *_unpaired(document["unpaired"], show_all=show_all),
        *_power(document, show_all=show_all),
        verdict_block(document["verdict"]),
    ]


def _power(document: dict[str, Any], *, show_all: bool) -> list[Block]:
    """Say what the inputs could have shown, or that nobody knows; of models that differ nobody asks."""
    power = document.get("power")
    asked = power is not None or document["verdict"]["outcome"] == Outcome.ALIGNED.value
    return power_blocks(power, document.get("further", []), show_all=show_all) if asked else []


def _is_covered(document: dict[str, Any]) -> bool:
    """Tell whether the culprits show all that the panel of the first divergent layer would."""
    culprits, first = document.get("culprits", []), document["first_divergent"]
    if first is None:
        return bool(culprits)
    return is_culprit(document["layers"][first], [one for one in culprits if one["part"] != "inputs"])


def _layers(document: dict[str, Any], *, show_all: bool) -> Table:
    columns = (
        Column("#", "number"),
        Column(say("word.reference"), "path"),
        Column(say("word.candidate"), "path"),
        Column(say("forward.class"), "path", wide=True),
        Column(say("word.shape"), wide=True),
        Column(say("word.dtype"), wide=True),
        Column(say("forward.max_abs"), "number", wide=True),
        Column(say("forward.relative_l2"), "number"),
        Column(say("forward.factor"), "number"),
        Column(say("forward.alone"), "number"),
        Column(say("forward.amplification"), "number", wide=True),
        Column(say("forward.outcome")),
        Column(say("word.note"), wide=True),
    )
    layers, marked = document["layers"], _marked(document)
    alone = any(layer.get("isolated") for layer in layers)
    note = say("forward.factor_note")
    note = say("forward.alone_note", factor=note) if alone else note
    rows = [_row(layer, i in marked) for i, layer in enumerate(layers)] if show_all else _cut(_folded(layers, marked))
    return Table(say("forward.layers"), columns, tuple(rows), note)


def _marked(document: dict[str, Any]) -> set[int]:
    """Places of the rows that stand at fault; without any, the first divergent one."""
    layers, first = document["layers"], document["first_divergent"]
    culprits = document.get("culprits", [])
    return {place for place, layer in enumerate(layers) if is_culprit(layer, culprits)} or {first} - {None}


def _row(layer: dict[str, Any], is_marked: bool = False) -> Row:
    measured, alone = layer["measurement"] or {}, layer.get("isolated") or {}
    cells = (
        (say("forward.first_marker") if is_marked else "") + format_number(layer["order"]),
        row_name(layer),
        layer["candidate"] or say("word.whole_model"),
        _both(layer["reference_class"], layer["candidate_class"]),
        _both(format_shape(layer["reference_shape"]), format_shape(layer["candidate_shape"])),
        _both(layer["reference_dtype"], layer["candidate_dtype"]),
        format_number(measured.get("max_abs")),
        format_number(measured.get("relative_l2")),
        format_number(layer["factor"]),
        format_number(alone["factor"]) if alone else "",
        _optional(layer.get("amplification")),
        word("outcome", layer["outcome"]),
        layer["note"] or alone.get("note", ""),
    )
    return Row(cells, "bad" if is_marked else TONES.get(layer["outcome"], "plain"))


def _optional(value: float | str | None) -> str:
    return "" if value is None else format_number(value)


def _both(reference: str, candidate: str) -> str:
    return reference if reference == candidate else f"{reference} | {candidate}"


def _folded(layers: list[dict[str, Any]], marked: set[int]) -> list[tuple[Row, bool]]:
    """Rows with long stretches of layers that are not at fault as one row each; the flag: never to be cut."""
    rows: list[tuple[Row, bool]] = []
    near = {
        place + step
        for place in sorted(marked)[:FAULTS_NEVER_CUT]
        for step in range(-ROWS_AROUND_FAULT, ROWS_AROUND_FAULT + 1)
    }
    for kind, group in groupby(enumerate(layers), key=lambda one: "" if one[0] in marked else _stretch_kind(one[1])):
        stretch = list(group)
        inner = stretch[1:-1] if kind and len(stretch) >= SHORTEST_FOLD else []
        for index, layer in stretch:
            if inner and index == inner[0][0]:
                rows.append((_stretch([own for _, own in inner], kind), False))
            if not inner or index in (stretch[0][0], stretch[-1][0]):
                rows.append((_row(layer, index in marked), index in near))
    return rows


def _stretch_kind(layer: dict[str, Any]) -> str:
    """Name the kind of stretch that a layer is a part of: of aligned layers, or of those that are right alone."""
    alone = layer.get("isolated")
    if alone and alone["outcome"] == "not aligned":
        return ""
    if layer["outcome"] in ("aligned", "accepted"):
        return str(layer["outcome"])
    return "not aligned" if alone and layer["outcome"] == "not aligned" else ""


def _stretch(layers: list[dict[str, Any]], outcome: str) -> Row:
    alone = [one for layer in layers if (one := layer.get("isolated"))]
    text = say("forward.following" if outcome == "not aligned" else "forward.folded", count=len(layers))
    return _gap(text, _largest(layers), _largest(alone), word("outcome", outcome))


def _largest(judged: list[dict[str, Any]]) -> str:
    factors = [as_float(one["factor"]) for one in judged if one["factor"] is not None]
    return format_number(max(factors)) if factors else ""


def _gap(text: str, factor: str = "", alone: str = "", outcome: str = "") -> Row:
    return Row(("…", text, "", "", "", "", "", "", factor, alone, "", outcome, ""), "quiet")


def _cut(rows: list[tuple[Row, bool]]) -> list[Row]:
    if len(rows) <= TABLE_ROWS:
        return [row for row, _ in rows]
    last_kept = len(rows) - ROWS_AT_END
    kept = [i < TABLE_ROWS - ROWS_AT_END or i >= last_kept or fixed for i, (_, fixed) in enumerate(rows)]
    shown: list[Row] = []
    for is_kept, group in groupby(zip(kept, rows, strict=True), key=lambda item: item[0]):
        own = [row for _, (row, _) in group]
        shown += own if is_kept else [_gap(say("forward.cut", count=len(own)))]
    return shown


def _reasons(layers: Iterable[dict[str, Any]], *, show_all: bool) -> list[Block]:
    """A line a reason, with the names of its rows; nothing if every row was judged."""
    known = [(reason, row_name(layer)) for layer in layers if (reason := _reason(layer))]
    groups = [
        (reason, [known[place][1] for place in places]) for reason, places in fold_alike((one, "") for one, _ in known)
    ]
    shown = groups if show_all else groups[:OPEN_REASONS_SHOWN]
    lines = [
        say("forward.reason_line", names=_names(names, NAMES_PER_REASON, show_all=show_all), reason=reason)
        for (reason, names) in shown
    ]
    if rest := len(groups) - len(shown):
        lines.append(say("word.and_more", count=format_number(rest)))
    return [Lines(say("forward.not_comparable"), tuple(lines), "open")] if lines else []


def _reason(layer: dict[str, Any]) -> str:
    """Why a row has no figure; of one that is off, why it has none alone."""
    alone = layer.get("isolated") or {}
    if layer["outcome"] == "not comparable":
        return str(layer["note"] or alone.get("note", ""))
    is_open = layer["outcome"] == "not aligned" and alone.get("outcome") == "not comparable"
    return say("forward.alone_reason", reason=alone["note"]) if is_open and alone["note"] else ""


def _bound(bindings: list[dict[str, Any]]) -> list[Block]:
    """Say which parameter of either side each input went to, and which kept their defaults."""
    if not bindings:
        return []
    given = [one["parameters"] for one in bindings]
    names = zip(given[0].items(), given[1].values(), strict=False)
    lines = [name if name == mine == theirs else f"{name}: {mine} | {theirs}" for (name, mine), theirs in names]
    kept = [_kept(one["side"], one["defaults"]) for one in bindings if one["defaults"]]
    return [Lines(say("forward.bound"), ("; ".join(filter(None, [", ".join(lines), *kept])),))]


def _kept(side: str, defaults: dict[str, str]) -> str:
    shown = [f"{name}={value}" for name, value in defaults.items()]
    rest = len(shown) - NAMES_ON_A_LINE
    more = say("word.and_more", count=rest) if rest > 0 else ""
    return say("forward.kept_defaults", side=word("word", side), names=", ".join(shown[:NAMES_ON_A_LINE]) + more)


def _accepted(accepted: list[dict[str, Any]]) -> list[Block]:
    if not accepted:
        return []
    lines = []
    for one in accepted:
        facts = {"layers": one["layers"], "reason": one["reason"], "count": format_number(len(one["candidates"]))}
        text = "forward.accepted_line" if one["candidates"] else "forward.accepted_idle"
        lines.append(say(text, factor=format_number(one["factor"]), **facts))
    return [Lines(say("forward.accepted"), tuple(lines), "open")]


def _unpaired(unpaired: list[dict[str, Any]], *, show_all: bool) -> list[Block]:
    if not unpaired:
        return []
    names = [
        layer_name(one["module"], one["call"]) + (f" ({one['class_name']})" if one["class_name"] else "")
        for one in unpaired
    ]
    groups = [
        (unpaired[places[0]]["side"], reason, [names[place] for place in places])
        for reason, places in fold_alike((one["reason"], one["side"]) for one in unpaired)
    ]
    lines = tuple(
        say("forward.unpaired_line", side=word("word", side), count=format_number(len(own)), reason=reason)
        + _names(own, NAMES_ON_A_LINE, show_all=show_all)
        for side, reason, own in groups
    )
    return [Lines(say("forward.unpaired", count=format_number(len(unpaired))), lines)]


def _names(names: list[str], most: int, *, show_all: bool) -> str:
    folded = fold_names(names)
    shown = folded if show_all else folded[:most]
    rest = len(folded) - len(shown)
    return ", ".join(shown) + (say("word.and_more", count=rest) if rest else "") or NONE
