"""Pairs and parameters of a name map as tables; those that differ only in their numbers share a row.

Few rows are drawn however large the model is: a table of 50,000 can be neither read nor drawn in a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.names.number_ranges import fold_ranges
from align.report.rendering.blocks import Column, Row, Table
from align.report.rendering.format_values import NONE, format_number
from align.words.catalogue import say, word

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_RUNS = 40
LEAST_SURE = 12


def pair_table(
    pairings: Sequence[dict[str, Any]], parameters: Sequence[dict[str, Any]], *, show_all: bool
) -> list[Table]:
    """Return one table of the pairs; of many unlike ones the least sure, or with `show_all` every one."""
    facts = {parameter["name"]: _facts(parameter) for parameter in parameters}
    rows = [((p["source"], p["target"]), _likeness(p, *facts.get(p["source"], ("", "")))) for p in pairings]
    runs = [(texts, [pairings[place] for place in places], rows[places[0]][1]) for texts, places in fold_ranges(rows)]
    shown = runs if show_all or len(runs) <= MOST_RUNS else sorted(runs, key=lambda run: _lowest(run[1]))[:LEAST_SURE]
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
    note = say("map.more_pairs", count=format_number(hidden)) if hidden else ""
    title = say("map.some_pairs" if hidden else "map.all_pairs")
    return [Table(title, columns, tuple(_pair_row(*run) for run in shown), note)]


def parameter_tables(document: dict[str, Any]) -> list[Table]:
    """Return a table of each side's parameters: name, how many, shape and what they hold."""
    columns = (
        Column(say("map.parameter")),
        Column(say("map.tensors"), "number"),
        Column(say("map.shape")),
        Column(say("map.holds"), "path"),
    )
    tables = []
    for side in ("source", "target"):
        parameters = document.get(f"{side}_parameters", ())
        runs = fold_ranges([((parameter["name"],), _facts(parameter)) for parameter in parameters])
        rows = tuple(Row((text, _count(places), *_facts(parameters[places[0]]))) for (text,), places in runs)
        tables.append(Table(say("map.parameters_of", label=document[side]["label"]), columns, rows))
    return tables


def transform_text(transform: dict[str, Any]) -> str:
    """Show a transform's table form in a few words, "-" where the bytes stay the same."""
    if transform["op"] == "identity":
        return NONE
    if transform["op"] == "chain":
        return ", then ".join(map(transform_text, transform["steps"]))
    if transform["op"] in ("slice", "part"):
        axis = f" of axis {transform['axis']}" if transform["axis"] else ""
        return f"{transform['op']} {transform['start']}:{transform['stop']}{axis}"
    details = ", ".join(f"{value}" for key, value in transform.items() if key not in ("op", "from"))
    return f"{transform['op']} {details}"


def _facts(parameter: dict[str, Any]) -> tuple[str, str]:
    """Shape, and dtype with what is special: a buffer, frozen, tied."""
    special = [say("map.buffer")] if parameter["buffer"] else []
    special += [say("map.frozen")] if parameter["trainable"] is False and not parameter["buffer"] else []
    special += [say("map.tied", name=parameter["tied_to"])] if parameter["tied_to"] else []
    return str(parameter["shape"]), ", ".join([parameter["dtype"], *special])


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
