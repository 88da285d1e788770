"""The families of mappings/models against the names of real models: tests/rules/data/model_names.json.gz."""

from __future__ import annotations

import gzip
import json
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from align.checkpoints.open_checkpoint import open_checkpoint
from align.convert.convert_checkpoint import convert_checkpoint
from align.core.parameters import StoredTensor
from align.errors import MapError
from align.names.map_one_side import map_from_family
from align.rules.model_families import model_families, read_family

DATA = Path(__file__).parents[1] / "rules" / "data" / "model_names.json.gz"
# Second names of one tensor, which a state_dict of torch has and a port of mindone does not.
TIED = {
    "lm_head.weight",
    "encoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
    "cls.predictions.decoder.weight",
    "cls.predictions.decoder.bias",
}
# Families of which the other side has such a tensor as one of its own, under another name.
NOT_TIED = (
    "hf-whisper", "mcore-deepseek-v3", "mcore-glm4", "mcore-glm4-moe", "mcore-llama", "mcore-mixtral", "mcore-qwen3",
    "mcore-qwen3-moe",
)  # fmt: skip
MODELS = [
    ("hf-bert", "transformers BertForMaskedLM", "mindone BertForMaskedLM"),
    ("hf-bert", "transformers BertForSequenceClassification", "mindone BertForSequenceClassification"),
    ("hf-bert", "transformers BertModel", "mindone BertModel"),
    ("hf-convnext", "transformers convnext_tiny", "mindcv convnext_tiny"),
    ("hf-efficientnet-b0", "transformers efficientnet_b0", "mindcv efficientnet_b0"),
    ("hf-gpt2", "transformers GPT2LMHeadModel", "mindone GPT2LMHeadModel"),
    ("hf-gpt2", "transformers GPT2Model", "mindone GPT2Model"),
    ("hf-llama", "transformers LlamaForCausalLM", "mindone LlamaForCausalLM"),
    ("hf-llama", "transformers LlamaModel", "mindone LlamaModel"),
    ("hf-mobilenet-v2", "transformers mobilenet_v2", "mindcv mobilenet_v2_100"),
    ("hf-resnet", "transformers resnet50", "mindcv resnet50"),
    ("hf-swin", "transformers swin_tiny", "mindcv swin_tiny"),
    ("hf-t5", "transformers T5EncoderModel", "mindone T5EncoderModel"),
    ("hf-t5", "transformers T5ForConditionalGeneration", "mindone T5ForConditionalGeneration"),
    ("hf-t5", "transformers T5Model", "mindone T5Model"),
    ("hf-vit", "transformers vit_b_16", "mindcv vit_b_16_224"),
    ("hf-clip", "transformers CLIPModel", "mindone CLIPModel"),
    ("hf-glm", "transformers GlmForCausalLM", "mindone GlmForCausalLM"),
    ("hf-glm4", "transformers Glm4ForCausalLM", "mindone Glm4ForCausalLM"),
    ("hf-glm4-moe", "transformers Glm4MoeForCausalLM", "mindone Glm4MoeForCausalLM"),
    ("hf-mixtral", "transformers MixtralForCausalLM", "mindone MixtralForCausalLM"),
    ("hf-qwen2", "transformers Qwen2ForCausalLM", "mindone Qwen2ForCausalLM"),
    ("hf-qwen2", "transformers Qwen2Model", "mindone Qwen2Model"),
    ("hf-qwen2-moe", "transformers Qwen2MoeForCausalLM", "mindone Qwen2MoeForCausalLM"),
    ("hf-qwen3", "transformers Qwen3ForCausalLM", "mindone Qwen3ForCausalLM"),
    ("hf-qwen3", "transformers Qwen3Model", "mindone Qwen3Model"),
    ("hf-qwen3-moe", "transformers Qwen3MoeForCausalLM", "mindone Qwen3MoeForCausalLM"),
    ("hf-whisper", "transformers WhisperForConditionalGeneration", "mindone WhisperForConditionalGeneration"),
    ("hf-whisper", "transformers WhisperModel", "mindone WhisperModel"),
    ("hf-sdxl-unet", "diffusers UNet2DConditionModel", "mindone UNet2DConditionModel"),
    ("mcore-qwen3", "transformers Qwen3ForCausalLM", "mindformers-core Qwen3ForCausalLM"),
    ("mcore-qwen3-moe", "transformers Qwen3MoeForCausalLM", "mindformers-core Qwen3MoeForCausalLM"),
    ("mcore-deepseek-v3", "transformers DeepseekV3ForCausalLM", "mindformers-core DeepseekV3ForCausalLM"),
    ("mcore-glm4", "transformers Glm4ForCausalLM", "mindformers-core Glm4ForCausalLM"),
    ("mcore-glm4-moe", "transformers Glm4MoeForCausalLM", "mindformers-core Glm4MoeForCausalLM"),
    ("mcore-glm4-moe", "transformers Glm4MoeForCausalLM", "megatron-core Glm4MoeForCausalLM"),
    ("mcore-llama", "transformers LlamaForCausalLM", "megatron-core LlamaForCausalLM"),
    ("mcore-llama", "transformers Qwen2ForCausalLM", "megatron-core Qwen2ForCausalLM"),
    ("mcore-mixtral", "transformers MixtralForCausalLM", "megatron-core MixtralForCausalLM"),
    ("mf-llama", "transformers LlamaForCausalLM", "mindformers LlamaForCausalLM"),
    ("mf-llama", "transformers Qwen2ForCausalLM", "mindformers LlamaForCausalLM with biases"),
    ("mf-clip", "open_clip CLIP", "mindformers CLIPModel"),
    ("mf-whisper", "transformers WhisperForConditionalGeneration", "mindformers WhisperForConditionalGeneration"),
    ("mf-glm4", "THUDM glm-4-9b", "mindformers ChatGLM2ForConditionalGeneration"),
    ("hf5-swin", "transformers5 swin_tiny", "mindcv swin_tiny"),
    ("hf5-vit", "transformers5 vit_b_16", "mindcv vit_b_16_224"),
    ("timm-convnext", "timm convnext_tiny", "mindcv convnext_tiny"),
    ("timm-efficientnet", "timm efficientnet_b0", "mindcv efficientnet_b0"),
    ("timm-efficientnet", "timm efficientnet_b1", "mindcv efficientnet_b1"),
    ("timm-mobilenet-v2", "timm mobilenetv2_100", "mindcv mobilenet_v2_100"),
    ("timm-mobilenet-v3-large", "timm mobilenetv3_large_100", "mindcv mobilenet_v3_large_100"),
    ("timm-mobilenet-v3-small", "timm mobilenetv3_small_100", "mindcv mobilenet_v3_small_100"),
    ("timm-seresnet", "timm seresnet50", "mindcv seresnet50"),
    ("timm-swin", "timm swin_tiny_patch4_window7_224", "mindcv swin_tiny"),
    ("timm-vit", "timm vit_base_patch16_224", "mindcv vit_b_16_224"),
    ("tv-convnext", "torchvision convnext_tiny", "mindcv convnext_tiny"),
    ("tv-efficientnet", "torchvision efficientnet_b0", "mindcv efficientnet_b0"),
    ("tv-efficientnet", "torchvision efficientnet_b1", "mindcv efficientnet_b1"),
    ("tv-mobilenet-v2", "torchvision mobilenet_v2", "mindcv mobilenet_v2_100"),
    ("tv-mobilenet-v3-large", "torchvision mobilenet_v3_large", "mindcv mobilenet_v3_large_100"),
    ("tv-mobilenet-v3-small", "torchvision mobilenet_v3_small", "mindcv mobilenet_v3_small_100"),
    ("tv-resnet", "timm resnet18", "mindcv resnet18"),
    ("tv-resnet", "timm resnet50", "mindcv resnet50"),
    ("tv-resnet", "torchvision resnet18", "mindcv resnet18"),
    ("tv-resnet", "torchvision resnet50", "mindcv resnet50"),
    ("tv-resnet", "torchvision resnext50_32x4d", "mindcv resnext50_32x4d"),
    ("tv-swin", "torchvision swin_t", "mindcv swin_tiny"),
    ("tv-vit", "torchvision vit_b_16", "mindcv vit_b_16_224"),
    ("tv-vit", "torchvision vit_b_32", "mindcv vit_b_32_224"),
]


