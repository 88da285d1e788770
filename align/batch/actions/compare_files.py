"""Two checkpoints, or two dumps or traces, compared as one task."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from align.batch.actions.fingerprints import array_print, stored_print
from align.checkpoints.extents import require_unchanged
from align.checkpoints.open_checkpoint import open_checkpoint
from align.convert.diff_checkpoints import diff_checkpoints

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from align.convert.diff_result import TensorDifference
    from align.core.traces import DumpedTensor
    from align.core.verdicts import Verdict
    from align.forward.forward_result import LayerComparison
    from align.traces.dumped_side import DumpedSide

Prints = list[list[str | None]]


def compare_checkpoints(paths: list[Path], options: Mapping[str, Any]) -> dict[str, Any]:
    """What `align diff` finds in two checkpoints, with fingerprints of all tensors of both."""
    strip, keys = options.get("strip", ()), (options.get("key_a"), options.get("key_b"))
    opened = [open_checkpoint(path, key) for path, key in zip(paths, keys, strict=True)]
    found = diff_checkpoints(
        *paths, name_map=options.get("map"), strip=strip, reference_key=keys[0], candidate_key=keys[1]
    )
    rows = [[one.reference, _outcome(one), _relative(one)] for one in found.tensors]
    rows += [[name, "not aligned", None] for name in (*found.missing, *found.extra)]
    mine, theirs = (
        {_stripped(name, strip): stored_print(tensor) for name, tensor in one.tensors.items()} for one in opened
    )
    for one in opened:
        require_unchanged(one)
    pairs = {one.candidate: one.reference for one in found.tensors}
    return _figures(found.verdict, rows, _joined_prints(mine, theirs, pairs))


def compare_dumped(paths: list[Path], options: Mapping[str, Any]) -> dict[str, Any]:
    """What `align forward` finds in two dumps or trace folders, with fingerprints of the parameters of both."""
    from align.forward.allowances import NO_ALLOWANCES, Allowances, read_limits
    from align.forward.compare_trace_folders import compare_trace_folders
    from align.traces.dumped_side import open_dumped_side
    from align.traces.pair_traces import choose_map

    limits = read_limits(options.get("limit", ()))
    found = compare_trace_folders(
        *paths,
        name_map=options.get("map"),
        partial=bool(options.get("partial", False)),
        allowances=Allowances(limits=limits) if limits else NO_ALLOWANCES,
    )
    rows = [[_layer_name(one), one.outcome, one.factor] for one in found.layers]
    sides = open_dumped_side(paths[0]), open_dumped_side(paths[1])
    mine, theirs = (dict(_parameter_prints(side)) for side in sides)
    unlike = mine and theirs and mine.keys() != theirs.keys()
    paired = choose_map(options.get("map"), (sides[0].parameters, sides[1].parameters)).pairings if unlike else ()
    return _figures(found.verdict, rows, _joined_prints(mine, theirs, {one.target: one.source for one in paired}))


def _figures(verdict: Verdict, rows: Iterable[list[Any]], prints: Prints) -> dict[str, Any]:
    """Figures that JSON can hold: an infinite value is None beside the outcome."""
    return {
        "outcome": verdict.outcome.value,
        "reason": str(verdict.reason),
        "compared": verdict.coverage.compared,
        "rows": [[name, outcome, _finite(value)] for name, outcome, value in rows],
        "prints": prints,
    }


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def _outcome(one: TensorDifference) -> str:
    return "aligned" if one.outcome == "equal" else "not aligned"


def _relative(one: TensorDifference) -> float | None:
    return None if one.measurement is None else one.measurement.relative_l2


def _layer_name(one: LayerComparison) -> str:
    return one.key if one.part == "output" else f"{one.key} ({one.part})"


def _stripped(name: str, prefixes: Iterable[str]) -> str:
    return next((name.removeprefix(prefix) for prefix in prefixes if name.startswith(prefix)), name)


def _parameter_prints(side: DumpedSide) -> Iterator[tuple[str, str]]:
    held: dict[str, DumpedTensor] = side.of_parameters("parameter")
    for name, one in held.items():
        if one.load is not None:
            yield name, array_print(one.load())


def _joined_prints(mine: dict[str, str], theirs: dict[str, str], pairs: Mapping[str, str]) -> Prints:
    """The fingerprints of both sides under the reference's names."""
    named = {pairs.get(name, name): value for name, value in theirs.items()}
    return [[name, mine.get(name), named.get(name)] for name in dict.fromkeys((*mine, *named))]
