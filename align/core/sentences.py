"""A sentence that knows what it was made from: its key in the catalogue, and the facts that fill it in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


class Sentence(str):
    """Text with the `key` and the `facts` that give it, so that it can be made anew in another language.

    Facts are numbers, strings, sentences, and lists of these.

    >>> one = Sentence("2 layers differ", "forward.layers_differ", {"count": 2})
    >>> one, one.key, one.facts
    ('2 layers differ', 'forward.layers_differ', {'count': 2})
    """

    __slots__ = ("facts", "key")
    key: str
    facts: Mapping[str, Any]

    def __new__(cls, text: str, key: str, facts: Mapping[str, Any]) -> Sentence:
        """Keep the key and the facts beside the text."""
        self = super().__new__(cls, text)
        self.key, self.facts = key, facts
        return self

    def __getnewargs__(self) -> tuple[str, str, Mapping[str, Any]]:  # type: ignore[override]
        """For copies and pickles."""
        return str(self), self.key, self.facts
