from __future__ import annotations

import pytest

from align.core.mappings import layer_rules
from align.core.names import LayerChoice
from align.core.transforms import Reshape
from align.steps.infer_names import infer_names

BATCH_NORM = {"weight": (4,), "bias": (4,), "running_mean": (4,), "running_var": (4,), "num_batches_tracked": ()}


def under(prefix, shapes):
    return {f"{prefix}.{name}": shape for name, shape in shapes.items()}


def infer(shapes, family="nn", *choices):
    return infer_names(shapes, layer_rules(), family, [LayerChoice(*choice.split("=")) for choice in choices])


def targets(inferred):
    return {pairing.source: pairing.target for pairing in inferred.name_map.pairings}


def test_batch_norm_is_told_by_its_statistics() -> None:
    inferred = infer(under("bn", BATCH_NORM))
    assert list(targets(inferred).values()) == ["bn.gamma", "bn.beta", "bn.moving_mean", "bn.moving_variance"]
    (drop,) = inferred.name_map.dropped
    assert (drop.name, drop.side) == ("bn.num_batches_tracked", "source")
    assert "cumulative average" in drop.reason
    assert not inferred.open


def test_mint_keeps_torchs_names_and_drops_nothing() -> None:
    shapes = under("bn", BATCH_NORM) | under("emb", {"weight": (5, 2)}) | under("norm", {"weight": (2,)})
    inferred = infer(shapes, "mint")
    assert targets(inferred) == {name: name for name in shapes}
    assert not inferred.open
    assert not inferred.name_map.dropped


def test_convolutions_linear_layers_and_norms_are_decided() -> None:
    shapes = under("conv", {"weight": (4, 3, 3, 3)}) | under("fc", {"weight": (4, 3), "bias": (4,)})
    shapes |= under("norm", {"weight": (4,), "bias": (4,)})
    assert list(targets(infer(shapes)).values()) == ["conv.weight", "fc.weight", "fc.bias", "norm.gamma", "norm.beta"]


def test_an_embedding_or_linear_layer_without_bias_is_open() -> None:
    inferred = infer(under("head", {"weight": (5, 2)}))
    (layer,) = inferred.open
    assert layer.prefix == "head"
    assert dict(layer.alternatives) == {"embedding": ("embedding_table",), "linear": ("weight",)}
    assert targets(inferred) == {}


@pytest.mark.parametrize(
    ("kind", "target"), [("embedding", "embedding_table"), ("linear", "weight"), ("as-is", "weight")]
)
def test_a_choice_settles_an_open_layer(kind, target) -> None:
    inferred = infer(under("head", {"weight": (5, 2)}), "nn", f"he*={kind}")
    assert targets(inferred) == {"head.weight": f"head.{target}"}
    assert inferred.name_map.pairings[0].evidence == "user"
    assert not inferred.open
    assert not inferred.faults


def test_a_pattern_reaches_only_layers_that_look_like_the_kind() -> None:
    shapes = under("emb", {"weight": (5, 2)}) | under("fc", {"weight": (4, 2), "bias": (4,)}) | under("bn", BATCH_NORM)
    found = targets(infer(shapes, "nn", "*=embedding"))
    assert found["emb.weight"] == "emb.embedding_table"
    assert (found["fc.weight"], found["bn.weight"]) == ("fc.weight", "bn.gamma")


def test_the_last_choice_wins() -> None:
    shapes = under("a", {"weight": (5, 2)}) | under("b", {"weight": (5, 2)})
    found = targets(infer(shapes, "nn", "*=linear", "b=embedding"))
    assert list(found.values()) == ["a.weight", "b.embedding_table"]


def test_a_lone_scale_is_open_between_norms_and_prelu() -> None:
    (layer,) = infer(under("x", {"weight": (4,)})).open
    assert {names for _, names in layer.alternatives} == {("gamma",), ("w",), ("weight",)}


def test_batch_norm_beside_a_3d_convolution_is_open() -> None:
    shapes = under("bn", BATCH_NORM) | under("conv", {"weight": (4, 3, 3, 3, 3)})
    (layer,) = infer(shapes).open
    assert layer.prefix == "bn"
    settled = infer(shapes, "nn", "*=batch-norm-3d")
    assert targets(settled)["bn.weight"] == "bn.bn2d.gamma"
    assert infer(shapes, "nn", "*=batch_norm").open
    assert targets(infer(under("bn", BATCH_NORM), "nn", "*=batch_norm"))["bn.weight"] == "bn.gamma"


