"""A port whose layers need not pair: the reference's values are put in at points until all that goes wrong is found.

At a point and all before it the reference's values are put in; the later the point, the more is right. The last stretch
that goes wrong shows at the output. What goes wrong in front of it shows where that stretch begins, and so on.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from functools import partial
from math import inf
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from align.core.align_sequences import align_sequences
from align.core.atomic_files import existing_file
from align.core.documents import DocumentFault, read_toml
from align.core.name_map import SIDES, NameMap
from align.core.protocols import silent
from align.core.traces import smallest_factor
from align.core.verdicts import Coverage, Finding, Outcome, Verdict
from align.errors import CannotRunError, InputsError, ModelFailedError, NothingInCommonError
from align.forward.bisect_precision import Bisection, SplicePoint, WrongStretch
from align.forward.compare_traces import paired_outputs, shapes_differ
from align.forward.run_both_models import measure_noise
from align.forward.thresholds import MOST_ALIGNED_CELLS, MOST_POINTS_ASKED, PAIRED_POINT_SCORE
from align.measure.limits import limit_for
from align.measure.measure_arrays import measure
from align.measure.thresholds import SAMPLED_ELEMENTS
from align.models.inputs import describe_inputs, read_inputs, run_fitted
from align.models.open_side import Side, copied_sides, open_sides
from align.traces.pair_traces import choose_map, map_in_order, pair_traces
from align.traces.trace_folder import TraceFolder, TraceWriter
from align.words.catalogue import close_names, say, sentence, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set

    from align.core.parameters import Array, ParameterSet
    from align.core.protocols import Inputs, Model, Progress
    from align.core.traces import Capture, Measurement, Trace
    from align.forward.bisect_precision import PointOrigin, PointState
    from align.forward.run_both_models import Noise
    from align.traces.module_calls import CallPair

    Judge = Callable[[tuple[int, ...], int], float]


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
        corresponding = points_of_runs(*traces, pairs) if given is None else points_as_given(*traces, given)
        noise = measure_noise(sides[0], taken[0], traces[0])
        bench = _Bench(sides[1], taken[1], traces[0], noise, corresponding.points, _outputs(pairs), progress)
        factor = bench.judge((), len(corresponding.points))
        constant = _constant_points(sides[0], arrays, traces[0], corresponding.points, Path(folder))
        sure = {number for number, origin in enumerate(corresponding.origins) if origin != "shape"}
        search = find_wrong_stretches(len(corresponding.points), bench.judge, constant, sure)
        progress("bisect", len(bench.runs), len(bench.runs))
        stretches = tuple(
            _stretch(one, corresponding.points, traces[1]) for one in sorted(search.stretches, key=attrgetter("end"))
        )
    return Bisection(
        reference=sides[0].label,
        candidate=sides[1].label,
        points=_spliced_points(corresponding, search),
        stretches=stretches,
        factor=factor,
        runs=len(bench.runs),
        findings=(
            *noise.findings,
            *copied_sides(*sides),
            *(Finding("point-unusable", "warning", sides[1].label, reason) for reason in corresponding.unusable),
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
    again = {capture.key: capture for capture in rolled.captures}
    return {
        number
        for number, point in enumerate(points)
        if (capture := again.get(point.reference.key))
        and np.array_equal(seen.value(point.reference), rolled.value(capture))
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
    outputs = [(Point(a, b), off) for pair in whole for a, b, off in paired_outputs(pair.reference, pair.candidate)]
    unlike = [obstacle for _, obstacle in outputs if obstacle]
    if unlike or not outputs:
        raise CannotRunError.of("forward_error.unlike_outputs", obstacle=unlike[0] if unlike else "there are none")
    return [point for point, _ in outputs]


def _stretch(stretch: FoundStretch, points: Sequence[Point], candidate: TraceFolder) -> WrongStretch:
    start, end = stretch.start, stretch.end
    begins = points[start].candidate.order if start > INPUTS else INPUTS
    ends = points[end].candidate.order if end < len(points) else len(candidate.captures)
    between = [capture.module for capture in candidate.captures if begins < capture.order <= ends and capture.module]
    after, before = start if start > INPUTS else None, end if end < len(points) else None
    return WrongStretch(after, before, stretch.factor, tuple(dict.fromkeys(between)))


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


# The search for all stretches between points that go wrong, by halving, from the last one to the first.
#
# What a stretch begins with may depend on nothing of what is wrong before it. So where its value is right, the last
# point before it that is wrong is looked for, and the search goes on from there. Points that depend on no input (a
# table of positions, a branch from a parameter) are no places where a stretch begins: they are judged by themselves.

INPUTS = -1  # no limit: stands for the model's inputs among points


@dataclass(frozen=True, slots=True)
class FoundStretch:
    """A stretch between two points by number, INPUTS (-1) and the count of points standing for the model's ends."""

    start: int
    end: int
    factor: float


