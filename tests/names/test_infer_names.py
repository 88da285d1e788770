from __future__ import annotations

import pytest

from align.core.name_map import LayerChoice
from align.core.transforms import Reshape
from align.names.infer_names import infer_names
from align.rules.layer_rules import layer_rules

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


ODD = {
    "linear of another bias": {"weight": (4, 3), "bias": (7,)},
    "layer norm with one more": {"weight": (4,), "bias": (4,), "alpha": ()},
    "weight norm": {"bias": (4,), "weight_g": (4, 1), "weight_v": (4, 3)},
    "weight norm without bias": {"weight_g": (4, 1), "weight_v": (4, 3)},
    "spectral norm": {"bias": (4,), "weight_orig": (4, 3), "weight_u": (4,), "weight_v": (3,)},
    "parametrized": {"parametrizations.weight.original0": (4, 1), "parametrizations.weight.original1": (4, 3)},
    "lstm with projection": {"weight_ih_l0": (16, 3), "weight_hh_l0": (16, 2), "weight_hr_l0": (2, 4)},
    "embedding with a bias": {"weight": (10, 8), "bias": (8,)},
    "statistics of another size": BATCH_NORM | {"running_mean": (5,)},
    "a counter alone": {"num_batches_tracked": ()},
    "scalars": {"weight": (), "bias": ()},
}


@pytest.mark.parametrize("shapes", ODD.values(), ids=ODD)
def test_what_is_a_layer_but_none_that_is_known_is_open_and_can_be_kept(shapes) -> None:
    shapes = under("odd", shapes)
    for family in ("nn", "mint"):
        inferred = infer(shapes, family)
        (layer,) = inferred.open
        assert layer.prefix.startswith("odd")
        assert layer.alternatives[0][0].split(", ")[0] == "as-is"
        assert targets(inferred) == {}
        for pattern in ("*", layer.prefix):
            settled = infer(shapes, family, f"{pattern}=as-is")
            assert targets(settled) == {name: name for name in shapes}
            assert not settled.open
            assert not settled.faults


@pytest.mark.parametrize("pattern", ["*", "odd"])
@pytest.mark.parametrize(
    ("kind", "shapes", "expected"),
    [
        ("layer-norm", {"weight": (4,), "bias": (4,), "alpha": ()}, ["gamma", "beta", "alpha"]),
        ("layer-norm", {"weight": (4,), "bias": (4,), "mean": (4,)}, ["gamma", "beta", "mean"]),
        ("batch_norm", BATCH_NORM | {"alpha": ()}, ["gamma", "beta", "moving_mean", "moving_variance", "alpha"]),
        ("embedding", {"weight": (10, 8), "bias": (8,)}, ["embedding_table", "bias"]),
        ("lstm", {"weight_ih_l0": (16, 3), "weight_hh_l0": (16, 2), "weight_hr_l0": (2, 4)},
         ["weight_ih_l0", "weight_hh_l0", "weight_hr_l0"]),
    ],
)  # fmt: skip
def test_each_kind_that_an_open_layer_is_offered_settles_it(pattern, kind, shapes, expected) -> None:
    shapes = under("odd", shapes)
    (layer,) = infer(shapes).open
    assert kind.replace("_", "-") in [one for ids, _ in layer.alternatives for one in ids.split(", ")]
    settled = infer(shapes, "nn", f"{pattern}={kind}")
    assert [name.removeprefix("odd.") for name in targets(settled).values()] == expected
    assert not settled.open
    assert not settled.faults


def test_a_bias_alone_is_a_parameter_of_ones_own() -> None:
    shapes = {"cls.predictions.bias": (100,), "attn.bias": (1, 1, 8, 8), "attn.masked_bias": ()}
    inferred = infer(shapes)
    assert targets(inferred) == {name: name for name in shapes}
    assert not inferred.open


@pytest.mark.parametrize("shape", [(4,), (4, 8), (3, 4, 8), (2, 3, 4, 8)])
def test_a_layer_norm_over_any_axes_is_told_by_its_bias(shape) -> None:
    inferred = infer(under("norm", {"weight": shape, "bias": shape}))
    assert list(targets(inferred).values()) == ["norm.gamma", "norm.beta"]
    assert infer(under("norm", {"weight": shape}), "nn", "norm=layer-norm").name_map.pairings[0].target == "norm.gamma"


