"""Training steps of both sides compared, shown: what is wrong by itself, the losses, the gradients of parameters."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isnan, nan
from typing import TYPE_CHECKING, Any

from align.names.user_rules import fold_alike, fold_names
from align.report.blocks import (
    NONE,
    Block,
    Facts,
    Lines,
    Row,
    Table,
    Tone,
    as_float,
    findings_blocks,
    fold_rows,
    format_bytes,
    format_facts,
    format_number,
    renamed,
    table_columns,
    verdict_block,
)
from align.report.kinds.culprits import function_words
from align.report.thresholds import SHORT_TABLE_ROWS, TABLE_ROWS
from align.rules.pitfalls import pitfalls
from align.words.catalogue import few, listed, say, word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


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


def culprit_facts(culprit: Culprit) -> list[tuple[str, str]]:
    """Return labels and texts: where it is, what is wrong there, by how much, why, and the line."""
    kind = next((own for begin, own in OF_CAUSES.items() if culprit["cause"].startswith(begin)), culprit["kind"])
    labelled = [(say("step.where"), _place(culprit)), (say("step.what"), word("step_kind", kind))]
    if as_float(culprit["factor"]):
        labelled.append((say("step.off"), _off(culprit["factor"])))
    if culprit["cause"]:
        sureness = word("sureness", culprit["sureness"])
        labelled.append((say("step.cause"), say("culprit.because", sureness=sureness, cause=_causes(culprit["cause"]))))
    if culprit["facts"]:
        labelled.append(("", format_facts(culprit["facts"])))
    if culprit["also"]:
        labelled.append((say("step.also"), _parameters(culprit["also"])))
    if culprit["parameters"]:
        labelled.append((say("step.parameters"), _parameters(culprit["parameters"])))
    if culprit["inside"]:
        labelled.append((say("culprit.inside"), function_words(culprit["inside"])))
    if culprit["step"] > 1:
        labelled.append((say("step.step"), str(culprit["step"])))
    if culprit["change"]:
        labelled.append((say("step.change"), culprit["change"]))
    if culprit["line"]:
        labelled.append((say("step.line"), culprit["line"]))
    return labelled


def _parameters(names: Sequence[str]) -> str:
    """The first of them, and how many there are where that is not seen."""
    folded = fold_names(names)
    shown = few(folded)
    return shown if shown == listed(names) else say("step.of_all", names=shown, count=len(names))


def _causes(causes: str) -> str:
    """Name causes in words: of this table, or of the rule about a setting."""
    effects = {rule.id: rule.effect for rule in pitfalls()}
    return listed([effects.get(one) or _cause(one) for one in causes.split(" + ")], "; ")


def _cause(one: str) -> str:
    """A cause of a step, or one that the forward pass has too."""
    own = word("step_cause", one)
    return word("cause", one) if own == one else own


def _place(culprit: Culprit) -> str:
    classes = f" ({culprit['candidate_class']})" if culprit["candidate_class"] else ""
    if culprit["part"] == "layer" and not culprit["candidate"] and culprit["reference"]:
        return say("step.lacking", name=culprit["reference"], kind=culprit["reference_class"])
    name = culprit["candidate"] or say("step.model")
    if culprit["part"] == "layer":
        return f"{name}{classes}"
    if culprit["part"] == "code":
        near = say("step.near", layer=culprit["near"]) if culprit["near"] else ""
        return say("step.code", name=name, classes=classes) + near
    return word("faulty_part", culprit["part"])


def _off(factor: Any) -> str:
    size = as_float(factor)
    return say("step.missing") if size == float("inf") else say("step.times", factor=format_number(size, 3))


def _losses(losses: Sequence[dict[str, Any]], title: str) -> Table:
    columns = table_columns(
        "step.step:number word.reference:number word.candidate:number step.alone:number step.limit:number"
    )
    keys = ("reference", "candidate", "alone")
    rows = [
        Row((str(one["step"]), *(_number(one[key], 7) for key in keys), _number(one["limit"], 2))) for one in losses
    ]
    return Table(title, columns, tuple(rows))


def _layers(layers: Sequence[dict[str, Any]]) -> Table:
    columns = table_columns("word.reference:path word.candidate:path step.forth:number step.back:number")
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
    columns = table_columns(
        "word.candidate:path step.by_gradients:number step.by_optimizer:number step.by_both:number "
        "step.reference_at_zero:number step.candidate_at_zero:number"
    )
    listed = parameters if show_all and len(parameters) > 1 else ()
    rows = [_parted(say("step.all_parameters"), parameters), *(_parted(one["candidate"], [one]) for one in listed)]
    return Table(say("step.parted"), columns, tuple(rows), say("step.parted_note"))


def _parted(name: str, parameters: Sequence[dict[str, Any]]) -> Row:
    still = [[parameter["at_rate_zero"][side] for parameter in parameters] for side in range(2)]
    sizes = [[parameter[key] for parameter in parameters] for key in ("by_gradients", "by_optimizer", "whole")]
    update = _together([parameter["update"] for parameter in parameters])
    shares = (_together(values) for values in (*sizes, *still))
    return Row((name, *(NONE if share is None or not update else format_number(share / update, 2) for share in shares)))


def _together(sizes: Sequence[Any]) -> float | None:
    """The size of all as one vector; None where one is not known."""
    return None if None in sizes else sum(as_float(one) ** 2 for one in sizes) ** 0.5


def _free(steps: Sequence[dict[str, Any]]) -> Table:
    columns = table_columns(
        "step.step:number step.own_loss:number step.apart:number step.rounding:number step.single:number"
    )
    keys = ("apart", "noise", "single_steps")
    rows = [
        Row((str(one["step"]), _number(one["candidate"], 7), *(_number(one.get(key), 2) for key in keys)))
        for one in steps
    ]
    return Table(say("step.free"), columns, tuple(rows), say("step.free_note"))


def _moments(moments: Sequence[dict[str, Any]]) -> Table:
    columns = table_columns("word.candidate:path step.moments_of step.outcome step.scale:number step.of_limit:number")
    rows = []
    for name, group in fold_rows(moments, lambda one: (one["candidate"], _likeness(one))):
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


# The parameters of compared training steps: gradients, updates, outcome; the worst first, those that agree apart.

SIDES = ("reference", "candidate")
ORDER = ("not aligned", "could not tell", "aligned")
TONES: dict[str, Tone] = {"aligned": "plain", "not aligned": "bad", "could not tell": "quiet"}


@dataclass(frozen=True, slots=True)
class StepParameter:
    """A paired parameter of a `mindalign.step` document: its gradient and, where both optimizers moved it, its update.

    Sizes are L2 norms, of an update the root mean square over the steps; NaN where there is none, infinite where a
    gradient is not finite. `gathered`, `alone`
    and `update_factor` are multiples of the limit: of the whole step's gradient, of the layer alone, of the update.
    `differs` and `may_differ` are relative to the reference's gradient.
    """

    reference: str
    candidate: str
    module: str
    outcome: str
    gradients: tuple[float, float]
    differs: float
    may_differ: float
    gathered: float
    alone: float
    norm: float
    updates: tuple[float, float]
    update_factor: float

    @property
    def wrong(self) -> bool:
        """Tell whether the gradient of the layer alone or the update is outside its limit."""
        return self.outcome == "not aligned" or self.update_factor > 1.0

    @property
    def agrees(self) -> bool:
        """Tell whether nothing of it is outside its limit, nor what gathers in it."""
        return self.outcome == "aligned" and not self.wrong and not self.gathered > 1.0


def step_parameters(document: dict[str, Any]) -> list[StepParameter]:
    """All of a document, in its order."""
    updates = {(one["reference"], one["candidate"]): one for one in document.get("updates", [])}
    return [_parameter(one, updates.get((one["reference"], one["candidate"]))) for one in document["gradients"]]


def parameter_tables(document: dict[str, Any], *, show_all: bool) -> list[Block]:
    """Show those that are outside their limits by themselves, the worst first; `show_all` shows all of them."""
    parameters = sorted(step_parameters(document), key=_worst_first)
    if not show_all:
        wrong = [parameter for parameter in parameters if parameter.outcome == "not aligned"]
        left = say("step.more", count=len(wrong) - SHORT_TABLE_ROWS) if len(wrong) > SHORT_TABLE_ROWS else ""
        return [_parameter_table(say("step.gradients"), wrong[:SHORT_TABLE_ROWS], left)] if wrong else []
    listed = [parameter for parameter in parameters if not parameter.agrees]
    agreeing = [parameter for parameter in parameters if parameter.agrees]
    blocks: list[Block] = [_parameter_table(say("step.gradients"), listed)] if listed else []
    if agreeing:
        title = say("step.agreeing_one" if len(agreeing) == 1 else "step.agreeing", count=len(agreeing))
        blocks.append(_parameter_table(title, agreeing, folded=True))
    return blocks


def _parameter(gradient: dict[str, Any], update: dict[str, Any] | None) -> StepParameter:
    measured, limit = gradient["measurement"] or {}, gradient["limit"] or {}
    scale = as_float(measured.get("reference_rms"))
    moved = [_mean_size(update[f"{side}_update"]) if update else nan for side in SIDES]
    return StepParameter(
        gradient["reference"],
        gradient["candidate"],
        gradient["module"],
        gradient["outcome"],
        (_size(gradient.get("reference_norm")), _size(gradient.get("candidate_norm"))),
        as_float(measured.get("relative_l2")),
        as_float(limit["rmse"]) / scale if limit and scale > 0.0 else nan,
        as_float(gradient["factor"]),
        as_float(gradient["alone"]),
        as_float(update["norm"]) if update else nan,
        (moved[0], moved[1]),
        as_float(update["factor"]) if update else nan,
    )


def _size(value: float | str | None) -> float:
    """A norm that is no number is infinite, as one of infinities is; NaN stands for none."""
    found = as_float(value)
    return inf if value is not None and isnan(found) else found


def _mean_size(sizes: Sequence[float | str]) -> float:
    """The root mean square over the steps."""
    return float((sum(as_float(one) ** 2 for one in sizes) / len(sizes)) ** 0.5) if sizes else nan


def _worst_first(one: StepParameter) -> tuple[int, float]:
    worst = max((value for value in (one.alone, one.gathered, one.update_factor) if value == value), default=0.0)
    return ORDER.index(one.outcome), -worst


def _parameter_table(title: str, parameters: Sequence[StepParameter], note: str = "", *, folded: bool = False) -> Table:
    columns = table_columns(
        "word.reference:path word.candidate:path step.outcome step.norms:number:wide step.limit_share:number:wide "
        "step.gathered:number step.by_itself:number step.updates:number:wide step.update:number"
    )
    groups = fold_rows(parameters, lambda one: (one.reference, (one.outcome, one.agrees, one.wrong)))
    notes = [note, say("step.largest") if len(groups) < len(parameters) else ""]
    rows = tuple(_parameter_row(name, group) for name, group in groups)
    return Table(title, columns, rows, " ".join(filter(None, notes)), folded=folded)


def _parameter_row(name: str, group: Sequence[StepParameter]) -> Row:
    outcome = group[0].outcome
    cells = (
        name + (f" ({len(group)})" if len(group) > 1 else ""),
        fold_alike((parameter.candidate, None) for parameter in group)[0][0],
        word("step_outcome", outcome),
        _both(parameter.gradients for parameter in group),
        _largest(parameter.may_differ for parameter in group),
        _largest(parameter.gathered for parameter in group),
        _largest(parameter.alone for parameter in group),
        _both(parameter.updates for parameter in group),
        _largest(parameter.update_factor for parameter in group),
    )
    return Row(cells, "bad" if group[0].wrong else TONES[outcome])


def _both(sizes: Iterable[tuple[float, float]]) -> str:
    return " | ".join(_largest(own, say("plot.non_finite")) for own in zip(*sizes, strict=True))


def _largest(values: Iterable[float], infinite: str = "") -> str:
    known = [one for one in values if one == one]
    if not known:
        return NONE
    largest = max(known)
    return format_number(largest) if largest < inf else infinite or say("step.missing")


# Training steps of one side that were captured, shown: what is in the folder, and what comes next.


def steps_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:  # noqa: ARG001 - one form for all
    """Show a `mindalign.steps` document."""
    losses = (NONE if one is None else format_number(as_float(one), 7) for one in document["losses"])
    counts = {key: format_number(document[key]) for key in ("calls", "gradients", "values")}
    facts = (
        (say("trace.folder"), document["folder"]),
        (say("trace.model"), f"{document['side']} ({document['framework']})"),
        (say("steps.losses"), ", ".join(losses)),
        (say("trace.tensors"), say("steps.held", **counts, size=format_bytes(document["nbytes"]))),
        (say("steps.next"), f"align step {document['folder']} CANDIDATE"),
    )
    return [Facts(say("steps.title"), facts), *findings_blocks(document["findings"])]


# What training moved on two sides, shown: the updates that differ, furthest off first, and how.

ALIKE = ("same", "neither moved", "without influence")

Tensor = dict[str, Any]


def updates_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.updates` document; `show_all` lists updates that are alike too, and folds nothing."""
    shown = [one for one in document["tensors"] if show_all or one["outcome"] not in ALIKE]
    blocks: list[Block] = [_sides(document)]
    if shown:
        blocks.append(_update_table(shown, show_all=show_all))
    unpaired = ((say("updates.missing"), document["missing"]), (say("updates.extra"), document["extra"]))
    blocks += [Lines(title, tuple(fold_names(names)), "bad") for title, names in unpaired if names]
    if document["dropped"]:
        lines = (f"{name}: {reason}" for name, reason in document["dropped"].items())
        folded = tuple(name for name, _ in fold_alike((line, None) for line in lines))
        blocks.append(Lines(say("updates.dropped"), folded))
    if document["warnings"]:
        blocks.append(Lines(say("updates.warnings"), tuple(document["warnings"]), "open"))
    return [*blocks, verdict_block(document["verdict"])]


