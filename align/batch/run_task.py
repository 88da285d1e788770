"""One task, where it is run: its paths are opened, and what is found is told in plain and small figures.

Figures of every action: `outcome` and `reason` of the verdict, `rows` [name, outcome, value] in execution or file
order, where value is the relative difference or the multiple of the limit, and `prints`, one [name, reference,
candidate] a tensor: fingerprints of the values, None for what a side lacks.
"""

from __future__ import annotations

import hashlib
import importlib
import math
import os
import queue
import threading
import time
from collections import deque
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from align.batch.job import TaskOutcome
from align.batch.thresholds import MOST_ATTEMPTS
from align.checkpoints.extents import byte_blocks, check_whole, require_unchanged
from align.checkpoints.open_checkpoint import open_checkpoint
from align.convert.diff_checkpoints import diff_checkpoints
from align.core.atomic_files import local_copy, local_destination
from align.core.parameters import numpy_dtype
from align.core.verdicts import Outcome
from align.errors import AlignError, UsageError
from align.words.catalogue import say, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from align.batch.job import Task
    from align.convert.pair_checkpoints import TensorDifference
    from align.core.parameters import Array, Shape, StoredTensor
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
    diff = diff_checkpoints(
        *paths, name_map=options.get("map"), strip=strip, reference_key=keys[0], candidate_key=keys[1]
    )
    rows = [[tensor.reference, _outcome(tensor), _relative(tensor)] for tensor in diff.tensors]
    rows += [[name, "not aligned", None] for name in (*diff.missing, *diff.extra)]
    mine, theirs = (
        {_stripped(name, strip): stored_print(tensor) for name, tensor in checkpoint.tensors.items()}
        for checkpoint in opened
    )
    for checkpoint in opened:
        require_unchanged(checkpoint)
    pairs = {tensor.candidate: tensor.reference for tensor in diff.tensors}
    return _figures(diff.verdict, rows, _joined_prints(mine, theirs, pairs))


def compare_dumped(paths: list[Path], options: Mapping[str, Any]) -> dict[str, Any]:
    """What `align forward` finds in two dumps or trace folders, with fingerprints of the parameters of both."""
    from align.forward.compare_trace_folders import compare_trace_folders
    from align.forward.forward_result import NO_ALLOWANCES, Allowances, read_limits
    from align.traces.dumped_side import open_dumped_side
    from align.traces.pair_traces import choose_map

    limits = read_limits(options.get("limit", ()))
    comparison = compare_trace_folders(
        *paths,
        name_map=options.get("map"),
        partial=bool(options.get("partial", False)),
        allowances=Allowances(limits=limits) if limits else NO_ALLOWANCES,
    )
    rows = [[_layer_name(layer), layer.outcome, layer.factor] for layer in comparison.layers]
    sides = open_dumped_side(paths[0]), open_dumped_side(paths[1])
    mine, theirs = (dict(_parameter_prints(side)) for side in sides)
    unlike = mine and theirs and mine.keys() != theirs.keys()
    paired = choose_map(options.get("map"), (sides[0].parameters, sides[1].parameters)).pairings if unlike else ()
    return _figures(
        comparison.verdict, rows, _joined_prints(mine, theirs, {pairing.target: pairing.source for pairing in paired})
    )


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
    named = {pairs.get(name, name): value for name, value in theirs.items()}
    return [[name, mine.get(name), named.get(name)] for name in dict.fromkeys((*mine, *named))]


# A checkpoint read from end to end: whether that works, and whether it holds NaN or Inf.


def check_file(paths: list[Path], options: Mapping[str, Any]) -> dict[str, Any]:
    """Read all tensors of a checkpoint; one with NaN or Inf is not aligned."""
    checkpoint = open_checkpoint(paths[0], options.get("key"))
    check_whole(checkpoint)
    odd = {name: count for name, tensor in checkpoint.tensors.items() if (count := _not_finite(tensor))}
    reason = say("batch_task.read", count=len(checkpoint.tensors))
    if odd:
        reason = say("batch_task.not_finite", count=len(odd), names=[*odd])
    prints = [[name, None, stored_print(tensor)] for name, tensor in checkpoint.tensors.items()]
    require_unchanged(checkpoint)
    return {
        "outcome": "not aligned" if odd else "aligned",
        "reason": reason,
        "compared": len(checkpoint.tensors),
        "rows": [[name, "not aligned" if name in odd else "aligned", odd.get(name)] for name in checkpoint.tensors],
        "prints": prints,
    }


