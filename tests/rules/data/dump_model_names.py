"""Writes model_names.json.gz: names, shapes and classes of real models, which judge the families of mappings/models.

python dump_model_names.py    with torch 2.13.0 (CPU), mindspore 2.10.0, torchvision 0.28.0, timm 1.0.31,
transformers 4.57.1, mindcv 0.3.0 and mindone 0.5.0 installed, then
python dump_model_names.py --newer    with transformers 5.23.0 adds its names of vision models, and
python dump_model_names.py --large    with transformers 4.57.1, diffusers 0.35.2, mindone 0.5.0 and mindformers 1.3.2
those of large models, with few layers and small widths, and
python dump_model_names.py --more    with the packages of --large, open_clip_torch 3.3.0 and megatron-core 0.16.1 those
of OpenAI's CLIP, also in MindSpore Transformers, and of GPTs of Megatron.
The file records the versions that it saw.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from importlib.metadata import version
from pathlib import Path

FILE = Path(__file__).with_name("model_names.json.gz")
PACKAGES = ("torch", "mindspore", "torchvision", "timm", "transformers", "mindcv", "mindone")
TORCHVISION = (
    "resnet18", "resnet50", "resnext50_32x4d", "wide_resnet50_2", "vit_b_16", "vit_b_32", "swin_t", "convnext_tiny",
    "mobilenet_v2", "mobilenet_v3_large", "mobilenet_v3_small", "efficientnet_b0", "efficientnet_b1",
)  # fmt: skip
TIMM = (
    "resnet18", "resnet50", "seresnet50", "vit_base_patch16_224", "swin_tiny_patch4_window7_224", "convnext_tiny",
    "mobilenetv2_100", "mobilenetv3_large_100", "mobilenetv3_small_100", "efficientnet_b0", "efficientnet_b1",
)  # fmt: skip
MINDCV = (
    "resnet18", "resnet50", "resnext50_32x4d", "vit_b_16_224", "vit_b_32_224", "swin_tiny", "convnext_tiny",
    "mobilenet_v2_100", "mobilenet_v3_large_100", "mobilenet_v3_small_100", "efficientnet_b0", "efficientnet_b1",
    "seresnet50",
)  # fmt: skip
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 99}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 99}
LANGUAGE = (
    ("BertConfig", SMALL, ("BertModel", "BertForMaskedLM", "BertForSequenceClassification")),
    ("GPT2Config", GPT2, ("GPT2Model", "GPT2LMHeadModel")),
    ("LlamaConfig", {**SMALL, "num_key_value_heads": 2}, ("LlamaModel", "LlamaForCausalLM")),
    ("T5Config", T5, ("T5Model", "T5ForConditionalGeneration", "T5EncoderModel")),
)
VISION = {
    "resnet50": ("ResNetConfig", {}, "ResNetForImageClassification"),
    "vit_b_16": ("ViTConfig", {}, "ViTForImageClassification"),
    "swin_tiny": ("SwinConfig", {}, "SwinForImageClassification"),
    "convnext_tiny": ("ConvNextConfig", {}, "ConvNextForImageClassification"),
    "mobilenet_v2": ("MobileNetV2Config", {"tf_padding": False}, "MobileNetV2ForImageClassification"),
    "efficientnet_b0": (
        "EfficientNetConfig",
        {"width_coefficient": 1.0, "depth_coefficient": 1.0, "hidden_dim": 1280},
        "EfficientNetForImageClassification",
    ),
}


SMALL_DECODER = {**SMALL, "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0}
EXPERTS = {**SMALL_DECODER, "num_experts": 4, "moe_intermediate_size": 16}
ROUTED = {"n_routed_experts": 4, "moe_intermediate_size": 16, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1}
LATENT = {"q_lora_rank": 12, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8}
SPEECH = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 99, "max_source_positions": 20,
    "max_target_positions": 20, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip
IMAGE = {key: value for key, value in SMALL.items() if key != "vocab_size"} | {"image_size": 16, "patch_size": 8}
TEXT = {**SMALL, "max_position_embeddings": 16, "eos_token_id": 2, "bos_token_id": 1}
LARGE = (
    ("Qwen2Config", SMALL_DECODER, ("Qwen2Model", "Qwen2ForCausalLM")),
    ("Qwen3Config", SMALL_DECODER, ("Qwen3Model", "Qwen3ForCausalLM")),
    ("Qwen2MoeConfig", {**EXPERTS, "shared_expert_intermediate_size": 24}, ("Qwen2MoeForCausalLM",)),
    ("Qwen3MoeConfig", EXPERTS, ("Qwen3MoeForCausalLM",)),
    ("MixtralConfig", {**SMALL_DECODER, "num_local_experts": 4}, ("MixtralForCausalLM",)),
    ("GlmConfig", SMALL_DECODER, ("GlmForCausalLM",)),
    ("Glm4Config", SMALL_DECODER, ("Glm4ForCausalLM",)),
    ("Glm4MoeConfig", {**SMALL_DECODER, **ROUTED, "use_qk_norm": True}, ("Glm4MoeForCausalLM",)),
    ("DeepseekV3Config", {**SMALL, **ROUTED, **LATENT, "num_key_value_heads": 4}, ("DeepseekV3ForCausalLM",)),
    ("WhisperConfig", SPEECH, ("WhisperModel", "WhisperForConditionalGeneration")),
    ("CLIPConfig", {"text_config": TEXT, "vision_config": IMAGE, "projection_dim": 24}, ("CLIPModel",)),
)
NOT_IN_MINDONE = ("DeepseekV3ForCausalLM",)
UNET = {
    "sample_size": 8, "in_channels": 4, "out_channels": 4, "block_out_channels": (32, 64, 64), "layers_per_block": 2,
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"), "cross_attention_dim": 24,
    "transformer_layers_per_block": (1, 2, 3), "attention_head_dim": (2, 4, 4), "use_linear_projection": True,
    "addition_embed_type": "text_time", "addition_time_embed_dim": 8, "projection_class_embeddings_input_dim": 72,
    "norm_num_groups": 8,
}  # fmt: skip
# What MindSpore Transformers replaces in Hugging Face's names for the models on its Megatron core, in this order:
# `weight_mapping` of mindformers/models/{qwen3,qwen3_moe,deepseek3,glm4,glm4_moe}/utils.py, release 1.7.
CORE = [
    ("model.embed_tokens.", "embedding.word_embeddings."), (".self_attn.q_proj.", ".self_attention.linear_q."),
    (".self_attn.k_proj.", ".self_attention.linear_k."), (".self_attn.v_proj.", ".self_attention.linear_v."),
    (".self_attn.o_proj.", ".self_attention.linear_proj."), (".self_attn.q_norm.", ".self_attention.q_layernorm."),
    (".self_attn.k_norm.", ".self_attention.k_layernorm."),
    (".self_attn.q_a_proj.", ".self_attention.linear_q_down_proj."),
    (".self_attn.q_a_layernorm.", ".self_attention.q_layernorm."),
    (".self_attn.q_b_proj.", ".self_attention.linear_q_up_proj."),
    (".self_attn.kv_a_proj_with_mqa.", ".self_attention.linear_kv_down_proj."),
    (".self_attn.kv_a_layernorm.", ".self_attention.kv_layernorm."),
    (".self_attn.kv_b_proj.", ".self_attention.linear_kv_up_proj."), (".mlp.gate_up_proj.", ".mlp.linear_fc1."),
    (".gate.weight", ".router.weight"), (".gate.e_score_correction_bias", ".router.expert_bias"),
    (".gate_proj.", ".gating."), (".down_proj.", ".linear_fc2."), (".up_proj.", ".hidden."),
    (".post_attention_layernorm.", ".pre_mlp_layernorm."), ("model.norm.", "decoder.final_layernorm."),
    ("lm_head.", "output_layer."), ("model.layers.", "decoder.layers."),
]  # fmt: skip
ON_CORE = ("Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "DeepseekV3ForCausalLM", "Glm4ForCausalLM", "Glm4MoeForCausalLM")


def main() -> None:
    os.environ.update(GLOG_v="3", HF_HUB_OFFLINE="1")
    import torch

    library = torch.library.Library("torchvision", "DEF")  # a CUDA wheel of torchvision beside a CPU torch
    for op in ("nms", "qnms"):
        library.define(op + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import numpy as np
    from mindspore import Tensor, mint

    # Without a kernel on CPU: nothing is to be padded here, and no name depends on a range.
    mint.nn.functional.pad = lambda value, *_, **__: value
    mint.arange = lambda *args, **_: Tensor(np.arange(*args))
    import mindcv
    import mindone.transformers
    import timm
    import torchvision
    import transformers

    models = {f"torchvision {n}": torch_names(getattr(torchvision.models, n)()) for n in TORCHVISION}
    models |= {f"timm {n}": torch_names(timm.create_model(n)) for n in TIMM}
    models |= {f"mindcv {n}": mindspore_names(mindcv.create_model(n)) for n in MINDCV}
    models |= {f"transformers {n}": names for n, names in vision_models(transformers)}
    for config, options, classes in LANGUAGE:
        for name in classes:
            made_of = getattr(transformers, config)(**options)
            models[f"transformers {name}"] = torch_names(getattr(transformers, name)(made_of))
            models[f"mindone {name}"] = mindspore_names(getattr(mindone.transformers, name)(made_of))
    write({"versions": {name: version(name) for name in PACKAGES}, "models": models})


def add_newer() -> None:
    import transformers

    document = json.loads(gzip.decompress(FILE.read_bytes()))
    document["versions"]["transformers5"] = version("transformers")
    document["models"] |= {f"transformers5 {n}": names for n, names in vision_models(transformers)}
    write(document)


def add_large() -> None:
    os.environ.update(GLOG_v="3", HF_HUB_OFFLINE="1")
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for op in ("nms", "qnms"):
        library.define(op + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import numpy as np
    from mindspore import Parameter, Tensor, mint

    mint.nn.functional.pad = lambda value, *_, **__: value
    mint.arange = lambda *args, **_: Tensor(np.arange(*args))
    for kind in (Tensor, Parameter):  # without a kernel on CPU, and no name depends on a value
        for name in ("normal_", "uniform_", "zero_", "fill_"):
            setattr(kind, name, lambda tensor, *_, **__: tensor)
    import diffusers
    import mindone.diffusers
    import mindone.transformers
    import transformers

    document = json.loads(gzip.decompress(FILE.read_bytes()))
    models = document["models"]
    for config, options, classes in LARGE:
        for name in classes:
            made_of = getattr(transformers, config)(**options)
            made_of._attn_implementation = "eager"
            models[f"transformers {name}"] = torch_names(getattr(transformers, name)(made_of))
            if name not in NOT_IN_MINDONE:
                models[f"mindone {name}"] = mindspore_names(getattr(mindone.transformers, name)(made_of))
    for name in ON_CORE:
        models[f"mindformers-core {name}"] = core_names(models[f"transformers {name}"])
    models["diffusers UNet2DConditionModel"] = torch_names(diffusers.UNet2DConditionModel(**UNET))
    models["mindone UNet2DConditionModel"] = mindspore_names(mindone.diffusers.UNet2DConditionModel(**UNET))
    models |= dict(mindformers_models())
    document["versions"] |= {name: version(name) for name in ("diffusers", "mindformers")}
    write(document)


def add_more() -> None:
    document = json.loads(gzip.decompress(FILE.read_bytes()))
    document["models"] |= {**dict(clip_models()), **dict(megatron_models())}
    document["versions"] |= {name: version(name) for name in ("megatron-core", "open_clip_torch")}
    write(document)


def clip_models():
    """OpenAI's CLIP, with the names of its files, as open_clip and MindSpore Transformers build it."""
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for op in ("nms", "qnms"):
        library.define(op + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from open_clip.model import CLIP

    image = {"layers": 2, "width": 32, "head_width": 8, "patch_size": 8, "image_size": 16}
    text = {"context_length": 16, "vocab_size": 99, "width": 32, "heads": 4, "layers": 2}
    yield "open_clip CLIP", torch_names(CLIP(embed_dim=24, vision_cfg=image, text_cfg=text, quick_gelu=True))
    allow_mindformers()
    from mindformers.models.clip import CLIPConfig, CLIPModel, CLIPTextConfig, CLIPVisionConfig

    words = CLIPTextConfig(hidden_size=32, vocab_size=99, max_position_embeddings=16, num_hidden_layers=2)
    seen = CLIPVisionConfig(hidden_size=32, num_hidden_layers=2, image_size=16, patch_size=8, num_attention_heads=4)
    yield (
        "mindformers CLIPModel",
        mindspore_names(CLIPModel(CLIPConfig(text_config=words, vision_config=seen, projection_dim=24))),
    )


def megatron_models():
    """GPTs of Megatron, each layer by itself: of linear_qkv queries, keys and values, of linear_fc1 gate and values."""
    import torch
    import torch.distributed as dist

    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    torch.cuda.current_device = lambda: "cpu"
    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec, get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig

    parallel_state.initialize_model_parallel()
    kinds = {"LlamaForCausalLM": {}, "Qwen2ForCausalLM": {"add_qkv_bias": True}}
    kinds["MixtralForCausalLM"] = {"num_moe_experts": 4, "moe_token_dispatcher_type": "allgather"}
    kinds["Glm4MoeForCausalLM"] = kinds["MixtralForCausalLM"] | {
        "moe_layer_freq": [0, 1], "moe_ffn_hidden_size": 16, "moe_shared_expert_intermediate_size": 16,
        "moe_router_score_function": "sigmoid", "moe_router_enable_expert_bias": True, "qk_layernorm": True,
    }  # fmt: skip
    for name, more in kinds.items():
        config = TransformerConfig(
            num_layers=2, hidden_size=32, num_attention_heads=4, num_query_groups=2, ffn_hidden_size=64,
            gated_linear_unit=True, activation_func=torch.nn.functional.silu, add_bias_linear=False,
            use_cpu_initialization=True, normalization="RMSNorm", bias_dropout_fusion=False, **more,
        )  # fmt: skip
        spec = get_gpt_layer_local_spec(num_experts=config.num_moe_experts, normalization="RMSNorm")
        if "moe_layer_freq" in more:
            spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False, normalization="RMSNorm")
        options = {"position_embedding_type": "rope", "share_embeddings_and_output_weights": False}
        model = GPTModel(config, spec, vocab_size=99, max_sequence_length=16, **options)
        yield f"megatron-core {name}", dict(taken_apart(model, heads=4, groups=2))