def test_a_1d_convolution_gets_its_extra_axis_once_it_is_known() -> None:
    inferred = infer(under("conv", {"weight": (4, 3, 5), "bias": (4,)}), "nn", "conv=conv-1d")
    weight, bias = inferred.name_map.pairings
    assert weight.transform == Reshape((4, 3, 1, 5))
    assert bias.transform.op == "identity"


def test_parameters_of_no_layer_keep_their_names() -> None:
    shapes = {"cls_token": (1, 1, 8), "pos_embed": (1, 5, 8), "blocks.0.layer_scale": (8,)}
    inferred = infer(shapes)
    assert targets(inferred) == {name: name for name in shapes}
    assert {pairing.evidence for pairing in inferred.name_map.pairings} == {"file"}
    assert not inferred.warnings


def test_a_layer_that_looks_like_none_is_said() -> None:
    inferred = infer(under("odd", {"weight": (4, 3), "bias": (7,)}))
    assert targets(inferred) == {"odd.weight": "odd.weight", "odd.bias": "odd.bias"}
    assert "odd" in inferred.warnings[0]


def test_attention_keeps_its_names() -> None:
    shapes = under("attn", {"in_proj_weight": (12, 4), "in_proj_bias": (12,)})
    shapes |= under("attn.out_proj", {"weight": (4, 4), "bias": (4,)})
    assert targets(infer(shapes)) == {name: name for name in shapes}


def test_choices_that_settle_nothing_are_faults() -> None:
    inferred = infer(under("fc", {"weight": (4, 3), "bias": (4,)}), "nn", "fc=lineer", "nowhere=linear", "f*=embedding")
    assert len(inferred.faults) == 3
    assert "lineer" in inferred.faults[0]
    assert "known: " in inferred.faults[0]


def test_a_data_parallel_prefix_is_said() -> None:
    assert "module." in infer({"module.fc.weight": (4, 3), "module.fc.bias": (4,)}).warnings[0]


def test_names_without_a_prefix_are_layers_too() -> None:
    assert targets(infer({"weight": (4,), "bias": (4,)})) == {"weight": "gamma", "bias": "beta"}


def test_fifty_thousand_names_take_seconds() -> None:
    import time

    shapes = {f"layers.{n}.experts.w.weight": (4, 3, 3, 3) for n in range(50_000)}
    started = time.perf_counter()
    assert len(infer(shapes).name_map.pairings) == 50_000
    assert time.perf_counter() - started < 10


ENCODER_LAYER = {
    "self_attn.in_proj_weight": (12, 4), "self_attn.out_proj.weight": (4, 4), "self_attn.out_proj.bias": (4,),
    "linear1.weight": (8, 4), "linear1.bias": (8,), "linear2.weight": (4, 8), "linear2.bias": (4,),
    "norm1.weight": (4,), "norm1.bias": (4,), "norm2.weight": (4,), "norm2.bias": (4,),
}  # fmt: skip


@pytest.mark.parametrize("prefix", ["encoder.layers.0.", ""])
def test_a_transformer_layer_is_open_between_the_librarys_and_ones_own(prefix) -> None:
    shapes = {f"{prefix}{name}": shape for name, shape in ENCODER_LAYER.items()}
    (layer,) = infer(shapes).open
    assert layer.prefix == prefix[:-1]
    assert [names for _, names in layer.alternatives] == [("dense1", "dense2"), ("linear1", "linear2")]
    assert not infer(shapes, "mint").open


def test_a_choice_settles_a_transformer_layer_and_its_norms_follow_their_own_rule() -> None:
    shapes = under("encoder.layers.0", ENCODER_LAYER)
    librarys = targets(infer(shapes, "nn", "encoder.*=transformer_encoder_layer"))
    assert librarys["encoder.layers.0.linear1.weight"] == "encoder.layers.0.dense1.weight"
    assert librarys["encoder.layers.0.norm1.weight"] == "encoder.layers.0.norm1.gamma"
    own = infer(shapes, "nn", "*=custom")
    assert targets(own)["encoder.layers.0.linear1.weight"] == "encoder.layers.0.linear1.weight"
    assert targets(own)["encoder.layers.0.norm1.weight"] == "encoder.layers.0.norm1.gamma"
    assert not own.faults


def test_two_linear_layers_alone_are_no_transformer_layer() -> None:
    assert not infer({name: shape for name, shape in ENCODER_LAYER.items() if "attn" not in name}).open
