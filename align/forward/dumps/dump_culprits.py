"""Which layers are at fault by what was dumped of them: right inputs and parameters, and a wrong output.

Where a dump holds what a layer was given, no run is needed to tell a fault from one that is carried on. Of calls inside
one another the innermost is at fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.forward.forward_result import Culprit
from align.forward.relations.layer_relations import explain_layer
from align.rules.layer_rules import role_of, rule_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.forward.forward_result import LayerComparison
    from align.forward.relations.relation import Relation
    from align.traces.dumped_side import DumpedSide

_Key = tuple[str, int]


def find_dump_culprits(rows: Sequence[LayerComparison], sides: tuple[DumpedSide, DumpedSide]) -> tuple[Culprit, ...]:
    """The layers whose output is off although all that they were given is right, in the order in which they ended."""
    by_call: dict[_Key, list[LayerComparison]] = {}
    for row in rows:
        if row.part in ("output", "input", "parameter"):
            by_call.setdefault((row.candidate, row.call if row.part != "parameter" else 0), []).append(row)
    found: list[Culprit] = []
    for (module, call), own in by_call.items():
        wrong = [row for row in own if row.part == "output" and row.outcome == "not aligned" and row.certain]
        given = [row for row in own if row.part == "input"]
        held = [row for row in by_call.get((module, 0), ()) if row.part == "parameter"]
        right = bool(given) and all(row.outcome == "aligned" for row in (*given, *held))
        if wrong and right and not any(_is_inside(one, module) for one in found):
            found.append(_culprit(wrong[0], sides, call))
    return tuple(found)


def _is_inside(one: Culprit, module: str) -> bool:
    return not module or one.candidate.startswith((f"{module}.", f"{module}/"))


def _culprit(row: LayerComparison, sides: tuple[DumpedSide, DumpedSide], call: int) -> Culprit:
    cause = next(iter(_causes(row, sides, call)), None)
    return Culprit(
        reference=row.reference,
        candidate=row.candidate,
        reference_class=row.reference_class,
        candidate_class=row.candidate_class,
        call=row.call,
        part="layer",
        factor=row.factor or 0.0,
        cause=cause.id if cause else "",
        sureness="suspected" if cause else "unknown",
        facts=dict(cause.facts) if cause else {},
        line=sides[1].dump.places.get((row.candidate, row.call), ""),
    )


def _causes(row: LayerComparison, sides: tuple[DumpedSide, DumpedSide], call: int) -> Iterator[Relation]:
    """The relations between what was given and returned that would explain the difference."""
    kind = _kind(sides[1], row.candidate)
    outputs = [
        _outputs(side, path, call).get(row.output)
        for side, path in zip(sides, (row.reference, row.candidate), strict=True)
    ]
    if row.limit is None or outputs[0] is None or outputs[1] is None or outputs[0].shape != outputs[1].shape:
        return
    given = _given(sides[0], row.reference, call)
    values = _parameters(sides[1], row.candidate)
    found = explain_layer(kind, given, values, outputs[0], outputs[1], row.limit)
    yield from (one for one in found if one.explains)


def _kind(side: DumpedSide, path: str) -> str:
    classes = next((one.classes for one in side.parameters.modules if one.path == path), ())
    known = rule_for(classes)
    return known[0].kind if known else ""


def _outputs(side: DumpedSide, path: str, call: int) -> Mapping[str, Array]:
    own = (one for one in side.by_part.get("output", ()) if (one.module, one.call) == (path, call))
    return {one.item: one.load() for one in own if one.load is not None}


def _given(side: DumpedSide, path: str, call: int) -> dict[str, Array]:
    own = (one for one in side.by_part.get("input", ()) if (one.module, one.call) == (path, call))
    return {one.item: one.load() for one in own if one.load is not None}


def _parameters(side: DumpedSide, path: str) -> dict[str, Array]:
    """Parameters of a layer by their roles."""
    classes = next((one.classes for one in side.parameters.modules if one.path == path), ())
    own = (one for one in side.by_part.get("parameter", ()) if one.module == path and one.load is not None)
    return {role_of(classes, one.item) or one.item: one.load() for one in own if one.load is not None}