@cache
def models():
    return json.loads(gzip.decompress(DATA.read_bytes()))["models"]


@cache
def names(model):
    return {name: tuple(shape) for name, shape in models()[model].items()}


@pytest.mark.parametrize(("family", "torch", "mindspore"), MODELS)
def test_a_family_leads_from_all_names_of_the_one_model_to_all_of_the_other_and_back(family, torch, mindspore) -> None:
    back = names(mindspore)
    tied = TIED - back.keys() if family not in NOT_TIED else ()
    there = {name: shape for name, shape in names(torch).items() if name not in tied}
    assert mapped(family, there, "nn") == without_own(back, family, "mindspore")
    assert mapped(family, back, "torch") == without_own(there, family, "torch")


@pytest.mark.parametrize(
    ("family", "torch"),
    [(family, torch) for family, torch, _ in MODELS if family not in NOT_TIED and TIED & names(torch).keys()],
)
def test_second_names_of_tied_tensors_stay(family, torch) -> None:
    assert mapped(family, names(torch), "nn").keys() >= TIED & names(torch).keys()


def test_every_family_is_held_against_real_models() -> None:
    assert {family.name for family in model_families()} == {family for family, _, _ in MODELS}


def test_a_fused_layer_is_cut_and_joined_in_the_order_of_the_family() -> None:
    whole = {"blocks.0.attn.qkv.weight": np.arange(18.0).reshape(9, 2), "blocks.0.attn.qkv.bias": np.arange(9.0)}
    back = map_from_family(read_family("hf-vit"), stored(whole), "torch").name_map
    cut = {pair.target: pair.transform.apply(whole[pair.source]) for pair in back.pairings}
    assert cut["vit.encoder.layer.0.attention.attention.key.bias"].tolist() == [3, 4, 5]
    there = map_from_family(read_family("hf-vit"), stored(cut), "nn").name_map
    joined = {name: sum(p.transform.apply(cut[p.source]) for p in there.pairings if p.target == name) for name in whole}
    assert all(np.array_equal(joined[name], whole[name]) for name in whole)


