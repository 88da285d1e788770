"""An expression to start from where nothing was found in a log: by the line that tells the most."""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from align.curves.line_formats.line_roles import roles_of_line
from align.curves.line_formats.log_words import is_loss_name, is_validation
from align.curves.line_formats.numbers_of_line import numbers_of_line
from align.curves.thresholds import SUGGESTION_CHARACTERS, SUGGESTION_LINES

if TYPE_CHECKING:
    from align.curves.line_formats.numbers_of_line import NumberInLine
    from align.curves.log_sources import LogSource

USUAL_PATTERN = r"step (?P<step>\d+) .*loss (?P<loss>\S+)"
_NUMBER = re.compile(r"[0-9]+")
_SIGNS = re.compile(r"[^\w.+-]*$")


class SuggestedPattern(NamedTuple):
    """A line of a log by its number, and an expression that finds two of its numbers."""

    number: int
    line: str
    pattern: str


def suggest_pattern(source: LogSource) -> SuggestedPattern | None:
    """Return the line that looks most like a record, and an expression for it; None for what is no text."""
    if source.is_binary:
        return None
    filled = ((number, line.strip()) for number, line in source.lines() if line.strip())
    lines = list(islice(filled, SUGGESTION_LINES))
    if not lines:
        return None
    shapes = Counter(_NUMBER.sub("#", line) for _, line in lines)
    number, line = max(lines, key=lambda one: _worth(one[1], shapes))
    return SuggestedPattern(number, line[:SUGGESTION_CHARACTERS], _pattern(line) or USUAL_PATTERN)


def _worth(line: str, shapes: Counter[str]) -> tuple[int, bool, int]:
    """Lines of training that tell a loss and a counter come first, then those that repeat."""
    numbers = numbers_of_line(line) if len(line) < SUGGESTION_CHARACTERS * 2 else []
    if not numbers:
        return (0, False, shapes[_NUMBER.sub("#", line)])
    told = roles_of_line(0, line).counted + any(is_loss_name(one.label) for one in numbers)
    return (told + (len(numbers) > 1), not is_validation(line), shapes[_NUMBER.sub("#", line)])


def _pattern(line: str) -> str:
    """Return an expression for a counter and a loss: those told by their names, else the first and the last number."""
    numbers, roles = numbers_of_line(line), roles_of_line(0, line)
    step = roles.step or roles.epoch or next((one for one in numbers if one.whole), None)
    others = [one for one in numbers if one is not step and one.start != (step.start if step else -1)]
    named = [one for one in others if is_loss_name(one.label)]
    of_training = [one for one in others if "." in one.text and not is_validation(one.label)]
    loss = roles.loss or next(iter(named or of_training), None)
    if step is None or loss is None or step.start == loss.start:
        return ""
    counter = "epoch" if step is roles.epoch else "step"
    groups = {step.start: (step, rf"(?P<{counter}>\d+)"), loss.start: (loss, r"(?P<loss>[-+.\w]+)")}
    pattern = ".*?".join(_piece(line, *groups[start]) for start in sorted(groups))
    match = re.search(pattern, line)
    return pattern if match and (match[counter], match["loss"]) == (step.text, loss.text) else ""


def _piece(line: str, one: NumberInLine, group: str) -> str:
    """Return the words or signs in front of a number, and the group."""
    words = [re.escape(word) for word in one.label.split()[-2:]]
    signs = _SIGNS.search(line[max(one.label_end, one.after, 0) : one.start])
    glue = (signs[0] if signs else "").strip()
    return r"\s+".join(words) + (rf"\s*{re.escape(glue)}\s*" if glue else r"\s*") + group