def _sides(document: dict[str, Any]) -> Facts:
    facts = [(word("word", side), " -> ".join(document[side])) for side in ("reference", "candidate")]
    outcomes = [one["outcome"] for one in document["tensors"]]
    counts = {outcome: outcomes.count(outcome) for outcome in outcomes}
    facts += [(word("update_outcome", outcome), format_number(count)) for outcome, count in counts.items()]
    if document["factor"] is not None:
        facts.append((say("updates.common_factor"), format_number(document["factor"], 4)))
    tone: Tone = "good" if document["verdict"]["outcome"] == "aligned" else "bad"
    return Facts(say("updates.title"), tuple(facts), tone)


def _update_table(tensors: Sequence[Tensor], *, show_all: bool) -> Table:
    columns = table_columns(
        "updates.tensor:path updates.outcome updates.reference_moved:number updates.candidate_moved:number "
        "updates.relative:number updates.limit:number:wide updates.factor:number updates.decay:number"
    )
    alike = fold_rows(tensors, lambda one: (renamed(one), (one["outcome"], one["note"])))
    groups = [(renamed(one), [one]) for one in tensors] if show_all else alike
    shown = groups if show_all else groups[:TABLE_ROWS]
    hidden = [say("updates.more_rows", count=len(groups) - len(shown))] if len(groups) > len(shown) else []
    rows = tuple(_update_row(name, group) for name, group in shown)
    return Table(say("updates.differences"), columns, rows, " ".join([say("updates.note"), *hidden]))


