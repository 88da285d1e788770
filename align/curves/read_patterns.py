r"""The user's own expressions for the lines of loss logs, as the project file writes them.

[loss]
pattern = 'step (?P<step>\d+) .*loss (?P<loss>\S+)'
candidate_pattern = '...'            # where one side's log is another; `reference_pattern` too
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

PATTERN_KEYS = ("pattern", "reference_pattern", "candidate_pattern")


def read_patterns(document: dict[str, Any]) -> tuple[str, str]:
    """Return the expressions of the reference and the candidate; "" where the project file has none."""
    loss = document.get("loss", {})
    usual = loss.get("pattern", "")
    return loss.get("reference_pattern", usual), loss.get("candidate_pattern", usual)


def pattern_faults(document: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with them as texts; what they find is seen when a log is read."""
    loss = document.get("loss", {})
    for key in PATTERN_KEYS if isinstance(loss, dict) else ():
        if key in loss and (not isinstance(loss[key], str) or not loss[key].strip()):
            yield f"[loss] {key} must be text, not {loss[key]!r}"
