"""Lists of both sides paired by their tokens; where the tokens of two lists differ, how they differ.

Equal lists are pairs. What is left is paired by place if both sides have as many left, else by an equal head or tail;
of such a pair the common head alone is compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from align.errors import InputsError
from align.tokens.thresholds import LEAST_SHARED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.core.parameters import Array
    from align.tokens.read_tokens import TokenLists

HEAD = 16  # no limit: tokens of a head or tail by which lists are looked up
Unlikeness = Literal["truncated", "template", "padding", "tokens"]


@dataclass(frozen=True, slots=True)
class UnlikeLists:
    """Two lists that are versions of one: numbers of both, their lengths, tokens of the common `head` and `tail`.

    `extra_reference` and `extra_candidate` are the first tokens between head and tail on each side.
    """

    kind: Unlikeness
    reference: int
    candidate: int
    lengths: tuple[int, int]
    head: int
    tail: int
    extra_reference: tuple[int, ...]
    extra_candidate: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ListPairing:
    """Numbers of paired lists (pairs,), how many tokens of each pair are compared, and pairs whose tokens differ.

    `unmatched` counts the lists of each side without a counterpart.
    """

    reference: Array
    candidate: Array
    counts: Array
    unlike: tuple[UnlikeLists, ...]
    unmatched: tuple[int, int]


def pair_lists(reference: TokenLists, candidate: TokenLists) -> ListPairing:
    """Pair the lists of two sides; raises InputsError where they have nothing in common."""
    if np.array_equal(reference.starts, candidate.starts) and np.array_equal(reference.tokens, candidate.tokens):
        everything = np.arange(reference.count)
        return ListPairing(everything, everything, reference.lengths(), (), (0, 0))
    equal, left, right = _equal_lists(reference, candidate)
    unlike = [version for pair in _close_pairs(reference, candidate, left, right) if (version := _version(*pair))]
    if not equal and not unlike:
        _refuse(reference, candidate)
    pairs = [*equal, *((one.reference, one.candidate) for one in unlike)]
    counts = [*(len(reference.list_tokens(index)) for index, _ in equal), *(one.head for one in unlike)]
    first, second = np.array(pairs, np.int64).T
    unmatched = len(left) - len(unlike), len(right) - len(unlike)
    return ListPairing(first, second, np.array(counts, np.int64), tuple(unlike), unmatched)


def _equal_lists(reference: TokenLists, candidate: TokenLists) -> tuple[list[tuple[int, int]], list[int], list[int]]:
    """Pairs of equal lists, the n-th of a list with the n-th, and the numbers of those that are left."""
    places: dict[bytes, list[int]] = {}
    for index in reversed(range(candidate.count)):
        places.setdefault(candidate.list_tokens(index).tobytes(), []).append(index)
    equal, left = [], []
    for index in range(reference.count):
        same = places.get(reference.list_tokens(index).tobytes())
        if same:
            equal.append((index, same.pop()))
        else:
            left.append(index)
    return equal, left, sorted(index for indices in places.values() for index in indices)


def _close_pairs(
    reference: TokenLists, candidate: TokenLists, left: Sequence[int], right: Sequence[int]
) -> Iterator[tuple[TokenLists, int, TokenLists, int]]:
    if len(left) == len(right):
        yield from ((reference, one, candidate, other) for one, other in zip(left, right, strict=True))
        return
    open_right = list(right)
    for where in (slice(0, HEAD), slice(-HEAD, None)):
        places: dict[bytes, list[int]] = {}
        for index in reversed(open_right):
            places.setdefault(candidate.list_tokens(index)[where].tobytes(), []).append(index)
        for index in list(left):
            same = places.get(reference.list_tokens(index)[where].tobytes())
            if same:
                other = same.pop()
                left = [number for number in left if number != index]
                open_right.remove(other)
                yield reference, index, candidate, other


def _version(reference: TokenLists, index: int, candidate: TokenLists, other: int) -> UnlikeLists | None:
    """How two lists differ; None for lists that share too little to be versions of one."""
    first, second = reference.list_tokens(index), candidate.list_tokens(other)
    shorter = min(len(first), len(second))
    head = _common(first, second)
    tail = min(_common(first[::-1], second[::-1]), shorter - head)
    if shorter == 0 or max(head, head + tail) < LEAST_SHARED * shorter:
        return None
    extra = first[head : len(first) - tail], second[head : len(second) - tail]
    kind: Unlikeness = "tokens"
    if head == shorter:
        kind = "padding" if _is_padding(*extra) else "truncated"
    elif tail >= max(head, LEAST_SHARED * shorter) and not (head and len(extra[0]) == len(extra[1])):
        kind = "padding" if min(map(len, extra)) == 0 and _is_padding(*extra) else "template"
    shown = tuple(tuple(part[:HEAD].tolist()) for part in extra)
    return UnlikeLists(kind, index, other, (len(first), len(second)), head, tail, shown[0], shown[1])


def _common(first: Array, second: Array) -> int:
    count = min(len(first), len(second))
    unlike = first[:count] != second[:count]
    return int(unlike.argmax()) if unlike.any() else count


def _is_padding(*extra: Array) -> bool:
    """Tell tokens that are one and the same id, several times."""
    more = max(extra, key=len)
    return len(more) > 1 and bool((more == more[0]).all())


def _refuse(reference: TokenLists, candidate: TokenLists) -> None:
    if (reference.tokens < 0).any() != (candidate.tokens < 0).any():
        texts, ids = (reference, candidate) if (reference.tokens < 0).any() else (candidate, reference)
        raise InputsError.of("tokens_error.ids_and_texts", texts=texts.label, ids=ids.label)
    if min(len(reference.tokens), len(candidate.tokens)) == 0:
        bare = reference if len(reference.tokens) == 0 else candidate
        raise InputsError.of("tokens_error.text_only", path=bare.label)
    firsts = [lists.list_tokens(0)[:8].tolist() for lists in (reference, candidate)]
    raise InputsError.of("tokens_error.nothing_in_common", first=str(firsts[0]), second=str(firsts[1]))
