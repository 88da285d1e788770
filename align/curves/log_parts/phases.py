"""The phase that a metric's name tells: `val_loss`, `eval/loss`, `Loss/test` are not of training."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from align.curves.loss_log import Phase

OTHER_PHASES = ("val", "valid", "validation", "eval", "evaluation", "test", "predict")
_WORDS = re.compile(r"[/_\s.-]+")


def phase_by_name(name: str) -> Phase:
    """Tell the phase by the first or the last word of a metric's name."""
    words = _WORDS.split(name.lower())
    return "validation" if {words[0], words[-1]} & set(OTHER_PHASES) else "training"
