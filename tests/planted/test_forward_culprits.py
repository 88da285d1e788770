"""All that is at fault in a real port is named, with part, cause and line, and nothing else; a clean twin has none."""

from __future__ import annotations

import copy
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.core.verdicts import Outcome
from align.forward.compare_forward import compare_forward
from align.models.open_side import open_side

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.forward.forward_result import Culprit, ForwardComparison

pytestmark = pytest.mark.frameworks

Expected = tuple[str, str, str, str, str, str]  # candidate, part, cause, sureness, what to write, source at the line


def source_at(culprit: Culprit) -> str:
    file, _, number = culprit.line.rpartition(":")
    return (Path(__file__).parent / Path(file).name).read_text(encoding="utf-8").splitlines()[int(number) - 1]


def assert_told(result: ForwardComparison, *expected: Expected) -> None:
    """The culprits are these in this order, and no others; a change is part of what is to be written."""
    found = [(one.candidate, one.part, one.cause, one.sureness) for one in result.culprits]
    assert found == [one[:4] for one in expected]
    for culprit, (*_, change, source) in zip(result.culprits, expected, strict=True):
        assert culprit.factor > 1.0
        assert change in culprit.change if change else not culprit.change
        assert source in source_at(culprit)
    assert (result.verdict.outcome is Outcome.ALIGNED) == (not expected)


def inputs_of(pairs: Any, kind: str) -> dict[str, Any]:
    made = np.random.default_rng(0)
    shapes = {"rows": (32, 16), "sequences": (4, 12, 16)}
    if kind in shapes:
        return {"x": made.standard_normal(shapes[kind]).astype(np.float32)}
    return pairs.tokens(batch=4, length=16) if kind == "tokens" else pairs.images(size=12)


PORTS = {
    "Encoder": "tokens",
    "ConvNet": "images",
    "States": "sequences",
    "Heads": "sequences",
    "Images": "images",
    "Rows": "sequences",
    "Fused": "rows",
    "Pooled": "images",
    "Passing": "rows",
    "Picky": "rows",
    "Half": "rows",
}


@pytest.fixture(scope="module")
def compared(pairs: Any, faulty: Any) -> Callable[..., ForwardComparison]:
    """Compare a port that has the defect with its original, which is filled and mapped once."""

    @cache
    def original(name: str, **sizes: int) -> tuple[Any, Any, Any, dict[str, Any]]:
        home = pairs if hasattr(pairs, f"Port{name}") else faulty
        reference, port = getattr(home, f"Torch{name}")(**sizes), partial(getattr(home, f"Port{name}"), **sizes)
        inputs = inputs_of(pairs, PORTS[name])
        return reference, port, pairs.make_alike(reference, port(), inputs), inputs

    def compare(name: str, defect: str = "", disturb: Any = None, **sizes: int) -> ForwardComparison:
        reference, make, name_map, inputs = original(name, **sizes)
        port = make(defect=defect)
        pairs.transfer(reference, port, name_map)
        if disturb is not None:
            disturb(port)
        return compare_forward(reference, port, inputs=inputs, name_map=name_map, power=False)

    return compare


@pytest.mark.parametrize("name", sorted(PORTS))
def test_a_clean_port_has_no_culprit(compared: Any, name: str) -> None:
    result = compared(name)
    assert_told(result)
    assert {one.code for one in result.findings} <= {"not-judged"}  # a port may have a dropout more
    judged = [layer.isolated for layer in result.layers if layer.isolated is not None]
    assert len(judged) >= 3
    assert {one.outcome for one in judged} == {"aligned"}


