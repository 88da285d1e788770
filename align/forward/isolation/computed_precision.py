"""In which precision the tensors of both sides were computed, whatever dtype they have: it stays in what follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.core.dtypes import rounded_as
from align.forward.layers.compare_traces import coarser_of, paired_outputs
from align.measure.limits import coarsest_dtype

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from align.core.traces import Capture, Trace
    from align.traces.module_calls import CallPair


def coarser_outputs(pairs: Sequence[CallPair]) -> dict[str, str]:
    """The candidate's dtypes, by the reference's keys, of outputs that the candidate computed in a coarser one."""
    outputs = [one for pair in pairs for one in outputs_of(pair)]
    return {a.key: rounded_as(b.dtype) for a, b in outputs if coarser_of("", a.dtype, b.dtype)}


def is_mostly_as_precise(pairs: Sequence[CallPair]) -> bool:
    """Tell whether the port computes in the reference's precision, so that a layer in a lower one is an exception."""
    floating = sum(bool(rounded_as(a.dtype)) for pair in pairs for a, _ in outputs_of(pair))
    return 2 * len(coarser_outputs(pairs)) < floating


def dtypes_inside(reference: Trace, modules: Collection[str]) -> dict[str, str]:
    """The coarsest dtype that each module was given, or that one inside of it returned: what it returns carries it."""
    given = [(one.module, one.dtype) for one in reference.inputs]
    returned = [(path, one.dtype) for one in reference.captures for path in _around(one.module)]
    return _coarsest_of((path, dtype) for path, dtype in (*given, *returned) if path in modules)


def dtypes_of_doubtful(reference: Trace, modules: Collection[str], certain: Collection[str]) -> dict[str, str]:
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
