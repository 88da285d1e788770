"""Writes the expression that finds the numbers of lines of one shape: what stands in front of each, in their order."""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from align.curves.line_formats.line_roles import roles_of_line
from align.curves.line_formats.log_words import is_loss_name, is_validation, log_words, words_of
from align.curves.line_formats.numbers_of_line import numbers_of_line
from align.curves.thresholds import SUGGESTION_CHARACTERS, SUGGESTION_LINES

if TYPE_CHECKING:
    from align.curves.line_formats.line_roles import LineRoles
    from align.curves.line_formats.numbers_of_line import NumberInLine
    from align.curves.log_sources import LogSource

_COUNT = r"\d+"
VALUE = r"(?i:[-+]?(?:\d*\.?\d+(?:e[-+]?\d+)?|nan|inf(?:inity)?)|none|null)"
_END = r"(?!\.?\d)"
_SPACES = re.compile(r"\s+")
USUAL_PATTERN = r"step (?P<step>\d+) .*loss (?P<loss>\S+)"
_NUMBER = re.compile(r"[0-9]+")
_SIGNS = re.compile(r"[^\w.+-]*$")


def record_pattern(roles: LineRoles, *, rate: bool = True, overflow: bool = False) -> str:
    """Return an expression with the groups step, total, epoch, loss and lr, as far as the line has them.

    With `overflow` also that of an overflow behind them.
    """
    parts = [("step", roles.step), ("epoch", roles.epoch), ("loss", roles.loss), ("lr", roles.rate if rate else None)]
    placed = sorted(((name, one) for name, one in parts if one), key=lambda part: part[1].start)
    pieces, end = "", None
    for name, one in placed:
        piece = _first_piece(roles.line, one, _group(name, one)) if name == "step" and roles.place == "first" else ""
        piece = piece or _piece(roles.line, one, name)
        joined = name == "step" and roles.place == "ratio" and end is not None and one.after >= end
        pieces += piece if not pieces or (joined and not _WORDS.search(roles.line[end : one.start])) else f".*?{piece}"
        end = one.end
    named = _OVERFLOW.search(roles.line, end or 0) if overflow else None
    return pieces + (rf".*?{_escaped(named[1])}(?P<overflow>True|False)" if named else "")


_OVERFLOW = re.compile(r"\b(overflow(?: cond)?\s*(?:is|:|=)\s*)(?:True|False)\b")


_WORDS = re.compile(r"[A-Za-z0-9|]")


def counter_pattern(roles: LineRoles) -> str:
    """Return an expression for a line that tells only where what follows belongs, with its counters."""
    parts = [(name, one) for name, one in (("step", roles.step), ("epoch", roles.epoch)) if one]
    placed = sorted(parts, key=lambda part: part[1].start)
    joined = ""
    for one_name, one in placed:
        piece = _piece(roles.line, one, one_name)
        joined += piece if not joined or _directly(roles, one, one_name) else f".*?{piece}"
    return joined


def loss_pattern(roles: LineRoles) -> str:
    """Return an expression for the loss alone."""
    return "" if roles.loss is None else _piece(roles.line, roles.loss, "loss")


def _directly(roles: LineRoles, one: NumberInLine, name: str) -> bool:
    return name == "step" and roles.place == "ratio" and not _WORDS.search(roles.line[max(one.after, 0) : one.start])


def _group(name: str, one: NumberInLine) -> str:
    value = VALUE if name in ("loss", "lr") else _COUNT
    end = "" if name in ("loss", "lr") else _END
    return f"(?P<{name}>{value}){end}" + (
        rf"{_escaped(one.ratio)}(?P<total>\d+)" if name == "step" and one.total else ""
    )


