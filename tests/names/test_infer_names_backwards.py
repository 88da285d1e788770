"""The layer rules read backwards: a MindSpore file on its way to torch."""

from __future__ import annotations

import numpy as np
import pytest

from align.core.name_map import LayerChoice
from align.core.transforms import IDENTITY, Reshape
from align.names.infer_names import infer_names
from align.rules.layer_rules import layer_rules

BATCH_NORM = {"gamma": (4,), "beta": (4,), "moving_mean": (4,), "moving_variance": (4,)}
TALL = {"tall.weight": (4, 3, 3, 3)}


def under(prefix, shapes):
    return {f"{prefix}.{name}": shape for name, shape in shapes.items()}


def infer(shapes, *choices, told=None):
    return infer_names(shapes, layer_rules(), "torch", [LayerChoice(*choice.split("=")) for choice in choices], told)


def targets(inferred):
    return {pairing.source: pairing.target for pairing in inferred.name_map.pairings}


def test_batch_norm_gets_torchs_names_and_a_count_of_batches() -> None:
    inferred = infer(under("net.bn", BATCH_NORM))
    names = ["weight", "bias", "running_mean", "running_var"]
    assert list(targets(inferred).values()) == [f"net.bn.{name}" for name in names]
    (fill,) = inferred.fills
    assert (fill.name, fill.value.dtype, fill.value.shape) == ("net.bn.num_batches_tracked", np.int64, ())
    assert not inferred.open


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ({"gamma": (4,), "beta": (4,)}, ["weight", "bias"]),
        ({"embedding_table": (5, 2)}, ["weight"]),
        ({"w": (1,)}, ["weight"]),
        ({"weight": (4, 3), "bias": (4,)}, ["weight", "bias"]),
        ({"weight": (5, 2)}, ["weight"]),
        ({"weight": (4, 3, 3, 3), "bias": (4,)}, ["weight", "bias"]),
        ({"weight": (4, 3, 5)}, ["weight"]),
        ({"weight_ih_l0": (16, 3), "weight_hh_l0": (16, 4)}, ["weight_ih_l0", "weight_hh_l0"]),
    ],
)
def test_layers_of_mindspore_are_told_and_renamed(shapes, expected) -> None:
    inferred = infer(under("layer", shapes))
    assert list(targets(inferred).values()) == [f"layer.{name}" for name in expected]
    assert not inferred.open
    assert not inferred.fills


def test_mint_files_have_torchs_names_already() -> None:
    names = {"weight": (4,), "bias": (4,), "running_mean": (4,), "running_var": (4,), "num_batches_tracked": ()}
    shapes = under("bn", names) | under("ln", {"weight": (4,), "bias": (4,)}) | under("act", {"weight": (1,)})
    inferred = infer(shapes)
    assert targets(inferred) == {name: name for name in shapes}
    assert not inferred.fills
    assert not inferred.open


@pytest.mark.parametrize("kernel", [(1, 5), (1, 1)])
def test_a_flat_kernel_among_its_like_may_be_1d(kernel) -> None:
    shapes = under("conv", {"weight": (4, 3, *kernel), "bias": (4,)})
    (layer,) = infer(shapes).open
    assert [ids for ids, _ in layer.alternatives] == ["conv, conv-transpose", "conv-1d, conv-transpose-1d"]
    flat = infer(shapes, "conv=conv-1d").name_map.pairings[0].transform
    assert flat == Reshape((4, 3, kernel[1]))
    assert flat.inverse(None, None) == Reshape((4, 3, *kernel))
    assert infer(shapes, "conv=conv").name_map.pairings[0].transform == IDENTITY


def test_beside_taller_kernels_a_single_element_is_2d_and_a_row_stays_open() -> None:
    single = infer(TALL | under("conv", {"weight": (4, 3, 1, 1)}))
    assert not single.open
    assert targets(single)["conv.weight"] == "conv.weight"
    (warning,) = single.warnings
    assert "1 kernel of size 1 x 1 (conv) was taken as 2-D" in warning
    assert infer(TALL | under("conv", {"weight": (4, 3, 1, 1)}), "conv=conv").warnings == ()
    assert infer(TALL | under("conv", {"weight": (4, 3, 1, 5)})).open


def test_a_kernel_of_two_rows_is_never_1d() -> None:
    for choices in ((), ("conv=conv-1d",)):
        inferred = infer(under("conv", {"weight": (4, 3, 2, 5)}), *choices)
        assert inferred.name_map.pairings[0].transform == IDENTITY
        assert not inferred.open


