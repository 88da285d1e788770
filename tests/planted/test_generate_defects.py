"""A Llama of transformers and its MindSpore port with a cache: the clean port, and typical faults of decoding."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import align
from align.core.verdicts import Outcome

EXAMPLES = Path(__file__).parents[2] / "examples"
PROMPTS = {"input_ids": np.random.default_rng(0).integers(0, 97, (2, 6))}
TOKENS = 3


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def reference() -> Any:
    return load("tiny_llama").build()


@pytest.fixture(scope="module")
def port(reference: Any) -> Any:
    """The module of the port, whose weights a test may take for its own class of it."""
    return load("tiny_llama_port")


def compared(reference: Any, candidate: Any) -> Any:
    from align.traces.open_trace import TransferredWeights

    weights = TransferredWeights((align.open_side(reference), align.open_side(candidate)), None, PROMPTS)
    assert weights.exchangeable
    with weights.loaded():
        result = align.compare_generation(reference, candidate, inputs=PROMPTS, tokens=TOKENS)
    first = {one.logits: one.first_divergent for one in result.comparisons}
    assert not result.findings
    assert first.pop("reference with cache") is None
    return result, tuple(first.values())


@pytest.fixture(scope="module")
def clean(reference: Any, port: Any) -> Any:
    return compared(reference, port.build())


@pytest.mark.frameworks
def test_the_clean_port_agrees_with_and_without_cache(clean: Any) -> None:
    result, first = clean
    assert result.verdict.outcome is Outcome.ALIGNED
    assert first == (None, None)
    assert result.comparisons[0].positions[0].limit.source == "noise"
    assert max(one.factor for comparison in result.comparisons for one in comparison.positions) < 0.7


@pytest.mark.frameworks
def test_the_reference_continues_as_transformers_itself_does(reference: Any, clean: Any) -> None:
    import torch

    ids = torch.tensor(PROMPTS["input_ids"])
    made = reference.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=TOKENS,
        do_sample=False,
        pad_token_id=0,
        eos_token_id=None,
    )
    result, _ = clean
    assert result.continuations == tuple(map(tuple, made[:, ids.shape[1] :].tolist()))


@pytest.mark.frameworks
def test_positions_that_are_one_off_with_a_cache_are_found_at_the_second_new_token(reference: Any, port: Any) -> None:
    class OneOff(port.Llama):
        def places(self, before: int, count: int) -> Any:
            return super().places(before, count) - (before > 0)

    result, first = compared(reference, OneOff())
    assert first == (None, 6)
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert "with its cache its logits change, first those for new token 1 (counted from 0)" in result.verdict.reason
    assert {(one.logits, one.tie) for one in result.differences} <= {("candidate with cache", False)}


@pytest.mark.frameworks
def test_positions_that_begin_anew_with_a_cache_are_found(reference: Any, port: Any) -> None:
    class Anew(port.Llama):
        def places(self, before: int, count: int) -> Any:
            return super().places(0, count)

    assert compared(reference, Anew())[1] == (None, 6)


@pytest.mark.frameworks
def test_a_shift_of_all_positions_alike_is_no_fault_of_rotary_attention(reference: Any, port: Any) -> None:
    class Later(port.Llama):
        def places(self, before: int, count: int) -> Any:
            return super().places(before, count) + 3

    assert compared(reference, Later())[1] == (None, None)


@pytest.mark.frameworks
def test_a_cache_that_forgets_its_first_token_is_found(reference: Any, port: Any) -> None:
    class Forgets(port.Llama):
        def construct(self, input_ids: Any, past_key_values: Any = None) -> Any:
            logits, cache = super().construct(input_ids, past_key_values)
            first = past_key_values is None
            return logits, [(k[:, :, 1:], v[:, :, 1:]) if first else (k, v) for k, v in cache]

    assert compared(reference, Forgets())[1] == (None, 6)


@pytest.mark.frameworks
def test_a_fault_of_the_model_itself_is_found_without_cache(reference: Any, port: Any) -> None:
    class Doubled(port.Llama):
        def places(self, before: int, count: int) -> Any:
            return super().places(before, count) * 2

    result, first = compared(reference, Doubled())
    assert first == (1, None)  # the first token attends to itself alone
    assert "the candidate's logits differ, first those for token 2 of the prompt" in result.verdict.reason
