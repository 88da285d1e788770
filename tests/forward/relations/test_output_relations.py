"""Relations planted in arrays are found and named; near misses, unrelated arrays and dull ones give nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from align.core.traces import Limit
from align.forward.relations.layer_relations import explain_layer
from align.forward.relations.moved_values import FUNCTIONS, softmax
from align.forward.relations.output_relations import explain_output, known_number
from align.measure.limits import limit_for
from align.measure.measure_arrays import measure

if TYPE_CHECKING:
    from align.core.parameters import Array
    from align.forward.relations.relation import Relation

RNG = np.random.default_rng(0)
IMAGE = RNG.standard_normal((2, 12, 10, 14))
CUBE = RNG.standard_normal((2, 8, 8, 8))
TOKENS = RNG.standard_normal((2, 6, 16))
SCORES = RNG.standard_normal((2, 4, 6, 9))
BIAS, GAIN = RNG.standard_normal((12, 1, 1)), RNG.uniform(0.5, 2.0, (12, 1, 1))
ORDER = np.array([1, 2, 0, 4, 3, 11, 10, 5, 6, 7, 8, 9])
SOME = RNG.random(IMAGE.shape) < 0.1
POSITIVE = np.maximum(IMAGE, 0.0)
TURNED = TOKENS.reshape(2, 6, 4, 4)


def rounded(values: Array) -> Array:
    """As another implementation would compute it: a few units in the last place off."""
    noise = np.random.default_rng(values.size).standard_normal(values.shape)
    return (values * (1.0 + 1e-7 * noise)).astype(np.float32)


def limit_of(reference: Array) -> Limit:
    exact = measure(reference, reference)
    return limit_for(exact, ("float32", "float32"), exact)


def explain(reference: Array, candidate: Array) -> tuple[Relation, ...]:
    ours = reference.astype(np.float32)
    return explain_output(ours, rounded(candidate), limit_of(ours))


def replaced(values: Array, place: Any, new: Any) -> Array:
    changed = values.copy()
    changed[place] = new
    return changed


WHOLE = {
    "scaled": (IMAGE, IMAGE / 8, {"scale_is": "1/8"}),
    "scaled by a square root": (TOKENS, TOKENS * np.sqrt(512), {"scale_is": "sqrt(512)"}),
    "negated": (IMAGE, -IMAGE, {}),
    "shifted": (IMAGE, IMAGE + 0.5, {}),
    "scaled-and-shifted": (IMAGE, IMAGE * 2 + 0.5, {"scale_is": "2"}),
    "slices-shifted": (IMAGE, IMAGE - BIAS, {"axis": 1, "slices": 12}),
    "slices-scaled": (IMAGE, IMAGE * GAIN, {"axis": 1}),
    "slices-scaled-and-shifted": (IMAGE, IMAGE * GAIN + BIAS, {"axis": 1}),
    "permuted": (IMAGE, IMAGE[:, ORDER], {"axis": 1, "moved": 12, "of": 12}),
    "swapped": (IMAGE, IMAGE[:, [0, 1, 5, 3, 4, 2, *range(6, 12)]], {"first": 2, "second": 5}),
    "flipped": (IMAGE, IMAGE[..., ::-1], {"axis": 3}),
    "rolled": (IMAGE, np.roll(IMAGE, -3, 2), {"axis": 2, "by": -3}),
    "parts-reordered": (TOKENS[..., :15], np.roll(TOKENS[..., :15], 5, 2), {"parts": 3, "order": "2,0,1"}),
    "interleaved": (TOKENS, TURNED.swapaxes(2, 3).reshape(TOKENS.shape), {"rows": 4, "columns": 4}),
    "transposed": (CUBE, CUBE.transpose(0, 2, 3, 1), {"axes": "0,2,3,1"}),
    "transposed to another shape": (IMAGE, IMAGE.transpose(0, 2, 3, 1), {"axes": "0,2,3,1"}),
    "reshaped": (IMAGE, IMAGE.reshape(2, -1), {}),
    "reordered": (IMAGE, IMAGE.transpose(0, 2, 3, 1).reshape(IMAGE.shape), {"axes": "0,2,3,1"}),
    "reordered heads": (TOKENS, TURNED.swapaxes(1, 2).reshape(TOKENS.shape), {"read_as": "2x6x4x4"}),
    "cut": (TOKENS, TOKENS[:, 1:], {"axis": 1, "offset": 1}),
    "extended": (TOKENS[:, :4], TOKENS, {"axis": 1, "offset": 0}),
    "softmax-axis": (softmax(SCORES, 3), softmax(SCORES, 2), {"reference": 3, "candidate": 2}),
    "softmax-scale": (softmax(SCORES, 3), softmax(8 * SCORES, 3), {"scale_is": "8"}),
    "activation-missing": (FUNCTIONS["gelu"](IMAGE), IMAGE, {"function": "gelu"}),
    "activation-missing softmax": (softmax(SCORES, 1), SCORES, {"function": "softmax", "axis": 1}),
    "activation-extra": (IMAGE, FUNCTIONS["sigmoid"](IMAGE), {"function": "sigmoid"}),
    "activation-extra relu": (IMAGE, POSITIVE, {"function": "relu or relu6"}),
    "soft-cap-missing": (3 * np.tanh(IMAGE / 3), IMAGE, {"cap": 3.0}),
    "soft-cap-missing of 30": (30 * np.tanh(9 * IMAGE / 30), 9 * IMAGE, {"cap": 30.0}),
    "soft-cap-extra": (IMAGE, 2.5 * np.tanh(IMAGE / 2.5), {"cap": 2.5}),
    "clipped": (IMAGE, np.clip(IMAGE, -9.0, 1.2), {}),
    "clipping-missing": (np.clip(IMAGE, -0.5, 1.2), IMAGE, {}),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_relation_of_all_elements_is_found_first_with_its_figures(name: str) -> None:
    reference, candidate, facts = WHOLE[name]
    (found, *_) = explain(reference, candidate)
    assert found.id == name.partition(" ")[0]
    assert found.explains
    assert facts.items() <= found.facts.items()


@pytest.mark.parametrize(("one", "other"), [(3.0, 5.0), (5.0, 3.0), (2.5, 4.0)])
def test_one_soft_cap_in_the_place_of_another_is_no_lack_of_a_third(one: float, other: float) -> None:
    small = 0.2 * IMAGE  # so small that a third cap would fit nearly
    found = explain(one * np.tanh(small / one), other * np.tanh(small / other))
    assert not [relation for relation in found if relation.id.startswith("soft-cap")]


def test_many_equal_slices_hide_no_permutation() -> None:
    reference = np.concatenate([IMAGE, np.zeros((2, 60, 10, 14))], 1)
    (found, *_) = explain(reference, reference[:, np.random.default_rng(1).permutation(72)])
    assert (found.id, found.explains) == ("permuted", True)


def test_bounds_that_clip_are_told_and_no_others() -> None:
    (found,) = explain(IMAGE, np.clip(IMAGE, -9.0, 1.2))
    assert [*found.facts] == ["high"]
    assert found.facts["high"] == pytest.approx(1.2)


@pytest.mark.parametrize(("dtype", "name"), [("float16", "float16"), (ml_dtypes.bfloat16, "bfloat16")])
def test_a_dtype_is_told_by_the_bits_of_the_values(dtype: Any, name: str) -> None:
    reference = IMAGE.astype(np.float32)
    (found, *_) = explain_output(reference, reference.astype(dtype), limit_of(reference))
    assert (found.id, found.facts, found.explains) == ("rounded", {"dtype": name}, True)
    inside = (reference * (1 + RNG.standard_normal(reference.shape) * 4e-3)).astype(ml_dtypes.bfloat16)
    (found, *_) = explain_output(reference, inside.astype(np.float32), limit_of(reference))
    assert (found.id, found.facts) == ("lower-precision", {"dtype": "bfloat16"})


def test_errors_of_the_size_of_a_rounding_are_a_hint_that_explains_nothing() -> None:
    (found,) = explain(IMAGE, IMAGE * (1 + RNG.standard_normal(IMAGE.shape) * 3e-4))
    assert (found.id, found.facts["dtype"], found.share, found.explains) == ("rounding-sized", "float16", 0.0, False)


BORDER = IMAGE * np.pad(np.ones((2, 12, 9, 13)), ((0, 0), (0, 0), (1, 0), (1, 0)), constant_values=0.7)
PARTS = {
    "border": (IMAGE, BORDER, {"width": 1, "ends": "2 first, 3 first"}),
    "slices": (IMAGE, replaced(IMAGE, np.s_[:, 3:5], BIAS[3:5] + IMAGE[:, 3:5, ::-1]), {"axis": 1, "places": "3-4"}),
    "zeros": (IMAGE, np.where(SOME, 0.0, IMAGE), {}),
    "dropout": (IMAGE, np.where(SOME, 0.0, IMAGE / 0.9), {}),
    "displaced": (IMAGE, replaced(np.roll(IMAGE, 1, 2), np.s_[:, :, 0], 0.5), {"axis": 2, "by": 1}),
    "displaced along two axes": (IMAGE, np.roll(IMAGE, (1, -1), (2, 3)), {"axes": "2,3", "by": "1,-1"}),
    "permuted but for some": (IMAGE, replaced(IMAGE[:, ORDER], np.s_[:, 0], 0.5), {"axis": 1}),
}


@pytest.mark.parametrize("name", PARTS)
def test_what_holds_of_a_part_is_told_with_its_share(name: str) -> None:
    reference, candidate, facts = PARTS[name]
    (found, *_) = explain(reference, candidate)
    assert found.id == name.partition(" ")[0]
    assert found.factor <= 1.0
    assert 0.4 < found.share < 1.0
    assert not found.explains
    assert facts.items() <= found.facts.items()


def test_the_share_of_dropout_is_told() -> None:
    (found, *_) = explain(*PARTS["dropout"][:2])
    assert found.facts["p"] == pytest.approx(0.1, abs=1e-6)


def test_a_candidate_of_zeros_is_told_and_explains_nothing() -> None:
    (found,) = explain(IMAGE, IMAGE * 0.0)
    assert (found.id, found.share, found.explains) == ("zeros", 0.0, False)
    assert found.factor > 1.0


def test_nan_is_all_that_is_told() -> None:
    (found,) = explain(IMAGE, np.where(SOME, np.nan, -IMAGE))
    assert (found.id, found.facts["elements"], found.explains) == ("not-finite", int(SOME.sum()), False)


def test_infinities_in_place_of_the_largest_values_are_an_overflow() -> None:
    large = IMAGE * 60000
    (found,) = explain(large, np.where(np.abs(large) > 65504, np.inf, large))
    assert found.id == "overflowed"
    assert found.facts["kept"] <= 65504 < found.facts["smallest"]


def test_nan_that_both_have_is_left_out() -> None:
    reference, candidate = (np.where(SOME, np.nan, one) for one in (IMAGE, IMAGE / 8))
    assert [found.id for found in explain(reference, candidate)] == ["scaled"]


NEAR_MISSES = {
    "a shift of rows and columns": IMAGE + RNG.standard_normal((1, 1, 10, 14)),
    "a scale of each element": IMAGE * RNG.uniform(0.9, 1.1, IMAGE.shape),
    "an order of all elements": RNG.permutation(IMAGE.ravel()).reshape(IMAGE.shape),
    "permuted with another scale": IMAGE[:, ORDER] * GAIN,
    "another function": np.cos(IMAGE),
    "almost a function": np.maximum(IMAGE, 0.01 * IMAGE) + 0.05 * np.sin(40 * IMAGE),
    "softmax of something else": softmax(RNG.standard_normal(IMAGE.shape), 1),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_near_miss_is_none(name: str) -> None:
    assert explain(IMAGE, NEAR_MISSES[name]) == ()


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 2**32 - 1), st.sampled_from(["n", "relu", "0"])
)
def test_unrelated_values_are_not_explained(shape: list[int], seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    ours, theirs = rng.standard_normal((2, *shape))
    if kind == "relu":
        ours, theirs = np.maximum(ours, 0.0), np.maximum(theirs, 0.0)
    assert explain(ours, theirs * (kind != "0") + 0.5 * (kind == "0")) == ()


@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_few_elements_are_explained_by_nothing(seed: int, count: int) -> None:
    values = np.random.default_rng(seed).standard_normal(count)
    for candidate in (values + 1.0, values * 3.0, values[::-1]):
        assert explain(values, candidate) == ()


@pytest.mark.parametrize("candidate", [np.full((4, 8), 2.0), np.full((4, 8), -1.0)])
def test_constant_outputs_decide_nothing(candidate: Array) -> None:
    assert explain(np.ones((4, 8)), candidate) == ()


def test_channels_that_do_not_vary_tell_no_shift_from_a_scale() -> None:
    constant = np.broadcast_to(BIAS, (2, 12, 10, 14))
    assert explain(constant, constant + GAIN) == ()


def test_a_few_dead_channels_hide_no_shift() -> None:
    reference = replaced(IMAGE, np.s_[:, 3:6], BIAS[3:6])
    (found, *_) = explain(reference, reference - BIAS)
    assert (found.id, found.facts["slices"]) == ("slices-shifted", 12)


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_values_of_any_size_are_explained(size: float) -> None:
    assert [found.id for found in explain(IMAGE * size, IMAGE * size / 8)] == ["scaled"]
    assert explain(IMAGE * size, RNG.standard_normal(IMAGE.shape) * size) == ()


def test_values_whose_squares_are_no_numbers_are_not_explained() -> None:
    large = IMAGE * 1e200
    exact = measure(large, large)
    assert explain_output(large, large[:, ORDER], limit_for(exact, ("float64", "float64"), exact)) == ()


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (0.125, "1/8"),
        (-2.0, "-2"),
        (768**0.5, "sqrt(768)"),
        (64**-0.5, "1/8"),
        (1 / 255, "1/255"),
        (60.3, ""),
        (1.0, ""),
    ],
)
def test_a_number_that_layers_are_scaled_by_is_known(number: float, name: str) -> None:
    assert known_number(number) == name


@pytest.mark.parametrize("number", [0.0, float("nan"), float("inf"), -float("inf"), 5e-324, 1e308])
def test_what_is_no_number_of_a_layer_is_none_of_the_known(number: float) -> None:
    assert known_number(number) == ""


ODD = {
    "one-hot": np.eye(8)[[0, 3, 5, 5]],
    "one-hot elsewhere": np.eye(8)[[7, 1, 2, 6]],
    "zeros": np.zeros((4, 8)),
    "negative zeros": np.full((4, 8), -0.0),
    "equal": np.full((4, 8), 3.0),
    "tiny": TOKENS[0, :4, :8] * 1e-310,
    "huge": TOKENS[0, :4, :8] * 1e300,
    "some NaN": np.where(np.arange(8) % 3, TOKENS[0, :4, :8], np.nan),
    "some Inf": np.where(np.arange(8) % 3, TOKENS[0, :4, :8], -np.inf),
    "all NaN": np.full((4, 8), np.nan),
    "all Inf": np.full((4, 8), np.inf),
    "usual": TOKENS[0, :4, :8],
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
def test_values_without_figures_are_explained_or_not_but_never_fail(name: str) -> None:
    limit = Limit(1e-6, 1e-7, "user")
    ours = {"weight": ODD["one-hot"][0], "bias": ODD[name][0]}
    for other in (ODD[one] for one in ("one-hot", "tiny", "huge", "some NaN", "all Inf")):
        found = [*explain_output(ODD[name], other, limit)]
        for kind in ("", "layer_norm"):
            found += explain_layer(kind, {"x": ODD[name]}, ours, ODD["usual"], other, limit)
            found += explain_layer(kind, {"x": other}, ours, ODD[name], ODD["usual"], limit)
        assert not any(np.isnan(one.factor) for one in found)


def test_a_softmax_that_chooses_others_is_wrong_and_the_same_one_is_right() -> None:
    limit = Limit(1e-5, 1e-6, "user")
    assert explain_output(ODD["one-hot"], ODD["one-hot"], limit) == ()
    assert not any(one.explains for one in explain_output(ODD["one-hot"], ODD["one-hot elsewhere"], limit))


def test_a_coarse_limit_tells_nothing() -> None:
    reference = IMAGE.astype(np.float32)
    assert explain_output(reference, 2.5 * reference, Limit(5.0, 0.5, "user")) == ()


def test_what_is_within_its_limit_needs_no_explanation() -> None:
    assert explain(IMAGE, IMAGE) == ()


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_empty_and_single_values_are_not_explained(shape: tuple[int, ...]) -> None:
    assert explain(np.ones(shape), np.zeros(shape)) == ()


def test_integers_in_another_order_are_found() -> None:
    tokens = RNG.integers(0, 1000, (4, 32))
    (found, *_) = explain_output(tokens, tokens[:, ::-1], Limit(0.0, 0.0, "exact"))
    assert (found.id, found.explains) == ("flipped", True)