def _update_row(name: str, group: Sequence[Tensor]) -> Row:
    first = group[0]
    single = first["outcome"] == "one factor apart"
    cells = (
        name if len(group) == 1 else say("updates.several", name=name, count=len(group)),
        first["note"] or word("update_outcome", first["outcome"]),
        _worst(group, "reference_moved"),
        _worst(group, "candidate_moved"),
        _worst(group, "relative"),
        _worst(group, "limit", min),
        format_number(first["factor"], 4) if single else "",
        "" if first["decay"] is None else format_number(first["decay"]),
    )
    return Row(cells, "quiet" if first["outcome"] in ALIKE else "bad")


def _worst(group: Sequence[Tensor], figure: str, choose: Callable[[list[float]], float] = max) -> str:
    known = [as_float(one[figure]) for one in group if one[figure] is not None]
    return format_number(choose(known)) if known else ""


# What one training step did to each parameter, shown: those that it does not train, and why.

FINE = ("trained", "frozen", "without influence")


def params_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.params` document; `show_all` lists parameters that are trained, and buffers, too."""
    blocks: list[Block] = [_asked(document["asked"])] if document["asked"] else []
    for side in document["sides"]:
        blocks += _side(side, show_all=show_all)
    if document["unlike"]:
        blocks.append(_unlike(document["unlike"]))
    return [*blocks, *findings_blocks(document["findings"]), verdict_block(document["verdict"])]


def _side(side: dict[str, Any], *, show_all: bool) -> list[Block]:
    rows = [parameter for parameter in side["parameters"] if show_all or parameter["state"] not in FINE]
    counts = {state: sum(parameter["state"] == state for parameter in side["parameters"]) for state in FINE}
    moved = sum(buffer["moved"] > 0.0 for buffer in side["buffers"])
    facts = (
        (say("params.loss"), say("params.unknown") if side["loss"] is None else format_number(side["loss"], 6)),
        (say("params.trained"), say("params.of", part=counts["trained"], whole=len(side["parameters"]))),
        (say("params.frozen"), format_number(counts["frozen"])),
        *([(say("params.idle"), format_number(counts["without influence"]))] if counts["without influence"] else []),
        (say("params.buffers"), say("params.of", part=moved, whole=len(side["buffers"]))),
    )
    wrong = any(parameter["state"] not in FINE for parameter in side["parameters"])
    blocks: list[Block] = [Facts(side["label"], facts, "bad" if wrong else "good")]
    if rows:
        blocks.append(_trained_table(say("params.title", side=side["label"]), rows, show_all=show_all))
    if show_all and side["buffers"]:
        columns = table_columns("params.buffer:path params.moved:number")
        buffers = tuple(Row((buffer["name"], format_number(buffer["moved"]))) for buffer in side["buffers"])
        blocks.append(Table(say("params.buffers_of", side=side["label"]), columns, buffers))
    return blocks


def _trained_table(title: str, rows: Sequence[dict[str, Any]], *, show_all: bool) -> Table:
    """One row a parameter, or a row for those of repeated blocks that are alike."""
    columns = table_columns(
        "params.parameter:path params.state params.gradient:number params.moved:number params.reason:words"
    )
    if show_all:
        groups = [(one["name"], [one]) for one in rows]
    else:
        groups = fold_rows(rows, lambda one: (one["name"], (one["state"], one["reason"])))
    return Table(title, columns, tuple(_trained_row(name, group) for name, group in groups))


def _trained_row(name: str, group: Sequence[dict[str, Any]]) -> Row:
    first = group[0]
    gradients = [one["gradient"] for one in group]
    largest = say("params.none") if None in gradients else format_number(max(gradients))
    moved = format_number(max(one["moved"] for one in group))
    tone: Tone = "plain" if first["state"] == "trained" else "quiet" if first["state"] in FINE else "bad"
    label = name if len(group) == 1 else say("params.several", name=name, count=len(group))
    return Row((label, word("parameter_state", first["state"]), largest, moved, first["reason"]), tone)


def _unlike(pairs: Sequence[dict[str, Any]]) -> Table:
    columns = table_columns("word.reference:path params.state word.candidate:path params.state params.reason:words")
    keys = ("reference_state", "candidate_state", "reason")
    rows = []
    for name, group in fold_rows(pairs, lambda one: (one["reference"], tuple(one[key] for key in keys))):
        first = group[0]
        other = fold_alike((one["candidate"], None) for one in group)[0][0]
        states = [word("parameter_state", first[key]) for key in keys[:2]]
        rows.append(Row((name, states[0], other, states[1], first["reason"]), "bad"))
    return Table(say("params.unlike"), columns, tuple(rows))


def _asked(rows: Sequence[dict[str, Any]]) -> Table:
    """The parameters of the numbers that torch's DistributedDataParallel reports."""
    columns = table_columns("params.number:number params.parameter:path params.state params.reason:words")
    cells = ((str(one["ddp_index"]), one["name"], word("parameter_state", one["state"]), one["reason"]) for one in rows)
    return Table(say("params.asked"), columns, tuple(Row(one) for one in cells))
