"""Calls of fused operators with one fault each, as msprobe dumps them, and clean ones; outputs are torch's on a CPU."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from runpy import run_path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

write_dump = run_path(str(Path(__file__).parents[1] / "tests" / "forward" / "fused_dumps.py"))["write_dump"]
HEADS, TOKENS, SIZE = 8, 96, 64
SCALE = 1 / math.sqrt(SIZE)
HALF, BRAIN = torch.float16, torch.bfloat16


@dataclass(frozen=True)
class FormulaCase:
    """A call by name: the argument that is right to name ("" of a clean one), and the call as it is dumped."""

    name: str
    cause: str
    call: tuple[str, tuple[Any, ...], dict[str, Any], tuple[Any, ...]]
    framework: str = "pytorch"


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Values of a normal distribution."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def attention(dtype: torch.dtype, said: dict[str, Any], done: dict[str, Any]) -> tuple[Any, ...]:
    """A call with what it says, whose output is that of a kernel that has `done` otherwise."""
    sides = [drawn(2, HEADS, TOKENS, SIZE, seed=seed, dtype=dtype) for seed in range(3)]
    out = F.scaled_dot_product_attention(*(side.float() for side in sides), **{"scale": SCALE, **done}).to(dtype)
    return "NPU.npu_fusion_attention", (*sides, HEADS, "BNSD"), {"scale": SCALE, **said}, (out,)


def layout() -> tuple[Any, ...]:
    """A kernel that took heads for tokens."""
    sides = [drawn(2, HEADS, HEADS, SIZE, seed=seed, dtype=HALF) for seed in range(3)]
    turned = (side.transpose(1, 2).float() for side in sides)
    out = F.scaled_dot_product_attention(*turned).transpose(1, 2).to(HALF).contiguous()
    return "NPU.npu_fusion_attention", (*sides, HEADS, "BNSD"), {"scale": SCALE}, (out,)


def dropped(keep_prob: float, share: float) -> tuple[Any, ...]:
    """A dropout that keeps this share, whatever the call says."""
    query, key, value = (drawn(2, HEADS, TOKENS, SIZE, seed=seed) for seed in range(3))
    weights = (query @ key.mT * SCALE).softmax(-1)
    kept = torch.rand(weights.shape, generator=torch.Generator().manual_seed(5)) < share
    said = {"scale": SCALE, "keep_prob": keep_prob}
    return "NPU.npu_fusion_attention", (query, key, value, HEADS, "BNSD"), said, ((weights * kept / share) @ value,)


def rotary(dtype: torch.dtype, mode: str) -> tuple[Any, ...]:
    """Halves that turn, whatever the call says."""
    x, angle = drawn(2, HEADS, TOKENS, SIZE, dtype=dtype), drawn(1, 1, TOKENS, SIZE // 2, seed=1)
    cos, sin = (torch.cat((one, one), -1).to(dtype) for one in (angle.cos(), angle.sin()))
    first, last = x.float().chunk(2, -1)
    out = x.float() * cos.float() + torch.cat((-last, first), -1) * sin.float()
    return "NPU.npu_rotary_mul", (x, cos, sin, mode), {}, (out.to(dtype),)


def norm(dtype: torch.dtype, epsilon: float, *, size: float = 1.0) -> tuple[Any, ...]:
    """A norm with epsilon 1e-5, of values of this size."""
    x, gamma = size * drawn(4, TOKENS, 256, dtype=dtype), drawn(256, seed=1, dtype=dtype)
    out = F.rms_norm(x.float(), (256,), gamma.float(), 1e-5).to(dtype)
    return "NPU.npu_rms_norm", (x, gamma), {"epsilon": epsilon}, (out, None)


def gated(dtype: torch.dtype, *, swapped: bool, api: str = "NPU.npu_swiglu") -> tuple[Any, ...]:
    """SwiGLU, of the halves in either order."""
    x = drawn(4, TOKENS, 128, dtype=dtype)
    gate, up = x.float().chunk(2, -1)[:: -1 if swapped else 1]
    return api, (x,), {}, ((F.silu(gate) * up).to(dtype),)


FORMULA_PLANTED = (
    FormulaCase("no scale in the call, bfloat16", "scale", attention(BRAIN, {"scale": 1.0}, {})),
    FormulaCase("a mask that the kernel left out", "sparse_mode", attention(HALF, {"sparse_mode": 2}, {})),
    FormulaCase("causal without a word", "sparse_mode", attention(BRAIN, {}, {"is_causal": True})),
    FormulaCase("layout of another order", "input_layout", layout()),
    FormulaCase("keep_prob turned over", "keep_prob", dropped(0.9, 0.1)),
    FormulaCase("rotary of pairs that turned halves", "rotary_mode", rotary(HALF, "interleave")),
    FormulaCase("epsilon of another model", "epsilon", norm(HALF, 1e-6, size=0.003)),
    FormulaCase("gate and up in the other order", "swapped", gated(BRAIN, swapped=True)),
)
FORMULA_CLEAN = (
    FormulaCase("attention, float16", "", attention(HALF, {}, {})),
    FormulaCase("causal attention, bfloat16", "", attention(BRAIN, {"sparse_mode": 2}, {"is_causal": True})),
    FormulaCase("dropout of a tenth", "", dropped(0.9, 0.9)),
    FormulaCase("norm, bfloat16", "", norm(BRAIN, 1e-5)),
    FormulaCase("SwiGLU of MindSpore", "", gated(HALF, swapped=False, api="Functional.swiglu"), "mindspore"),
)
