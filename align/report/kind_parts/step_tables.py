"""Tables of training steps beside those of a single step: both sides left to themselves, and optimizers' moments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.names.fold_names import fold_alike
from align.report.rendering.blocks import Column, Row, Table, Tone
from align.report.rendering.format_values import NONE, as_float, format_number
from align.words.catalogue import say, word

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TONES: dict[str, Tone] = {"aligned": "plain", "not aligned": "bad", "could not tell": "quiet"}


def run_tables(document: dict[str, Any], *, show_all: bool) -> Iterator[Table]:
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
