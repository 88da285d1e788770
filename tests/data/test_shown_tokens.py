"""Rows of tokens that differ are shown aligned, with the words that a tokenizer has for them."""

from __future__ import annotations

import numpy as np
import pytest

from align import compare_data

WORDS = ["[PAD]", "[CLS]", "[SEP]", "the", "cat", "sat", "on", "a", "mat", " ", "\x1b[31m", "<b>&</b>"]
GENERATOR = np.random.default_rng(0)
ROWS = GENERATOR.integers(3, 12, (8, 40))


class Tokenizer:
    def convert_ids_to_tokens(self, token):
        return WORDS[token]


class Texts:
    """Batches of rows, as a loader with a tokenizer gives them."""

    def __init__(self, rows, tokenizer=None, **others):
        self.tokenizer, self._columns = tokenizer, {"input_ids": rows, **others}

    def __iter__(self):
        return iter([{name: column[start : start + 4] for name, column in self._columns.items()} for start in (0, 4)])


def tokens(reference, candidate, field="input_ids"):
    return next(one.tokens for one in compare_data(reference, candidate).samples if one.field == field)


def test_a_token_more_at_the_beginning_parts_no_other_one():
    pairs = tokens(Texts(ROWS), Texts(np.concatenate([np.full((8, 1), 1), ROWS[:, :-1]], 1)))
    first, *middle, last = pairs
    assert (first.places, first.ids) == ((None, 0), (None, 1))
    assert (last.places, last.ids) == ((39, None), (ROWS[0, -1], None))
    assert all(pair.ids[0] == pair.ids[1] for pair in middle)
    assert [pair.skipped for pair in pairs if pair.skipped] == [33]


def test_another_vocabulary_leaves_each_token_at_its_place():
    pairs = tokens(*(Texts(rows, number=np.arange(8)) for rows in (ROWS, ROWS % 9 + 3)))
    assert [pair.places for pair in pairs[:40]] == [(place, place) for place in range(40)]
    assert [pair.ids for pair in pairs[:40]] == [*zip(ROWS[0], ROWS[0] % 9 + 3, strict=True)]


def test_what_stands_behind_the_last_pair_is_counted():
    changed = ROWS.copy()
    changed[:, 5] = 90
    pairs = tokens(Texts(ROWS), Texts(changed))
    assert [pair.places[0] for pair in pairs] == [*range(2, 9), None]
    assert (pairs[0].skipped, pairs[-1].skipped) == (2, 31)


def test_words_are_those_of_the_sides_own_tokenizer_and_numbers_of_masks_have_none():
    changed = np.where(ROWS == 4, 5, ROWS)
    sides = [
        Texts(rows, Tokenizer(), labels=np.where(rows == 3, -100, rows), mask=(rows > 4).astype(int))
        for rows in (ROWS, changed)
    ]
    result = compare_data(*sides)
    by_field = {one.field: one.tokens for one in reversed(result.samples)}
    pair = next(pair for pair in by_field["input_ids"] if pair.ids == (4, 5))
    assert pair.words == ("cat", "sat")
    assert {pair.words for pair in by_field["mask"]} == {("", "")}
    assert any(pair.words == ("cat", "sat") for pair in by_field["labels"])


def test_a_tokenizer_of_one_side_reads_the_ids_of_both_and_an_unknown_id_has_no_word():
    changed = np.where(ROWS == 4, 77, ROWS)
    for pair in tokens(Texts(ROWS, Tokenizer()), Texts(changed)):
        if pair.ids == (4, 77):
            assert pair.words == ("cat", "")
            return
    pytest.fail("no such pair")


def test_tokenizers_of_loaders_are_found_where_they_collate():
    from tokenizers import Tokenizer as Fast
    from tokenizers.models import WordLevel

    class Collate:
        tokenizer = Fast(WordLevel({word: number for number, word in enumerate(WORDS)}, "[PAD]"))

    class Loader(Texts):
        collate_fn = Collate()

    pairs = tokens(Loader(ROWS), Loader(np.where(ROWS == 4, 5, ROWS)))
    assert ("cat", "sat") in [pair.words for pair in pairs]


def test_equal_rows_and_floats_have_no_tokens():
    result = compare_data(Texts(ROWS), Texts(ROWS))
    assert [one.tokens for one in result.samples] == [()] * len(result.samples)
    result = compare_data(Texts(ROWS + 0.5), Texts(ROWS + 0.25))
    assert [one.tokens for one in result.samples] == [()] * len(result.samples)