@dataclass(slots=True)
class StretchSearch:
    """What a search found: stretches from the last to the first, and what is known of the points that it used."""

    stretches: list[FoundStretch] = field(default_factory=list)
    states: dict[int, PointState] = field(default_factory=dict)


def find_wrong_stretches(
    count: int, judge: Judge, constant: Set[int] = frozenset(), sure: Set[int] = frozenset()
) -> StretchSearch:
    """Find all stretches that go wrong between `count` points.

    `judge(spliced, target)` returns the factor of what the port makes at a target, a point's number or `count` for the
    outputs, with the right values at the points `spliced`: above 1 it is wrong. Each stretch takes about log2(count) +
    2 judgements, and as many more for each point that has to be dropped: without the reference's value there all is
    right, with it not. `constant` points depend on no input; `sure` ones are known to be the same on both sides.
    """
    search = StretchSearch()
    usable = [point for point in range(count) if point not in constant]
    put_in: set[int] = set()

    def judged(spliced: tuple[int, ...], target: int) -> float:
        return judge(tuple(sorted({*put_in, *spliced})), target)

    if sure & constant and judge((), count) > 1.0:
        search.stretches += _wrong_of_themselves(sorted(sure & constant), judge)
        put_in.update(one.end for one in search.stretches)
    target = count
    while target > INPUTS:
        before = [point for point in usable if point < target]
        if judged((), target) <= 1.0:
            target = _last_wrong_point(before, judged, sure) if search.stretches else INPUTS
            continue
        near = bool(search.stretches)  # one fault may be anywhere, several mostly come in a row
        last = _last_wrong(before, lambda spliced, end=target: judged(spliced, end), near=near)  # type: ignore[misc]
        start, upto = (before[last], tuple(before[:last])) if last >= 0 else (INPUTS, ())
        if last > 0 and judged(upto, target) <= 1.0:
            search.states[start] = "dropped"
            usable.remove(start)
            continue
        free = sorted(point for point in constant - put_in if point < target)
        if wrong := _wrong_constants(free, before[: last + 1], target, judged):
            search.stretches += wrong
            put_in.update(free)
            continue
        if start > INPUTS:
            search.states[start] = "corresponds" if judged(upto, start) <= 1.0 else "doubtful"
        end = before[last + 1] if last + 1 < len(before) else target
        search.stretches.append(FoundStretch(start, end, judged(tuple(before[: last + 1]), target)))
        target = start
    return search


def _wrong_constants(free: Sequence[int], spliced: Sequence[int], target: int, judge: Judge) -> list[FoundStretch]:
    """The constants that are wrong of themselves, if their right values make right what else goes wrong."""
    right = free and judge((*spliced, *free), target) <= 1.0
    return _wrong_of_themselves(free, judge) if right else []


def _wrong_of_themselves(constants: Sequence[int], judge: Judge) -> list[FoundStretch]:
    """The constants that are wrong where those before them are right."""
    wrong = [(place, point) for place, point in enumerate(constants) if judge((), point) > 1.0]
    factors = {point: judge(tuple(constants[:place]), point) for place, point in wrong}
    return [FoundStretch(point - 1, point, factor) for point, factor in factors.items() if factor > 1.0]