def warnings(shapes, family="nn", *choices):
    return infer(shapes, family, *choices).warnings


def test_what_the_target_always_has_and_the_file_lacks_is_named() -> None:
    statistics = {name: shape for name, shape in BATCH_NORM.items() if name.startswith(("running", "num"))}
    shapes = under("a.bn", statistics) | {"conv.weight": (4, 3, 3, 3)}
    (warning,) = warnings(shapes)
    assert "2 parameters" in warning
    assert "a.bn.gamma, a.bn.beta" in warning
    assert warnings(shapes, "mint") == ()
    assert "norm.beta" in warnings(under("norm", {"weight": (4,)}), "nn", "norm=layer-norm")[0]
    assert warnings(under("bn", BATCH_NORM) | {"conv.weight": (4, 3, 3, 3)}) == ()


def test_a_norm_that_may_be_of_kinds_with_statistics_is_said_until_it_is_settled() -> None:
    shapes = {"c.weight": (4, 3, 3, 3)} | under("a", {"weight": (4,), "bias": (4,)})
    shapes |= {"d.weight": (4, 4, 3, 3)} | under("b", {"weight": (4,), "bias": (4,)})
    (warning,) = warnings(shapes)
    for word in ("2 layers", "a, b", "layer-norm", "batch-norm or instance-norm", "moving_mean, moving_variance"):
        assert word in warning
    assert warnings(shapes, "mint") == ()
    assert warnings(shapes, "nn", "?=layer-norm") == ()
    (certain,) = warnings(shapes, "nn", "?=instance-norm")
    assert "a.moving_mean, a.moving_variance, b.moving_mean" in certain


@pytest.mark.parametrize("before", [{"fc.weight": (4, 4), "fc.bias": (4,)}, {"c.weight": (8, 3, 3, 3)}])
def test_a_norm_is_not_doubted_that_is_not_behind_a_convolution_of_its_channels(before) -> None:
    assert warnings(before | under("norm", {"weight": (4,), "bias": (4,)})) == ()


def test_a_norm_alone_is_doubted() -> None:
    assert "1 layer was taken as" in warnings(under("a", {"weight": (4,), "bias": (4,)}))[0]


def test_batch_norm_is_doubted_where_no_convolution_tells_its_dimensions() -> None:
    linear = {"fc.weight": (4, 3), "fc.bias": (4,)}
    (warning,) = warnings(under("bn", BATCH_NORM) | linear)
    assert "--layer 'bn=batch-norm-3d'" in warning
    assert warnings(under("bn", BATCH_NORM) | linear, "nn", "bn=batch-norm") == ()
    assert warnings(under("bn", BATCH_NORM) | {"conv.weight": (4, 3, 3)}, "nn", "conv=conv-1d") == ()
    assert warnings(under("bn", BATCH_NORM) | linear, "mint") == ()


def test_a_family_without_such_a_layer_is_said() -> None:
    shapes = under("rnn", {"weight_ih_l0": (16, 3), "weight_hh_l0": (16, 4)}) | {"fc.weight": (4, 3), "fc.bias": (4,)}
    (warning,) = warnings(shapes, "mint")
    assert "mindspore.mint.nn has no layer for lstm" in warning
    assert warning.endswith("rnn")
    assert warnings(shapes) == ()
    assert "mindspore.nn has no layer for rms-norm" in warnings(under("n", {"weight": (4,)}), "nn", "n=rms-norm")[0]


def test_a_layer_that_is_the_whole_net_has_the_names_of_a_lone_layer() -> None:
    assert list(targets(infer(BATCH_NORM)).values()) == ["gamma", "beta", "mean", "variance"]
    assert targets(infer({"weight": (1,)}, "nn", "=prelu")) == {"weight": "a"}
    inside = BATCH_NORM | {"fc.weight": (4, 3), "fc.bias": (4,)}
    assert targets(infer(inside))["running_mean"] == "moving_mean"