def test_batch_norm_3d_is_lifted_out_of_its_inner_layer_once_it_is_known() -> None:
    shapes = under("bn.bn2d", BATCH_NORM) | {"conv.weight": (4, 3, 3, 3, 3)}
    (layer,) = infer(shapes).open
    assert layer.prefix == "bn.bn2d"
    assert dict(layer.alternatives)["batch-norm-3d"][0] == "../weight"
    deep = infer(shapes, "bn.bn2d=batch-norm-3d")
    assert targets(deep)["bn.bn2d.gamma"] == "bn.weight"
    assert [fill.name for fill in deep.fills] == ["bn.num_batches_tracked"]
    flat = infer(shapes, "bn.bn2d=batch-norm")
    assert targets(flat)["bn.bn2d.gamma"] == "bn.bn2d.weight"
    assert [fill.name for fill in flat.fills] == ["bn.bn2d.num_batches_tracked"]


def test_without_5d_tensors_a_layer_called_bn2d_is_an_ordinary_one() -> None:
    assert targets(infer(under("bn.bn2d", BATCH_NORM) | TALL))["bn.bn2d.gamma"] == "bn.bn2d.weight"
    (warning,) = infer(under("bn.bn2d", BATCH_NORM)).warnings
    assert "if it is batch-norm-3d, names change" in warning


def test_a_transformer_layer_is_open_until_the_user_says_whose_it_is() -> None:
    shapes = {"self_attn.in_proj_weight": (12, 4)}
    shapes |= {f"dense{n}.weight": (8, 4) for n in (1, 2)} | {f"dense{n}.bias": (8,) for n in (1, 2)}
    shapes |= {f"norm{n}.{name}": (4,) for n in (1, 2) for name in ("gamma", "beta")}
    shapes = under("enc.0", shapes)
    (layer,) = infer(shapes).open
    assert layer.alternatives == (
        ("transformer-encoder-layer", ("linear1", "linear2")), ("custom", ("dense1", "dense2")),
    )  # fmt: skip
    found = targets(infer(shapes, "enc.*=transformer_encoder_layer"))
    assert found["enc.0.dense1.weight"] == "enc.0.linear1.weight"
    assert found["enc.0.norm1.gamma"] == "enc.0.norm1.weight"
    assert targets(infer(shapes, "enc.*=custom"))["enc.0.dense1.weight"] == "enc.0.dense1.weight"


def test_a_layer_that_is_the_whole_file_has_mindspores_other_names() -> None:
    alone = {"gamma": (4,), "beta": (4,), "mean": (4,), "variance": (4,)}
    assert list(targets(infer(alone)).values()) == ["weight", "bias", "running_mean", "running_var"]
    assert targets(infer({"a": (1,)})) == {"a": "weight"}


def test_what_looks_like_a_layer_but_none_that_is_known_is_open_where_there_is_a_choice() -> None:
    shapes = under("odd", BATCH_NORM | {"alpha": ()})
    (layer,) = infer(shapes).open
    assert layer.alternatives[0][0].split(", ")[0] == "as-is"
    assert targets(infer(shapes, "odd=as-is")) == {name: name for name in shapes}


def test_where_names_can_only_stay_they_do_and_it_is_said() -> None:
    for shapes in ({"gamma": (4,)}, {"gamma": (4,), "beta": (5,)}):
        found = infer(under("odd", shapes))
        assert not found.open
        assert targets(found) == {name: name for name in under("odd", shapes)}
        assert any("odd.gamma" in warning for warning in found.warnings)


def test_parameters_of_no_layer_keep_their_names() -> None:
    shapes = {"cls_token": (1, 1, 8), "blocks.0.layer_scale": (8,)}
    assert targets(infer(shapes)) == {name: name for name in shapes}


def test_what_is_told_settles_a_layer_the_user_overrules_it_and_what_is_of_no_use_is_no_fault() -> None:
    shapes = under("conv", {"weight": (4, 3, 1, 5)})
    told = {"conv": ("custom", "conv-1d"), "gone": ("linear",)}
    inferred = infer(shapes, told=told)
    assert inferred.name_map.pairings[0].transform == Reshape((4, 3, 5))
    assert inferred.name_map.pairings[0].evidence == "rule"
    assert inferred.faults == ()
    assert infer(shapes, "conv=conv", told=told).name_map.pairings[0].transform == IDENTITY
