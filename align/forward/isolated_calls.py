"""Each layer of the port alone: given what the reference's counterpart was given, it should return the same.

It is seen in place, in one run of the port: before a call its inputs, after it its outputs give way to the
reference's. So calls with several inputs, keywords, states and repeated calls are met as they are, and what the code
between the layers makes of right values is seen as well. The noise is had in the same way, from the reference itself
in float64.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from align.core.parameters import EPSILON, paths_around, rounded_as
from align.forward.compare_traces import NO_PADDING, coarser_of, paired_outputs, same_layer
from align.forward.forward_result import NO_ALLOWANCES
from align.forward.thresholds import LEAST_ROUNDING_SHARE
from align.measure.limits import coarsest_dtype, judge_tensor, limit_by_noise
from align.measure.tensor_statistics import LearnedLayouts, only_layout, sample_values
from align.measure.thresholds import LEAST_LAYOUT_ELEMENTS
from align.traces.module_calls import call_key, inputs_of_calls, pair_inputs
from align.traces.open_trace import NoiseMeasurer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from align.core.parameters import Array
    from align.core.traces import Capture, Limit, Measurement, Trace
    from align.forward.compare_traces import Padding
    from align.forward.forward_result import Allowances
    from align.measure.limits import RoundingNoise
    from align.measure.tensor_statistics import Layout
    from align.traces.module_calls import CallKey, CallPair


@dataclass(frozen=True, slots=True)
class IsolatedTensor:
    """One tensor that was given to a call, or returned by it, against the reference's.

    `value` is kept if it is off, in the reference's layout; `view` is the candidate's layout; `part` is what of it is
    off, if it was judged apart. A tensor of another size has no view, no figures and an infinite factor.
    """

    reference: Capture
    measurement: Measurement | None
    limit: Limit | None
    factor: float
    value: Array | None = None
    view: Layout | None = None
    part: str = ""


@dataclass
class IsolatedCall:
    """A call of the port: its inputs as the port makes them of right values, and its outputs, by the reference's keys.

    `begun` and `ended` count the tensors that modules had returned when it began and ended, `returned` its own. Of a
    call without counterpart only samples are kept, of what it was `given` and returned.
    """

    begun: int = 0
    ended: int = 0
    returned: int = 0
    class_name: str = ""
    given: list[NDArray[np.float64]] = field(default_factory=list)
    samples: list[NDArray[np.float64]] = field(default_factory=list)
    inputs: dict[str, IsolatedTensor] = field(default_factory=dict)
    outputs: dict[str, IsolatedTensor] = field(default_factory=dict)

    def take_input(self, alone: IsolatedTensor) -> bool:
        """Keep one tensor that the call was given; return whether it is right."""
        self.inputs[alone.reference.key] = alone
        return alone.factor <= 1.0

    @property
    def is_leaf(self) -> bool:
        """Tell whether no module returned a tensor inside."""
        return self.begun + self.returned >= self.ended

    @property
    def inputs_factor(self) -> float | None:
        """The worst of the inputs; None if none could be paired."""
        return max((one.factor for one in self.inputs.values()), default=None)

    @property
    def factor(self) -> float | None:
        """The worst of the outputs; None if none could be compared."""
        return max((one.factor for one in self.outputs.values()), default=None)


@dataclass(frozen=True, slots=True)
class IsolationOptions:
    """How a run of the port is changed.

    Calls that are `forced` are given the reference's inputs even where the port's are other ones. If it `resizes`,
    tensors of another number of elements give way too, which code around may not stand. Calls that are `trusted` return
    what the reference's do though nobody knows whether both end at the same place. What is given to calls `apart` is
    given to nobody else that uses the same tensor.
    """

    forced: frozenset[CallKey] = frozenset()
    resizes: bool = True
    trusted: frozenset[CallKey] = frozenset()
    apart: frozenset[CallKey] = frozenset()


class NoiseIsolation:
    """An Intervention for the reference in another dtype: every call is given, and returns, what the ordinary run had.

    `noise` is what its tensors move by, by the captures' keys; each layer on its own ordinary inputs.
    """

    def __init__(self, ordinary: Trace, dtype: str = "float64") -> None:
        self._trace, self._measurer = ordinary, NoiseMeasurer(ordinary, dtype)
        self._inputs = {(one.module, one.call, one.output): one for one in ordinary.inputs}
        self._outputs = {one.key: one for one in ordinary.captures}
        self.noise: dict[str, Measurement] = {}

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """Measure the inputs, and give the ordinary ones."""
        new = {}
        for name, value in inputs.items():
            same = self._inputs.get((module, call, name))
            if same is not None and same.shape == value.shape:
                new[name] = self._trace.value(same)
                self._note(same, value)
        return new

    def add(self, capture: Capture, value: Array) -> None:
        """Measure an output."""
        same = self._outputs.get(capture.key)
        if same is not None:
            self._note(same, value)

    def instead(self, capture: Capture, value: Array) -> Array | None:
        """Return the ordinary output."""
        same = self._outputs.get(capture.key)
        return self._trace.value(same) if same is not None and same.shape == value.shape else None

    def _note(self, same: Capture, value: Array) -> None:
        self.noise |= self._measurer.noise_of(same, value)


class Isolation:
    """An Intervention for the port: paired calls are given, and return, what the reference's counterparts had.

    Inputs that the port itself makes wrong give way only in calls that are forced: a port may hand its layers the same
    thing in another form (a mask). Outputs give way where both sides surely end at the same place.
    """

    def __init__(self, expected: ExpectedCalls, way: IsolationOptions) -> None:
        self._expected, self._way = expected, way
        self._layouts = LearnedLayouts()
        self._coarsest = ""
        self._coarser: dict[CallKey, str] = {}
        self._ended = 0
        self._entered: CallKey = ("", 0)
        self.calls: dict[CallKey, IsolatedCall] = {}

    @property
    def overwrites(self) -> bool:
        """Where something is forced, whoever else uses it must have it too: the rest of a residual stream."""
        return self._entered in self._way.forced - self._way.apart

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """Measure what the port hands to a paired call, and give it the reference's."""
        key = self._entered = module, call
        seen = self.calls[key] = IsolatedCall(begun=self._ended)
        if key not in self._expected.given:
            seen.given = [sample_values(value) for value in inputs.values()]
        paired = pair_inputs(self._expected.given.get(key, ()), inputs)
        new = {}
        for name, mine in paired.items():
            alone = self._alone(mine, inputs[name], "" if self._expected.is_unreached(mine) else self._coarsest)
            if alone is not None and (
                seen.take_input(alone) or (key in self._way.forced and self._may_give_way(alone))
            ):
                new[name] = self._meant(alone)
        self._coarser[key] = self._carried(inputs, new, paired)
        return new

    def add(self, capture: Capture, value: Array) -> None:
        """Measure what a paired call returned."""
        key = capture.module, capture.call
        seen, mine = self.calls[key], self._expected.returned.get(capture.key)
        if mine is not None:
            inside = seen.begun + seen.returned < self._ended and not self._expected.is_unreached(mine)
            coarser = self._coarsest if inside else self._coarser[key]
            alone = self._alone(mine, value, coarser, capture.module)
            if alone is not None and (alone.view is not None or key in self._expected.same):
                seen.outputs[mine.key] = alone
            self._coarsest = coarser_of(self._coarsest, mine.dtype, capture.dtype)
        if key not in self._expected.given:
            seen.samples.append(sample_values(value))
            seen.class_name = capture.class_name
        self._ended += 1
        seen.ended, seen.returned = self._ended, seen.returned + 1

    def instead(self, capture: Capture, value: Array) -> Array | None:  # noqa: ARG002
        """Return what the reference's counterpart returned, if both surely end at the same place."""
        key, mine = (capture.module, capture.call), self._expected.returned.get(capture.key)
        alone = None if mine is None else self.calls[key].outputs.get(mine.key)
        if alone is None or not self._may_give_way(alone):
            return None
        sure = key in self._expected.certain or key in self._way.trusted
        return self._meant(alone) if sure or alone.factor <= 1.0 else None

    def _may_give_way(self, alone: IsolatedTensor) -> bool:
        return self._way.resizes or alone.view is not None

    def _meant(self, alone: IsolatedTensor) -> Array:
        """The reference's tensor in the candidate's layout."""
        value = self._expected.trace.value(alone.reference)
        return value if alone.view is None else alone.view.to_candidate(value)

    def _alone(
        self, mine: Capture, value: Array, coarser: str, returned_by: str | None = None
    ) -> IsolatedTensor | None:
        """None where the layouts differ, and values do not show how; the models' own outputs must have one shape."""
        meant = self._expected.trace.value(mine)
        view = self._view(mine, meant, value)
        if view is None:
            return IsolatedTensor(mine, None, None, inf, np.array(value)) if meant.size != value.size else None
        turned = view.to_reference(value)
        own = mine.dtype if returned_by is not None and self._expected.precise else value.dtype.name
        inside = mine.dtype if returned_by is None else self._expected.computed_in(mine)

        def limit_of(measurement: Measurement, part: str) -> Limit | None:
            limit = limit_by_noise(
                self._expected.noise, (mine.key, part), measurement, (inside, own), ("", coarser), alone=True
            )
            if limit is None or returned_by is None:
                return limit
            return self._expected.allowances.limit(limit, mine.module, returned_by)

        found = judge_tensor(meant, turned, limit_of, self._expected.padding.at(mine))
        kept = np.array(turned) if found.factor > 1.0 else None
        return IsolatedTensor(mine, found.measurement, found.limit, found.factor, kept, view, found.part)

    def _view(self, mine: Capture, meant: Array, value: Array) -> Layout | None:
        """How the port lays a tensor out; what surely is the same may show it by its shape alone."""
        if not mine.module and mine.shape != value.shape:
            return None
        sure = mine.key in self._expected.sure and value.size >= LEAST_LAYOUT_ELEMENTS
        found = self._layouts.find(meant, value)
        return found or (only_layout(mine.shape, value.shape) if sure else None)

    def _carried(self, inputs: Mapping[str, Array], new: Mapping[str, Array], paired: Mapping[str, Capture]) -> str:
        """The coarsest dtype whose rounding is in what a call is given: its own, or that of all before it."""
        fine = {name for name, mine in paired.items() if name in new or self._expected.is_unreached(mine)}
        known = "" if inputs.keys() <= fine else self._coarsest
        for name, mine in paired.items():
            known = coarser_of(known, mine.dtype, inputs[name].dtype.name)
        return known


