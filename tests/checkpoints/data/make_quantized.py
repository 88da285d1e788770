"""Makes the small quantized files of this folder with the libraries that write such files.

Run with bitsandbytes 0.50 and compressed-tensors 0.20 beside torch:

    python tests/checkpoints/data/make_quantized.py tests/checkpoints/data

Each `NAME.safetensors` is a checkpoint as the library saves it; `NAME_values.safetensors` are the values that the
library makes of it. `compressed_tensors.json` is its quantization config.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

FOLDER = Path(sys.argv[1])


def make_bitsandbytes() -> None:
    """Layers of four bits (plain and nested, of three storages) and of int8, as `state_dict` has them."""
    import bitsandbytes as bnb

    stored: dict[str, Any] = {}
    values: dict[str, Any] = {}
    kinds: list[tuple[str, str, dict[str, Any]]] = [
        ("nf4", "nf4", {}),
        ("nested", "nf4", {"compress_statistics": True}),
        ("fp4", "fp4", {"compress_statistics": False}),
        ("wide", "nf4", {"quant_storage": torch.bfloat16}),
    ]
    for name, kind, how in kinds:
        torch.manual_seed(len(name))
        weight = torch.randn(24, 100) * torch.rand(24, 1)
        settings = {"compress_statistics": False, **how}
        packed = bnb.nn.Params4bit(weight.to(torch.bfloat16), requires_grad=False, quant_type=kind, **settings).to(
            "cpu"
        )
        state = packed.quant_state
        stored[f"{name}.weight"] = packed.data
        stored |= {f"{name}.weight.{key}": value for key, value in state.as_dict(packed=True).items()}
        values[f"{name}.weight"] = bnb.functional.dequantize_4bit(packed.data, state)
    torch.manual_seed(9)
    weight = torch.randn(16, 40).to(torch.float16)
    rows, scales, _ = bnb.functional.int8_vectorwise_quant(weight)
    stored |= {"int8.weight": rows, "int8.SCB": scales, "int8.weight_format": torch.tensor(0, dtype=torch.uint8)}
    values["int8.weight"] = bnb.functional.int8_vectorwise_dequant(rows, scales)
    write("bitsandbytes", stored, values)


def make_compressed_tensors() -> None:
    """Layers of each format, compressed and decompressed by the library."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    stored: dict[str, Any] = {}
    values: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    fp8 = {"num_bits": 8, "type": "float"}
    asym = {"symmetric": False}
    kinds: list[tuple[str, str, dict[str, Any]]] = [
        ("p4", "pack-quantized", {"num_bits": 4, "strategy": "group", "group_size": 32}),
        ("p4z", "pack-quantized", {"num_bits": 4, "strategy": "group", "group_size": 32, **asym}),
        ("p3z", "pack-quantized", {"num_bits": 3, "strategy": "channel", **asym}),
        ("p8", "pack-quantized", {"num_bits": 8, "strategy": "channel"}),
        ("i8", "int-quantized", {"num_bits": 8, "strategy": "channel"}),
        ("i8z", "int-quantized", {"num_bits": 8, "strategy": "channel", **asym}),
        ("f8", "float-quantized", {**fp8, "strategy": "channel"}),
        ("f8t", "float-quantized", {**fp8, "strategy": "tensor"}),
        ("f8b", "float-quantized", {**fp8, "strategy": "block", "block_structure": [16, 32]}),
        ("nv", "nvfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}),
        ("mx", "mxfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}),
    ]
    for seed, (name, form, settings) in enumerate(kinds):
        torch.manual_seed(seed)
        args = QuantizationArgs(**settings)
        scheme = QuantizationScheme(targets=["Linear"], weights=args)
        state = layer(args, form)
        kind = BaseCompressor.get_value_from_registry(form)
        compressed = kind.compress(dict(state), scheme)
        made = kind.decompress(dict(compressed), scheme)["weight"]
        stored |= {f"{name}.{key}": value.contiguous() for key, value in compressed.items()}
        values[f"{name}.weight"] = made
        groups[f"group_{seed}"] = {"targets": [name], "weights": args.model_dump(mode="json", exclude_none=True)}
    config = {"quant_method": "compressed-tensors", "config_groups": groups}
    (FOLDER / "compressed_tensors.json").write_text(
        json.dumps({"quantization_config": config}, indent=1), encoding="utf-8"
    )
    write("compressed_tensors", stored, values)


def layer(args: Any, form: str) -> dict[str, Any]:
    """A weight of 40 rows and 96 columns with scales (and zero points) of the strategy, as a calibration leaves it."""
    weight = (torch.randn(40, 96) * 0.1).to(torch.bfloat16)
    strategy = args.strategy.value if hasattr(args.strategy, "value") else args.strategy
    blocks = args.block_structure or [1, 96]
    shapes = {"channel": (40, 1), "tensor": (1,), "block": (-(-40 // blocks[0]), -(-96 // blocks[1]))}
    shape = shapes.get(strategy) or (40, 96 // args.group_size)
    scale = (torch.rand(shape) * 0.01 + 0.01).to(torch.bfloat16)
    state: dict[str, Any] = {"weight": weight, "weight_scale": scale}
    if not args.symmetric:
        low, high = -(2 ** (args.num_bits - 1)), 2 ** (args.num_bits - 1)
        state["weight_zero_point"] = torch.randint(low, high, shape, dtype=torch.int8)
    if form.startswith("nvfp4"):
        state["weight_global_scale"] = torch.tensor([700.0])
        state["weight_scale"] = (scale.float() * 700.0).to(torch.float8_e4m3fn).to(torch.bfloat16)
    if form.startswith("mxfp4"):
        state["weight_scale"] = torch.exp2(torch.randint(-8, -4, shape).float()).to(torch.bfloat16)
    return state


def write(name: str, stored: dict[str, Any], values: dict[str, Any]) -> None:
    """Both files; the names of layers are sorted."""
    save_file({key: stored[key].clone().contiguous() for key in sorted(stored)}, FOLDER / f"{name}.safetensors")
    save_file({key: values[key].clone().contiguous() for key in sorted(values)}, FOLDER / f"{name}_values.safetensors")


if __name__ == "__main__":
    make_bitsandbytes()
    make_compressed_tensors()
