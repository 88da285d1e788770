"""How many steps a schedule is made for, and how many it names: behind which step the next change may come.

A schedule with an end (a cosine, a polynomial) says nothing about the steps behind it; one that decays every so many
steps goes on for ever, however that number is called.
"""

from __future__ import annotations

from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any

from align.core.thresholds import LONGEST_SCHEDULE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ENDS = {"OneCycleLR": "total_steps", "CosineAnnealingLR": "T_max", "PolynomialLR": "total_iters"}
COUNTERS = ("last_epoch", "verbose")  # where a schedule is, not what it is


def scheduler_end(scheduler: Any) -> int:
    """The number of steps that a scheduler is made for, 0 if it has no end: behind them, some start anew."""
    if parts := scheduler_parts(scheduler):
        milestones = getattr(scheduler, "_milestones", None)
        if milestones is None:
            return max(map(scheduler_end, parts))
        last = scheduler_end(parts[-1])
        return int(milestones[-1]) + last if last else 0
    return int(getattr(scheduler, ENDS.get(type(scheduler).__name__, ""), 0) or 0)


def scheduler_parts(scheduler: Any) -> tuple[Any, ...]:
    """The schedulers that one runs in turn or at once."""
    return tuple(getattr(scheduler, "_schedulers", ()))


def largest_step(schedules: Iterable[object]) -> int:
    """The largest whole number that schedules and their parts, or functions that they call, are given; 0 if none."""
    found = [number for one in schedules for number in _numbers(one)]
    return int(max((one for one in found if 0 < one <= LONGEST_SCHEDULE), default=0))


def _numbers(schedule: object) -> Iterator[float]:
    own = {name: value for name, value in vars(schedule).items() if not name.startswith("_")}
    own["milestones behind"] = getattr(schedule, "_milestones", ())
    yield from (number for name, value in own.items() if name not in COUNTERS for number in _whole(value))
    yield from (number for part in scheduler_parts(schedule) for number in _numbers(part))


def _whole(value: object) -> Iterator[float]:
    """The whole numbers in a setting, in a list or the keys of a mapping, or among what a function is given."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from (value,) if value == value // 1 else ()
    elif isinstance(value, (list, tuple, dict)):
        yield from (number for item in value for number in _whole(item))
    elif isinstance(value, partial):
        yield from _whole([value.func, *value.args, *value.keywords.values()])
    elif isinstance(value, FunctionType):
        kept = (cell.cell_contents for cell in value.__closure__ or ())
        yield from _whole([*value.__code__.co_consts, *(value.__defaults__ or ()), *kept])
