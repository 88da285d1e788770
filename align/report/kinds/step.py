"""Training steps of both sides compared, shown: what is wrong by itself, the losses, the gradients of parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.names.fold_names import fold_alike, fold_names
from align.report.kind_parts.forward_culprits import function_words
from align.report.kind_parts.step_parameters import TONES, parameter_tables
from align.report.rendering.blocks import Block, Column, Facts, Row, Table, findings_blocks, verdict_block
from align.report.rendering.format_values import NONE, as_float, format_facts, format_number
from align.report.thresholds import SHORT_TABLE_ROWS
from align.rules.pitfalls import pitfalls
from align.words.catalogue import say, word
from align.words.message_words import first_few

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


Culprit = dict[str, Any]
# What causes that begin so say of the place, in the words of a kind of their own.
OF_CAUSES = {"dropout-": "dropout", "loss-term-": "loss-term", "updates-in-": "loop", "batch-entry-": "loop"}
OF_CAUSES |= {"average-": "average"}


def step_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.step` document; `show_all` lists all layers, and all gradients of parameters."""
    apart = "_apart" if any(one["code"] == "steps-recorded-apart" for one in document["findings"]) else ""
    blocks: list[Block] = [_panel(document["culprits"], apart)] if document["culprits"] else _nothing(document)
    blocks.append(_losses(document["losses"], say(f"step.losses{apart}")))
    blocks += parameter_tables(document, show_all=show_all)
    if show_all:
        blocks.append(_layers(document["layers"]))
    blocks += _run_tables(document, show_all=show_all)
    return [*blocks, *findings_blocks(document["findings"]), verdict_block(document["verdict"])]


def _panel(culprits: Sequence[Culprit], apart: str) -> Facts:
    facts: list[tuple[str, str]] = []
    for number, one in enumerate(culprits[:SHORT_TABLE_ROWS], 1):
        labelled = culprit_facts(one)
        facts += [(f"{number if place == 0 else '':<3}{label}", text) for place, (label, text) in enumerate(labelled)]
    if len(culprits) > SHORT_TABLE_ROWS:
        facts.append(("", say("step.more", count=len(culprits) - SHORT_TABLE_ROWS)))
    title = "one" if len(culprits) == 1 else "several"
    return Facts(say(f"step.{title}{apart}", count=len(culprits)), tuple(facts), "bad")


def _nothing(document: dict[str, Any]) -> list[Block]:
    """Say that nothing is wrong, and how near the nearest gradient is to its limit; nothing where none was judged."""
    judged = [one for one in document["gradients"] if one["outcome"] == "aligned"]
    if not judged:
        return []
    nearest = max(judged, key=lambda one: as_float(one["alone"]))
    text = say("step.nearest_one", name=nearest["candidate"], times=_off(nearest["alone"]))
    return [Facts(say("step.none"), ((say("step.nearest"), text),), "good")]


def culprit_facts(one: Culprit) -> list[tuple[str, str]]:
    """Return labels and texts: where it is, what is wrong there, by how much, why, and the line."""
    kind = next((own for begin, own in OF_CAUSES.items() if one["cause"].startswith(begin)), one["kind"])
    labelled = [(say("step.where"), _place(one)), (say("step.what"), word("step_kind", kind))]
    if as_float(one["factor"]):
        labelled.append((say("step.off"), _off(one["factor"])))
    if one["cause"]:
        sureness = word("sureness", one["sureness"])
        labelled.append((say("step.cause"), say("culprit.because", sureness=sureness, cause=_causes(one["cause"]))))
    if one["facts"]:
        labelled.append(("", format_facts(one["facts"])))
    if one["also"]:
        labelled.append((say("step.also"), _parameters(one["also"])))
    if one["parameters"]:
        labelled.append((say("step.parameters"), _parameters(one["parameters"])))
    if one["inside"]:
        labelled.append((say("culprit.inside"), function_words(one["inside"])))
    if one["step"] > 1:
        labelled.append((say("step.step"), str(one["step"])))
    if one["change"]:
        labelled.append((say("step.change"), one["change"]))
    if one["line"]:
        labelled.append((say("step.line"), one["line"]))
    return labelled


def _parameters(names: Sequence[str]) -> str:
    """The first of them, and how many there are where that is not seen."""
    folded = fold_names(names)
    shown = first_few(folded)
    return shown if shown == ", ".join(names) else say("step.of_all", names=shown, count=len(names))


def _causes(causes: str) -> str:
    """In words: of this table, or of the rule about a setting."""
    effects = {rule.id: rule.effect for rule in pitfalls()}
    return "; ".join(effects.get(one) or _cause(one) for one in causes.split(" + "))


def _cause(one: str) -> str:
    """A cause of a step, or one that the forward pass has too."""
    own = word("step_cause", one)
    return word("cause", one) if own == one else own


def _place(one: Culprit) -> str:
    classes = f" ({one['candidate_class']})" if one["candidate_class"] else ""
    if one["part"] == "layer" and not one["candidate"] and one["reference"]:
        return say("step.lacking", name=one["reference"], kind=one["reference_class"])
    name = one["candidate"] or say("step.model")
    if one["part"] == "layer":
        return f"{name}{classes}"
    if one["part"] == "code":
        near = say("step.near", layer=one["near"]) if one["near"] else ""
        return say("step.code", name=name, classes=classes) + near
    return word("faulty_part", one["part"])