def _not_finite(tensor: StoredTensor) -> int:
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
        "content_hash": record.content_hash,
    }


_ACTIONS = {"diff": compare_checkpoints, "forward": compare_dumped, "check": check_file}


# What a worker of the pool does: read a task, run it, answer; it leaves when the other end of its line closes.
#
# A thread listens to the line, so that a worker in the middle of a task leaves too when its parent is gone.


def serve(descriptor: int) -> None:
    """Answer what comes on the line at `descriptor`: the name of a function first, then tasks."""
    line = Connection(descriptor)
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(line, inbox), daemon=True).start()
    function = None
    while True:
        given = inbox.get()
        if not isinstance(given, str):
            line.send(attempt_task(given, function))  # type: ignore[arg-type]
            continue
        try:
            function = imported_function(given)
            line.send(None)
        except AlignError as error:
            line.send((error.message, error.hint))


def _listen(line: Connection, inbox: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            inbox.put(line.recv())
    except (EOFError, OSError):
        os._exit(0)


# One attempt at a task, wherever it runs: its figures or its failure, with seconds and memory, as plain data.

_PEAK = "VmHWM:"


def attempt_task(task: Task, function: Callable[[Task], Mapping[str, Any]]) -> dict[str, Any]:
    """Run a task; what it raises is its failure: figures, error, hint, seconds, peak_bytes."""
    _forget_peak()
    start = time.monotonic()
    attempt: dict[str, Any] = {"figures": {}, "error": "", "hint": ""}
    try:
        attempt["figures"] = dict(function(task))
    except AlignError as error:
        attempt["error"], attempt["hint"] = error.message, error.hint
    except MemoryError:
        attempt["error"], attempt["hint"] = texts("batch_error.no_memory")
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary: a task's fault is its outcome
        attempt["error"], attempt["hint"] = texts("batch_error.task", kind=type(error).__name__, error=str(error))
    return attempt | {"seconds": time.monotonic() - start, "peak_bytes": _peak_bytes()}


def imported_function(function: str) -> Callable[[Task], Mapping[str, Any]]:
    """Import the function that "module:name" names; raises UsageError if there is none."""
    module, _, name = function.partition(":")
    try:
        found: Callable[[Task], Mapping[str, Any]] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError.of("batch_error.no_function", function=function, error=str(error)) from error
    return found


def _forget_peak() -> None:
    """Let the kernel measure the peak of resident memory anew (proc(5), clear_refs 5); it may not be allowed."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak_bytes() -> int | None:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith(_PEAK):
                return int(line.split()[1]) * 1024
    return None


# How often each task was tried, and what is still to be tried: the same for a pool and a cluster.


class Attempts:
    """Tasks in the order given, then those that failed once: what hangs or is out of reach holds up the rest least.

    The iterable is read as they are asked for.
    """

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._fresh = iter(tasks)
        self._again: deque[Task] = deque()
        self._failures: dict[str, int] = {}  # of tasks that failed once and are not done

    def next_task(self) -> Task | None:
        """The next task to try, None if there is none now: a failure may bring one back."""
        if (fresh := next(self._fresh, None)) is not None:
            return fresh
        return self._again.popleft() if self._again else None

    def end(self, task: Task, attempt: dict[str, Any], tries: int = 1) -> TaskOutcome | None:
        """The outcome that `tries` attempts decide; None if the task is to be tried once more."""
        attempts = self._failures.pop(task.id, 0) + tries
        if attempt["error"] and attempts < MOST_ATTEMPTS:
            self._failures[task.id] = attempts
            self._again.append(task)
            return None
        return TaskOutcome(task=task.id, state="failed" if attempt["error"] else "done", attempts=attempts, **attempt)
