"""Faults of real layers of both frameworks, seen by what the layer was given: the cause, and its figures."""

from __future__ import annotations

from dataclasses import dataclass
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
RNG = np.random.default_rng(5)
IMAGE = RNG.standard_normal((4, 12, 8, 8)).astype(np.float32)
TOKENS = (RNG.standard_normal((2, 10, 24)) * RNG.uniform(0.01, 1.0, (2, 10, 1))).astype(np.float32)
NUMBERS = RNG.integers(1, 29, (4, 10))


@dataclass
class Layer:
    """A torch layer with values of its own, run once in float32 and once in float64."""

    module: Any
    value: Array

    def __post_init__(self) -> None:
        import torch

        with torch.no_grad():
            for name, one in self.module.state_dict().items():
                if one.is_floating_point():
                    low, high = (0.5, 2.0) if "var" in name or "weight" in name else (-1.0, 1.0)
                    one.copy_(torch.from_numpy(RNG.uniform(low, high, tuple(one.shape))))
        self.module.eval()

    def run(self, *, wide: bool = False) -> Array:
        import torch

        value = torch.from_numpy(self.value)
        with torch.no_grad():
            if not wide:
                return self.module(value).numpy()
            self.module.double()
            result = self.module(value.double() if value.is_floating_point() else value).numpy()
            self.module.float()
        return result

    @property
    def values(self) -> dict[str, Array]:
        return {name: one.numpy().copy() for name, one in self.module.state_dict().items()}

    def explain(self, kind: str, candidate: Array, **inputs: Array) -> list[Relation]:
        output = self.run()
        noise = measure(self.run(wide=True), output)
        limit = limit_for(measure(output, output), ("float32", "float32"), noise)
        return [*explain_layer(kind, {"0": self.value, **inputs}, self.values, output, candidate, limit)]


def port(layer: Any, value: Array, **values: Array) -> Array:
    """What a MindSpore layer, filled with these values, makes of this input."""
    import mindspore as ms

    fill(layer, **values)
    layer.set_train(False)
    return layer(ms.Tensor(value)).asnumpy()


def fill(layer: Any, **values: Array) -> None:
    import mindspore as ms

    for name, one in values.items():
        getattr(layer, name).set_data(ms.Tensor(one))


def torch_nn() -> Any:
    import torch

    return torch.nn


def ms_nn() -> Any:
    import mindspore

    return mindspore.nn


@pytest.mark.parametrize(("ours", "theirs"), [(1e-5, 1e-7), (1e-6, 1e-3), (1e-12, 1e-5)])
def test_the_epsilon_of_a_layer_norm_is_solved_for(ours: float, theirs: float) -> None:
    layer = Layer(torch_nn().LayerNorm(24, eps=ours), TOKENS)
    cell = ms_nn().LayerNorm((24,), epsilon=theirs)
    values = layer.values
    found = layer.explain("layer_norm", port(cell, TOKENS, gamma=values["weight"], beta=values["bias"]))
    assert (found[0].id, found[0].fitted, found[0].explains) == ("epsilon", 1, True)
    assert found[0].facts["candidate"] == pytest.approx(theirs, abs=float(found[0].facts["error"]))
    assert found[0].facts["reference"] == pytest.approx(ours, abs=float(found[0].facts["error"]))


def test_the_epsilon_of_a_norm_of_a_class_of_ones_own_is_solved_for() -> None:
    layer = Layer(torch_nn().RMSNorm(24, eps=1e-6), TOKENS)
    candidate = Layer(torch_nn().RMSNorm(24, eps=1e-5), TOKENS)
    candidate.module.load_state_dict(layer.module.state_dict())
    (found,) = layer.explain("", candidate.run())
    assert (found.id, found.facts["reference"], found.facts["candidate"]) == ("epsilon", 1e-6, 1e-5)
    centred = torch_nn().functional.layer_norm(tensor(TOKENS), (24,), tensor(layer.values["weight"]), None, 1e-6)
    (found,) = layer.explain("", centred.numpy())
    assert found.id == "centred"


def tensor(value: Array) -> Any:
    import torch

    return torch.from_numpy(value)