# What each paired call of a port should be given and return: gathered once from the reference, read by every run.
#
# It says besides in which precision the reference computed it, whatever dtype it has: that stays in what follows.


@dataclass(frozen=True, slots=True)
class ExpectedCalls:
    """The reference's calls as the port's are to be judged by them.

    `given` are the inputs by the port's calls, `returned` the outputs by the port's captures. Calls of `certain` pairs
    end at the same place in both models, and `sure` are the keys of what the reference's gave and returned there. Those
    of `same` are of one layer. `precise` says that the port computes in
    the reference's precision, `inside` and `doubtful_inside` in which one the reference computed inside a module.
    """

    trace: Trace
    pairs: Sequence[CallPair]
    noise: RoundingNoise | None
    allowances: Allowances
    padding: Padding
    given: Mapping[CallKey, Sequence[Capture]]
    returned: Mapping[str, Capture]
    certain: frozenset[CallKey]
    sure: frozenset[str]
    same: frozenset[CallKey]
    precise: bool
    inside: Mapping[str, str]
    doubtful_inside: Mapping[str, str]

    def computed_in(self, mine: Capture) -> str:
        """The coarsest dtype inside a module of the reference.

        Layers that return the reference's values do not count where the noise of the module shows nothing of theirs.
        """
        inside = coarsest_dtype(mine.dtype, self.inside.get(mine.module, ""))
        noise = None if self.noise is None or not inside else self.noise.own.get(mine.key)
        if noise is not None and noise.rmse < LEAST_ROUNDING_SHARE * EPSILON[inside] * noise.reference_rms:
            inside = coarsest_dtype(mine.dtype, self.doubtful_inside.get(mine.module, ""))
        return inside or mine.dtype

    def is_unreached(self, mine: Capture) -> bool:
        """Tell whether no rounding of a coarser layer can be in what stands for a tensor of the reference."""
        return self.noise is not None and mine.key in self.noise.unreached


