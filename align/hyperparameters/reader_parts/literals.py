"""Values as programs print them, and the parts of a printed call such as `Namespace(lr=0.1, betas=(0.9, 0.999))`."""

from __future__ import annotations

import ast
import warnings
from typing import TYPE_CHECKING

from align.hyperparameters.reader_parts.nested_settings import short

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.hyperparameters.settings_format import Value

OPENING, CLOSING, QUOTES = "([{<", ")]}>", "'\""


def printed_value(text: str) -> Value:
    """What a text stands for: a number, a list, True, None, else the text without quotes.

    >>> printed_value("(0.9, 0.999)"), printed_value("cosine"), printed_value("1e-4")
    ((0.9, 0.999), 'cosine', 0.0001)
    """
    text = text.strip()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes in a text
            found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return short(_unwrapped(text))
    if isinstance(found, (list, tuple)) and all(isinstance(one, (str, int, float, bool, type(None))) for one in found):
        return tuple(found)
    return short(found) if isinstance(found, (str, int, float, bool, type(None))) else short(text)


def call_arguments(text: str, start: int) -> tuple[list[tuple[str, str, int]], int]:
    """The arguments `name=value` of a printed call, from behind its parenthesis: name, text and where each begins.

    Also where the call ends: behind its closing parenthesis, or at the end of a text that was cut off.
    """
    found, begin = [], start
    for place, mark in _top_level_marks(text, start):
        name, equals, value = text[begin:place].partition("=")
        if equals and name.strip().isidentifier():
            found.append((name.strip(), value.strip(), begin + len(name) - len(name.lstrip())))
        begin = place + 1
        if mark == ")":
            break
    return found, begin


def _top_level_marks(text: str, start: int) -> Iterator[tuple[int, str]]:
    """The commas between arguments and the parenthesis that ends them; what stands in quotes or brackets is passed."""
    depth, quote, place = 0, "", start
    while place < len(text):
        letter = text[place]
        if quote:
            place += letter == "\\"
            quote = "" if letter == quote else quote
        elif letter in QUOTES:
            quote = letter
        elif letter in OPENING:
            depth += 1
        elif depth and letter in CLOSING:
            depth -= 1
        elif letter == ")" or (letter == "," and not depth):
            yield place, letter
        place += 1


def _unwrapped(text: str) -> str:
    """What stands in `<SchedulerType.COSINE: 'cosine'>` and `PosixPath('x')`; other texts as they are."""
    if text.startswith("<") and text.endswith(">") and ": " in text:
        return text[1:-1].rpartition(": ")[2].strip(QUOTES)
    if text.endswith(")") and text.partition("(")[0].isidentifier():
        inside = text.partition("(")[2][:-1].strip()
        return inside.strip(QUOTES) if inside[:1] in tuple(QUOTES) else text
    return text