LAYERS: list[tuple[str, str, Expected]] = [
    (
        "Encoder",
        "layer norm eps",
        ("stack.1.before", "layer", "layer-norm-epsilon", "confirmed", "epsilon=1e-05", "self.before ="),
    ),
    ("Encoder", "gelu", ("stack.1.act", "layer", "gelu-approximation", "confirmed", "approximate=False", "self.act =")),
    (
        "ConvNet",
        "activation",
        ("layers.1.act", "layer", "other-kind", "confirmed", "mindspore.nn.ReLU()", "self.act ="),
    ),
    (
        "ConvNet",
        "batch norm eps",
        ("first_norm", "layer", "batch-norm-epsilon", "confirmed", "eps=1e-05", "self.first_norm ="),
    ),
    ("ConvNet", "padding", ("first", "layer", "conv-padding", "confirmed", "padding=1", "self.first =")),
    ("ConvNet", "conv stride", ("first", "layer", "conv-stride", "confirmed", "stride=1", "self.first =")),
    (
        "States",
        "repeated norm",
        ("scale", "layer", "layer-norm-epsilon", "confirmed", "epsilon=1e-05", "self.scale ="),
    ),
    ("Images", "gelu", ("act", "layer", "gelu-approximation", "confirmed", "approximate=False", "self.act =")),
    ("Rows", "gelu", ("act", "layer", "gelu-approximation", "confirmed", "approximate=False", "self.act =")),
    ("Rows", "layer norm eps", ("last", "layer", "layer-norm-epsilon", "confirmed", "epsilon=1e-05", "self.last =")),
    ("Fused", "activation", ("b.activation", "layer", "other-kind", "confirmed", "mindspore.nn.Tanh()", "self.b =")),
    ("Fused", "extra layer", ("extra", "layer", "layer-extra", "confirmed", "mindspore.nn.Identity()", "self.extra =")),
    (
        "Pooled",
        "count",
        ("pool", "layer", "avg-pool-count-include-pad", "confirmed", "count_include_pad=False", "self.pool ="),
    ),
]


@pytest.mark.parametrize(("name", "defect", "expected"), LAYERS)
def test_a_layer_at_fault_is_named_with_what_to_write(
    compared: Any, name: str, defect: str, expected: Expected
) -> None:
    assert_told(compared(name, defect), expected)


CODE: list[tuple[str, str, Expected]] = [
    ("Encoder", "heads", ("stack.1.merge", "inputs", "setting-differs", "confirmed", "heads=4", "self.merge(")),
    (
        "Encoder",
        "scale forgotten",
        ("stack.1.merge", "inputs", "attention-scale", "suspected", "", "ops.softmax(scores"),
    ),
    (
        "Encoder",
        "residual dropped",
        ("stack.1.between", "inputs", "residual-missing", "suspected", "", "self.between("),
    ),
    ("ConvNet", "residual dropped", ("layers.1.act", "inputs", "residual-missing", "suspected", "", "self.act(")),
    ("States", "state lost", ("recurrent", "inputs", "residual-missing", "suspected", "", "self.recurrent(")),
    ("Heads", "mask inverted", ("both", "inputs", "scaled-and-shifted", "suspected", "", "self.both(")),
    ("Heads", "outputs crossed", ("union", "inputs", "parts-reordered", "suspected", "", "self.union(")),
    ("Images", "residual dropped", ("out", "inputs", "code-differs", "confirmed", "x + ", "self.mixed(")),
    ("Passing", "scaled", ("b", "inputs", "scaled", "suspected", "", "self.b(")),
]


@pytest.mark.parametrize(("name", "defect", "expected"), CODE)
def test_code_at_fault_is_named_where_it_hands_on_what_is_wrong(
    compared: Any, name: str, defect: str, expected: Expected
) -> None:
    assert_told(compared(name, defect), expected)


def test_what_the_stream_carries_on_accuses_no_later_block(compared: Any) -> None:
    result = compared("Encoder", "residual dropped", depth=4)
    assert [one.candidate for one in result.culprits] == ["stack.1.between"]
    off = [layer.candidate for layer in result.layers if layer.outcome == "not aligned"]
    assert {"stack.2.before", "stack.3.narrow", "final", "project"} <= set(off)
    follow = [layer for layer in result.layers if layer.candidate.startswith(("stack.2.", "stack.3."))]
    assert {layer.isolated.outcome for layer in follow if layer.isolated} == {"aligned"}


def test_repeated_calls_of_one_layer_are_one_culprit_that_counts_them(compared: Any, faulty: Any) -> None:
    (culprit,) = compared("States", "repeated norm").culprits
    assert (culprit.call, culprit.facts["calls"]) == (0, faulty.UNROLLED)