def batch_norm(**settings: Any) -> tuple[Layer, Any]:
    layer = Layer(torch_nn().BatchNorm2d(12), IMAGE)
    cell = ms_nn().BatchNorm2d(12, **settings)
    values = layer.values
    fill(cell, gamma=values["weight"], beta=values["bias"])
    return layer, cell


def test_the_epsilon_of_a_batch_norm_is_solved_for() -> None:
    layer, cell = batch_norm(eps=1e-3)
    values = layer.values
    found = layer.explain(
        "batch_norm", port(cell, IMAGE, moving_mean=values["running_mean"], moving_variance=values["running_var"])
    )
    assert (found[0].id, found[0].facts["reference"], found[0].facts["candidate"]) == ("epsilon", 1e-5, 1e-3)


def test_statistics_that_were_never_loaded_are_told_from_those_of_the_batch() -> None:
    layer, cell = batch_norm()
    fresh = layer.explain("batch_norm", port(cell, IMAGE))
    layer, cell = batch_norm(use_batch_statistics=True)
    batch = layer.explain("batch_norm", port(cell, IMAGE))
    assert (fresh[0].id, batch[0].id) == ("fresh-statistics", "batch-statistics")
    assert batch[0].facts == {"reference": "kept in the layer", "candidate": "of the batch"}


def test_another_number_of_groups_is_named() -> None:
    layer = Layer(torch_nn().GroupNorm(3, 12), IMAGE)
    values = layer.values
    candidate = port(ms_nn().GroupNorm(4, 12), IMAGE, gamma=values["weight"], beta=values["bias"])
    found = layer.explain("group_norm", candidate)
    assert (found[0].id, found[0].facts) == ("norm-groups", {"reference": "in 3 groups", "candidate": "in 4 groups"})


def test_a_norm_over_other_axes_or_without_the_mean_is_named() -> None:
    layer = Layer(torch_nn().LayerNorm(24), TOKENS)
    values = {name: one.astype(np.float64) for name, one in layer.values.items()}
    wide = TOKENS.astype(np.float64)
    for name, axis, middle, count in (
        ("norm-axes", 1, 1.0, 10),
        ("not-centred", 2, 0.0, 24),
        ("variance-unbiased", 2, 1.0, 23),
    ):
        deviation = wide - middle * wide.mean(axis=axis, keepdims=True)
        variance = (deviation**2).sum(axis=axis, keepdims=True) / count
        made = deviation / np.sqrt(variance + 1e-5) * values["weight"] + values["bias"]
        found = layer.explain("layer_norm", made.astype(np.float32))
        assert found[0].id == name


@pytest.mark.parametrize("kind", ["Linear", "Conv2d", "Conv3d"])
def test_a_bias_that_is_missing_or_added_twice_is_named(kind: str) -> None:
    nn = torch_nn()
    layer = {
        "Linear": Layer(nn.Linear(24, 16), TOKENS),
        "Conv2d": Layer(nn.Conv2d(12, 6, 3), IMAGE),
        "Conv3d": Layer(nn.Conv3d(4, 6, 3), IMAGE[None]),
    }[kind]
    bias = layer.values["bias"] if kind == "Linear" else layer.values["bias"].reshape(-1, *[1] * (int(kind[4])))
    output = layer.run()
    assert layer.explain("", output - bias)[0].id == "bias-missing"
    assert layer.explain("", output + bias)[0].id == "bias-twice"
    assert layer.explain("", output - 0.5 * bias)[0].id == "slices-shifted"


def test_a_square_weight_used_the_other_way_round_is_named() -> None:
    layer = Layer(torch_nn().Linear(24, 24), TOKENS)
    values = layer.values
    candidate = port(ms_nn().Dense(24, 24), TOKENS, weight=values["weight"].T.copy(), bias=values["bias"])
    assert layer.explain("linear", candidate)[0].id == "weight-transposed"