def _last_wrong_point(before: Sequence[int], judge: Judge, sure: Set[int]) -> int:
    """The last point that is wrong though it is the same on both sides, as far as that is known; INPUTS if none is.

    One that is not sure to be the same has to be right where all before it is.
    """
    wrong = [point for point in reversed(before) if judge((), point) > 1.0][:MOST_POINTS_ASKED]
    alike = (one for one in wrong if one in sure or judge(tuple(own for own in before if own < one), one) <= 1.0)
    return next(alike, INPUTS)


def _last_wrong(points: list[int], judge: Callable[[tuple[int, ...]], float], *, near: bool) -> int:
    """Position of the last point up to which the right values leave the target wrong, -1 for none at all.

    By halving; where it may be `near` the end, in growing steps from there first.
    """
    wrong, right, step = -1, len(points), 1
    while right - wrong > 1:
        middle = max(len(points) - step, wrong + 1) if near else (wrong + right) // 2
        if judge(tuple(points[: middle + 1])) <= 1.0:
            right, step = middle, 2 * step
        else:
            wrong, near = middle, False
    return wrong


# Points of two runs that may be the same: those of paired layers, and by shape and order what lies between them.
#
# Where many tensors have one shape, their order alone says little; their values say more: a fault changes them, but
# what comes of it still resembles what it should be more than another layer's output does.


@dataclass(frozen=True, slots=True)
class CorrespondingPoints:
    """Points in the order of the run with their origins, and why others cannot be used."""

    points: tuple[Point, ...]
    origins: tuple[PointOrigin, ...]
    unusable: tuple[str, ...] = ()


def points_of_runs(reference: Trace, candidate: Trace, pairs: Iterable[CallPair]) -> CorrespondingPoints:
    """Points of certain pairs, and of tensors of one shape in between, in an order that both runs have."""
    left, right = ([capture for capture in trace.captures if capture.module] for trace in (reference, candidate))
    anchors = {
        (a.key, b.key)
        for pair in pairs
        if pair.certain
        for a, b, obstacle in paired_outputs(pair.reference, pair.candidate)
        if not obstacle
    }
    if len(left) * len(right) > MOST_ALIGNED_CELLS:
        mine, theirs = {a for a, _ in anchors}, {b for _, b in anchors}
        left = [capture for capture in left if capture.key in mine]
        right = [capture for capture in right if capture.key in theirs]
    scores = _likeness(reference, left, candidate, right)
    rows, columns = ({capture.key: n for n, capture in enumerate(side)} for side in (left, right))
    for a, b in anchors:
        if a in rows and b in columns:
            scores[rows[a], columns[b]] = PAIRED_POINT_SCORE
    found = align_sequences(scores)
    points = tuple(Point(left[i], right[j]) for i, j in found)
    origins: list[PointOrigin] = ["paired" if scores[i, j] == PAIRED_POINT_SCORE else "shape" for i, j in found]
    return CorrespondingPoints(points, tuple(origins))


def points_as_given(reference: Trace, candidate: Trace, given: Mapping[str, str]) -> CorrespondingPoints:
    """Points that the user names as `PATH`, `PATH#CALL` or `PATH#CALL:OUTPUT`; raises InputsError listing unknown ones.

    Those of unequal shapes, and those that run in another order than the ones before them, are unusable.
    """
    faults: list[str] = []
    points = [
        Point(a, b)
        for reference_name, candidate_name in given.items()
        if (a := _found(reference, reference_name, faults)) and (b := _found(candidate, candidate_name, faults))
    ]
    if faults:
        message, hint = texts("forward_error.points_not_in_runs")
        raise InputsError(message, hint, faults)
    points.sort(key=lambda point: point.reference.order)
    usable: list[Point] = []
    unusable = []
    for point in points:
        if obstacle := _obstacle(point, usable):
            mine, theirs = point.reference.key, point.candidate.key
            why = sentence("bisect_finding.point_unusable", reference=mine, candidate=theirs, obstacle=obstacle)
            unusable.append(why)
        else:
            usable.append(point)
    origins: list[PointOrigin] = ["given" for _ in usable]
    return CorrespondingPoints(tuple(usable), tuple(origins), tuple(unusable))


