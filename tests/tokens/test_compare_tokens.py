"""Log-probabilities of two sides: planted causes are found and named, clean pairs agree, bad input is one message."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import align
from align.errors import InputsError, UsageError

LISTS, LENGTH, VOCABULARY = 24, 96, 64
GENERATOR = np.random.default_rng(7)
TOKENS = GENERATOR.integers(3, VOCABULARY, (LISTS, LENGTH))
LOGITS = GENERATOR.normal(0, 2, (LISTS, LENGTH, VOCABULARY))
PROMPT = 24


def scores(logits=LOGITS, tokens=TOKENS):
    whole = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
    return np.take_along_axis(whole, tokens[..., None], -1)[..., 0]


def rows(values=None, tokens=TOKENS, **more):
    values = scores() if values is None else values
    return [
        {"tokens": [*map(int, ids)], "logprobs": [None, *map(float, given[1:])], "prompt_length": PROMPT, **more}
        for ids, given in zip(tokens, values, strict=True)
    ]


def written(path, lines):
    Path(path).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return str(path)


@pytest.fixture
def compared(tmp_path):
    def compare(candidate, reference=None, **options):
        sides = [rows() if reference is None else reference, candidate]
        paths = [written(tmp_path / f"{name}.jsonl", side) for name, side in zip("ab", sides, strict=True)]
        return align.compare_tokens(*paths, **options)

    return compare


def masked_top_k(count):
    kept = np.argsort(-LOGITS, axis=-1)
    logits = np.full_like(LOGITS, -np.inf)
    np.put_along_axis(logits, kept[..., :count], np.take_along_axis(LOGITS, kept[..., :count], -1), -1)
    with np.errstate(invalid="ignore"):
        return scores(logits)


def noisy(size, seed=1):
    return np.minimum(scores() + np.random.default_rng(seed).normal(0, size, TOKENS.shape), 0)


def changed(where, size=1.5):
    return np.minimum(scores() - size * np.abs(np.random.default_rng(2).normal(1, 0.1, TOKENS.shape)) * where, 0)


PLACES = np.broadcast_to(np.arange(LENGTH), TOKENS.shape)
VALUES = {
    "temperature": lambda: scores(LOGITS / 0.7),
    "shift": lambda: np.roll(scores(), 1, axis=1),
    "log-base": lambda: scores() / np.log(2),
    "top-k": lambda: np.maximum(masked_top_k(20), -9999.0),
    "cache": lambda: changed(PLACES > PROMPT),
    "response": lambda: changed(PLACES >= PROMPT),
    "position": lambda: changed(PLACES >= 64),
    "some-lists": lambda: changed((np.arange(LISTS) % 5 == 2)[:, None]),
    "one-token": lambda: changed(TOKENS == 11),
    "precision": lambda: noisy(0.15),
    "rounded": lambda: (100 * scores()).astype(np.float16).astype(np.float64),
}


@pytest.mark.parametrize("cause", sorted(VALUES))
def test_a_planted_cause_is_found_and_named(cause, compared):
    reference = rows(100 * scores()) if cause == "rounded" else None
    result = compared(rows(VALUES[cause]()), reference)
    assert result.verdict.outcome is align.Outcome.NOT_ALIGNED
    assert result.causes[0].id == cause


def test_what_only_rounds_agrees(compared):
    for size in (0.0, 1e-6, 0.02):
        result = compared(rows(noisy(size)))
        assert result.verdict.outcome is align.Outcome.ALIGNED, size
        assert result.causes == ()
    assert result.figures.tokens == LISTS * (LENGTH - 1)
    assert result.figures.k3 == pytest.approx(2e-4, rel=0.2)


def test_a_temperature_is_proved_by_the_most_likely_tokens(compared):
    def with_tops(logits):
        whole = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        tops = np.argsort(-whole, axis=-1)[..., :4]
        entries = [
            [
                {str(token): {"logprob": float(place[token]), "rank": 1} for token in [chosen, *top]}
                for place, top, chosen in zip(*line, strict=True)
            ]
            for line in zip(whole, tops.tolist(), TOKENS.tolist(), strict=True)
        ]
        return [
            {"choices": [{"index": 0, "text": "", "prompt_token_ids": ids, "prompt_logprobs": [None, *line[1:]]}]}
            for ids, line in zip(TOKENS.tolist(), entries, strict=True)
        ]

    result = compared(with_tops(LOGITS / 1.3), with_tops(LOGITS))
    (cause,) = result.causes
    assert (cause.id, cause.confirmed) == ("temperature", True)
    assert cause.facts["temperature"] == pytest.approx(1.3, rel=1e-3)


def test_tokens_that_differ_are_named_by_how_they_do(compared):
    def kind_of(tokens_of):
        tokens = [tokens_of(ids) for ids in TOKENS.tolist()]
        lines = [{"tokens": ids, "logprobs": [-1.0] * len(ids)} for ids in tokens]
        return compared(lines, [{"tokens": ids, "logprobs": [-1.0] * len(ids)} for ids in TOKENS.tolist()]).causes[0].id

    assert kind_of(lambda ids: [1, 2, *ids[1:]]) == "other-template"
    assert kind_of(lambda ids: [0, 0, 0, *ids]) == "other-padding"
    assert kind_of(lambda ids: ids[:64]) == "truncated"
    assert kind_of(lambda ids: [*ids[:70], 2, *ids[71:]]) == "other-tokens"


def test_a_list_that_is_scored_otherwise_the_second_time_is_found(compared):
    twice = [*rows(), *rows(changed(np.ones(TOKENS.shape)))]
    result = compared(twice, twice)
    assert [cause.id for cause in result.causes] == ["batch"]
    assert result.repeats[0].lists == LISTS


def test_garbled_texts_are_named_without_a_reference(tmp_path):
    texts = [
        "A plain answer, with words that follow one another and come to an end as they should, and no more of them.",
        "The answer is forty two. " + "and so on and so on " * 40,
        "The answer begins in English, as it should do here, and then " + "выдает что то другое совсем " * 3,
        "Some words and \ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd more of them follow here.",
    ]
    path = written(tmp_path / "1.jsonl", [{"input": "q", "output": text, "score": 0.0, "step": 1} for text in texts])
    result = align.compare_tokens(path)
    assert [(one.list, one.fault) for one in result.garbled] == [(1, "loop"), (2, "script-change"), (3, "damaged")]
    assert result.verdict.outcome is align.Outcome.NOT_ALIGNED


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"tokens": [1, 2], "logprobs": [-1.0, NaN]}', "NaN"),
        ('{"tokens": [1, 2], "logprobs": [0.5, 0.25]}', "probabilities"),
        ('{"tokens": [1], "logprobs": [-1.0, -1.0]}', "2 log-probabilities for 1 token"),
        ('{"choices": [{"text": "", "logprobs": {"tokens": ["a"]}}]}', "logprobs.token_logprobs"),
        ('{"meta_info": {}}', "meta_info.output_token_logprobs"),
        ('{"weights": [1]}', "weights"),
        ('{"tokens": [90, 91, 92], "logprobs": [-1, -1, -1]}', "nothing in common|no token list in common"),
        ("[", "cannot be read"),
    ],
)
def test_what_cannot_be_compared_is_one_message(tmp_path, text, said):
    (tmp_path / "b.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputsError, match=said):
        align.compare_tokens(written(tmp_path / "a.jsonl", rows()), tmp_path / "b.json")


def test_a_precision_without_limits_is_refused():
    with pytest.raises(UsageError, match="int8"):
        align.compare_tokens("a.jsonl", "b.jsonl", dtype="int8")


def test_a_text_that_only_the_candidate_garbles_is_a_fault(compared):
    plain = "A plain answer, with words that follow one another and come to an end as they should."
    damaged = "Some words and \ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd more of them follow here."
    assert compared(rows(text=damaged), rows(text=plain)).verdict.outcome is align.Outcome.NOT_ALIGNED
    assert compared(rows(text=damaged), rows(text=damaged)).verdict.outcome is align.Outcome.ALIGNED


def test_values_that_one_side_lacks_are_counted_and_most_of_them_decide_nothing(compared):
    few = [{**row, "logprobs": [*[None] * (LENGTH - 5), *row["logprobs"][-5:]]} for row in rows()]
    verdict = compared(few).verdict
    assert verdict.outcome is align.Outcome.NOT_COMPARED
    assert (verdict.coverage.compared, verdict.coverage.excluded) == (LISTS * 5, LISTS * (LENGTH - PROMPT - 5))
    prompts = [{**row, "logprobs": [*[None] * PROMPT, *row["logprobs"][PROMPT:]]} for row in rows()]
    assert compared(prompts).verdict.outcome is align.Outcome.ALIGNED


@pytest.mark.parametrize(
    "line",
    [
        {"tokens": [1, 10**20], "logprobs": [None, -1.0]},
        {"tokens": [1, 2], "logprobs": [None, -1.0], "ranks": [1, 2, 3]},
        {"tokens": [1, 2], "logprobs": [None, -1.0], "ranks": [1, "first"]},
        {"tokens": [1, 2], "logprobs": [None, -1.0], "prompt_length": "x"},
        {"choices": [{"text": "a", "prompt_logprobs": [None, {"abc": {"logprob": -1.0}}]}]},
    ],
)
def test_values_of_another_kind_end_in_one_message(line, tmp_path):
    path = written(tmp_path / "a.jsonl", [line])
    with pytest.raises(InputsError):
        align.compare_tokens(path, path)


@pytest.mark.parametrize(
    "columns",
    [
        {"tokens": np.array([1.5, 2.0]), "lengths": np.array([2])},
        {"tokens": np.array([1, 2, 3]), "lengths": np.array([5, -2])},
        {"tokens": np.ones((2, 3), np.int64), "response_mask": np.ones((1, 3), np.int64)},
        {"tokens": np.ones((2, 3), np.int64), "attention_mask": np.ones((2, 2), np.int64)},
    ],
)
def test_arrays_that_do_not_fit_end_in_one_message(columns, tmp_path):
    np.savez(tmp_path / "a.npz", logprobs=np.full(columns["tokens"].shape, -1.0), **columns)
    with pytest.raises(InputsError):
        align.compare_tokens(tmp_path / "a.npz")