def test_faults_behind_each_other_are_all_named_and_no_stranger(pairs: Any, compared: Any) -> None:
    """A setting, code and weights in one port; the second and third are reached by wrong values only."""

    def disturb(port: Any) -> None:
        port.stack[0].act = type(port.stack[0].act)(approximate=True)
        pairs.change(port, "stack.2.k.weight", lambda value: value.T)

    assert_told(
        compared("Encoder", "residual dropped", disturb, depth=4),
        ("stack.0.act", "layer", "gelu-approximation", "confirmed", "approximate=False", "self.act ="),
        ("stack.1.between", "inputs", "residual-missing", "suspected", "", "self.between("),
        ("stack.2.k", "layer", "weights-differ", "confirmed", "", "self.k ="),
    )


def test_two_wrong_settings_of_one_layer_are_confirmed_together(compared: Any) -> None:
    def disturb(port: Any) -> None:
        from mindspore import nn

        first = nn.Conv2d(3, 8, 3, stride=2, padding=0, pad_mode="valid", has_bias=False)
        first.weight = port.first.weight
        port.first = first

    (culprit,) = compared("ConvNet", "", disturb).culprits
    assert (culprit.candidate, culprit.sureness) == ("first", "confirmed")
    assert set(culprit.cause.split(" + ")) == {"conv-padding", "conv-stride"}
    assert "stride=1" in culprit.change
    assert "padding=1" in culprit.change


def test_a_scale_that_a_later_norm_cancels_is_a_culprit_though_the_outputs_agree(pairs: Any, faulty: Any) -> None:
    reference, port, inputs = faulty.torch_cancelled(), faulty.port_cancelled(), pairs.images(size=12)
    name_map = pairs.make_alike(reference, port, inputs)
    for name in ("0.weight", "0.bias"):
        pairs.change(port, name, lambda value: value * 2)
    result = compare_forward(reference, port, inputs=inputs, name_map=name_map)
    (culprit,) = result.culprits
    assert (culprit.candidate, culprit.part, culprit.cause, culprit.sureness) == (
        "0",
        "layer",
        "weights-differ",
        "confirmed",
    )
    assert result.layers[-1].outcome == "aligned"
    assert result.verdict.outcome is Outcome.NOT_ALIGNED


def swapped(pairs: Any, port: Any) -> None:
    pairs.swap(port, "stack.1.q.weight", "stack.1.k.weight")


def transposed(pairs: Any, port: Any) -> None:
    pairs.change(port, "stack.1.merge.weight", lambda value: value.T)


def stale(pairs: Any, port: Any) -> None:
    pairs.change(port, "layers.1.b_norm.moving_mean", np.zeros_like)
    pairs.change(port, "layers.1.b_norm.moving_variance", np.ones_like)


@pytest.mark.parametrize(
    ("name", "disturb", "places", "relation"),
    [
        ("Encoder", swapped, ["stack.1.q", "stack.1.k"], "swapped-weights"),
        ("Encoder", transposed, ["stack.1.merge"], "transposed"),
        ("ConvNet", stale, ["layers.1.b_norm"], "initial-value"),
    ],
)
def test_wrong_weights_are_confirmed_and_their_relation_told(
    pairs: Any, compared: Any, name: str, disturb: Any, places: list[str], relation: str
) -> None:
    result = compared(name, "", partial(disturb, pairs))
    assert [one.candidate for one in result.culprits] == places
    for culprit in result.culprits:
        assert (culprit.part, culprit.cause, culprit.sureness) == ("layer", "weights-differ", "confirmed")
        assert culprit.facts["relation"] == relation


def test_one_layer_in_float16_is_at_fault_though_all_else_is_judged_as_float32(compared: Any) -> None:
    assert_told(
        compared("Half", "float16"), ("parts.4", "layer", "rounded", "suspected", "", "mnn.Dense(WIDTH, WIDTH)")
    )


