"""How many steps a line says were skipped: a group `overflow` or `skipped` of its expression, a number or a word."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.curves.log_parts.table_builder import NO_STEP, read_steps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.curves.loss_log import Integers

SKIP_GROUPS = ("overflow", "skipped")
_YES = {"true", "yes", "y", "overflow", "skipped", "skip"}


def skipped_steps(groups: Sequence[Mapping[str, str]]) -> Integers | None:
    """Return the skipped steps of each line, shape (lines,); None where the expression has no such group."""
    name = next((one for one in SKIP_GROUPS if groups and one in groups[0]), None)
    if name is None:
        return None
    texts = [one[name] for one in groups]
    counts = read_steps(texts)
    words = np.array([text.lower() in _YES for text in texts], np.int64)
    return np.where(counts == NO_STEP, words, counts)
