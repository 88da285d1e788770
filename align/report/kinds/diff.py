"""Two checkpoints compared, shown: the worst tensor with all its figures, then what differs, folded, worst first.

Relative figures stand beside the largest difference, and their multiple of the dtype's epsilon beside them: about 1
is rounding, whatever the scale of the tensor.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from align.core.dtypes import EPSILON
from align.names.fold_names import fold_alike, fold_names
from align.report.rendering.blocks import Block, Column, Facts, Lines, Row, Table, verdict_block
from align.report.rendering.format_values import LOWEST_DECADE, as_float, format_number, format_percentage, format_shape
from align.report.thresholds import LIST_LINES, TABLE_ROWS
from align.words.catalogue import say, word

if TYPE_CHECKING:
    from collections.abc import Iterable

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
        _listed("diff.unlike", map(_unlike, unlike), show_all=show_all, tone="bad"),
        _names("diff.missing", document["missing"], show_all=show_all, tone="bad"),
        _names("diff.extra", document["extra"], show_all=show_all, tone="bad"),
        _listed("diff.dropped", _dropped(document["dropped"], show_all=show_all), show_all=show_all),
        _names("diff.equal_in_value", same_value, show_all=show_all),
        None if unchanged is None else _unchanged(unchanged, len(tensors), show_all=show_all),
        _listed("diff.warnings", document["warnings"], show_all=True, tone="open"),
        verdict_block(document["verdict"]),
    ]
    return [block for block in blocks if block is not None]


def _sides(document: dict[str, Any]) -> Facts:
    outcomes = [one["outcome"] for one in document["tensors"]]
    facts = [
        (word("word", side), f"{document[side]} ({document[f'{side}_format']})") for side in ("reference", "candidate")
    ]
    identical = sum(one["identical"] for one in document["tensors"])
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
    mismatched = format_percentage(figures["mismatched"], figures["count"])
    facts = [
        (say("diff.tensor"), f"{_name(tensor)}  {format_shape(tensor['candidate_shape'])} {_dtypes(tensor)}"),
        (say("forward.max_abs_long"), format_number(figures["max_abs"]) + place),
        (say("forward.max_rel"), format_number(figures["max_rel"])),
        (say("diff.means"), f"{format_number(figures['mean_abs'])}, {format_number(figures['rmse'])}"),
        (say("forward.relative_l2_long"), format_number(figures["relative_l2"])),
        (say("forward.cosine"), format_number(figures["cosine"], 9)),
        (
            say("diff.moved"),
            say(
                "forward.mismatched_share",
                part=format_number(figures["mismatched"]),
                whole=format_number(figures["count"]),
                share=mismatched,
            ),
        ),
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
    alike = fold_alike((_name(one), (_dtypes(one), one["measurement"]["non_finite_mismatch"] > 0)) for one in tensors)
    folded = [(_name(one), [place]) for place, one in enumerate(tensors)] if show_all else alike
    shown = folded if show_all else folded[:TABLE_ROWS]
    columns = (
        Column(say("diff.tensor"), "path"),
        Column(say("diff.count"), "number"),
        Column(say("word.dtype")),
        Column(say("forward.max_abs"), "number"),
        Column(say("diff.max_rel"), "number"),
        Column(say("forward.relative_l2"), "number"),
        Column(say("diff.epsilons"), "number"),
        Column(say("diff.moved"), "number"),
        Column(say("diff.non_finite"), "number"),
    )
    rows = tuple(_row(name, [tensors[place] for place in places]) for name, places in shown)
    hidden = len(folded) - len(shown)
    notes = [say("diff.note"), *([say("diff.more_rows", count=format_number(hidden))] if hidden else [])]
    return Table(say("diff.differences"), columns, rows, " ".join(notes))


def _row(name: str, own: list[Tensor]) -> Row:
    measured = [one["measurement"] for one in own]
    worst = {
        figure: max((as_float(m[figure]) for m in measured if m[figure] is not None), default=None)
        for figure in FIGURES
    }
    epsilon = _epsilon(own[0])
    multiple = None if epsilon is None or worst["relative_l2"] is None else worst["relative_l2"] / epsilon
    non_finite = sum(m["non_finite_mismatch"] for m in measured)
    cells = (
        name,
        format_number(len(own)) if len(own) > 1 else "",
        _dtypes(own[0]),
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


def _name(tensor: Tensor) -> str:
    ours, theirs = tensor["reference"], tensor["candidate"]
    return str(ours) if ours == theirs else f"{ours} -> {theirs}"


def _dtypes(tensor: Tensor) -> str:
    ours, theirs = tensor["reference_dtype"], tensor["candidate_dtype"]
    return str(ours) if ours == theirs else f"{ours} | {theirs}"


def _unlike(tensor: Tensor) -> str:
    if tensor["outcome"] == "dtypes differ":
        return say(
            "diff.dtypes_line",
            name=_name(tensor),
            reference=tensor["reference_dtype"],
            candidate=tensor["candidate_dtype"],
        )
    line = say(
        "diff.shapes_line",
        name=_name(tensor),
        reference=format_shape(tensor["reference_shape"]),
        candidate=format_shape(tensor["candidate_shape"]),
    )
    return f"{line}: {tensor['note']}" if tensor["note"] else line


def _unchanged(names: list[str], paired: int, *, show_all: bool) -> Lines:
    listed = names if show_all else fold_names(names)  # folded, but never cut: this list is what was asked for
    moved = say("diff.unchanged_count", unchanged=format_number(len(names)), moved=format_number(paired - len(names)))
    return Lines(say("diff.unchanged"), (moved, *listed))


def _dropped(dropped: dict[str, str], *, show_all: bool) -> Iterable[str]:
    """Names of one reason share a line."""
    reasons: dict[str, list[str]] = {}
    for name, reason in dropped.items():
        reasons.setdefault(reason, []).append(name)
    return (f"{', '.join(own if show_all else fold_names(own))}: {why}" for why, own in reasons.items())


def _names(title: str, names: Iterable[str], *, show_all: bool, tone: Any = "plain") -> Lines | None:
    listed = list(names)
    return _listed(title, listed if show_all else fold_names(listed), show_all=show_all, tone=tone)


def _listed(title: str, lines: Iterable[str], *, show_all: bool, tone: Any = "plain") -> Lines | None:
    listed = tuple(lines)
    if not listed:
        return None
    shown = listed if show_all else listed[:LIST_LINES]
    hidden = len(listed) - len(shown)
    more = (say("diff.more_lines", count=format_number(hidden)),) if hidden else ()
    return Lines(say(title), (*shown, *more), tone)
