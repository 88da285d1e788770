"""The panel that opens a forward report: where the two models first differ, by how much, and what was allowed."""

from __future__ import annotations

from math import prod
from typing import Any

from align.report.rendering.blocks import TONES, Facts
from align.report.rendering.format_values import (
    NONE,
    as_float,
    format_number,
    format_percentage,
    format_shape,
    layer_name,
    row_name,
)
from align.report.thresholds import ERRORS_SHOWN
from align.words.catalogue import say, word

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
    share = say(
        "forward.mismatched_share",
        part=format_number(part),
        whole=format_number(count),
        share=format_percentage(part, count),
    )
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
    in_force = say(
        "forward.limit_in_force",
        max_abs=format_number(limit["max_abs"]),
        rmse=format_number(limit["rmse"]),
        source=word("limit_source", limit["source"]),
    )
    passing = say("forward.would_pass", factor=format_number(layer["factor"]))
    if as_float(layer["factor"]) == float("inf"):
        passing = say("forward.never_passes")
    return [(say("forward.limit"), in_force), (say("forward.smallest_limit"), passing)]


def _alone(isolated: dict[str, Any] | None, findings: list[dict[str, Any]]) -> str:
    if isolated is None or isolated["factor"] is None:
        reasons = [finding["message"] for finding in findings if finding["code"] in NOT_ALONE]
        why = isolated["note"] if isolated else "; ".join(reasons) or say("forward.no_alone")
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
