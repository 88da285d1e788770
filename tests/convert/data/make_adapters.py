"""Makes the small adapters of this folder with PEFT, each beside the model that PEFT merges it into.

Run with peft 0.21 and transformers 5 beside torch:

    python tests/convert/data/make_adapters.py tests/convert/data

`adapters_base.safetensors` is the model. Each folder `adapter_NAME` is what `save_pretrained` writes, with
`merged.safetensors`, the `state_dict` after `merge_and_unload`.
"""

from __future__ import annotations

import copy
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from torch import nn
from transformers.pytorch_utils import Conv1D

FOLDER = Path(sys.argv[1])


class Block(nn.Module):
    """A layer of each kind that LoRA knows."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(12, 20, bias=False)
        self.v_proj = nn.Linear(12, 12)
        self.c_attn = Conv1D(12, 12)


class Net(nn.Module):
    """Two blocks between an embedding and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, 12)
        self.conv = nn.Conv2d(3, 6, 3)
        self.layers = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(12, 4)


def main() -> None:
    """Write the base, then each adapter."""
    torch.manual_seed(0)
    base = Net()
    save_file(base.state_dict(), FOLDER / "adapters_base.safetensors", {"format": "pt"})
    linear = ["q_proj", "v_proj"]
    configs: dict[str, dict[str, Any]] = {
        "lora": {
            "target_modules": linear,
            "r": 4,
            "lora_alpha": 8,
            "rank_pattern": {"layers.1.q_proj": 2},
            "alpha_pattern": {"v_proj": 3},
            "modules_to_save": ["head"],
        },
        "rslora": {"target_modules": ["embed", "conv", "q_proj"], "r": 4, "lora_alpha": 8, "use_rslora": True},
        "dora": {"target_modules": [*linear, "embed", "conv"], "r": 3, "lora_alpha": 6, "use_dora": True},
        "conv1d": {"target_modules": ["c_attn"], "r": 2, "fan_in_fan_out": True, "use_dora": True},
        "bias": {"target_modules": ["v_proj"], "r": 2, "lora_bias": True},
        "biases": {"target_modules": ["v_proj"], "r": 2, "bias": "lora_only"},
        "half": {"target_modules": linear, "r": 4, "lora_alpha": 4},
    }
    for seed, (name, settings) in enumerate(configs.items()):
        torch.manual_seed(seed)
        started = copy.deepcopy(base)
        if name == "half":
            started = started.to(torch.bfloat16)
        net = get_peft_model(started, LoraConfig(**settings))  # type: ignore[arg-type]
        with torch.no_grad():
            for _, parameter in net.named_parameters():
                if parameter.requires_grad:
                    parameter += torch.randn_like(parameter) * 0.1
        folder = FOLDER / f"adapter_{name}"
        shutil.rmtree(folder, ignore_errors=True)
        net.save_pretrained(folder, safe_serialization=name != "rslora")
        config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        (folder / "adapter_config.json").write_text(json.dumps(config, indent=1, sort_keys=True), encoding="utf-8")
        (folder / "README.md").unlink(missing_ok=True)
        merged = net.merge_and_unload().state_dict()
        save_file({key: value.contiguous() for key, value in merged.items()}, folder / "merged.safetensors")


if __name__ == "__main__":
    main()
