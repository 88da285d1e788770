"""A port whose layers need not pair: the reference's values are put in at points until all that goes wrong is found.

At a point and all before it the reference's values are put in; the later the point, the more is right. The last stretch
that goes wrong shows at the output. What goes wrong in front of it shows where that stretch begins, and so on.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from align.core.atomic_files import existing_file
from align.core.documents import DocumentFault, read_toml
from align.core.name_map import SIDES, NameMap
from align.core.progress import silent
from align.core.verdicts import Coverage, Finding, Outcome, Verdict
from align.errors import CannotRunError, InputsError, ModelFailedError, NothingInCommonError
from align.forward.bisect_result import Bisection, SplicePoint, WrongStretch
from align.forward.corresponding_points import Point, Splice, points_as_given, points_of_runs, worst_factor
from align.forward.layers.compare_traces import paired_outputs
from align.forward.running.measure_noise import measure_noise
from align.forward.wrong_stretches import INPUTS, find_wrong_stretches
from align.models.describe_sides import copied_sides
from align.models.fit_inputs import run_fitted
from align.models.inputs import describe_inputs, read_inputs
from align.models.open_side import Side, open_sides
from align.traces.pair_traces import choose_map, map_in_order, pair_traces
from align.traces.trace_folder import TraceFolder
from align.traces.trace_writer import TraceWriter
from align.words.catalogue import say, sentence, texts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.parameters import ParameterSet
    from align.core.progress import Progress
    from align.core.protocols import Inputs, Model
    from align.core.traces import Trace
    from align.forward.corresponding_points import CorrespondingPoints
    from align.forward.running.measure_noise import Noise
    from align.forward.wrong_stretches import FoundStretch, StretchSearch
    from align.traces.module_calls import CallPair


def bisect_port(
    reference: str | Model | Side,
    candidate: str | Model | Side,
    *,
    inputs: Path | str | Mapping[str, Array],
    points: Mapping[str, str] | Path | str | None = None,
    name_map: NameMap | Path | str | None = None,
    progress: Progress = silent,
) -> Bisection:
    """Find the stretches of a port that go wrong, judged by the model's output, in log2(points) runs each.

    `points` maps places of the reference (`PATH`, `PATH#CALL`, `PATH#CALL:OUTPUT`) to those of the candidate, or is a
    file of them; without it they are the outputs of layers that pair, and in between those of one shape in order.
    Raises InputsError for points that are not in the runs, CannotRunError for outputs that cannot be compared.

    >>> import numpy as np
    >>> from align.models.frameworks.arrays import ArrayLayer, ArrayModel
    >>> def model(*factors):
    ...     layers = (ArrayLayer(f"l{n}", "torch.nn.ReLU", lambda x, f=f: x * f, {}) for n, f in enumerate(factors))
    ...     return ArrayModel(tuple(layers))
    >>> found = bisect_port(model(2.0, 3.0, 4.0), model(2.0, 5.0, 4.0), inputs={"x": np.ones(3, np.float32)})
    >>> [(found.points[one.after].candidate, found.points[one.before].candidate) for one in found.stretches]
    [('l0#0', 'l1#0')]
    """
    sides = open_sides(reference, candidate)
    arrays = read_inputs(inputs)
    mine, theirs = (side.reader.read_parameters(side.model, side.label) for side in sides)
    with tempfile.TemporaryDirectory(prefix="align-") as folder:
        traces, taken = _run_both(sides, arrays, Path(folder))
        pairs = _pairs(traces, (mine, theirs), name_map)
        given = read_points(Path(points)) if isinstance(points, (str, Path)) else points
        found = points_of_runs(*traces, pairs) if given is None else points_as_given(*traces, given)
        noise = measure_noise(sides[0], taken[0], traces[0])
        bench = _Bench(sides[1], taken[1], traces[0], noise, found.points, _outputs(pairs), progress)
        factor = bench.judge((), len(found.points))
        constant = _constant_points(sides[0], arrays, traces[0], found.points, Path(folder))
        sure = {number for number, origin in enumerate(found.origins) if origin != "shape"}
        search = find_wrong_stretches(len(found.points), bench.judge, constant, sure)
        progress("bisect", len(bench.runs), len(bench.runs))
        stretches = tuple(
            _stretch(one, found.points, traces[1]) for one in sorted(search.stretches, key=attrgetter("end"))
        )
    return Bisection(
        reference=sides[0].label,
        candidate=sides[1].label,
        points=_spliced_points(found, search),
        stretches=stretches,
        factor=factor,
        runs=len(bench.runs),
        findings=(
            *noise.findings,
            *copied_sides(*sides),
            *(Finding("point-unusable", "warning", sides[1].label, reason) for reason in found.unusable),
        ),
        inputs=describe_inputs(arrays),
        environment={side.reader.name: side.reader.environment() for side in sides},
        verdict=_verdict(stretches, len(bench.outputs)),
    )


@dataclass
class _Bench:
    """The candidate, run with the reference's values at points; no such run is made twice."""

    side: Side
    inputs: Inputs
    reference: Trace
    noise: Noise
    points: Sequence[Point]
    outputs: Sequence[Point]
    progress: Progress
    runs: dict[tuple[int, ...], dict[str, float]] = field(default_factory=dict)

    def judge(self, spliced: tuple[int, ...], target: int) -> float:
        """See find_wrong_stretches."""
        if spliced not in self.runs:
            self.runs[spliced] = self._run({self.points[number].candidate.key for number in spliced})
            self.progress("bisect", len(self.runs), max(len(self.points).bit_length() + 2, len(self.runs) + 1))
        return worst_factor(
            self.runs[spliced], self.outputs if target == len(self.points) else self.points[target : target + 1]
        )

    def _run(self, spliced: set[str]) -> dict[str, float]:
        sink = Splice(self.reference, self.noise.own_accumulated, (*self.points, *self.outputs), spliced)
        self.side.runner.run(self.side.model, self.inputs, sink)
        return sink.factors