def _obstacle(point: Point, before: Sequence[Point]) -> str:
    if point.reference.shape != point.candidate.shape:
        return shapes_differ(point.reference.shape, point.candidate.shape)
    if before and before[-1].candidate.order >= point.candidate.order:
        return sentence("bisect_finding.other_order", point=point.candidate.key, before=before[-1].candidate.key)
    return ""


def _found(trace: Trace, named: str, faults: list[str]) -> Capture | None:
    path, _, rest = named.partition("#")
    call, _, output = rest.partition(":")
    outputs = [capture for capture in trace.captures if capture.module == path and str(capture.call) == (call or "0")]
    chosen = [capture for capture in outputs if capture.output == output] if output or len(outputs) > 1 else outputs
    if not chosen:
        close = [] if outputs else close_names([path], {capture.module for capture in trace.captures})[path]
        faults.append(
            say("bisect_fault.no_point", name=named, outputs=[capture.key for capture in outputs], close=[*close])
        )
        return None
    return chosen[0]


def _likeness(reference: Trace, left: Sequence[Capture], candidate: Trace, right: Sequence[Capture]) -> Array:
    """Scores (rows, columns): 0 for unlike shapes, else 1 and up to 1 more for values that vary alike."""
    scores = np.zeros((len(left), len(right)))
    for shape in sorted({one.shape for one in left} & {one.shape for one in right}):
        rows, columns = ([n for n, one in enumerate(side) if one.shape == shape] for side in (left, right))
        mine = np.stack([*_directions(reference, (left[n] for n in rows))])
        theirs = np.stack([*_directions(candidate, (right[n] for n in columns))])
        scores[np.ix_(rows, columns)] = 1.0 + np.clip(mine @ theirs.T, 0.0, 1.0)
    return scores


def _directions(trace: Trace, captures: Iterable[Capture]) -> Iterator[Array]:
    """Some elements of each tensor, without their mean and of norm 1."""
    for one in captures:
        value = trace.value(one).reshape(-1)
        some_of = value[:: max(value.size // SAMPLED_ELEMENTS, 1)][:SAMPLED_ELEMENTS]
        real = np.abs(some_of) if some_of.dtype.kind == "c" else some_of.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):  # of NaN and Inf, which vary like nothing
            varying = real - (real.mean() if real.size else 0.0)
            norm = float(np.sqrt((varying * varying).sum()))
        yield varying / norm if 0.0 < norm < np.inf else np.zeros(real.shape)


@dataclass(frozen=True, slots=True)
class Point:
    """Tensors of the two runs that are taken for the same."""

    reference: Capture
    candidate: Capture


class Splice:
    """An Intervention that puts the reference's values in at some points, and measures what is made at others.

    `factors` are the multiples of their limits, by the candidate's keys, of what the port itself makes at the others.
    """

    def __init__(
        self, reference: Trace, noise: Mapping[str, Measurement] | None, points: Iterable[Point], spliced: Set[str]
    ) -> None:
        self._trace, self._noise, self._spliced = reference, noise, spliced
        self._points = {point.candidate.key: point.reference for point in points}
        self.factors: dict[str, float] = {}

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> None:
        """Leave the inputs as they are."""

    def add(self, capture: Capture, value: Array) -> None:
        """Measure a tensor at a point."""
        if (mine := self._points.get(capture.key)) is not None and capture.key not in self._spliced:
            self.factors[capture.key] = self._factor(mine, value)

    def instead(self, capture: Capture, value: Array) -> Array | None:
        """Return the reference's value at a point where it is to be put in."""
        mine = self._points.get(capture.key)
        if mine is None or capture.key not in self._spliced or mine.shape != value.shape:
            return None
        return self._trace.value(mine)

    def _factor(self, mine: Capture, value: Array) -> float:
        if mine.shape != value.shape:
            return inf
        measurement = measure(self._trace.value(mine), value)
        noise = None if self._noise is None else self._noise.get(mine.key)
        return smallest_factor(measurement, limit_for(measurement, (mine.dtype, value.dtype.name), noise))


def worst_factor(factors: Mapping[str, float], points: Sequence[Point]) -> float:
    """The worst at these points; infinite where one was not reached."""
    return max(factors.get(point.candidate.key, inf) for point in points)