def _off(factor: Any) -> str:
    size = as_float(factor)
    return say("step.missing") if size == float("inf") else say("step.times", factor=format_number(size, 3))


def _losses(losses: Sequence[dict[str, Any]], title: str) -> Table:
    columns = (
        Column(say("step.step"), "number"),
        Column(say("word.reference"), "number"),
        Column(say("word.candidate"), "number"),
        Column(say("step.alone"), "number"),
        Column(say("step.limit"), "number"),
    )
    keys = ("reference", "candidate", "alone")
    rows = [
        Row((str(one["step"]), *(_number(one[key], 7) for key in keys), _number(one["limit"], 2))) for one in losses
    ]
    return Table(title, columns, tuple(rows))


def _layers(layers: Sequence[dict[str, Any]]) -> Table:
    columns = (
        Column(say("word.reference"), "path"),
        Column(say("word.candidate"), "path"),
        Column(say("step.forth"), "number"),
        Column(say("step.back"), "number"),
    )
    rows = []
    for one in layers:
        figures = [one[key] for key in ("forward", "backward")]
        bad = any(value is not None and as_float(value) > 1.0 for value in figures)
        names = one["reference"] or say("step.model"), one["candidate"] or say("step.model")
        rows.append(Row((*names, *(_number(value, 3) for value in figures)), "bad" if bad else "plain"))
    return Table(say("step.layers"), columns, tuple(rows), folded=all(row.tone == "plain" for row in rows))


def _run_tables(document: dict[str, Any], *, show_all: bool) -> Iterator[Table]:
    """Why a faulty first step ends elsewhere, the free run, and the moments that are off, or all of them."""
    if document.get("apart"):
        yield _apart(document["apart"], show_all=show_all)
    if document.get("free"):
        yield _free(document["free"])
    moments = document.get("moments", ())
    shown = moments if show_all else [one for one in moments if one["outcome"] == "not aligned"]
    if shown:
        yield _moments(shown)


def _apart(parameters: Sequence[dict[str, Any]], *, show_all: bool) -> Table:
    """All parameters as one vector, and each with `show_all`; sizes over that of the reference's update."""
    columns = (
        Column(say("word.candidate"), "path"),
        Column(say("step.by_gradients"), "number"),
        Column(say("step.by_optimizer"), "number"),
        Column(say("step.by_both"), "number"),
        Column(say("step.reference_at_zero"), "number"),
        Column(say("step.candidate_at_zero"), "number"),
    )
    listed = parameters if show_all and len(parameters) > 1 else ()
    rows = [_parted(say("step.all_parameters"), parameters), *(_parted(one["candidate"], [one]) for one in listed)]
    return Table(say("step.parted"), columns, tuple(rows), say("step.parted_note"))


def _parted(name: str, parameters: Sequence[dict[str, Any]]) -> Row:
    still = [[one["at_rate_zero"][side] for one in parameters] for side in range(2)]
    sizes = [[one[key] for one in parameters] for key in ("by_gradients", "by_optimizer", "whole")]
    update = _together([one["update"] for one in parameters])
    shares = (_together(one) for one in (*sizes, *still))
    return Row((name, *(NONE if one is None or not update else format_number(one / update, 2) for one in shares)))


def _together(sizes: Sequence[Any]) -> float | None:
    """The size of all as one vector; None where one is not known."""
    return None if None in sizes else sum(as_float(one) ** 2 for one in sizes) ** 0.5


def _free(steps: Sequence[dict[str, Any]]) -> Table:
    columns = (
        Column(say("step.step"), "number"),
        Column(say("step.own_loss"), "number"),
        Column(say("step.apart"), "number"),
        Column(say("step.rounding"), "number"),
        Column(say("step.single"), "number"),
    )
    keys = ("apart", "noise", "single_steps")
    rows = [
        Row((str(one["step"]), _number(one["candidate"], 7), *(_number(one.get(key), 2) for key in keys)))
        for one in steps
    ]
    return Table(say("step.free"), columns, tuple(rows), say("step.free_note"))


def _moments(moments: Sequence[dict[str, Any]]) -> Table:
    columns = (
        Column(say("word.candidate"), "path"),
        Column(say("step.moments_of")),
        Column(say("step.outcome")),
        Column(say("step.scale"), "number"),
        Column(say("step.of_limit"), "number"),
    )
    rows = []
    for name, places in fold_alike((one["candidate"], _likeness(one)) for one in moments):
        group = [moments[place] for place in places]
        first, worst = group[0], max(as_float(one["factor"]) for one in group)
        kinds = " / ".join(dict.fromkeys((first["reference_moment"], first["candidate_moment"])))
        cells = name, kinds, word("step_outcome", first["outcome"]), _number(first["scale"], 4)
        rows.append(Row((*cells, format_number(worst, 3)), TONES[first["outcome"]]))
    return Table(say("step.moments", step=moments[0]["step"]), columns, tuple(rows))


def _likeness(one: dict[str, Any]) -> str:
    """What moments that share a row have in common."""
    scale = "" if one["scale"] is None else f"{as_float(one['scale']):.3g}"
    return f"{one['reference_moment']} {one['candidate_moment']} {one['outcome']} {scale}"


def _number(value: Any, digits: int) -> str:
    return NONE if value is None else format_number(as_float(value), digits)