def test_the_likeliest_kind_is_named_first() -> None:
    (layer,) = infer(under("conv", {"weight": (4, 3, 5), "bias": (4,)})).open
    assert [ids for ids, _ in layer.alternatives] == ["conv-1d, conv-transpose-1d", "bilinear"]
    (layer,) = infer(under("norm", {"weight": (4,)})).open
    assert [ids for ids, _ in layer.alternatives] == ["rms-norm", "layer-norm", "prelu"]


def test_attention_keeps_its_names() -> None:
    shapes = under("attn", {"in_proj_weight": (12, 4), "in_proj_bias": (12,)})
    shapes |= under("attn.out_proj", {"weight": (4, 4), "bias": (4,)})
    assert targets(infer(shapes)) == {name: name for name in shapes}


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ("fc=Linear", "no layer rule is called 'Linear'; did you mean linear?"),
        ("fc=layer_nrm", "did you mean layer-norm?"),
        ("bn=linear", "no layer that the pattern reaches looks like that kind: bn can be batch-norm or instance-norm"),
        ("bn=relu", "bn can be batch-norm"),
        ("own=linear", "own can be no layer that a rule knows"),
        (
            "*.weight=linear",
            "the pattern reaches parameters, such as fc.weight; give the path of the layer, 'fc'",
        ),
        ("nowhere=linear", "no layer of the file has this path"),
    ],
)
def test_choices_that_settle_nothing_are_faults_that_say_why(choice, said) -> None:
    shapes = under("fc", {"weight": (4, 3), "bias": (4,)}) | under("bn", BATCH_NORM) | {"own.token": (1, 1, 8)}
    (fault,) = infer(shapes, "nn", choice).faults
    assert fault.startswith(f"{choice}: ")
    assert said in fault


def test_a_choice_that_others_overrule_says_which() -> None:
    (fault,) = infer({"a.weight": (5, 2)}, "nn", "*=linear", "a=embedding").faults
    assert fault.endswith("a is embedding by a=embedding")


def test_all_faults_are_listed_and_kinds_are_those_that_a_file_can_hold_each_once() -> None:
    faults = infer(under("fc", {"weight": (4, 3), "bias": (4,)}), "nn", "fc=qqq", "f*=embedding").faults
    assert len(faults) == 2
    known = faults[0].partition("known: ")[2].split(", ")
    assert {"linear", "as-is", "custom"} <= set(known)
    assert len(known) == len({kind.replace("_", "-") for kind in known})
    assert not {"relu", "max-pool", "dropout"} & set(known)


def test_names_without_a_prefix_are_layers_too() -> None:
    assert targets(infer({"weight": (4,), "bias": (4,)})) == {"weight": "gamma", "bias": "beta"}


@pytest.mark.usefixtures("guarded")
def test_fifty_thousand_names_are_not_compared_with_each_other(growth) -> None:
    def infer_all(count: int) -> None:
        shapes = {f"layers.{n}.experts.w.weight": (4, 3, 3, 3) for n in range(count)}
        assert len(infer(shapes).name_map.pairings) == count

    assert growth(infer_all, 500) < 3
    infer_all(50_000)


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


@pytest.mark.parametrize("shapes", [{"x.gamma": (3, 4)}, {"x.beta": (3,)}, {"gamma": (3,)}, {"x.weight": (3,) * 6}])
def test_where_the_name_of_a_mindspore_file_can_only_stay_nobody_is_asked(shapes) -> None:
    inferred = infer_names(shapes, layer_rules(), "torch")
    assert not inferred.open
    assert [(p.source, p.target) for p in inferred.name_map.pairings] == [(name, name) for name in shapes]
    assert any(next(iter(shapes)) in warning for warning in inferred.warnings)


@pytest.mark.parametrize("name", [".", "..", "...", ".weight", "..bias", "a..bias", "a.", "/", "../x"])
@pytest.mark.parametrize("family", ["nn", "torch"])
def test_a_name_of_dots_stays_what_it_is(name: str, family: str) -> None:
    inferred = infer_names({name: (3,), "other.bias": (2,)}, layer_rules(), family)
    assert {(p.source, p.target) for p in inferred.name_map.pairings} >= {(name, name)}