def taken_apart(model, heads, groups):
    for name, value in model.state_dict().items():
        if value is None or name.endswith("_extra_state"):
            continue
        rows, *rest = value.shape
        name, width = name.replace(".local_experts.", "."), rows // (heads + 2 * groups)
        if ".linear_qkv." in name:
            for layer, count in (("q", heads), ("k", groups), ("v", groups)):
                yield name.replace("linear_qkv", f"linear_{layer}"), [count * width, *rest]
        elif ".linear_fc1." in name:
            yield from ((name.replace("linear_fc1", layer), [rows // 2, *rest]) for layer in ("gating", "hidden"))
        else:
            yield name, [rows, *rest]


def core_names(names):
    found = {}
    for name, shape in names.items():
        for old, new in CORE:
            name = name.replace(old, new)
        found[name] = shape
    return found


def allow_mindformers() -> None:
    """Put back what mindformers 1.3.2 imports and MindSpore has removed since."""
    import types

    import mindspore.dataset.transforms as transforms

    removed = types.ModuleType("mindspore.dataset.transforms.py_transforms")
    removed.PyTensorOperation = object
    sys.modules[removed.__name__] = transforms.py_transforms = removed


def mindformers_models():
    allow_mindformers()
    from mindformers import ChatGLM2Config, ChatGLM2ForConditionalGeneration, LlamaConfig, LlamaForCausalLM
    from mindformers.models.whisper import WhisperConfig, WhisperForConditionalGeneration

    decoder = {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "n_kv_heads": 2, "vocab_size": 99}
    decoder |= {"batch_size": 1, "seq_length": 16, "intermediate_size": 64, "multiple_of": 8}
    for label, more in (("", {}), (" with biases", {"qkv_has_bias": True})):
        model = LlamaForCausalLM(LlamaConfig(**decoder, **more))
        yield f"mindformers LlamaForCausalLM{label}", mindspore_names(model)
    speech = {key: SPEECH[key] for key in SPEECH if not key.endswith("_token_id")}
    yield (
        "mindformers WhisperForConditionalGeneration",
        mindspore_names(WhisperForConditionalGeneration(WhisperConfig(**speech, num_mel_bins=80, seq_length=20))),
    )
    glm = {"num_layers": 2, "padded_vocab_size": 96, "hidden_size": 32, "ffn_hidden_size": 64, "kv_channels": 8}
    glm |= {"num_attention_heads": 4, "multi_query_group_num": 2, "multi_query_attention": True, "add_qkv_bias": True}
    config = ChatGLM2Config(**glm, batch_size=1, seq_length=16, add_bias_linear=False, rmsnorm=True)
    names = mindspore_names(ChatGLM2ForConditionalGeneration(config))
    yield "mindformers ChatGLM2ForConditionalGeneration", names
    # The model's own code on the Hub calls one layer otherwise: mindformers/models/glm2/convert_weight.py.
    published = {name.replace("embedding.embedding_", "embedding.word_embeddings."): s for name, s in names.items()}
    yield "THUDM glm-4-9b", published


def write(document):
    text = json.dumps(document, separators=(",", ":"))
    FILE.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def vision_models(transformers):
    for name, (config, options, made) in VISION.items():
        made_of = getattr(transformers, config)(**{"num_labels": 1000, **options})
        yield name, torch_names(getattr(transformers, made)(made_of))


def torch_names(model):
    return {name: list(value.shape) for name, value in model.state_dict().items()}


def mindspore_names(net):
    return {parameter.name: list(parameter.shape) for parameter in net.get_parameters()}


if __name__ == "__main__":
    kinds = {"--newer": add_newer, "--large": add_large, "--more": add_more}
    kinds.get(sys.argv[-1], main)()
    os._exit(0)  # MindSpore prints a traceback a cell at exit
