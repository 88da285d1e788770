"""What the two logs of mmengine have in common.

Losses, times and gradient norms are means over the last `window_size` steps, ten if the configuration does not say
otherwise, running on over epochs; at the beginning over the steps so far. All else is of the printed step.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from align.curves.log_parts.validation_metrics import phase_by_name
from align.curves.loss_log import RAW, Window
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from align.curves.loss_log import Integers

USUAL_LENGTH = 10  # format: `window_size` of mmengine's LogProcessor by default
_SETTINGS = ("lr", "momentum", "memory")
_PROCESSOR = re.compile(r"\blog_processor\s*=\s*dict\(")
_BRACKET_OR_LENGTH = re.compile(r"[(\[{]|([)\]}])|\bwindow_size\s*=\s*([0-9]{1,9})")
_AVERAGED = re.compile("loss|time|grad_norm")
_IN_SECONDS = {
    f"{prefix}{name}": f"{prefix}{name}_s" for prefix in ("", "train/", "val/") for name in ("time", "data_time")
}


def usual_length_note() -> str:
    """Say that the configuration does not tell over how many steps means are taken."""
    return sentence("logs_note.usual_length", length=USUAL_LENGTH)


def smoothed_window(name: str, length: int) -> Window:
    """Return what a metric is the mean of, by its name, where `length` steps are averaged."""
    averaged = _AVERAGED.search(name) and phase_by_name(name) == "training"
    return Window("mean of last", length) if averaged and length > 1 else RAW


def configured_length(text: str) -> int | None:
    """Return the `window_size` of the `log_processor` itself, not of what is nested in it; None if it tells none."""
    processor = _PROCESSOR.search(text) if "log_processor" in text else None
    depth = 0
    for found in _BRACKET_OR_LENGTH.finditer(text, processor.end()) if processor else ():
        closing, length = found.groups()
        if length and depth == 0:
            return int(length)
        if not length:
            depth += -1 if closing else 1
        if depth < 0:
            break
    return None


def in_seconds(columns: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """Give the times their unit as suffix."""
    return {_IN_SECONDS.get(name, name): texts for name, texts in columns.items()}


def print_interval(steps: Sequence[Integers]) -> int:
    """Return how many steps apart mmcv prints; `steps` of all training lines may start again with each epoch."""
    printed = np.concatenate(steps)
    distances = np.diff(printed, prepend=0)
    return int(np.median(np.where(distances > 0, distances, printed)))


def interval_window(name: str, interval: int) -> Window:
    """Return what a metric of mmcv is the mean of: all but settings are averaged over the print interval."""
    single = interval <= 1 or name in _SETTINGS or phase_by_name(name) == "validation"
    return RAW if single else Window("mean of last", interval)


def is_training_object(keys: Collection[str]) -> bool:
    """Tell by the keys of an object of JSON lines whether mmengine or mmcv wrote it for a training step."""
    return "iter" in keys and any({f"{prefix}time", f"{prefix}data_time"} <= set(keys) for prefix in ("", "train/"))
