"""Generation of models without a framework: what is read, decoded, and refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.core.verdicts import Outcome
from align.errors import InputsError, UsageError, UserCodeError
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

if TYPE_CHECKING:
    from pathlib import Path

    from align.evaluation.compare_generation import GenerationComparison

WORDS = 23
TABLE = np.random.default_rng(0).standard_normal((WORDS, 8)).astype(np.float32)
HEAD = np.random.default_rng(1).standard_normal((WORDS, 8)).astype(np.float32)
PROMPTS = {"ids": np.array([[1, 2, 3], [4, 5, 6]])}


def look_up(ids: Any, weight: Any) -> Any:
    """The mean of all tokens so far."""
    return weight[ids].cumsum(1) / np.arange(1, ids.shape[1] + 1, dtype=weight.dtype)[:, None]


def model(family: str = "mindspore", head: Any = HEAD, function: Any = look_up) -> ArrayModel:
    kinds = {"torch": ("Embedding", "Linear"), "mindspore": ("Embedding", "Dense")}[family]
    embedding = ArrayLayer("embed", f"{family}.nn.{kinds[0]}", function, {"weight": TABLE.copy()})
    dense = ArrayLayer("head", f"{family}.nn.{kinds[1]}", lambda x, weight: x @ weight.T, {"weight": head.copy()})
    return ArrayModel((embedding, dense))


def remembering(forgets: int = 0) -> Any:
    """An adapter whose cache is the text so far, without its last `forgets` tokens."""

    def adapter(network: ArrayModel) -> Any:
        def step(ids: np.ndarray, cache: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
            text = ids if cache is None else np.concatenate([cache, ids], axis=1)
            return network(text)[:, -ids.shape[1] :], text[:, : text.shape[1] - forgets]

        return step

    return adapter


def compare(candidate: ArrayModel | None = None, **options: Any) -> GenerationComparison:
    return align.compare_generation(model("torch"), candidate or model(), **{"inputs": PROMPTS, "tokens": 6, **options})


def test_a_clean_port_without_caches_is_aligned_over_prompt_and_new_tokens() -> None:
    result = compare()
    assert result.verdict.outcome is Outcome.ALIGNED
    assert [(one.logits, len(one.positions)) for one in result.comparisons] == [("candidate", 8)]
    assert result.comparisons[0].positions[0].limit.source in ("noise", "rounding")  # type: ignore[union-attr]
    assert (result.prompts, result.differences, result.findings) == ((2, 3), (), ())


def test_the_continuation_is_what_the_reference_chooses_greedily() -> None:
    text = PROMPTS["ids"]
    for _ in range(6):
        chosen = model("torch")(text)[:, -1].argmax(-1)
        text = np.concatenate([text, chosen[:, None]], axis=1)
    assert compare().continuations == tuple(map(tuple, text[:, 3:].tolist()))


def test_caches_that_remember_everything_agree_on_both_sides() -> None:
    result = compare(reference_step=remembering(), candidate_step=remembering())
    assert [one.logits for one in result.comparisons] == ["candidate", "candidate with cache", "reference with cache"]
    assert result.verdict.outcome is Outcome.ALIGNED


def test_a_cache_that_forgets_a_token_is_found_at_the_second_new_token() -> None:
    result = compare(candidate_step=remembering(forgets=1))
    whole, cached = result.comparisons
    assert (whole.first_divergent, cached.first_divergent) == (None, 3)
    assert "its logits change, first those for new token 1 (counted from 0)" in result.verdict.reason
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert {one.logits for one in result.differences} <= {"candidate with cache"}


def test_a_reference_whose_cache_forgets_is_told_and_the_candidate_is_not_blamed() -> None:
    result = compare(reference_step=remembering(forgets=1))
    assert result.verdict.outcome is Outcome.ALIGNED
    assert [finding.code for finding in result.findings] == ["reference-cache"]


def test_a_candidate_that_sees_the_future_differs_from_the_first_token_of_the_prompt_on() -> None:
    def all_tokens(ids: Any, weight: Any) -> Any:
        return np.broadcast_to(weight[ids].mean(1, keepdims=True), (*ids.shape, 8))

    result = compare(model(function=all_tokens))
    assert result.comparisons[0].first_divergent == 0


def test_other_weights_are_told_and_change_the_tokens() -> None:
    result = compare(model(head=HEAD[::-1]))
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert [finding.code for finding in result.findings] == ["weights-differ"]
    assert all(not one.tie and one.logits == "candidate" for one in result.differences)
    assert {one.sequence for one in result.differences} == {0, 1}


def test_a_reference_that_cannot_be_widened_is_judged_by_the_table() -> None:
    def only_float32(ids: Any, weight: Any) -> Any:
        if weight.dtype != np.float32:
            raise TypeError("float32 only")
        return look_up(ids, weight)

    result = align.compare_generation(model("torch", function=only_float32), model(), inputs=PROMPTS, tokens=2)
    assert result.verdict.outcome is Outcome.ALIGNED
    assert [finding.code for finding in result.findings] == ["noise-unmeasured"]


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"x": np.ones((2, 3), np.float32)}, r"not x float32\[2, 3\]"),
        ({"ids": np.array([1, 2])}, r"not ids int64\[2\]"),
        ({"ids": np.ones((2, 0), int)}, r"not ids int64\[2, 0\]"),
        (PROMPTS | {"mask": np.ones((2, 3))}, r"not ids int64\[2, 3\], mask float64\[2, 3\]"),
    ],
)
def test_prompts_must_be_one_array_of_token_ids(inputs: dict[str, Any], said: str) -> None:
    with pytest.raises(InputsError, match=said):
        compare(inputs=inputs)


def test_nothing_to_generate_is_refused() -> None:
    with pytest.raises(UsageError, match="the number of new tokens is 0"):
        compare(tokens=0)


@pytest.mark.parametrize(
    ("step", "error", "said"),
    [
        (lambda ids, cache: network_fails(), UserCodeError, r"ArrayModel, on tokens \[2, 3\], failed: ValueError: no"),
        (lambda ids, cache: 5, InputsError, "a step of ArrayModel returns an object of type int"),
        (lambda ids, cache: (None, None), InputsError, r"returns NoneType for tokens \[2, 3\]"),
        (lambda ids, cache: (np.ones((2, 1, 9)), None), InputsError, r"an array \[2, 1, 9\] for tokens \[2, 3\]"),
    ],
)
def test_a_step_that_cannot_be_used_is_said_in_one_message(step: Any, error: Any, said: str) -> None:
    with pytest.raises(error, match=said):
        compare(reference_step=lambda network: step)


def network_fails() -> None:
    raise ValueError("no kernel")


def test_an_adapter_that_fails_is_named() -> None:
    with pytest.raises(UserCodeError, match="the adapter of ArrayModel failed: ValueError: no kernel"):
        compare(candidate_step=lambda network: network_fails())


def test_an_adapter_may_be_named(tmp_path: Path) -> None:
    code = "def whole(network):\n    return lambda ids, cache: (network(ids), None)\n"
    (tmp_path / "steps.py").write_text(code, encoding="utf-8")
    assert compare(candidate_step=f"{tmp_path}/steps.py:whole").verdict.outcome is Outcome.ALIGNED


def test_vocabularies_of_two_sizes_are_refused() -> None:
    with pytest.raises(InputsError, match="ArrayModel has 23 tokens, ArrayModel 24"):
        compare(model(head=np.concatenate([HEAD, HEAD[:1]])))


def test_tokens_that_rounding_decides_are_a_tie() -> None:
    twin = HEAD.copy()
    twin[0] = twin[7] = HEAD.sum(0) * 4  # the best two, and equal
    nearly = twin.copy()
    nearly[7] *= np.float32(1 + 2e-7)
    result = align.compare_generation(model("torch", twin), model(head=nearly), inputs=PROMPTS, tokens=4)
    ties = [one for one in result.differences if one.tie]
    assert len(ties) == len(result.differences)
    assert result.verdict.outcome is Outcome.ALIGNED
    if ties:
        assert {(one.reference, one.candidate) for one in ties} == {(0, 7)}
