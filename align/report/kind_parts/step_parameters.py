"""The parameters of compared training steps: gradients, updates, outcome; the worst first, those that agree apart."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isnan, nan
from typing import TYPE_CHECKING, Any

from align.names.fold_names import fold_alike
from align.report.rendering.blocks import Block, Column, Row, Table, Tone
from align.report.rendering.format_values import NONE, as_float, format_number
from align.report.thresholds import SHORT_TABLE_ROWS
from align.words.catalogue import say, word

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
        wrong = [one for one in parameters if one.outcome == "not aligned"]
        left = say("step.more", count=len(wrong) - SHORT_TABLE_ROWS) if len(wrong) > SHORT_TABLE_ROWS else ""
        return [_table(say("step.gradients"), wrong[:SHORT_TABLE_ROWS], left)] if wrong else []
    listed = [one for one in parameters if not one.agrees]
    agreeing = [one for one in parameters if one.agrees]
    blocks: list[Block] = [_table(say("step.gradients"), listed)] if listed else []
    if agreeing:
        title = say("step.agreeing_one" if len(agreeing) == 1 else "step.agreeing", count=len(agreeing))
        blocks.append(_table(title, agreeing, folded=True))
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


def _table(title: str, parameters: Sequence[StepParameter], note: str = "", *, folded: bool = False) -> Table:
    columns = (
        Column(say("word.reference"), "path"),
        Column(say("word.candidate"), "path"),
        Column(say("step.outcome")),
        Column(say("step.norms"), "number", wide=True),
        Column(say("step.limit_share"), "number", wide=True),
        Column(say("step.gathered"), "number"),
        Column(say("step.by_itself"), "number"),
        Column(say("step.updates"), "number", wide=True),
        Column(say("step.update"), "number"),
    )
    alike = fold_alike((one.reference, (one.outcome, one.agrees, one.wrong)) for one in parameters)
    groups = [(name, [parameters[place] for place in places]) for name, places in alike]
    notes = [note, say("step.largest") if len(groups) < len(parameters) else ""]
    rows = tuple(_row(name, group) for name, group in groups)
    return Table(title, columns, rows, " ".join(filter(None, notes)), folded=folded)


def _row(name: str, group: Sequence[StepParameter]) -> Row:
    outcome = group[0].outcome
    cells = (
        name + (f" ({len(group)})" if len(group) > 1 else ""),
        fold_alike((one.candidate, None) for one in group)[0][0],
        word("step_outcome", outcome),
        _both(one.gradients for one in group),
        _largest(one.may_differ for one in group),
        _largest(one.gathered for one in group),
        _largest(one.alone for one in group),
        _both(one.updates for one in group),
        _largest(one.update_factor for one in group),
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
