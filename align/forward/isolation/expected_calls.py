"""What each paired call of a port should be given and return: gathered once from the reference, read by every run.

It says besides in which precision the reference computed it, whatever dtype it has: that stays in what follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.core.dtypes import EPSILON, rounded_as
from align.forward.allowances import NO_ALLOWANCES
from align.forward.layers.compare_traces import coarser_of, paired_outputs, same_layer
from align.forward.layers.padding import NO_PADDING
from align.forward.thresholds import LEAST_ROUNDING_SHARE
from align.measure.limits import coarsest_dtype
from align.traces.module_calls import call_key, inputs_of_calls

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from align.core.traces import Capture, Trace
    from align.forward.allowances import Allowances
    from align.forward.layers.padding import Padding
    from align.measure.limits import RoundingNoise
    from align.traces.module_calls import CallKey, CallPair


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
    certain = {one.key for pair in pairs if pair.certain for one in pair.reference.outputs}
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
        sure=frozenset(certain.union(one.key for one in trace.inputs if (one.module, one.call) in sure)),
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
    returned = [(path, one.dtype) for one in reference.captures for path in _around(one.module)]
    return _coarsest_of((path, dtype) for path, dtype in (*given, *returned) if path in modules)


def _dtypes_of_doubtful(reference: Trace, modules: Collection[str], certain: Collection[str]) -> dict[str, str]:
    """The same by what modules inside return whose keys are not `certain`; what is given counts for a layer alone."""
    outer = {path for one in reference.captures for path in _around(one.module)}
    given = [(one.module, one.dtype) for one in reference.inputs if one.module not in outer]
    doubtful = (one for one in reference.captures if one.key not in certain)
    returned = [(path, one.dtype) for one in doubtful for path in _around(one.module)]
    return _coarsest_of((path, dtype) for path, dtype in (*given, *returned) if path in modules)


def _around(module: str) -> Iterator[str]:
    """The paths of all modules around one; the outermost is the model, ""."""
    while module:
        module = module.rpartition(".")[0]
        yield module


def _coarsest_of(dtypes: Iterable[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for path, dtype in dtypes:
        found[path] = coarsest_dtype(found.get(path, ""), dtype)
    return found
