"""A forward comparison shown: what is at fault first, then the layers in execution order.

A long run of layers that are aligned, or right alone, is one line, the table is cut in its middle: a reader looks for
the places where it goes wrong. The rows around the first of those, or else around the first divergent layer, stay.
"""

from __future__ import annotations

from itertools import groupby
from math import prod
from typing import TYPE_CHECKING, Any

from align.core.verdicts import Outcome
from align.names.user_rules import fold_alike, fold_names
from align.report.blocks import (
    NONE,
    TONES,
    Block,
    Facts,
    Lines,
    Row,
    Table,
    Tone,
    as_float,
    findings_blocks,
    first_names,
    format_number,
    format_percentage,
    format_shape,
    layer_name,
    row_name,
    table_columns,
    verdict_block,
)
from align.report.kinds.culprits import NEVER_GIVEN, culprit_blocks, is_culprit
from align.report.thresholds import (
    ERRORS_SHOWN,
    FAULTS_NEVER_CUT,
    NAMES_ON_A_LINE,
    NAMES_PER_REASON,
    OPEN_REASONS_SHOWN,
    ROWS_AROUND_FAULT,
    ROWS_AT_END,
    SHORTEST_FOLD,
    TABLE_ROWS,
)
from align.words.catalogue import few, listed, say, word

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def forward_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.forward` document; `show_all` neither folds nor cuts the table of layers."""
    never_given = [finding for finding in document["findings"] if finding["code"] == NEVER_GIVEN]
    return [
        *(Lines(say("forward.never_given"), (finding["message"],), "bad") for finding in never_given),
        *culprit_blocks(document, show_all=show_all),
        *([] if never_given or _is_covered(document) else [first_divergent_block(document)]),
        *([_layers(document, show_all=show_all)] if document["layers"] else []),
        *_reasons(document["layers"], show_all=show_all),
        *witness_blocks(document.get("witness"), show_all=show_all),
        *function_blocks(document.get("functions", []), show_all=show_all),
        *_bound(document.get("bindings", [])),
        *findings_blocks([finding for finding in document["findings"] if finding not in never_given]),
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
    columns = table_columns(
        "#:number word.reference:path word.candidate:path forward.class:path:wide word.shape:wide word.dtype:wide "
        "forward.max_abs:number:wide forward.relative_l2:number forward.factor:number forward.alone:number "
        "forward.amplification:number:wide forward.outcome word.note:wide"
    )
    layers, marked = document["layers"], _marked(document)
    alone = any(layer.get("isolated") for layer in layers)
    note = say("forward.factor_note")
    note = say("forward.alone_note", factor=note) if alone else note
    rows = (
        [_layer_row(layer, i in marked) for i, layer in enumerate(layers)]
        if show_all
        else _cut(_folded_layers(layers, marked))
    )
    return Table(say("forward.layers"), columns, tuple(rows), note)


def _marked(document: dict[str, Any]) -> set[int]:
    """Places of the rows that stand at fault; without any, the first divergent one."""
    layers, first = document["layers"], document["first_divergent"]
    culprits = document.get("culprits", [])
    return {place for place, layer in enumerate(layers) if is_culprit(layer, culprits)} or {first} - {None}


def _layer_row(layer: dict[str, Any], is_marked: bool = False) -> Row:
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


def _folded_layers(layers: list[dict[str, Any]], marked: set[int]) -> list[tuple[Row, bool]]:
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
                rows.append((_layer_row(layer, index in marked), index in near))
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
    return [Lines(say("forward.bound"), (listed([*filter(None, [listed(lines), *kept])], "; "),))]


def _kept(side: str, defaults: dict[str, str]) -> str:
    shown = [f"{name}={value}" for name, value in defaults.items()]
    return say("forward.kept_defaults", side=word("word", side), names=first_names(shown, NAMES_ON_A_LINE))


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
        layer_name(layer["module"], layer["call"]) + (f" ({layer['class_name']})" if layer["class_name"] else "")
        for layer in unpaired
    ]
    groups = [
        (unpaired[places[0]]["side"], reason, [names[place] for place in places])
        for reason, places in fold_alike((layer["reason"], layer["side"]) for layer in unpaired)
    ]
    lines = tuple(
        say("forward.unpaired_line", side=word("word", side), count=format_number(len(own)), reason=reason)
        + _names(own, NAMES_ON_A_LINE, show_all=show_all)
        for side, reason, own in groups
    )
    return [Lines(say("forward.unpaired", count=format_number(len(unpaired))), lines)]


def _names(names: list[str], most: int, *, show_all: bool) -> str:
    folded = fold_names(names)
    return first_names(folded, len(folded) if show_all else most) or NONE


# What a comparison could have shown: the inputs that move nothing, outputs at an end, and parameters that stay
# hidden.
#
# Only what is remarkable gets a line, and one line says how the rest is seen: of a model in order that line is all.


def power_blocks(
    power: dict[str, Any] | None, further: Sequence[dict[str, Any]] = (), *, show_all: bool = False
) -> list[Block]:
    """Show the power of a forward comparison; None says that nobody measured it.

    `further` are the comparisons in other states, of which those that agree are told here.
    """
    if power is None:
        return [Lines(say("power.title"), (say("power.not_measured"),), "open")]
    lines = (*_inputs(power), *_outputs(power["outputs"], show_all), *_parameters(power["parameters"], show_all))
    lines += tuple(_agreed(one, show_all) for one in further if one["outcome"] == "aligned")
    blind = [name for name, factor in power["inputs"].items() if as_float(factor) <= 1.0]
    return [Lines(say("power.title"), lines, "open" if blind or power["unmeasured"] else "plain")]


def _agreed(further: dict[str, Any], show_all: bool) -> str:
    subjects = further["subjects"]
    names = few(subjects, len(subjects) if show_all else NAMES_ON_A_LINE)
    return say(f"power.further_{further['kind'].replace(' ', '_')}", count=len(subjects), names=names)


def _inputs(power: dict[str, Any]) -> list[str]:
    moved = [
        say(
            f"power.{'input_moves' if as_float(factor) > 1.0 else 'input_hidden'}",
            name=name,
            factor=format_number(factor),
        )
        for name, factor in power["inputs"].items()
    ]
    return moved + [say("power.unmeasured", name=name, reason=why) for name, why in power["unmeasured"].items()]


def _outputs(outputs: list[dict[str, Any]], show_all: bool) -> list[str]:
    kinds = {
        "constant": [one for one in outputs if one["state"] == "constant"],
        "saturated": [one for one in outputs if one["state"] == "saturated"],
        "unmoved": [one for one in outputs if one["factor"] is not None and as_float(one["factor"]) <= 1.0],
    }
    return [
        say(f"power.{kind}", count=len(own), total=len(outputs), names=_listed(map(_named, own), show_all))
        for kind, own in kinds.items()
        if own
    ]


def _named(output: dict[str, Any]) -> str:
    return f"{layer_name(output['module'], output['call'], output['output'])} ({output['class_name']})"


def _parameters(parameters: list[dict[str, Any]], show_all: bool) -> list[str]:
    hidden = sorted(parameters, key=lambda parameter: -parameter["blind"] / parameter["elements"])
    late = sorted(parameters, key=lambda parameter: -as_float(parameter["shows_at"] or 0.0))
    orders = {"blind": hidden, "partly blind": hidden, "weakly seen": late, "unknown": late, "neutral": hidden}
    lines = []
    for state, ordered in orders.items():
        if own := [parameter for parameter in ordered if parameter["state"] == state]:
            names = _listed([parameter["name"] for parameter in own], show_all)
            lines.append(say(f"power.{state.replace(' ', '_')}", count=len(own), names=names, **_first(own)))
    if seen := [parameter for parameter in late if parameter["state"] in ("seen", "partly blind")]:
        lines.append(say("power.seen", count=len(seen), **_first(seen)))
    return lines


def _first(parameters: list[dict[str, Any]]) -> dict[str, str]:
    """What the worst of them, which stands first, is like."""
    first = parameters[0]
    hidden = format_percentage(first["blind"], first["elements"])
    return {"name": first["name"], "hidden": hidden, "change": _percent(first["shows_at"])}


def _percent(relative: float | str | None) -> str:
    return f"{format_number(100 * as_float(relative), 2)} %"


def _listed(names: Any, show_all: bool) -> str:
    folded = fold_names(names)
    return few(folded, len(folded) if show_all else NAMES_ON_A_LINE)


# The panel that opens a forward report: where the two models first differ, by how much, and what was allowed.

Pairs = list[tuple[str, str]]

NOT_ALONE = ("not-isolated", "isolation-unmeasured")  # findings that say why


def first_divergent_block(document: dict[str, Any]) -> Facts:
    """Return the panel for a `mindalign.forward` document; without a divergent layer it names the one nearest to it."""
    if document["first_divergent"] is None:
        return _no_divergence(document)
    layer = document["layers"][document["first_divergent"]]
    facts = [
        *_place(layer),
        *(_figures(layer["measurement"], layer) if layer["measurement"] else []),
        *(_limit(layer) if layer["limit"] else []),
        (say("forward.alone"), _alone(layer.get("isolated"), document["findings"])),
        *([(say("word.note"), layer["note"])] if layer["note"] else []),
        (say("forward.last_aligned"), _last_aligned(document)),
    ]
    return Facts(say("forward.first_divergent"), tuple(facts), TONES.get(layer["outcome"], "bad"))


def _place(layer: dict[str, Any]) -> Pairs:
    sides = [(side, word("word", side)) for side in ("reference", "candidate")]
    facts = [(label, f"{layer_name(layer[side])}  ({layer[f'{side}_class'] or NONE})") for side, label in sides]
    output = say("forward.output", output=layer["output"]) if layer["output"] else ""
    if layer.get("part", "output") != "output":
        output = say("forward.tensor_of_dump", name=row_name(layer))
    number = say("forward.call_number", call=layer["call"], order=layer["order"])
    facts.append((say("forward.call"), number + output + _batch(layer)))
    kinds = [f"{format_shape(layer[f'{side}_shape'])} {layer[f'{side}_dtype']}" for side, _ in sides]
    tensor = say("forward.on_both_sides", kind=kinds[0]) if kinds[0] == kinds[1] else " | ".join(kinds)
    return [*facts, (say("forward.tensor"), tensor)]


def _batch(layer: dict[str, Any]) -> str:
    batch = layer.get("batch")
    return say("forward.in_batch", batch=batch, batches=layer["batches"]) if batch else ""


def _figures(measured: dict[str, Any], layer: dict[str, Any]) -> Pairs:
    worst = say("forward.at_index", index=format_shape(measured["worst"])) if measured["worst"] else ""
    count = int(measured["count"]) or prod(layer["reference_shape"])
    outside = layer.get("outside")
    part = int(measured["mismatched"] if outside is None else outside)
    counts = {"part": format_number(part), "whole": format_number(count)}
    share = say("forward.mismatched_share", share=format_percentage(part, count), **counts)
    samples, whole = layer.get("samples", []), (layer["reference_shape"] or [0])[0]
    if 0 < len(samples) < int(whole):
        share += say("forward.wrong_samples", samples=[*map(str, samples)], count=len(samples), whole=int(whole))
    label = say("forward.unlike" if outside is None else "forward.mismatched")
    return [
        (say("forward.max_abs_long"), format_number(measured["max_abs"]) + worst),
        (say("forward.relative_l2_long"), format_number(measured["relative_l2"])),
        (say("forward.max_rel"), format_number(measured["max_rel"])),
        (say("forward.cosine"), format_number(measured["cosine"], 6)),
        (label, share),
        *_non_finite(measured),
    ]


def _non_finite(measured: dict[str, Any]) -> Pairs:
    kinds = [f"{kind}_{side}" for kind in ("nan", "inf") for side in ("reference", "candidate")]
    if not any(measured[kind] for kind in (*kinds, "non_finite_mismatch")):
        return []
    counts = {kind: format_number(measured[kind]) for kind in kinds}
    return [(say("forward.non_finite"), say("forward.non_finite_counts", **counts))]


def _limit(layer: dict[str, Any]) -> Pairs:
    limit = layer["limit"]
    bounds = {bound: format_number(limit[bound]) for bound in ("max_abs", "rmse")}
    in_force = say("forward.limit_in_force", source=word("limit_source", limit["source"]), **bounds)
    passing = say("forward.would_pass", factor=format_number(layer["factor"]))
    if as_float(layer["factor"]) == float("inf"):
        passing = say("forward.never_passes")
    return [(say("forward.limit"), in_force), (say("forward.smallest_limit"), passing)]


def _alone(isolated: dict[str, Any] | None, findings: list[dict[str, Any]]) -> str:
    if isolated is None or isolated["factor"] is None:
        reasons = [finding["message"] for finding in findings if finding["code"] in NOT_ALONE]
        why = isolated["note"] if isolated else listed(reasons, "; ") or say("forward.no_alone")
        return say("forward.alone_unknown", why=why)
    factors = {"factor": format_number(isolated["factor"]), "inputs": format_number(isolated["inputs_factor"])}
    if isolated["outcome"] != "not aligned":
        return say("forward.alone_within", **factors)
    wrong_inputs = as_float(isolated["inputs_factor"]) > 1.0
    return say("forward.alone_misgiven" if wrong_inputs else "forward.alone_outside", **factors)


def _last_aligned(document: dict[str, Any]) -> str:
    index = document["last_aligned"]
    if index is None:
        return say("forward.no_aligned_before")
    layer = document["layers"][index]
    names = f"{row_name(layer)} | {layer_name(layer['candidate'])}"
    return say("forward.last_aligned_layer", order=layer["order"], names=names, factor=format_number(layer["factor"]))


def _no_divergence(document: dict[str, Any]) -> Facts:
    """Without a divergent layer: how near the nearest came, or the errors and obstacles beside the layers."""
    judged = [layer for layer in document["layers"] if layer["factor"] is not None and layer["outcome"] != "accepted"]
    outcome, reason = str(document["verdict"]["outcome"]), document["verdict"]["reason"]
    errors = [one for one in document["findings"] if one["severity"] == "error"] if outcome == "not aligned" else []
    open_verdict = outcome == "could not compare"
    title = say("verdict.line", outcome=word("outcome", outcome), reason=reason) if open_verdict else _title(errors)
    facts = [*_errors(errors), (say("forward.compared"), format_number(len(judged)))]
    if judged:
        nearest = max(judged, key=lambda layer: as_float(layer["factor"]))
        names = f"{row_name(nearest)} | {nearest['candidate']}"
        facts.append(
            (say("forward.nearest"), say("forward.nearest_layer", names=names, factor=format_number(nearest["factor"])))
        )
    return Facts(title, tuple(facts), TONES.get(outcome, "plain"))


def _title(errors: list[dict[str, Any]]) -> str:
    if not errors:
        return say("forward.no_divergent")
    return say("forward.error" if len(errors) == 1 else "forward.errors", count=format_number(len(errors)))


def _errors(errors: list[dict[str, Any]]) -> Pairs:
    shown = [(word("severity", "error"), f"{one['subject']}: {one['message']}") for one in errors[:ERRORS_SHOWN]]
    rest = len(errors) - ERRORS_SHOWN
    return [*shown, *([("", say("forward.more_errors", count=format_number(rest)))] if rest > 0 else [])]


# The functional calls of a port shown: those that return something else than the reference's first of all.

_SHOWS_NOTHING = ("same", "scaled", "constant")


def function_blocks(calls: list[dict[str, Any]], *, show_all: bool) -> list[Block]:
    """Show a table of the calls that are not the same, of all with `show_all`; nothing where none were asked for."""
    if not calls:
        return []
    shown = calls if show_all else [one for one in calls if one["outcome"] not in _SHOWS_NOTHING]
    kept = shown if show_all else shown[:TABLE_ROWS]
    same = sum(one["outcome"] in ("same", "scaled") for one in calls)
    title = say("forward_functions.title", same=format_number(same), count=format_number(len(calls)))
    if not kept:
        return [Lines(title, ())]
    columns = table_columns(
        "forward_functions.line:path forward_functions.function:path forward_functions.reference_line:path "
        "forward_functions.function:path forward_functions.error:number forward_functions.outcome"
    )
    rest = len(shown) - len(kept)
    more = say("forward_functions.cut", count=format_number(rest)) if rest else ""
    note = "\n".join(filter(None, (more, say("forward_functions.note"))))
    return [Table(title, columns, tuple(map(_call_row, kept)), note)]


def _call_row(call: dict[str, Any]) -> Row:
    error = call["relative_l2"]
    cells = (
        call["line"],
        call["function"],
        call["reference_line"],
        call["reference_function"],
        "" if error is None else format_number(error),
        _outcome(call),
    )
    return Row(cells, "bad" if call["outcome"] == "other result" else "plain")


def _outcome(call: dict[str, Any]) -> str:
    if call["outcome"] == "scaled":
        return say("forward_functions.scaled", factor=format_number(call["factor"]))
    return word("function_outcome", call["outcome"])


# What a third side says of a forward comparison: the layers at which one of the three deviates, and who.

_TONES: dict[str, Tone] = {"none": "good", "unclear": "open"}


def witness_blocks(witness: dict[str, Any] | None, *, show_all: bool) -> list[Block]:
    """Show a comparison with a witness, with long stretches of equal verdicts as one row; nothing without one."""
    if witness is None:
        return []
    columns = table_columns(
        "word.reference:path witness_report.reference_candidate:number witness_report.reference_witness:number "
        "witness_report.candidate_witness:number witness_report.deviates"
    )
    rows = tuple(map(_witness_row, witness["layers"])) if show_all else tuple(_folded_witness_rows(witness["layers"]))
    title = say("witness_report.title", witness=witness["witness"])
    lines = [witness["conclusion"]]
    if witness["without_witness"]:
        lines.append(say("witness_report.without", count=witness["without_witness"]))
    table = [Table(title, columns, rows, say("witness_report.note"))] if rows else []
    return [*table, Lines(say("witness_report.conclusion"), tuple(lines))]


def _witness_row(layer: dict[str, Any]) -> Row:
    factors = (layer[f"{pair}_factor"] for pair in ("candidate", "witness", "between"))
    name = layer_name(layer["reference"], layer["call"], layer["output"])
    who = layer["deviates"]
    return Row((name, *map(format_number, factors), word("deviates", who)), _TONES.get(who, "bad"))


def _folded_witness_rows(layers: list[dict[str, Any]]) -> list[Row]:
    """The first and the last row of each stretch, and how many there are between them."""
    rows: list[Row] = []
    for who, group in groupby(layers, key=lambda layer: str(layer["deviates"])):
        stretch = [_witness_row(layer) for layer in group]
        if len(stretch) < SHORTEST_FOLD:
            rows += stretch
            continue
        between = say("witness_report.layers", count=format_number(len(stretch) - 2))
        rows += [stretch[0], Row((between, "", "", "", word("deviates", who)), "quiet"), stretch[-1]]
    return rows
