"""What messages share: a number with its noun, a list cut to a readable length, a sentence that keeps its facts."""

from __future__ import annotations

from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, Any

from align.words.thresholds import LONGEST_SHOWN_LINE, MOST_NAMES_COMPARED, NAMES_IN_SENTENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from typing_extensions import Self


class Text(str):
    """Text with the `key` and the `facts` that give it, so that it can be made anew in another language.

    Facts are numbers, strings, texts, and lists of these.

    >>> one = Text("2 layers differ", "forward.layers_differ", {"count": 2})
    >>> one, one.key, one.facts
    ('2 layers differ', 'forward.layers_differ', {'count': 2})
    """

    __slots__ = ("facts", "key")
    key: str
    facts: Mapping[str, Any]

    def __new__(cls, text: str, key: str, facts: Mapping[str, Any]) -> Self:
        """Keep the key and the facts beside the text."""
        self = super().__new__(cls, text)
        self.key, self.facts = key, facts
        return self

    def __getnewargs__(self) -> tuple[str, str, Mapping[str, Any]]:  # type: ignore[override]
        """For copies and pickles."""
        return str(self), self.key, self.facts


class Sentence(Text):
    """A text of a result, whose document keeps the key and the facts beside it."""

    __slots__ = ()


class ChangedText(Text):
    """A text as a function leaves it, which is called anew on the text in another language."""

    __slots__ = ("change", "source")
    change: Callable[[str], str]
    source: Text

    def __reduce__(self) -> tuple[Any, ...]:
        """For copies and pickles, of which other languages have the text without the change."""
        return Text, (str(self), self.key, self.facts)


def changed(text: str, change: Callable[[str], str]) -> str:
    """The text as `change` leaves it, in any language.

    >>> one = changed(Text("give --key", "some.hint", {}), lambda hint: hint.replace("--key", "--reference-key"))
    >>> one, one.key
    ('give --reference-key', 'some.hint')
    """
    if not isinstance(text, Text):
        return change(text)
    made = ChangedText(change(str(text)), text.key, text.facts)
    made.change, made.source = change, text
    return made


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 tensor`, `2 tensors`, `3,000 entries`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def printable(text: str) -> str:
    """Text of a file with its control characters, which could steer a terminal, escaped."""
    return text if text.isprintable() else "".join(map(_visible, text))


def harmless(text: str, longest: int = LONGEST_SHOWN_LINE) -> str:
    """Text with every line printable and cut to `longest` characters; of control characters only its line breaks stay.

    >>> harmless("a long line", 6)
    'a long ...'
    """
    if len(text) <= longest and text.isprintable():
        return text
    return "\n".join(printable(line if len(line) <= longest else f"{line[:longest]} ...") for line in text.split("\n"))


def close_names(names: Iterable[str], known: Collection[str]) -> dict[str, tuple[str, ...]]:
    """The known names that come closest to each of the first names; to look up more would take long."""
    first = islice(names, max(MOST_NAMES_COMPARED // max(len(known), 1), 1))
    return {name: tuple(get_close_matches(name, known, NAMES_IN_SENTENCE)) for name in first}


def first_few(names: Sequence[str], most: int = NAMES_IN_SENTENCE) -> str:
    """The first `most` names, and dots if there are more."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def _visible(char: str) -> str:
    return char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode("ascii")
