"""A live model as a side: what it gives to token lists, and whether a list's values hang on what is beside it.

Lists of one length are run together, without padding. A few lists are run again, and in a batch of copies, so that a
kernel that computes otherwise for more rows shows; in a file, a list that stands there several times tells the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from align.errors import InputsError
from align.evaluation.compare_generation import Decoder
from align.models.open_side import open_side
from align.tokens.read_tokens import TokenLists, TokenRow, as_column, lists_of_rows
from align.tokens.thresholds import CALL_TOKENS, EVIDENCE_VALUES, INVARIANCE_COPIES, INVARIANCE_LISTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.parameters import Array
    from align.core.protocols import Model
    from align.models.open_side import Side, SideRequest

Again = Literal["again", "in a batch", "in the file"]


@dataclass(frozen=True, slots=True)
class TokenRepeats:
    """Lists of a `side` that were scored twice, and `how`: the share of `tokens` whose value is `equal` bit by bit.

    `mean` and `largest` are absolute differences.
    """

    side: str
    how: Again
    lists: int
    tokens: int
    equal: float
    mean: float
    largest: float


class LiveScores:
    """A live side's lists, what it gives to some of them again, and its whole distribution for some tokens."""

    def __init__(self, source: str | Model | Side | SideRequest, given: TokenLists, name: str) -> None:
        side = open_side(source)
        self.name = name
        self._given = given
        if len(given.tokens) and int(given.tokens.min()) < 0:
            raise InputsError.of("tokens_error.ids_and_texts", texts=given.label, ids=side.label)
        self._decoder = Decoder(side, None)
        values: list[Array] = [np.empty(0)] * given.count
        ranks: list[Array] = [np.empty(0)] * given.count
        for indices in self._calls():
            for index, (own_values, own_ranks) in zip(indices, self._score(indices), strict=True):
                values[index], ranks[index] = own_values, own_ranks
        rows = (
            TokenRow(*columns, prompt=int(given.prompts[index]))
            for index in range(given.count)
            for columns in [(as_column(given.list_tokens(index)), as_column(values[index]), as_column(ranks[index]))]
        )
        self.lists = lists_of_rows(side.label, side.reader.name, rows)
        self.repeats = tuple(self._repeats())

    def _calls(self) -> Iterator[list[int]]:
        """Numbers of lists that are run together."""
        lengths = self._given.lengths()
        for length in np.unique(lengths[lengths > 1]).tolist():
            same = np.flatnonzero(lengths == length).tolist()
            rows = max(CALL_TOKENS // length, 1)
            yield from (same[start : start + rows] for start in range(0, len(same), rows))

    def _score(self, indices: list[int]) -> Iterator[tuple[Array, Array]]:
        """Of each list the log-probability and rank of each token but the first."""
        ids = np.stack([self._given.list_tokens(index) for index in indices])
        logits = self._decoder.logits(ids)
        if int(ids.max()) >= logits.shape[-1]:
            facts = {"label": self._given.label, "id": int(ids.max()), "size": logits.shape[-1]}
            raise InputsError.of("tokens_error.id_beyond", **facts)
        for row, row_ids in zip(logits, ids, strict=True):
            wide = row[:-1].astype(np.float64)
            chosen = wide[np.arange(len(wide)), row_ids[1:]]
            yield chosen - np.logaddexp.reduce(wide, axis=1), (wide > chosen[:, None]).sum(1) + 1

    def _repeats(self) -> Iterator[TokenRepeats]:
        """The first lists alone, again, and in a batch of copies."""
        usable = np.flatnonzero(self._given.lengths() > 1)[:INVARIANCE_LISTS].tolist()
        alone = [next(self._score([index]))[0] for index in usable]
        again = [next(self._score([index]))[0] for index in usable]
        copies = [[values for values, _ in self._score([index] * INVARIANCE_COPIES)] for index in usable]
        if usable:
            yield _compared(self.name, "again", len(usable), np.concatenate(alone), np.concatenate(again))
            beside = np.concatenate([values for rows in copies for values in rows])
            wanted = np.concatenate([np.tile(values, INVARIANCE_COPIES) for values in alone])
            yield _compared(self.name, "in a batch", len(usable), wanted, beside)

    def distribution(self, places: Array) -> tuple[Array, Array]:
        """Log-probabilities (tokens, vocabulary) for the first of some tokens, and which of `places` these are.

        `places` are indices into the columns of `lists`.
        """
        starts = self.lists.starts
        chosen: list[Array] = []
        blocks: list[Array] = []
        of_list = np.searchsorted(starts, places, "right") - 1
        for index in dict.fromkeys(of_list.tolist()):
            here = np.flatnonzero(of_list == index)
            here = here[places[here] > starts[index]]
            logits = self._decoder.logits(self._given.list_tokens(index)[None])[0].astype(np.float64)
            rows = logits[places[here] - starts[index] - 1]
            blocks.append(rows - np.logaddexp.reduce(rows, axis=1)[:, None])
            chosen.append(here)
            if sum(block.size for block in blocks) > EVIDENCE_VALUES:
                break
        return np.concatenate(chosen), np.concatenate(blocks)


def repeats_in(lists: TokenLists, name: str) -> tuple[TokenRepeats, ...]:
    """What a file says of lists that stand in it several times; nothing if none does."""
    first: dict[bytes, int] = {}
    wanted, values, count = [], [], 0
    for index in range(lists.count):
        place = slice(lists.starts[index], lists.starts[index + 1])
        before = first.setdefault(lists.tokens[place].tobytes(), index)
        if before != index and lists.starts[index] < lists.starts[index + 1]:
            wanted.append(lists.logprobs[lists.starts[before] : lists.starts[before + 1]])
            values.append(lists.logprobs[place])
            count += 1
    if not count:
        return ()
    both = np.concatenate(wanted), np.concatenate(values)
    known = np.isfinite(both[0]) & np.isfinite(both[1])
    if not known.any():
        return ()
    return (_compared(name, "in the file", count, both[0][known], both[1][known]),)


def _compared(name: str, how: Again, lists: int, wanted: Array, values: Array) -> TokenRepeats:
    sizes = np.abs(values - wanted)
    equal = float((values == wanted).mean())
    return TokenRepeats(name, how, lists, len(sizes), equal, float(sizes.mean()), float(sizes.max()))