def test_a_port_that_is_float16_as_a_whole_is_judged_as_such(pairs: Any, faulty: Any) -> None:
    reference, port, inputs = faulty.TorchHalf(), faulty.PortHalf(), inputs_of(pairs, "rows")
    name_map = pairs.make_alike(reference, port, inputs)
    half = open_side(port, dtype="float16")
    result = compare_forward(reference, half, inputs=inputs, name_map=name_map, power=False)
    assert {layer.candidate_dtype for layer in result.layers} == {"float16"}
    assert result.culprits == ()
    assert {layer.outcome for layer in result.layers} == {"aligned"}


def test_what_was_seen_before_a_port_fails_on_right_values_counts_and_the_rest_is_said(compared: Any) -> None:
    """It runs on its own wrong values, and refuses right ones."""
    result = compared("Picky", "refuses")
    (culprit,) = result.culprits
    assert (culprit.candidate, culprit.part) == ("act", "inputs")
    assert "self.shift)" in source_at(culprit)
    (finding,) = [one for one in result.findings if one.code == "not-isolated"]
    assert finding.severity == "warning"
    assert "these values are too small" in finding.message
    alone = {layer.candidate: layer.isolated for layer in result.layers}
    assert alone["b"] is not None
    assert alone["b"].outcome == "aligned"
    assert (alone["tanh"], alone["c"]) == (None, None)


def torch_norm(port: Any) -> None:
    port.layers[1].ln1.eps = 1e-3


def torch_activation(port: Any) -> None:
    port.layers[0].gelu.approximate = "tanh"


def torch_weights(port: Any) -> None:
    key, query = port.layers[1].key.weight, port.layers[1].query.weight
    port.layers[1].key.weight, port.layers[1].query.weight = query, key


def torch_heads(port: Any) -> None:
    port.layers[1].heads //= 2


TORCH: list[tuple[Any, Expected]] = [
    (torch_norm, ("layers.1.ln1", "layer", "layer-norm-epsilon", "confirmed", "eps=1e-05", "self.ln1 =")),
    (torch_activation, ("layers.0.gelu", "layer", "gelu-approximation", "confirmed", "none", "self.gelu =")),
    (torch_heads, ("layers.1.out", "inputs", "setting-differs", "confirmed", "heads=4", "self.out(")),
]


@pytest.mark.parametrize(("disturb", "expected"), TORCH)
def test_torch_against_torch_names_the_same(pairs: Any, disturb: Any, expected: Expected) -> None:
    reference = pairs.TorchEncoder()
    pairs.randomize(reference, 0)
    port = copy.deepcopy(reference)
    assert_told(compare_forward(reference, port, inputs=inputs_of(pairs, "tokens"), power=False))
    disturb(port)
    assert_told(compare_forward(reference, port, inputs=inputs_of(pairs, "tokens"), power=False), expected)


def test_torch_against_torch_names_all_faults_at_once(pairs: Any) -> None:
    reference = pairs.TorchEncoder()
    pairs.randomize(reference, 0)
    port = copy.deepcopy(reference)
    for disturb in (torch_activation, torch_norm, torch_weights, torch_heads):
        disturb(port)
    assert_told(
        compare_forward(reference, port, inputs=inputs_of(pairs, "tokens"), power=False),
        TORCH[1][1],
        TORCH[0][1],
        ("layers.1.query", "layer", "weights-differ", "confirmed", "", "self.query,"),
        ("layers.1.key", "layer", "weights-differ", "confirmed", "", "self.query,"),
        TORCH[2][1],
    )


def test_a_layer_and_the_code_in_front_of_it_are_both_named(compared: Any) -> None:
    from mindspore import nn

    def with_another_epsilon(port: Any) -> None:
        norm = port.stack[1].between
        norm.epsilon = 1e-2
        norm.layer_norm = nn.LayerNorm(tuple(norm.gamma.shape), epsilon=1e-2).layer_norm

    result = compared("Encoder", "residual dropped", with_another_epsilon)
    found = [(one.candidate, one.part, one.cause, one.sureness) for one in result.culprits]
    assert found == [
        ("stack.1.between", "inputs", "residual-missing", "suspected"),
        ("stack.1.between", "layer", "layer-norm-epsilon", "confirmed"),
    ]
