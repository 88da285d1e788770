"""Writes model_names.json.gz: names, shapes and classes of real models, which judge the families of mappings/models.

python dump_model_names.py    with torch 2.13.0 (CPU), mindspore 2.10.0, torchvision 0.28.0, timm 1.0.31,
transformers 4.57.1, mindcv 0.3.0 and mindone 0.5.0 installed, then
python dump_model_names.py --newer    with transformers 5.23.0 adds its names of vision models.
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
    add_newer() if "--newer" in sys.argv else main()
    os._exit(0)  # MindSpore prints a traceback a cell at exit