def _run_both(
    sides: tuple[Side, Side], inputs: Mapping[str, Array], folder: Path
) -> tuple[tuple[TraceFolder, TraceFolder], tuple[Inputs, Inputs]]:
    """The traces of both, and their inputs in the dtypes that they take."""
    mine, theirs = (
        run_fitted(side, inputs, partial(_trace, side, folder / name)) for side, name in zip(sides, SIDES, strict=True)
    )
    return (TraceFolder(folder / SIDES[0]), TraceFolder(folder / SIDES[1])), (mine, theirs)


def _trace(side: Side, folder: Path, given: Inputs) -> None:
    with TraceWriter(folder, side.reader.environment()) as writer:
        side.runner.run(side.model, given, writer)


def _constant_points(
    side: Side, inputs: Mapping[str, Array], seen: TraceFolder, points: Sequence[Point], folder: Path
) -> set[int]:
    """The points that the reference makes alike of other inputs: a table of positions, a branch from a parameter.

    The other inputs are the same elements, each one further, so that numbers of tokens stay what they may be.
    """
    other = {name: np.roll(value.reshape(-1), 1).reshape(value.shape) for name, value in inputs.items()}
    if all(np.array_equal(value, inputs[name], equal_nan=value.dtype.kind == "f") for name, value in other.items()):
        return set()
    try:
        run_fitted(side, other, partial(_trace, side, folder / "rolled"))
    except ModelFailedError:
        return set()
    rolled = TraceFolder(folder / "rolled")
    again = {one.key: one for one in rolled.captures}
    return {
        number
        for number, point in enumerate(points)
        if (one := again.get(point.reference.key)) and np.array_equal(seen.value(point.reference), rolled.value(one))
    }


def _pairs(
    traces: tuple[TraceFolder, TraceFolder],
    parameters: tuple[ParameterSet, ParameterSet],
    given: NameMap | Path | str | None,
) -> Sequence[CallPair]:
    """Pair the calls as far as the names allow: the models themselves always pair."""
    try:
        name_map = choose_map(given, parameters)
        if given is None and not name_map.complete:
            name_map = map_in_order(traces, parameters, name_map)
    except NothingInCommonError:
        name_map = NameMap(parameters[0].label, parameters[1].label)
    return pair_traces(traces, parameters, name_map).pairs


def _outputs(pairs: Sequence[CallPair]) -> list[Point]:
    """The outputs of the models; raises CannotRunError where one cannot be compared."""
    whole = [pair for pair in pairs if not pair.reference.module]
    found = [(Point(a, b), off) for pair in whole for a, b, off in paired_outputs(pair.reference, pair.candidate)]
    unlike = [obstacle for _, obstacle in found if obstacle]
    if unlike or not found:
        raise CannotRunError.of("forward_error.unlike_outputs", obstacle=unlike[0] if unlike else "there are none")
    return [point for point, _ in found]


def _stretch(found: FoundStretch, points: Sequence[Point], candidate: TraceFolder) -> WrongStretch:
    start, end = found.start, found.end
    begins = points[start].candidate.order if start > INPUTS else INPUTS
    ends = points[end].candidate.order if end < len(points) else len(candidate.captures)
    between = [one.module for one in candidate.captures if begins < one.order <= ends and one.module]
    after, before = start if start > INPUTS else None, end if end < len(points) else None
    return WrongStretch(after, before, found.factor, tuple(dict.fromkeys(between)))


def _spliced_points(found: CorrespondingPoints, search: StretchSearch) -> tuple[SplicePoint, ...]:
    return tuple(
        SplicePoint(point.reference.key, point.candidate.key, origin, search.states.get(number, "untried"))
        for number, (point, origin) in enumerate(zip(found.points, found.origins, strict=True))
    )


def _verdict(stretches: Sequence[WrongStretch], outputs: int) -> Verdict:
    coverage = Coverage(sentence("forward_unit.model_outputs"), outputs)
    if not stretches:
        return Verdict(Outcome.ALIGNED, sentence("bisect_verdict.within_limit"), coverage)
    reason = sentence("bisect_verdict.wrong_stretches", count=len(stretches))
    return Verdict(Outcome.NOT_ALIGNED, reason, coverage)


if TYPE_CHECKING:
    from collections.abc import Sequence


def read_points(path: Path) -> dict[str, str]:
    """Read the file; raises MissingFileError, or InputsError listing all that is no pair of names."""
    try:
        table = read_toml(existing_file(path, "points file"))
    except DocumentFault as fault:
        raise InputsError.of("forward_error.points_no_toml", path=path, error=fault) from fault
    odd = {name: repr(value) for name, value in table.items() if not isinstance(value, str)}
    if faults := [say("forward_fault.no_text", name=name, value=value) for name, value in odd.items()]:
        message, hint = texts("forward_error.no_table_of_points", path=path)
        raise InputsError(message, hint, faults)
    return table


def parse_points(specs: Sequence[str]) -> dict[str, str]:
    """Read points of the form `REFERENCE=CANDIDATE`; raises InputsError listing all that are not."""
    pairs = [(spec, *(part.strip() for part in spec.split("="))) for spec in specs]
    if faults := [pair[0] for pair in pairs if len(pair) != len(("spec", "reference", "candidate")) or "" in pair]:
        message, hint = texts("forward_error.no_two_places")
        raise InputsError(message, hint, faults)
    return {reference: candidate for _, reference, candidate in pairs}
