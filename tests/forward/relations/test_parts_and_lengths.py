"""Gates, turned pairs, kept positions, other tensors and terms, steps along an axis: each is told, and noise is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.forward.relations.layer_relations import explain_layer
from align.measure.limits import limit_for
from align.measure.measure_arrays import measure

if TYPE_CHECKING:
    from align.core.parameters import Array

RNG = np.random.default_rng(3)
X = RNG.standard_normal((3, 10, 16))
OTHER = RNG.standard_normal((3, 10, 16))
FIRST, SECOND = np.split(X, 2, -1)
LENGTHS, STEPS = (10, 7, 4), np.arange(10)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def halves(x: Array) -> Array:
    first, second = np.split(x, 2, -1)
    return np.concatenate([-second, first], -1)


def neighbours(x: Array) -> Array:
    return np.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape)


def kept_mean(x: Array, lengths: tuple[int, ...]) -> Array:
    return np.stack([one[:length].mean(0) for one, length in zip(x, lengths, strict=True)])


def attention(lengths: tuple[int, ...], scale: float = 4**-0.5) -> Array:
    parts = [one.reshape(3, 10, 4, 4).swapaxes(1, 2) for one in (X, OTHER, np.flip(X, 1) * 2)]
    scores = parts[0] @ parts[1].swapaxes(-1, -2) * scale
    hidden = STEPS[None] >= np.array(lengths)[:, None]
    powers = np.exp(np.where(hidden[:, None, None], -1e30, scores))
    mixed = powers / powers.sum(-1, keepdims=True) @ parts[2]
    return mixed.swapaxes(1, 2).reshape(3, 10, 16)


FUSED = {"qkv": np.concatenate([X, OTHER, np.flip(X, 1) * 2], -1)}
BOTH = {"x": X, "other": OTHER}
FOUND: dict[str, tuple[dict[str, Array], Array, Array, str, dict[str, Any]]] = {
    "gate": ({"x": X}, FIRST * sigmoid(SECOND), SECOND * sigmoid(FIRST), "halves-swapped", {"axis": 2}),
    "gate function": ({"x": X}, FIRST * sigmoid(SECOND), FIRST * np.tanh(SECOND), "gate-differs", {"axis": 2}),
    "turn": ({"x": X}, halves(X), neighbours(X), "turn-differs", {"input": "x"}),
    "padding": ({"x": X}, kept_mean(X, LENGTHS), X.mean(1), "padding-differs", {"candidate": "mean of all positions"}),
    "length": ({"x": X}, kept_mean(X, LENGTHS), kept_mean(X, (10, 8, 5)), "padding-differs", {}),
    "mask": (FUSED, attention(LENGTHS), attention((10, 10, 10)), "attention-mask", {"candidate": "all keys"}),
    "masked scale": (FUSED, attention(LENGTHS), attention(LENGTHS, 0.25), "attention-scale", {}),
    "level": (BOTH, np.tanh(X), np.tanh(OTHER), "other-tensor", {"reference": "x", "candidate": "other"}),
    "factor": (BOTH, np.sin(X) + 0.5 * OTHER, np.sin(X) + OTHER, "term-scaled", {"input": "other", "too_much": 0.5}),
    "term": (BOTH, np.sin(X) + OTHER, np.sin(X), "residual-missing", {"input": "other"}),
    "late": ({}, X, X[:, [0, *range(9)]], "displaced", {"axis": 1, "by": 1}),
    "mean": ({}, X, X - X.mean(-1, keepdims=True), "activation-extra", {"function": "the mean taken away", "axis": 2}),
    "norm": ({}, X / np.linalg.norm(X, axis=-1, keepdims=True), X, "activation-missing", {"axis": 2}),
    "levels": (
        {},
        X,
        X[..., [*range(11, 16), *range(5, 11), *range(5)]],
        "parts-reordered",
        {"parts": 3, "order": "2,1,0"},
    ),
}


def explained(known: dict[str, Array], reference: Array, candidate: Array) -> list[tuple[str, dict[str, Any]]]:
    ours, theirs = reference.astype(np.float32), candidate.astype(np.float32)
    given = {name: value.astype(np.float32) for name, value in known.items()}
    exact = measure(ours, ours)
    found = explain_layer("", given, {}, ours, theirs, limit_for(exact, ("float32", "float32"), None))
    return [(one.id, one.facts) for one in found if one.explains]


@pytest.mark.parametrize("name", FOUND)
def test_the_relation_is_told(name: str) -> None:
    known, reference, candidate, told, facts = FOUND[name]
    found = explained(known, reference, candidate)
    assert found[0][0] == told
    for key, value in facts.items():
        assert found[0][1][key] == (pytest.approx(value, abs=1e-4) if isinstance(value, float) else value)


@pytest.mark.parametrize("name", FOUND)
def test_of_what_is_off_by_noise_nothing_is_told(name: str) -> None:
    known, reference, candidate, *_ = FOUND[name]
    noise = 0.05 * np.random.default_rng(5).standard_normal(candidate.shape)
    assert explained(known, reference, candidate + noise) == []
