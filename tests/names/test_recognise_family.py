"""Which families are recognised by the names and shapes of real models: tests/rules/data/model_names.json.gz."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from align.core.parameters import Parameter, ParameterSet
from align.names.map_one_side import AUTO, choose_family, recognise_families

DATA = Path(__file__).parents[1] / "rules" / "data" / "model_names.json.gz"


@cache
def models():
    return json.loads(gzip.decompress(DATA.read_bytes()))["models"]


PORTS = ("mindcv", "mindone", "mindformers", "mindformers-core", "megatron-core")
TORCH = [name for name in models() if name.partition(" ")[0] not in PORTS]
EXPECTED = {
    "timm seresnet50": ["timm-seresnet"],
    "timm resnet18": ["tv-resnet"],
    "timm resnet50": ["tv-resnet"],
    "timm efficientnet_b0": ["timm-efficientnet"],
    "torchvision wide_resnet50_2": ["tv-resnet"],
    "transformers resnet50": ["hf-resnet"],
    "transformers vit_b_16": ["hf-vit"],
    "transformers efficientnet_b0": ["hf-efficientnet-b0"],
    "transformers5 vit_b_16": ["hf5-vit"],
    "transformers5 swin_tiny": ["hf5-swin"],
    "transformers5 convnext_tiny": ["hf-convnext"],
    "transformers T5EncoderModel": ["hf-t5"],
    "transformers BertModel": ["hf-bert"],
    "transformers LlamaModel": ["hf-llama", "mf-llama"],
    "transformers Qwen2ForCausalLM": ["hf-qwen2", "mcore-llama", "mf-llama"],
    "transformers Qwen3ForCausalLM": ["hf-qwen3", "mcore-qwen3"],
    "transformers Qwen3MoeForCausalLM": ["hf-qwen3-moe", "mcore-qwen3-moe"],
    "transformers Qwen2MoeForCausalLM": ["hf-qwen2-moe"],
    "transformers MixtralForCausalLM": ["hf-mixtral", "mcore-mixtral"],
    "transformers DeepseekV3ForCausalLM": ["mcore-deepseek-v3"],
    "transformers GlmForCausalLM": ["hf-glm"],
    "transformers Glm4ForCausalLM": ["hf-glm4", "mcore-glm4"],
    "transformers Glm4MoeForCausalLM": ["hf-glm4-moe", "mcore-glm4-moe"],
    "transformers WhisperModel": ["hf-whisper", "mf-whisper"],
    "transformers CLIPModel": ["hf-clip"],
    "open_clip CLIP": ["mf-clip"],
    "diffusers UNet2DConditionModel": ["hf-sdxl-unet"],
    "THUDM glm-4-9b": ["mf-glm4"],
    "transformers GPT2Model": ["hf-gpt2"],
    "torchvision vit_b_32": ["tv-vit"],
    "torchvision swin_t": ["tv-swin"],
}


def side(model, framework="torch", **changed):
    shapes = {name: tuple(shape) for name, shape in models()[model].items()} | changed
    return ParameterSet(
        model,
        framework,
        tuple(Parameter(name, shape, "float32", *path(name)) for name, shape in shapes.items() if shape is not None),
    )


def path(name):
    prefix, _, attribute = name.rpartition(".")
    return prefix, attribute


@pytest.mark.parametrize(("model", "families"), EXPECTED.items())
def test_a_model_is_recognised_by_its_family_and_no_other(model, families) -> None:
    assert [found.name for found in recognise_families(side(model).by_name, "torch")] == families


@pytest.mark.parametrize("model", TORCH)
def test_no_model_is_claimed_by_two_families_of_one_library(model) -> None:
    libraries = [found.name.partition("-")[0] for found in recognise_families(side(model).by_name, "torch")]
    assert len(libraries) == len({*libraries})


def test_a_single_unknown_name_or_layer_of_another_kind_is_enough_to_be_no_member() -> None:
    one_more = side("torchvision resnet18", **{"aux.weight": (3, 3)})
    dense = side("torchvision resnet18", **{"layer1.0.conv1.weight": (64, 64)})
    assert recognise_families(one_more.by_name, "torch") == []
    assert recognise_families(dense.by_name, "torch") == []


def test_both_sides_of_a_family_are_paired_whole() -> None:
    found = choose_family(AUTO, side("timm swin_tiny_patch4_window7_224"), side("mindcv swin_tiny", "mindspore"))
    assert found.name == "timm-swin"
    assert len(found.pairings) == 173 + 2 * 24  # each of 24 fused tensors in three pieces


def test_a_head_of_another_width_is_not_paired_and_the_rest_is() -> None:
    target = side("mindcv resnet18", "mindspore", **{"classifier.weight": (10, 512), "classifier.bias": (10,)})
    found = choose_family(AUTO, side("torchvision resnet18"), target)
    assert len(found.pairings) == 102 - 2
    assert not [pair for pair in found.pairings if pair.target.startswith("classifier")]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (side("torchvision resnet18"), side("mindcv vit_b_16_224", "mindspore")),
        (side("torchvision resnet18"), side("mindcv resnet18", "mindspore", **{"neck.weight": (3, 3)})),
        (side("torchvision resnet18"), side("timm resnet18")),
        (side("timm seresnet50"), side("mindcv resnet50", "mindspore")),
    ],
)
def test_sides_that_are_not_both_of_one_family_are_not_recognised(source, target) -> None:
    assert choose_family(AUTO, source, target) is None


def test_the_way_back_is_recognised_too() -> None:
    found = choose_family(AUTO, side("mindcv convnext_tiny", "mindspore"), side("torchvision convnext_tiny"))
    assert (found.name, len(found.pairings)) == ("tv-convnext", 182)


def test_a_port_of_mint_layers_stands_at_the_places_of_the_family_under_names_of_torch() -> None:
    torch = side("torchvision resnet18")
    renamed = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var"}
    port = []
    for parameter in side("mindcv resnet18", "mindspore").parameters:
        name = f"{parameter.module}.{renamed.get(parameter.attribute, parameter.attribute)}"
        port.append(replace(parameter, name=name, attribute=name.rpartition(".")[2]))
    target = ParameterSet("port", "mindspore", tuple(port))
    found = choose_family(AUTO, torch, target)
    assert len(found.pairings) == 102
    assert found.unmatched == ()


def test_of_a_fused_layer_that_cannot_be_made_whole_no_piece_is_paired() -> None:
    whole = {f"blocks.0.attn.qkv.{role}" for role in ("weight", "bias")}
    key = "vit.layers.0.attention.k_proj"
    torch = side("transformers5 vit_b_16", **{f"{key}.weight": (700, 768), f"{key}.bias": (700,)})
    found = choose_family(AUTO, torch, side("mindcv vit_b_16_224", "mindspore"))
    assert found is not None
    assert whole.isdisjoint(pair.target for pair in found.pairings)
    pieces = {f"vit.layers.0.attention.{one}_proj.{role}" for one in "qkv" for role in ("weight", "bias")}
    assert {one.name for one in found.unmatched} == whole | pieces