def test_a_fused_layer_that_cannot_be_cut_is_refused() -> None:
    with pytest.raises(MapError, match=r"qkv.bias: \(7,\) cannot be cut into 3 equal pieces"):
        map_from_family(read_family("hf-vit"), stored({"blocks.0.attn.qkv.bias": np.zeros(7)}), "torch")


def test_a_file_with_a_fused_layer_is_converted_there_and_back(tmp_path) -> None:
    values = np.random.default_rng(0).standard_normal((3, 4, 4)).astype(np.float32)
    layer = "vit.encoder.layer.0.attention.attention"
    split = {f"{layer}.{name}.weight": value for name, value in zip(("query", "key", "value"), values, strict=True)}
    np.savez(tmp_path / "torch.npz", **split)
    convert_checkpoint(tmp_path / "torch.npz", tmp_path / "there.ckpt", family="hf-vit")
    there = open_checkpoint(tmp_path / "there.ckpt").tensors
    assert list(there) == ["blocks.0.attn.qkv.weight"]
    assert np.array_equal(there["blocks.0.attn.qkv.weight"].load(), values.reshape(12, 4))
    convert_checkpoint(tmp_path / "there.ckpt", tmp_path / "back.pth", family="hf-vit")
    back = open_checkpoint(tmp_path / "back.pth").tensors
    assert {name: tensor.load().tobytes() for name, tensor in back.items()} == {
        n: v.tobytes() for n, v in split.items()
    }


@pytest.mark.parametrize("shape", [(7,), (7, 2, 1), (7, 1, 1, 1), ()])
def test_a_parameter_of_another_shape_than_the_family_says_is_refused(shape) -> None:
    with pytest.raises(MapError, match=r"layer_scale: .* does not have the axes \(0, 1, 1\)"):
        map_from_family(read_family("tv-convnext"), stored({"features.1.0.layer_scale": np.zeros(shape)}), "nn")


def mapped(family, shapes, to):
    """What the family makes of names: each target with its shape."""
    tensors = stored({name: np.broadcast_to(np.float32(0), shape) for name, shape in shapes.items()})
    inferred = map_from_family(read_family(family), tensors, to)
    fills = {fill.name: fill.value.shape for fill in inferred.fills}
    return {p.target: p.transform.output_shape(shapes[p.source]) for p in inferred.name_map.pairings} | fills


def without_own(shapes, family, side):
    """The names without what only this side has."""
    own = read_family(family).dropped[side]
    return {name: shape for name, shape in shapes.items() if not any(fnmatchcase(name, glob) for glob in own)}


def stored(values):
    return {name: StoredTensor(name, v.shape, v.dtype.name, lambda v=v: v) for name, v in values.items()}
