"""Two iterations of one training held against each other by the figures of their tensors.

Their batches are others, so that no limit applies: what shows is which tensor grew, shrank, or is no number any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from align.core.verdicts import ShownResult
from align.errors import MissingFileError, UnlikeTracesError, UsageError
from align.traces.capture_trace import BACKWARD
from align.traces.dumped_side import is_trace_folder, trace_folders_in
from align.traces.trace_folder import TraceFolder
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterable

    from align.core.measurements import TensorStatistics
    from align.core.trace_metadata import Direction
    from align.core.traces import Capture


@dataclass(frozen=True, slots=True)
class ChangedTensor:
    """A tensor in both iterations; `factor` is its root mean square over that of before, at least 1 either way.

    `non_finite_before` and `non_finite_after` count NaN and Inf. The factor is infinite where one of both is zero or
    has no finite element.
    """

    direction: Direction
    module: str
    call: int
    output: str
    class_name: str
    rms_before: float | None
    rms_after: float | None
    factor: float
    non_finite_before: int
    non_finite_after: int


@dataclass(frozen=True, slots=True)
class IterationChanges(ShownResult):
    """What changed between two iterations of one run; it decides nothing, so there is no verdict.

    `tensors` stand in the order of the run, forward first. `first_non_finite` is the place in that list of the first
    one that has NaN or Inf and had none `before`, None for none; backward, order is that in which gradients arrived.
    `unpaired` counts the tensors of one iteration only.
    """

    result_kind = "iterations"
    before: int
    after: int
    model: str
    tensors: tuple[ChangedTensor, ...]
    first_non_finite: int | None
    unpaired: int


def compare_iterations(before: Path | str, after: Path | str) -> IterationChanges:
    """Compare two iterations of one run that `align.dump` wrote, by the figures of each tensor.

    Raises MissingFileError or RunFolderError for what is no trace folder, UsageError for a folder of several,
    UnlikeTracesError for two models.

    >>> compare_iterations("dumps/step_3", "dumps/step_4")
    Traceback (most recent call last):
    align.errors.MissingFileError: trace folder not found: dumps/step_3
    Hint: check the path; relative paths start at the current folder
    """
    paths = Path(before), Path(after)
    for path in paths:
        _check_is_iteration(path)
    traces = TraceFolder(paths[0]), TraceFolder(paths[1])
    heads = [one.manifest.head for one in traces]
    sides = [(one.side, one.framework) if one else ("", "") for one in heads]
    if sides[0] != sides[1]:
        fault = say("trace_fault.different", name="model", reference=sides[0][0], candidate=sides[1][0])
        both = say("trace_fault.both", reference=paths[0], candidate=paths[1])
        raise UnlikeTracesError(both, [fault], say("loop_dump_reason.of_one_run"))
    rows, unpaired = _rows(traces, "forward")
    backward = [path / BACKWARD for path in paths]
    if all(path.is_dir() for path in backward):
        more, alone = _rows((TraceFolder(backward[0]), TraceFolder(backward[1])), "backward")
        rows, unpaired = [*rows, *more], unpaired + alone
    steps = [one.step if one else 0 for one in heads]
    first = next((n for n, row in enumerate(rows) if row.non_finite_after and not row.non_finite_before), None)
    return IterationChanges(steps[0], steps[1], sides[0][0], tuple(rows), first, unpaired)


def refuse_one_iteration(folder: Path) -> NoReturn:
    """Say what to name beside one folder, or in the place of one that holds several iterations."""
    _check_is_iteration(folder)
    raise UsageError.of("loop_dump_error.one_iteration", folder=folder)


def _check_is_iteration(folder: Path) -> None:
    """Raise UsageError that names the iterations inside of a folder that is none itself, and two of one rank."""
    if not folder.is_dir():
        raise MissingFileError(folder, "trace folder")
    found = [] if is_trace_folder(folder) else trace_folders_in(folder)
    if not found:
        return
    of_one_rank = [one for one in found if one.parent == found[0].parent]
    inside = [str(one.relative_to(folder)) for one in found]
    facts = {"folder": folder, "count": len(inside), "inside": inside, "first": [*map(str, of_one_rank[:2])]}
    raise UsageError.of("loop_dump_error.folder_of_iterations", **facts)


def _rows(traces: tuple[TraceFolder, TraceFolder], direction: Direction) -> tuple[list[ChangedTensor], int]:
    figures = [one.manifest.statistics for one in traces]
    common = figures[0].keys() & figures[1].keys()
    captures = (one for one in traces[1].captures if one.key in common)
    rows = [_row(one, figures[0][one.key], figures[1][one.key], direction) for one in _ended(captures)]
    return rows, len(figures[0].keys() ^ figures[1].keys())


def _ended(captures: Iterable[Capture]) -> list[Capture]:
    return sorted(captures, key=lambda one: one.order)


def _row(one: Capture, before: TensorStatistics, after: TensorStatistics, direction: Direction) -> ChangedTensor:
    return ChangedTensor(
        direction,
        one.module,
        one.call,
        one.output,
        one.class_name,
        before.rms,
        after.rms,
        _factor(before.rms, after.rms),
        before.nan + before.inf,
        after.nan + after.inf,
    )


def _factor(before: float | None, after: float | None) -> float:
    if before == after:
        return 1.0
    if not before or not after:
        return inf
    return max(before / after, after / before)
