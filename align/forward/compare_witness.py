"""A third side beside reference and candidate: at each layer, which of the three deviates from the other two.

All three differences of a layer are held against one limit, that of the layer between reference and candidate, which
comes from the reference's noise. Two sides that agree are right by majority. Where no two do, the third deviates if two
are far nearer to each other than either is to it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from align.core.measurements import smallest_factor
from align.core.verdicts import Finding
from align.forward.forward_result import WitnessComparison, WitnessedLayer
from align.forward.layers.compare_traces import compare_traces, paired_outputs
from align.forward.running.run_both_models import trace_run
from align.forward.thresholds import NEARER_THAN_WITNESS
from align.measure.measure_arrays import measure
from align.measure.tensor_layouts import find_permuted_layout
from align.models.fit_inputs import run_fitted
from align.names.follow_origin import followed_side
from align.traces.pair_traces import choose_map, map_in_order, pair_traces
from align.traces.trace_folder import TraceFolder
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from align.core.dtypes import Array
    from align.core.measurements import Limit
    from align.core.traces import Capture, Trace
    from align.forward.forward_result import Deviates, ForwardComparison, LayerComparison
    from align.forward.running.run_both_models import BothRuns
    from align.models.open_side import Side
    from align.traces.module_calls import CallPairs

_NOBODY = ("none", "unclear")


def compare_witness(
    sides: tuple[Side, Side], witness: Side, run: BothRuns, calls: CallPairs, layers: Sequence[LayerComparison]
) -> WitnessComparison:
    """Run the witness on the reference's inputs and hold its layers against those of both sides.

    `calls` pair reference and candidate, `layers` are their rows. The trace of the witness is kept beside theirs.
    Raises ModelFailedError if the witness fails, and NothingInCommonError if no layer of it pairs with the reference's.
    """
    seen = _Three(run, _run_witness(sides[0], witness, run), calls)
    rows = [found for row in layers if (found := seen.row(row)) is not None]
    judged = sum(row.limit is not None for row in layers)
    first = next((place for place, one in enumerate(rows) if one.deviates not in _NOBODY), None)
    return WitnessComparison(witness.label, tuple(rows), first, judged - len(rows), _conclusion(rows, first))


def without_witness(result: ForwardComparison) -> ForwardComparison:
    """The result of a candidate that failed, which says that the witness was not run."""
    note = Finding("witness-not-run", "note", result.candidate, sentence("witness.not_run"))
    return replace(result, findings=(*result.findings, note))


@dataclass(frozen=True, slots=True)
class _Witnessed:
    """The trace of the witness, its rows against the reference, and its captures by the reference's keys."""

    trace: Trace
    rows: Mapping[str, LayerComparison]
    captures: Mapping[str, Capture]


def _run_witness(reference: Side, witness: Side, run: BothRuns) -> _Witnessed:
    witness = followed_side(witness, reference)
    folder: Path = run.reference.folder.with_name("witness")
    run_fitted(witness, run.inputs[0], partial(trace_run, witness, folder))
    traces = run.reference, TraceFolder(folder)
    both = (
        reference.reader.read_parameters(reference.model, reference.label),
        witness.reader.read_parameters(witness.model, witness.label),
    )
    name_map = choose_map(None, both)
    if not name_map.complete:
        name_map = map_in_order(traces, both, name_map)
    pairs = pair_traces(traces, both, name_map)
    rows = compare_traces(*traces, pairs.pairs, run.noise.accumulated, padding=run.padding)
    return _Witnessed(traces[1], {row.key: row for row in rows}, _captures(pairs))


def _captures(pairs: CallPairs) -> dict[str, Capture]:
    """What stands for each tensor of the reference, by its key."""
    both = (found for pair in pairs.pairs for found in paired_outputs(pair.reference, pair.candidate))
    return {mine.key: theirs for mine, theirs, unlike in both if not unlike or mine.module}


class _Three:
    """The three traces, and a row for each layer that all of them have."""

    def __init__(self, run: BothRuns, witness: _Witnessed, calls: CallPairs) -> None:
        self._run, self._witness = run, witness
        self._candidates = _captures(calls)
        self._references = {one.key: one for one in run.reference.captures}

    def row(self, row: LayerComparison) -> WitnessedLayer | None:
        """Who deviates at one layer; None where it was not judged, or the witness has none such."""
        other = self._witness.rows.get(row.key)
        if row.limit is None or row.factor is None or other is None or other.limit is None or other.factor is None:
            return None
        between = self._between(row.key, row.limit)
        if between is None:
            return None
        factors = row.factor, other.factor, between
        return WitnessedLayer(
            row.reference, row.candidate, other.candidate, row.call, row.output, who_deviates(*factors), *factors
        )

    def _between(self, key: str, limit: Limit) -> float | None:
        """By how much candidate and witness differ, as a multiple of the limit."""
        mine, one, other = (group.get(key) for group in (self._references, self._candidates, self._witness.captures))
        if mine is None or one is None or other is None:
            return None
        value = self._run.reference.value(mine)
        left = _laid_out(value, self._run.candidate.value(one))
        right = _laid_out(value, self._witness.trace.value(other))
        return None if left is None or right is None else smallest_factor(measure(left, right), limit)


def _laid_out(reference: Array, value: Array) -> Array | None:
    view = find_permuted_layout(reference, value)
    return None if view is None else view.to_reference(value)


def who_deviates(candidate: float, witness: float, between: float) -> Deviates:
    """Which side deviates, by the factors of reference and candidate, reference and witness, candidate and witness.

    >>> who_deviates(0.3, 40.0, 41.0), who_deviates(40.0, 0.3, 41.0), who_deviates(40.0, 41.0, 0.3)
    ('witness', 'candidate', 'reference')
    """
    factors: dict[Deviates, float] = {"witness": candidate, "candidate": witness, "reference": between}
    agree = [third for third, factor in factors.items() if factor <= 1.0]
    if len(agree) == len(factors):
        return "none"
    if len(agree) > 1:
        return "unclear"
    third = agree[0] if agree else min(factors, key=lambda one: factors[one])
    others = min(factor for one, factor in factors.items() if one != third)
    nearer = factors[third] < inf and factors[third] * NEARER_THAN_WITNESS <= others
    return third if agree or nearer else "all"


def _conclusion(rows: Sequence[WitnessedLayer], first: int | None) -> str:
    if not rows:
        return sentence("witness.nothing")
    counts = Counter(row.deviates for row in rows)
    if first is None:
        key = "witness.unclear" if counts["unclear"] else "witness.none"
        return sentence(key, count=len(rows), unclear=counts["unclear"])
    who = rows[first].deviates
    layer = rows[first].reference or sentence("model_part.model_itself")
    return sentence(f"witness.{who}", layer=layer, count=counts[who], total=len(rows))
