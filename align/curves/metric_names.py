"""The names that training logs give to the same thing: `lr` here is `learning_rate` there.

A name is looked for as it is first. Times are compared in seconds, whatever unit a log prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

MILLI = 1e-3  # format: seconds
# Each metric by the name under which it is compared, and what logs call it, the surest first.
NAMES: dict[str, tuple[str, ...]] = {
    "lr": ("lr", "learning_rate", "base_lr", "lr/pg0", "x/lr0", "lr-SGD", "lr-Adam", "lr-AdamW", "current_lr"),
    "grad_norm": ("grad_norm", "global_norm", "gradient_norm", "grad norm", "global_grad_norm", "total_norm"),
    "loss_scale": ("loss_scale", "scale", "loss scale", "loss_scaling"),
    "accuracy": ("accuracy", "acc", "acc1", "top1", "top1_acc", "train_acc", "train_accuracy", "Top_1_Accuracy"),
    "step_time": (
        "step_time_s", "step_time_ms", "per_step_time_ms", "time_s", "time_ms", "batch_time_s", "avg_batch_cost_s",
        "batch_cost_s", "step_time",
    ),
    "interval_time": ("interval_time_s", "interval_runtime_s"),  # of all steps since the last print together
    "data_time": (
        "data_time_s", "data_time_ms", "avg_reader_cost_s", "reader_cost_s", "data_cost_s", "data_time",
    ),
}  # fmt: skip
# Set or measured at one step, so that their mean over several says little.
OF_THE_MOMENT = frozenset({"lr", "loss_scale", "grad_norm"})
_UNITS = {"_ms": MILLI}


class FoundMetric(NamedTuple):
    """What a log calls a metric, and by what its numbers are multiplied to be in the unit of comparison."""

    name: str
    scale: float


def find_metric(names: Collection[str], metric: str) -> FoundMetric | None:
    """Find a metric among the names of a log; None if none of its names is there."""
    found = metric if metric in names else _spelled_otherwise(names, metric)
    if found is None:
        return None
    in_unit = next((factor for end, factor in _UNITS.items() if found.endswith(end)), 1.0)
    return FoundMetric(found, in_unit if same_metric(metric) in NAMES else 1.0)


def usual_names(names: Collection[str], metric: str) -> list[str]:
    """Return the names that stand for a metric, or for one that is looked at beside any other."""
    if not names:
        return []
    usual = {_plain(name) for known in NAMES for name in (known, *NAMES[known])} | {_plain(metric)}
    ends = {end for name in usual for end in (name[-2:], name[-2:].replace("_", " "), name[-2:].replace("_", "-"))}
    # Most names need no closer look: a row may have 100,000.
    return [name for name in names if name.rstrip()[-2:].lower() in ends and _plain(name) in usual]


def same_metric(metric: str) -> str:
    """Return the name under which a metric is compared: `lr` for `learning_rate`, a strange one as it is."""
    return _KNOWN.get(_plain(metric), metric)


def _spelled_otherwise(names: Collection[str], metric: str) -> str | None:
    wanted = (metric, *NAMES.get(same_metric(metric), ()))
    plain = {_plain(name): name for name in reversed(list(names))}
    return next((plain[one] for one in map(_plain, wanted) if one in plain), None)


def _plain(name: str) -> str:
    """Take the spelling off: case, separators, and the phase in front (`train/`)."""
    return name.strip().lower().replace(" ", "_").replace("-", "_").removeprefix("train/").removeprefix("train_")


def is_loss(metric: str) -> bool:
    """Tell by its name whether a metric is a loss; `loss_scale` is none."""
    return "loss" in metric.lower() and "scale" not in metric.lower()


_KNOWN = {_plain(name): known for known, names in reversed(NAMES.items()) for name in (*names, known)}
