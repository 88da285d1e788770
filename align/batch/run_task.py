"""One task, where it is run: its paths are opened, and what is found is told in plain and small figures.

Figures of every action: `outcome` and `reason` of the verdict, `rows` [name, outcome, value] in execution or file
order, where value is the relative difference or the multiple of the limit, and `prints`, one [name, reference,
candidate] a tensor: fingerprints of the values, None for what a side lacks.
"""

from __future__ import annotations

import hashlib
import math
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from align.checkpoints.extents import byte_blocks, check_whole, require_unchanged
from align.checkpoints.open_checkpoint import open_checkpoint
from align.convert.diff_checkpoints import diff_checkpoints
from align.core.dtypes import numpy_dtype
from align.core.verdicts import Outcome
from align.remote.remote_files import local_copy, local_destination
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from align.batch.job import Task
    from align.convert.pair_checkpoints import TensorDifference
    from align.core.checkpoints import StoredTensor
    from align.core.dtypes import Array
    from align.core.parameters import Shape
    from align.core.traces import DumpedTensor
    from align.core.verdicts import Verdict
    from align.forward.forward_result import LayerComparison
    from align.traces.dumped_side import DumpedSide


# Two checkpoints, or two dumps or traces, compared as one task.

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
    from align.forward.compare_trace_folders import compare_trace_folders
    from align.forward.forward_result import NO_ALLOWANCES, Allowances, read_limits
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


# A checkpoint read from end to end: whether that works, and whether it holds NaN or Inf.


def check_file(paths: list[Path], options: Mapping[str, Any]) -> dict[str, Any]:
    """Read all tensors of a checkpoint; one with NaN or Inf is not aligned."""
    found = open_checkpoint(paths[0], options.get("key"))
    check_whole(found)
    odd = {name: count for name, tensor in found.tensors.items() if (count := _not_finite(tensor))}
    reason = say("batch_task.read", count=len(found.tensors))
    if odd:
        reason = say("batch_task.not_finite", count=len(odd), names=[*odd])
    prints = [[name, None, stored_print(tensor)] for name, tensor in found.tensors.items()]
    require_unchanged(found)
    return {
        "outcome": "not aligned" if odd else "aligned",
        "reason": reason,
        "compared": len(found.tensors),
        "rows": [[name, "not aligned" if name in odd else "aligned", odd.get(name)] for name in found.tensors],
        "prints": prints,
    }


def _not_finite(tensor: StoredTensor) -> int:
    """How many elements are NaN or Inf."""
    dtype = numpy_dtype(tensor.dtype)
    if dtype.kind in "iub":
        return 0
    with np.errstate(all="ignore"):
        return sum(int(np.count_nonzero(~np.isfinite(np.frombuffer(block, dtype)))) for block in byte_blocks(tensor))


# Fingerprints of tensors: equal bits have equal ones, on whatever machine they are made.

DIGEST_BYTES = 8  # format: 16 digits tell tensors of one job apart
CONSTANT = "="


def stored_print(tensor: StoredTensor) -> str:
    """The fingerprint of a stored tensor, read in blocks."""
    return _print(tensor.shape, tensor.dtype, byte_blocks(tensor), tensor.nbytes)


def array_print(value: Array) -> str:
    """The fingerprint of an array."""
    flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    return _print(value.shape, str(value.dtype), [flat.data] if flat.size else [], flat.size)


def _print(shape: Shape, dtype: str, blocks: Iterable[memoryview], nbytes: int) -> str:
    """Shape, dtype and a hash of the bytes; one of a constant begins with `=`, for it says nothing about ranks."""
    digest = hashlib.blake2b(f"{tuple(shape)} {dtype} ".encode(), digest_size=DIGEST_BYTES)
    count = max(int(np.prod(shape, dtype=np.int64)), 1)
    size = max(nbytes // count, 1)
    first = b""
    constant = True
    for block in blocks:
        raw = bytes(block[:size]) if not first else b""
        first = first or raw
        if constant:
            constant = _repeats(block, first)
        digest.update(block)
    return f"{CONSTANT if constant else ''}{'x'.join(map(str, shape))}:{digest.hexdigest()}"


def _repeats(block: memoryview, element: bytes) -> bool:
    """Whether a block is one element over and over: it is equal to itself, moved by an element."""
    values = np.frombuffer(block, np.uint8)
    size = len(element)
    return bytes(values[:size]) == element and bool(np.array_equal(values[size:], values[:-size]))


FUNCTION = "align.batch.run_task:run_task"


def run_task(task: Task) -> dict[str, Any]:
    """Run one task; raises what its action raises."""
    with ExitStack() as stack:
        if task.action == "convert":
            source = stack.enter_context(local_copy(task.paths[0]))
            replace = bool(task.options.get("overwrite", False))
            destination = stack.enter_context(local_destination(task.paths[1], replace=replace))
            return _convert(source, destination, task.options)
        paths = [stack.enter_context(local_copy(path)) for path in task.paths]
        options = dict(task.options)
        if "map" in options:
            options["map"] = stack.enter_context(local_copy(options["map"]))
        return _ACTIONS[task.action](paths, options)


def _convert(source: Path, destination: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    from align.convert.convert_checkpoint import convert_checkpoint

    named = {"map": "name_map", "layer": "layers"}
    given = {named.get(key, key): value for key, value in options.items()}
    destination.parent.mkdir(parents=True, exist_ok=True)
    record = convert_checkpoint(source, destination, **given)
    verdict = record.verdict
    unread = given.get("verify") is False  # as asked for: what was written is done, as the command alone says by exit 0
    return {
        "outcome": (Outcome.ALIGNED if unread else verdict.outcome).value,
        "reason": str(verdict.reason),
        "compared": verdict.coverage.compared,
        "rows": [],
        "prints": [],
        "content_sha256": record.content_sha256,
    }


_ACTIONS = {"diff": compare_checkpoints, "forward": compare_dumped, "check": check_file}