@pytest.mark.parametrize(
    ("ours", "theirs", "facts"),
    [
        ("GELU()", "GELU(approximate=True)", ("gelu", "gelu-tanh")),
        ("LeakyReLU(0.01)", "LeakyReLU(alpha=0.2)", ("leaky-relu 0.01", "leaky-relu 0.2")),
        ("LeakyReLU(0.01)", "LeakyReLU(alpha=0.05)", ("leaky-relu 0.01", "leaky-relu 0.05")),
        ("ELU(1.0)", "ELU(alpha=1.0)", None),
        ("SiLU()", "Sigmoid()", ("silu", "sigmoid")),
        ("Hardswish()", "ReLU6()", ("hard-swish", "relu6")),
        ("Softmax(1)", "Softmax(axis=-1)", ("softmax over axis 1", "softmax over axis 3")),
        ("ReLU()", "Identity()", ("relu", "nothing")),
    ],
)
def test_both_activations_are_named(ours: str, theirs: str, facts: tuple[str, str] | None) -> None:
    layer = Layer(eval(f"nn.{ours}", {"nn": torch_nn()}), IMAGE)
    found = layer.explain("", port(eval(f"nn.{theirs}", {"nn": ms_nn()}), IMAGE))
    if facts is None:
        assert found == []
        return
    named = next(one for one in found if one.id == "activation-differs")
    assert all(
        name in str(named.facts[side]).split(" or ")
        for side, name in zip(("reference", "candidate"), facts, strict=True)
    )


def test_an_activation_written_with_a_coarse_tanh_is_named() -> None:
    from mindspore import Tensor, ops

    layer = Layer(torch_nn().SiLU(), IMAGE)
    cubed = Tensor(np.sqrt(2.0 / np.pi).astype(np.float32) * (IMAGE + np.float32(0.044715) * IMAGE**3))
    found = layer.explain("", np.float32(0.5) * IMAGE * (1.0 + ops.tanh(cubed).asnumpy()))
    named = next(one for one in found if one.id == "activation-differs")
    assert named.facts == {"reference": "silu", "candidate": "gelu-tanh", "input": "0"}


def test_an_input_that_is_not_added_added_on_top_or_returned_is_named() -> None:
    layer = Layer(torch_nn().Conv2d(12, 12, 3, padding=1), IMAGE)
    output, other = layer.run(), RNG.standard_normal(IMAGE.shape).astype(np.float32)
    assert layer.explain("", output - IMAGE)[0].id == "residual-missing"
    assert layer.explain("", output + IMAGE)[0].id == "residual-extra"
    assert layer.explain("", IMAGE)[0].id == "input-returned"
    (found, *_) = layer.explain("", output - other, other=other)
    assert (found.id, found.facts) == ("residual-missing", {"input": "other"})


def test_rows_of_an_embedding_next_to_the_right_ones_and_a_row_of_zeros_are_named() -> None:
    layer = Layer(torch_nn().Embedding(30, 16), NUMBERS)
    table, port_of = layer.values["weight"], ms_nn().Embedding(30, 16)
    shifted = port(port_of, NUMBERS.astype(np.int32) + 1, embedding_table=table)
    found = layer.explain("embedding", shifted)
    assert (found[0].id, found[0].facts) == ("rows-shifted", {"by": 1})
    number = int(NUMBERS[0, 0])
    found = layer.explain("embedding", np.where(NUMBERS[..., None] == number, np.float32(0.0), table[NUMBERS]))
    assert (found[0].id, found[0].facts) == ("zero-row", {"number": number})


def test_active_dropout_is_named_with_its_share() -> None:
    import torch

    layer = Layer(torch_nn().Dropout(0.2), IMAGE)
    torch.manual_seed(0)
    dropped = torch.nn.functional.dropout(torch.from_numpy(IMAGE), 0.2, training=True).numpy()
    (found, *_) = layer.explain("dropout", dropped)
    assert found.id == "dropout"
    assert found.facts["p"] == pytest.approx(0.2, abs=1e-5)


