"""In which order the pieces of a fused layer follow each other, as far as names tell."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.names.layers.path_words import is_number, tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

# Words for the pieces, by the sign that stands for each.
_SIGNS = {
    "q": "q", "query": "q", "queries": "q",
    "k": "k", "key": "k", "keys": "k",
    "v": "v", "val": "v", "value": "v", "values": "v",
    "gate": "g", "up": "u",
}  # fmt: skip
ATTENTION = ("q", "k", "v")
_FUSED = re.compile(r"w?(qkv|qvk|kqv|kvq|vqk|vkq|qk|kv|vk|kq)")
_ATTENDING = frozenset({"qkv", "wqkv", "attn", "attention"})
# torch documents its packed projection as q above k above v.
_PACKED = 0.9
_NAMED = 0.7
NUMBERED = 0.6
_NOTE = "the order of the pieces is by {}; a trial would tell whether they are interleaved"


@dataclass(frozen=True, slots=True)
class PieceOrder:
    """The pieces by their place in the whole, how sure that is, and what is to be known of it."""

    indices: tuple[int, ...]
    confidence: float
    note: str


def piece_order(whole: str, pieces: Sequence[str], *, packed: bool) -> PieceOrder | None:
    """Return the order of pieces in a fused layer by the paths of all; None if they do not tell.

    `packed` says that it is the packed projection of torch's attention.
    """
    last = [tokens(piece.rpartition(".")[2]) for piece in pieces]  # they stand in one module
    own = [[token for token in words if not all(token in others for others in last)] for words in last]
    wanted = _told_order(whole)
    signs = [_sign(words) for words in own]
    if all(signs) and len(set(signs)) == len(signs) and set(signs) <= set(wanted):
        by_name = [signs.index(sign) for sign in wanted if sign in signs]
        return PieceOrder(tuple(by_name), _PACKED if packed else _NAMED, _NOTE.format("name"))
    attends = packed or not _ATTENDING.isdisjoint(tokens(whole)[-3:])
    if wanted == ATTENTION and attends and len(pieces) == 3 and (places := _numbered(own)):
        return PieceOrder(places, NUMBERED, _NOTE.format("number, taken as q, k, v"))
    return None


def piece_sign(path: str) -> str:
    """The sign for what a layer computes by its own name (q, k, v, g for a gate, u for the values), "" if none."""
    return _sign(tokens(path.rpartition(".")[2]))


def _told_order(whole: str) -> tuple[str, ...]:
    """Signs in the order that the name of the fused layer tells or implies; none if it is not known."""
    last = tokens(whole)[-3:]
    spelled = [_SIGNS[token] for token in last if token in _SIGNS]
    if set(spelled) & {"g", "u"}:
        return tuple(spelled) if len(spelled) == len(set(spelled)) > 1 else ()
    if len(spelled) > 1:  # query_key_value is interleaved by heads in some models, and not in others
        return ()
    letters = next((found[1] for token in last if (found := _FUSED.fullmatch(token))), "")
    return tuple(letters) or ATTENTION


def _sign(words: Sequence[str]) -> str:
    signs = {_SIGNS[word] for word in words if word in _SIGNS}
    return signs.pop() if len(signs) == 1 else ""


def _numbered(own: Sequence[Sequence[str]]) -> tuple[int, ...]:
    """Places 0 to n - 1 if the pieces differ in numbers that follow each other, in the order of registration."""
    if not all(len(words) == 1 and is_number(words[0]) for words in own):
        return ()
    numbers = [int(words[0]) for words in own]
    return tuple(range(len(own))) if numbers == list(range(numbers[0], numbers[0] + len(own))) else ()