def expected_calls(
    trace: Trace,
    pairs: Sequence[CallPair],
    noise: RoundingNoise | None,
    allowances: Allowances = NO_ALLOWANCES,
    padding: Padding = NO_PADDING,
) -> ExpectedCalls:
    """Gather what the reference's run (`trace`) had at each paired call; `noise` is that of each layer alone."""
    inputs = inputs_of_calls(trace)
    modules = {pair.reference.module for pair in pairs}
    certain = {capture.key for pair in pairs if pair.certain for capture in pair.reference.outputs}
    sure = {(pair.reference.module, pair.reference.call) for pair in pairs if pair.certain}
    return ExpectedCalls(
        trace,
        pairs,
        noise,
        allowances,
        padding,
        given={call_key(pair): inputs.get((pair.reference.module, pair.reference.call), []) for pair in pairs},
        returned={b.key: a for pair in pairs for a, b in outputs_of(pair)},
        certain=frozenset(call_key(pair) for pair in pairs if pair.certain),
        sure=frozenset(
            certain.union(capture.key for capture in trace.inputs if (capture.module, capture.call) in sure)
        ),
        same=frozenset(call_key(pair) for pair in pairs if same_layer(pair)),
        precise=_is_mostly_as_precise(pairs),
        inside=_dtypes_inside(trace, modules),
        doubtful_inside=_dtypes_of_doubtful(trace, modules, certain),
    )