def _piece(line: str, one: NumberInLine, name: str) -> str:
    group = _group(name, one)
    if not _LETTERS.search(one.label):
        glued = rf"(?<![\w.])(?P<{name}>{_COUNT}){re.escape(one.unit)}"
        return glued if one.unit and name in ("step", "epoch") else _unnamed_piece(line, one, group)
    words = _known_words(one.label, name)
    glue = line[one.label_end : one.start]
    start = line.rfind(words[0], one.label_start, one.label_end) if len(words) == 1 else -1
    start = start if start >= 0 else one.label_end - len(one.label[one.label.rfind(words[0]) :])
    boundary = r"(?<![\w./-])"
    if name == "loss" and not re.search(r"[A-Za-z]\s$", line[:start]):
        boundary += r"(?<![A-Za-z]\s)"
    return boundary + r"\s+".join(map(re.escape, words)) + _escaped(glue) + group


_LETTERS = re.compile(r"[A-Za-z\u4e00-\u9fff]")


def _known_words(label: str, name: str) -> list[str]:
    """Return the words of a label that the expression asks for: of a counter the last, with its phase in front."""
    words = label.split()
    if name in ("step", "epoch"):
        before = words[-2:-1]
        phase = before and (set(words_of(before[0])) & {"train", "training"} or is_validation(before[0]))
        return words[-2:] if phase else words[-1:]
    known = log_words().names["loss.plain"] | log_words().names["loss.means"] | log_words().names["loss.words"]
    while len(words) > 1 and not set(words_of(words[0])) & known and any(map(is_loss_name, words[1:])):
        words = words[1:]
    return words


def _unnamed_piece(line: str, one: NumberInLine, group: str) -> str:
    """Return an expression by the signs alone in front of a number: a bracket, or the end of a bar."""
    signs = re.search(r"[^\w.]*$", line[max(one.after, 0) : one.start])
    glue = signs[0] if signs else ""
    if "|" in glue:
        return r"\|" + _escaped(glue[glue.rfind("|") + 1 :]) + group
    return _escaped(glue.lstrip() if one.after < 0 else glue) + group


def _first_piece(line: str, one: NumberInLine, group: str) -> str:
    return rf"^\s*{group}\s+" if line[: one.start].strip() == "" else ""


def _escaped(glue: str) -> str:
    """Escape signs; spaces may be many or, beside a sign, none."""
    if glue and not glue.strip():
        return r"\s+"
    return (
        r"\s*".join(re.escape(part) for part in _SPACES.split(glue))
        if glue.strip() == glue
        else (r"\s*".join(["", *map(re.escape, glue.split()), ""]))
    )


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
    return SuggestedPattern(number, line[:SUGGESTION_CHARACTERS], _suggested(line) or USUAL_PATTERN)


def _worth(line: str, shapes: Counter[str]) -> tuple[int, bool, int]:
    """Lines of training that tell a loss and a counter come first, then those that repeat."""
    numbers = numbers_of_line(line) if len(line) < SUGGESTION_CHARACTERS * 2 else []
    if not numbers:
        return (0, False, shapes[_NUMBER.sub("#", line)])
    named = roles_of_line(0, line).counted + any(is_loss_name(one.label) for one in numbers)
    return (named + (len(numbers) > 1), not is_validation(line), shapes[_NUMBER.sub("#", line)])


def _suggested(line: str) -> str:
    """Return an expression for a counter and a loss: those known by their names, else the first and the last number."""
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
    pattern = ".*?".join(_usual_piece(line, *groups[start]) for start in sorted(groups))
    match = re.search(pattern, line)
    return pattern if match and (match[counter], match["loss"]) == (step.text, loss.text) else ""


def _usual_piece(line: str, one: NumberInLine, group: str) -> str:
    """Return the words or signs in front of a number, and the group."""
    words = [re.escape(word) for word in one.label.split()[-2:]]
    signs = _SIGNS.search(line[max(one.label_end, one.after, 0) : one.start])
    glue = (signs[0] if signs else "").strip()
    return r"\s+".join(words) + (rf"\s*{re.escape(glue)}\s*" if glue else r"\s*") + group
