"""Two loss logs, as they are: read, put on one axis, compared, judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, Union

from align.core.curves import AxisHints
from align.errors import UsageError
from align.steps.curves import pair_curves, place_on_axis
from align.steps.judge_curves import judge_curves
from align.steps.log_summary import summarize_log
from align.workflows.read_logs import read_log

if TYPE_CHECKING:
    from pathlib import Path

    from align.core.curve_results import CurveComparison
    from align.core.curves import LogSummary

N = TypeVar("N")
PerSide = Union[N, tuple[Union[N, None], Union[N, None]], None]  # noqa: UP007 - X | Y takes no type variable on 3.10


def compare_losses(
    reference: Path | str,
    candidate: Path | str,
    *,
    metric: str = "loss",
    steps_per_epoch: PerSide[int] = None,
    base: PerSide[int] = None,
    last_step: int | None = None,
) -> CurveComparison:
    r"""Compare a metric of two logs of any known formats at their common global steps.

    `steps_per_epoch` and `base` (what a log calls its first step) say what the logs do not; one number for both or a
    pair (reference, candidate). `last_step` (global, from 1) leaves out what comes after it. Raises MissingFileError,
    EmptyLogError, AmbiguousLogError, MetricMissingError, StepsPerEpochError, UnlikeCurvesError; UsageError for a
    number that makes no sense.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "torch.csv").write_text("step,loss\n0,2.3026\n1,2.1874\n2,2.0541\n")
    >>> _ = (folder / "port.log").write_text(
    ...     "epoch: 1 step: 1, loss is 2.3025\nepoch: 1 step: 2, loss is 2.1874\nepoch: 1 step: 3, loss is 2.4541\n"
    ... )
    >>> comparison = compare_losses(folder / "torch.csv", folder / "port.log")
    >>> comparison.verdict.outcome.value, comparison.first_divergent_step, comparison.trouble
    ('not aligned', 3, 'differs later')
    """
    if last_step is not None and last_step < 1:
        raise UsageError(f"the last step is {last_step}", "give a global step, counted from 1")
    lengths, bases = _sides(steps_per_epoch), _sides(base)
    left, right = (
        place_on_axis(read_log(path), metric, _hints(length, first))
        for path, length, first in zip((reference, candidate), lengths, bases, strict=True)
    )
    return judge_curves(left, right, pair_curves(left, right, last_step), last_step)


def describe_log(
    log: Path | str, *, metric: str = "loss", steps_per_epoch: int | None = None, base: int | None = None
) -> LogSummary:
    """Tell what is understood of one log; raises as `compare_losses` does."""
    return summarize_log(read_log(log), metric, _hints(steps_per_epoch, base))


def _sides(given: PerSide[N]) -> tuple[N | None, N | None]:
    return given if isinstance(given, tuple) else (given, given)


def _hints(steps_per_epoch: int | None, base: int | None) -> AxisHints:
    if steps_per_epoch is not None and steps_per_epoch < 1:
        raise UsageError(f"the number of steps per epoch is {steps_per_epoch}", "give a number from 1")
    if base not in (None, 0, 1):
        raise UsageError(f"the first step of a log cannot be called {base}", "give 0 or 1")
    return AxisHints(steps_per_epoch, None if base is None else 1 if base else 0)