def outputs_of(pair: CallPair) -> Iterator[tuple[Capture, Capture]]:
    """What two calls returned, tensor by tensor; where one returned more, only those whose shapes leave no choice."""
    mine, theirs = pair.reference.outputs, pair.candidate.outputs
    if len(mine) == len(theirs):
        yield from ((a, b) for a, b, _ in paired_outputs(pair.reference, pair.candidate))
        return
    for a in mine:
        alike = [b for b in theirs if b.shape == a.shape]
        if len(alike) == 1 and sum(one.shape == a.shape for one in mine) == 1:
            yield a, alike[0]


def coarser_outputs(pairs: Sequence[CallPair]) -> dict[str, str]:
    """The candidate's dtypes, by the reference's keys, of outputs that the candidate computed in a coarser one."""
    outputs = [one for pair in pairs for one in outputs_of(pair)]
    return {a.key: rounded_as(b.dtype) for a, b in outputs if coarser_of("", a.dtype, b.dtype)}


def _is_mostly_as_precise(pairs: Sequence[CallPair]) -> bool:
    """Tell whether the port computes in the reference's precision, so that a layer in a lower one is an exception."""
    floating = sum(bool(rounded_as(a.dtype)) for pair in pairs for a, _ in outputs_of(pair))
    return 2 * len(coarser_outputs(pairs)) < floating


def _dtypes_inside(reference: Trace, modules: Collection[str]) -> dict[str, str]:
    """The coarsest dtype that each module was given, or that one inside of it returned: what it returns carries it."""
    given = [(one.module, one.dtype) for one in reference.inputs]
    returned = [(path, one.dtype) for one in reference.captures for path in paths_around(one.module)]
    return _coarsest_of((path, dtype) for path, dtype in (*given, *returned) if path in modules)


def _dtypes_of_doubtful(reference: Trace, modules: Collection[str], certain: Collection[str]) -> dict[str, str]:
    """The same by what modules inside return whose keys are not `certain`; what is given counts for a layer alone."""
    outer = {path for one in reference.captures for path in paths_around(one.module)}
    given = [(one.module, one.dtype) for one in reference.inputs if one.module not in outer]
    doubtful = (one for one in reference.captures if one.key not in certain)
    returned = [(path, one.dtype) for one in doubtful for path in paths_around(one.module)]
    return _coarsest_of((path, dtype) for path, dtype in (*given, *returned) if path in modules)


def _coarsest_of(dtypes: Iterable[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for path, dtype in dtypes:
        found[path] = coarsest_dtype(found.get(path, ""), dtype)
    return found
