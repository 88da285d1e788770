"""Faults of code between layers, told from the tensors that were there before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.forward.relations.layer_relations import explain_layer
from align.measure.limits import limit_for
from align.measure.measure_arrays import measure

if TYPE_CHECKING:
    from align.core.parameters import Array
    from align.forward.relations.relation import Relation

pytestmark = pytest.mark.frameworks
RNG = np.random.default_rng(7)
QUERY, KEY, VALUE, REST = RNG.standard_normal((4, 2, 10, 24)).astype(np.float32)
KNOWN = {"rest": REST, "v": VALUE, "k": KEY, "q": QUERY}
FUSED = {"rest": REST, "qkv": np.concatenate([QUERY, KEY, VALUE], 2)}
MAP = RNG.standard_normal((3, 8, 7, 7)).astype(np.float32)


def torch() -> Any:
    import torch

    return torch


def explain(known: dict[str, Array], reference: Array, candidate: Array) -> tuple[Relation, ...]:
    exact = measure(reference, reference)
    return explain_layer("", known, {}, reference, candidate, limit_for(exact, ("float32", "float32"), exact))


def attention(heads: int = 4, **settings: Any) -> Array:
    parts = (torch().from_numpy(one).reshape(2, 10, heads, -1).transpose(1, 2) for one in (QUERY, KEY, VALUE))
    mixed = torch().nn.functional.scaled_dot_product_attention(*parts, **settings)
    return mixed.transpose(1, 2).reshape(2, 10, 24).numpy()


@pytest.mark.parametrize("known", [KNOWN, FUSED], ids=["apart", "fused"])
@pytest.mark.parametrize(
    ("settings", "name", "facts"),
    [
        ({"heads": 8}, "attention-heads", {"reference": 4, "candidate": 8}),
        ({"scale": 1.0}, "attention-scale", {"candidate": "1"}),
        ({"scale": 24**-0.5}, "attention-scale", {"candidate": "1/sqrt(features)"}),
        ({"is_causal": True}, "attention-mask", {"reference": "none", "candidate": "causal"}),
    ],
)
def test_how_attention_differs_is_named(
    known: dict[str, Array], settings: dict[str, Any], name: str, facts: dict[str, Any]
) -> None:
    (found, *_) = explain(known, attention(), attention(**settings))
    assert found.id == name
    assert facts.items() <= found.facts.items()


def test_a_mask_that_is_missing_is_named() -> None:
    (found, *_) = explain(KNOWN, attention(is_causal=True), attention())
    assert (found.id, found.facts) == ("attention-mask", {"reference": "causal", "candidate": "none"})


def test_a_softmax_over_the_queries_is_named() -> None:
    scores = torch().from_numpy(QUERY) @ torch().from_numpy(KEY).mT / 24**0.5
    candidate = (scores.softmax(1) @ torch().from_numpy(VALUE)).numpy()
    (found, *_) = explain(KNOWN, attention(heads=1), candidate)
    assert found.id == "softmax-axis"


SUM = QUERY + REST
TERMS = {
    "scaled": (QUERY / np.float32(8) + REST, {"term": "q", "scale_is": "1/8"}),
    "flipped": (QUERY[:, ::-1] + REST, {"term": "q", "axis": 1}),
    "dropout": (np.where(RNG.random(QUERY.shape) < 0.1, 0, QUERY / np.float32(0.9)) + REST, {"term": "q"}),
    "rounded": (QUERY.astype(np.float16).astype(np.float32) + REST, {"term": "q", "dtype": "float16"}),
    "residual-missing": (QUERY, {"input": "rest"}),
    "residual-extra": (QUERY + REST + KEY, {"input": "k"}),
    "activation-extra": (np.maximum(QUERY, 0) + REST, {"term": "q"}),
}


@pytest.mark.parametrize("name", TERMS)
def test_what_became_of_one_term_of_a_sum_is_named(name: str) -> None:
    candidate, facts = TERMS[name]
    (found, *_) = explain(KNOWN, SUM, candidate.astype(np.float32))
    assert found.id == name
    assert facts.items() <= found.facts.items()


@pytest.mark.parametrize(
    ("ours", "theirs", "names"),
    [
        ("mean((2, 3))", "amax((2, 3))", ("mean over axes 2,3", "largest over axes 2,3")),
        ("mean(2)", "mean(3)", ("mean over axes 2", "mean over axes 3")),
        ("mean(1)", "select(1, 0)", ("mean over axes 1", "first over axes 1")),
        ("select(1, 0)", "select(1, 7)", ("first over axes 1", "last over axes 1")),
    ],
)
def test_both_reductions_are_named(ours: str, theirs: str, names: tuple[str, str]) -> None:
    x = torch().from_numpy(MAP)
    reference, candidate = (eval(f"x.{one}", {"x": x}).numpy() for one in (ours, theirs))
    (found, *_) = explain({"conv": MAP}, reference, candidate)
    assert found.id == "reduction-differs"
    assert (found.facts["reference"], found.facts["candidate"], found.facts["input"]) == (*names, "conv")


def test_a_function_of_what_was_there_is_told_with_its_input() -> None:
    functional, value = torch().nn.functional, torch().from_numpy(KEY)
    (found, *_) = explain(KNOWN, functional.gelu(value).numpy(), functional.silu(value).numpy())
    assert (found.id, found.facts) == ("activation-differs", {"reference": "gelu", "candidate": "silu", "input": "k"})


def test_what_has_nothing_to_do_with_the_tensors_before_is_not_explained() -> None:
    for reference in (SUM, attention(), np.maximum(KEY, 0)):
        assert explain(KNOWN, reference, RNG.standard_normal(SUM.shape).astype(np.float32)) == ()