@pytest.mark.parametrize("batch_first", [True, False])
def test_attention_with_other_heads_without_a_scale_or_over_the_batch_is_named(batch_first: bool) -> None:
    import torch

    right = torch.nn.MultiheadAttention(24, 4, batch_first=batch_first).eval()
    values = {name: one.detach().numpy() for name, one in right.state_dict().items()}
    tokens = torch.from_numpy(TOKENS)

    def run(module: Any) -> Array:
        module.load_state_dict(right.state_dict())
        with torch.no_grad():
            return module.eval()(tokens, tokens, tokens)[0].numpy()

    def explain(candidate: Array) -> Relation:
        output = run(right)
        exact = measure(output, output)
        limit = limit_for(exact, ("float32", "float32"), exact)
        given = {"0": TOKENS, "1": TOKENS, "2": TOKENS}
        return explain_layer("multi_head_attention", given, values, output, candidate, limit)[0]

    other_heads = explain(run(torch.nn.MultiheadAttention(24, 3, batch_first=batch_first)))
    assert (other_heads.id, other_heads.facts) == ("attention-heads", {"reference": 4, "candidate": 3})
    other_axis = explain(run(torch.nn.MultiheadAttention(24, 4, batch_first=not batch_first)))
    assert other_axis.id == "attention-batch-axis"
    unscaled = torch.nn.MultiheadAttention(24, 4, batch_first=batch_first)
    unscaled.load_state_dict(right.state_dict())
    with torch.no_grad():
        for one in (unscaled.in_proj_weight, unscaled.in_proj_bias):
            one[:24] *= 6**0.5
        candidate = unscaled.eval()(tokens, tokens, tokens)[0].numpy()
    assert explain(candidate).id == "attention-scale"


CORNERS = {"mode": "bilinear", "align_corners": True}


@pytest.mark.parametrize(
    ("ours", "theirs", "facts"),
    [
        ({"mode": "bilinear"}, CORNERS, ("linear, half-pixel centres", "linear, corners aligned")),
        (CORNERS, {"mode": "nearest"}, ("linear, corners aligned", "nearest")),
        ({"mode": "nearest"}, {"mode": "nearest-exact"}, ("nearest", "nearest, half-pixel centres")),
    ],
)
def test_both_conventions_of_resizing_are_named(
    ours: dict[str, Any], theirs: dict[str, Any], facts: tuple[str, str]
) -> None:
    layers = [Layer(torch_nn().Upsample(size=(13, 11), **one), IMAGE) for one in (ours, theirs)]
    (found, *_) = layers[0].explain("upsample", layers[1].run())
    assert found.id == "interpolation"
    assert all(
        name in str(found.facts[side]).split(" or ")
        for side, name in zip(("reference", "candidate"), facts, strict=True)
    )


@pytest.mark.parametrize(
    "kind", ["layer_norm", "rms_norm", "batch_norm", "group_norm", "embedding", "multi_head_attention", "upsample", "x"]
)
@pytest.mark.parametrize("given", [TOKENS, NUMBERS, IMAGE, np.float32(1.0)])
def test_what_does_not_fit_a_kind_of_layer_says_nothing(kind: str, given: Array) -> None:
    values = {"weight": RNG.standard_normal((7, 5)), "bias": np.ones(3), "in_proj_weight": np.ones((6, 2))}
    output = RNG.standard_normal((2, 10, 24))
    exact = measure(output, output)
    limit = limit_for(exact, ("float32", "float32"), exact)
    inputs = {"0": np.asarray(given), "1": TOKENS, "2": TOKENS}
    assert explain_layer(kind, inputs, values, output, RNG.standard_normal((2, 10, 24)), limit) == ()


@pytest.mark.parametrize("kind", ["LayerNorm", "Linear"])
def test_a_right_layer_and_an_unrelated_output_have_no_explanation(kind: str) -> None:
    layer = Layer(getattr(torch_nn(), kind)(*((24, 24) if kind == "Linear" else (24,))), TOKENS)
    values = layer.values
    cell = ms_nn().Dense(24, 24) if kind == "Linear" else ms_nn().LayerNorm((24,), epsilon=1e-5)
    names = ("weight", "bias") if kind == "Linear" else ("gamma", "beta")
    right = port(cell, TOKENS, **dict(zip(names, (values["weight"], values["bias"]), strict=True)))
    name = "linear" if kind == "Linear" else "layer_norm"
    assert layer.explain(name, right) == []
    assert layer.explain(name, RNG.standard_normal(right.shape).astype(np.float32)) == []
