"""Values and inputs that hide a fault: moved alike on both sides, drawn anew, or told of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import align
from align.core.parameters import Module, Parameter, ParameterSet
from align.core.verdicts import Outcome
from align.forward.caveats import telling_inputs
from align.forward.measure_power import neutral_parameters
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

RNG = np.random.default_rng(0)
X = {"x": RNG.standard_normal((4, 6, 3)).astype(np.float32)}
WEIGHT = RNG.standard_normal((3, 3)).astype(np.float32)

Code = Any  # of a layer: a function of its input and its parameters


def model(family: str, function: Code, **parameters: Any) -> ArrayModel:
    values = {name: np.array(value, np.float32) for name, value in parameters.items()}
    return ArrayModel((ArrayLayer("fc", family, function, values),))


def compared(right: Code, wrong: Code, inputs: Any = X, **parameters: Any) -> align.ForwardComparison:
    sides = model("torch.nn.Linear", right, **parameters), model("mindspore.nn.Dense", wrong, **parameters)
    return align.compare_forward(*sides, inputs=inputs)


def linear(x: Any, weight: Any, bias: Any) -> Any:
    return x @ weight.T + bias


def unbiased(x: Any, weight: Any, bias: Any) -> Any:
    return x @ weight.T + 0 * bias.sum()


def scaled(x: Any, scale: Any) -> Any:
    return x * scale


def squared(x: Any, scale: Any) -> Any:
    return x * scale * scale


def plain(x: Any, weight: Any) -> Any:
    return x @ weight


def turned(x: Any, weight: Any) -> Any:
    return x @ weight.T


HIDDEN = [
    (linear, unbiased, {"weight": WEIGHT, "bias": np.zeros(3)}),
    (scaled, squared, {"scale": np.ones(3)}),
    (scaled, lambda x, scale: x / scale, {"scale": np.ones(3)}),
    (scaled, lambda x, scale: x * 0.25 + 0 * scale.sum(), {"scale": np.full(3, 0.25)}),
    (lambda x, scale: x + scale * x, lambda x, scale: x + scale**2 * x, {"scale": np.full(3, 1e-6)}),
    (plain, turned, {"weight": WEIGHT + WEIGHT.T}),
]


@pytest.mark.parametrize(("right", "wrong", "values"), HIDDEN)
def test_what_a_neutral_value_hides_shows_where_it_is_moved(right: Code, wrong: Code, values: Any) -> None:
    result = compared(right, wrong, **values)
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert "neutral values hide a fault" in result.verdict.reason
    assert [one.outcome for one in result.further] == ["not aligned"]
    assert [one.candidate for one in result.culprits] == ["fc"]


@pytest.mark.parametrize(("right", "values"), [(one[0], one[2]) for one in HIDDEN])
def test_a_right_port_stays_aligned_and_keeps_its_values(right: Code, values: Any) -> None:
    port = model("mindspore.nn.Dense", right, **values)
    before = {name: value.copy() for name, value in port.values().items()}
    result = align.compare_forward(model("torch.nn.Linear", right, **values), port, inputs=X)
    assert result.verdict.outcome is Outcome.ALIGNED
    assert {one.kind: one.outcome for one in result.further} == {
        "neutral values": "aligned",
        "other lengths": "aligned",
    }
    assert all(np.array_equal(value, before[name]) for name, value in port.values().items())
    assert not any("neutral" in one for one in result.verdict.caveats)


def test_a_constant_that_the_port_made_of_a_neutral_value_when_it_was_built_is_offered_as_a_reading() -> None:
    made = np.exp(np.zeros(3, np.float32))  # once, of the values that it was built with

    def kept(x: Any, scale: Any) -> Any:
        return x * made + 0 * scale.sum()

    result = compared(lambda x, scale: x * np.exp(scale), kept, scale=np.zeros(3))
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert "stored them as constants when it was built" in result.verdict.reason


def test_a_copy_of_another_value_is_moved_by_itself() -> None:
    def of(code: Code) -> Any:
        return code, {"first": WEIGHT, "second": WEIGHT}

    right, values = of(lambda x, first, second: np.tanh(x @ first) @ second)
    wrong, _ = of(lambda x, first, second: np.tanh(x @ second) @ first)
    assert compared(right, right, **values).verdict.outcome is Outcome.ALIGNED
    assert compared(right, wrong, **values).verdict.outcome is Outcome.NOT_ALIGNED


def test_statistics_stay_positive_and_other_buffers_frozen_numbers_and_integers_are_left() -> None:
    def one(name: str, shape: tuple[int, ...], **more: Any) -> Parameter:
        owner, _, attribute = name.rpartition(".")
        return Parameter(name, shape, "float32", owner, attribute, **({"trainable": True} | more))

    side = ParameterSet(
        "net",
        "torch",
        (
            one("bn.running_var", (3,), buffer=True, trainable=False),
            one("bn.running_mean", (3,), buffer=True, trainable=False),
            one("mask", (3,), buffer=True, trainable=False),
            one("size", (1,), trainable=False),
            one("frozen", (2,), trainable=False),
            one("count", (2,)),
            one("empty", (0,)),
            one("drawn", (2,)),
            one("twice", (2,), tied_to="frozen"),
        ),
        (Module("bn", ("torch.nn.BatchNorm2d",)),),
    )
    ones = {name: np.ones(parameter.shape, np.float32) for name, parameter in side.by_name.items()}
    values = ones | {"count": np.ones(2, np.int64), "drawn": np.array([1.0, 2.0], np.float32)}
    assert neutral_parameters(side, values) == dict.fromkeys(
        ("bn.running_var", "bn.running_mean", "frozen"), "1 throughout"
    )


@pytest.mark.parametrize(
    ("inputs", "spots"),
    [
        (np.repeat(X["x"][:1], 4, 0), ["all samples of x are equal"]),
        (np.repeat(X["x"][:, :1], 6, 1), ["x is the same all along axis 1"]),
        (np.concatenate([X["x"], X["x"][:, ::-1]], 1), ["x is the same read backwards along axis 1"]),
        (X["x"][:, :3] + X["x"][:, :3].swapaxes(1, 2), ["x is symmetric in its last two axes"]),
        (np.array([[3] * 5, [7] * 5]), ["x is the same all along axis 1"]),
        (np.array([[0, 0, 1], [0, 0, 1]]), []),  # a mask
        (np.tile(np.arange(6), (4, 1)), []),  # an order
        (np.ones((4, 6)), []),
    ],
)
def test_what_inputs_have_alike_is_told_and_drawn_otherwise(inputs: Any, spots: list[str]) -> None:
    found = [one for one in telling_inputs([{"x": inputs}]) if not one.lengths]
    assert [spot for one in found for spot in one.blind_spots] == spots
    drawn = [one.batches[0]["x"] for one in found if one.batches]
    assert len(drawn) == len([spot for spot in spots if "symmetric" not in spot])  # which other edges there may be?
    assert all(one.shape == inputs.shape and not np.array_equal(one, inputs) for one in drawn)


def test_words_keep_what_their_rows_are_filled_up_with() -> None:
    rows = np.array([[5, 9, 17, 33, 21, 7, 0, 0]] * 3)
    (other,) = [one.batches[0]["ids"] for one in telling_inputs([{"ids": rows}]) if not one.lengths]
    assert (other[:, -2:] == 0).all()
    assert (np.sort(other) == np.sort(rows)).all()
    assert len({tuple(row) for row in other}) > 1


@pytest.mark.parametrize(
    "beside", [np.array([6, 4]), np.array([[0], [5]]), np.array([[[1], [2]]] * 2), np.array([[0, 3], [2, 5]])]
)
def test_no_other_length_is_drawn_beside_what_may_count_or_point_at_tokens(beside: Any) -> None:
    found = [*telling_inputs([{"x": np.random.default_rng(0).standard_normal((2, 6, 3)), "beside": beside}])]
    assert not any(one.lengths for one in found)


@pytest.mark.parametrize(("length", "other"), [(1, 3), (2, 3), (6, 3), (17, 8)])
def test_another_length_is_drawn_with_all_that_has_this_length(length: int, other: int) -> None:
    mask, rows = np.tril(np.ones((4, 1, length, length))), np.tile(np.arange(length), (4, 1))
    batch = {"ids": RNG.integers(0, 9, (4, length)), "mask": mask, "positions": rows}
    (found,) = [one for one in telling_inputs([batch]) if one.lengths]
    shapes = {name: value.shape for name, value in found.batches[0].items()}
    expected = {"ids": (4, other), "mask": (4, 1, other, other), "positions": (4, other)}
    assert shapes == expected if length > 1 else shapes["ids"] == (4, other)


def test_two_lengths_need_no_third() -> None:
    assert not [one for one in telling_inputs([X, {"x": X["x"][:, :4]}]) if one.lengths]


def backwards(x: Any, weight: Any) -> Any:
    return x[:, ::-1] @ weight


@pytest.mark.parametrize("inputs", [np.repeat(X["x"][:, :1], 6, 1), X["x"][:, :1]])
def test_a_fault_that_the_inputs_hide_shows_on_others(inputs: Any) -> None:
    assert compared(plain, plain, {"x": inputs}, weight=WEIGHT).verdict.outcome is Outcome.ALIGNED
    result = compared(plain, backwards, {"x": inputs}, weight=WEIGHT)
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert "hide a fault" in result.verdict.reason


def test_a_port_that_fails_at_another_length_is_told_of() -> None:
    def fixed(x: Any, weight: Any) -> Any:
        return x.reshape(4, 6, 3) @ weight

    result = compared(plain, fixed, weight=WEIGHT)
    assert result.verdict.outcome is Outcome.ALIGNED
    assert any("only length 6 was given" in one for one in result.verdict.caveats)


def test_a_stored_answer_is_not_aligned() -> None:
    answer = plain(X["x"], WEIGHT)
    result = compared(plain, lambda x, weight: answer + 0 * (x @ weight), weight=WEIGHT)
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert "returns exactly the same for other inputs" in result.verdict.reason


def test_whole_numbers_and_one_framework_are_told_of() -> None:
    result = compared(
        lambda x, weight: (x @ weight).argmax(-1), lambda x, weight: (x @ weight).argmax(-1), weight=WEIGHT
    )
    caveats = " ".join(result.verdict.caveats)
    assert "the outputs are whole numbers" in caveats
    assert "both sides are arrays models" in caveats


POSITIVE = {"x": RNG.uniform(0.1, 1.0, (4, 6, 3)).astype(np.float32)}
NEGATIVE = {"x": -POSITIVE["x"]}


@pytest.mark.parametrize(
    ("right", "wrong", "inputs"),
    [
        (np.abs, lambda x: np.maximum(x, 0), POSITIVE),
        (np.tanh, lambda x: np.tanh(np.maximum(x, 0)), POSITIVE),
        (lambda x: np.minimum(x, 0), lambda x: x, NEGATIVE),
    ],
)
def test_what_values_of_one_sign_hide_shows_with_other_signs(right: Code, wrong: Code, inputs: Any) -> None:
    def of(code: Code) -> Code:
        return lambda x, weight: code(x) @ weight

    result = compared(of(right), of(wrong), inputs, weight=WEIGHT)
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert f"no value of x is {'positive' if inputs is NEGATIVE else 'negative'}" in result.verdict.reason
    same = compared(of(right), of(right), inputs, weight=WEIGHT)
    assert same.verdict.outcome is Outcome.ALIGNED
    assert [one.outcome for one in same.further if "no value of x" in one.subjects[0]] == ["aligned"]


def test_what_the_reference_does_not_take_is_told_and_accuses_nobody() -> None:
    def of(least: float) -> Code:
        return lambda x, weight: np.sqrt(np.maximum(x, least)) @ weight

    with np.errstate(invalid="ignore"):
        result = compared(of(-9), of(1e-9), POSITIVE, weight=WEIGHT)
    assert result.verdict.outcome is Outcome.ALIGNED
    assert any(
        "no value of x is negative: this may hide a fault, which could not be checked" in one
        for one in result.verdict.caveats
    )


def test_layers_that_return_one_sign_are_given_inputs_that_turn_it() -> None:
    def of(code: Code, shift: float) -> ArrayModel:
        first = ArrayLayer("first", "torch.nn.Linear", lambda x, bias: x + bias, {"bias": np.full(3, shift)})
        last = ArrayLayer("last", "torch.nn.Linear", lambda x, weight: code(x) @ weight, {"weight": WEIGHT})
        return ArrayModel((first, last))

    inputs = {"x": RNG.standard_normal((40, 3))}
    spot = "no value that first (Linear) returns is negative"
    for shift, told in ((9.0, Outcome.NOT_ALIGNED), (900.0, Outcome.ALIGNED)):
        wrong = align.compare_forward(of(np.abs, shift), of(lambda x: np.maximum(x, 0), shift), inputs=inputs)
        assert wrong.verdict.outcome is told
        assert spot in " ".join([wrong.verdict.reason, *wrong.verdict.caveats])
    right = align.compare_forward(of(np.abs, 9.0), of(np.abs, 9.0), inputs=inputs)
    assert right.verdict.outcome is Outcome.ALIGNED
    assert not any(spot in one for one in right.verdict.caveats)
