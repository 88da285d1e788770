"""Formulas of fused operators against independent implementations, and dumps of calls judged by them."""

from __future__ import annotations

import math
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import align
from align.cli.main import main
from align.errors import AlignError

write_dump = run_path(str(Path(__file__).with_name("fused_dumps.py")))["write_dump"]
HEADS, KEY_HEADS, TOKENS, SIZE = 4, 2, 48, 32
SCALE = 1 / math.sqrt(SIZE)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
FUSED = "NPU.npu_fusion_attention"
FULL_MASK = torch.triu(torch.ones(2048, 2048, dtype=torch.bool), 1)


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def sides(dtype: torch.dtype = torch.float32, keys: int = TOKENS) -> list[torch.Tensor]:
    """Query, key and value as (batch, heads, tokens, size), with fewer heads of key and value."""
    shapes = (HEADS, TOKENS), (KEY_HEADS, keys), (KEY_HEADS, keys)
    return [drawn(2, *shape, SIZE, seed=seed, dtype=dtype) for seed, shape in enumerate(shapes)]


def kernel(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **options: Any) -> torch.Tensor:
    """Torch's attention in float32, rounded to the dtype: what a kernel of such a dtype gives."""
    wide = [one.float() for one in (query, key, value)]
    return F.scaled_dot_product_attention(*wide, enable_gqa=True, **{"scale": SCALE, **options}).to(query.dtype)


def laid_out(side: torch.Tensor, layout: str) -> torch.Tensor:
    turned = {"BNSD": side, "BSND": side.transpose(1, 2), "BSH": side.transpose(1, 2).flatten(2)}
    return {**turned, "SBH": turned["BSH"].transpose(0, 1)}[layout].contiguous()


def judged(tmp_path: Path, *calls: Any, framework: str = "pytorch") -> Any:
    return align.compare_with_formulas(write_dump(tmp_path / "dump", [*calls], framework))


def explained(result: Any) -> list[tuple[str, str]]:
    assert result.verdict.outcome is align.Outcome.NOT_ALIGNED
    return [(one.argument, one.instead) for one in result.calls[0].explained_by]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH", "SBH"])
def test_attention_is_that_of_torch_in_every_layout(tmp_path, layout, dtype):
    own = sides(dtype)
    given = [laid_out(one, layout) for one in own]
    causal = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
    options = {"atten_mask": causal, "scale": SCALE}
    plain = (FUSED, (*given, HEADS, layout), {"scale": SCALE}, (laid_out(kernel(*own), layout),))
    masked = (FUSED, (*given, HEADS, layout), options, (laid_out(kernel(*own, is_causal=True), layout),))
    packed = (FUSED, (*given, HEADS, layout), {"atten_mask": FULL_MASK, "scale": SCALE, "sparse_mode": 2}, masked[3])
    result = judged(tmp_path, plain, masked, packed)
    assert result.verdict.outcome is align.Outcome.ALIGNED, result.calls
    assert len(result.calls) == 3
    assert not result.unjudged


def test_sequences_of_unlike_length_in_one_tensor(tmp_path):
    own = sides()
    parts = [[one[:1, :, start:end] for one in own] for start, end in ((0, 20), (20, 48))]
    out = torch.cat([kernel(*part, is_causal=True)[0] for part in parts], 1).transpose(0, 1)
    given = [one[0].transpose(0, 1).contiguous() for one in own]
    options = {"scale": SCALE, "actual_seq_qlen": [20, 48], "actual_seq_kvlen": [20, 48], "sparse_mode": 3}
    tensors = {**options, "actual_seq_qlen": torch.tensor([20, 48]), "actual_seq_kvlen": torch.tensor([20, 48])}
    calls = [(FUSED, (*given, HEADS, "TND"), one, (out.contiguous(),)) for one in (options, tensors)]
    result = judged(tmp_path, *calls)
    assert result.verdict.outcome is align.Outcome.ALIGNED, result.calls
    assert len(result.calls) == 2


def test_causal_from_the_last_token_a_band_and_a_prefix(tmp_path):
    own = sides(keys=64)
    place = torch.arange(64) - torch.arange(TOKENS)[:, None] - 16
    shown = {3: place <= 0, 4: (place <= 2) & (place >= -5), 6: (place <= 0) | (torch.arange(64) < 30)}
    options = {3: {}, 4: {"pre_tockens": 5, "next_tockens": 2}, 6: {"prefix": [30, 30]}}
    calls = [
        (FUSED, (*own, HEADS, "BNSD"), {"scale": SCALE, "sparse_mode": mode, **options[mode]},
         (kernel(*own, attn_mask=shown[mode]),))
        for mode in shown
    ]  # fmt: skip
    result = judged(tmp_path, *calls)
    assert result.verdict.outcome is align.Outcome.ALIGNED, result.calls


PLANTED = {
    "the scale is missing": ({"scale": SCALE}, {"scale": 1.0}, ("scale", "1")),
    "scaled though the call says 1": ({}, {}, ("scale", f"{SCALE:.6g}")),
    "no mask is used": ({"scale": SCALE, "sparse_mode": 2}, {}, ("sparse_mode", "0")),
    "masked though the call has no mask": ({"scale": SCALE}, {"is_causal": True}, ("sparse_mode", "2")),
    "the mask is turned over": (
        {"scale": SCALE, "atten_mask": torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril(-1)},
        {"attn_mask": torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril(-1)}, ("atten_mask", "inverted"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PLANTED)
def test_the_argument_that_a_kernel_took_otherwise_is_named(tmp_path, name, dtype):
    said, done, expected = PLANTED[name]
    own = sides(dtype)
    result = judged(tmp_path, (FUSED, (*own, HEADS, "BNSD"), said, (kernel(*own, **done),)))
    assert expected in explained(result), (result.calls[0].factor, result.calls[0].explained_by)


def test_another_layout_than_the_call_says(tmp_path):
    own = [drawn(2, HEADS, HEADS, SIZE, seed=seed) for seed in range(3)]
    out = kernel(*(one.transpose(1, 2) for one in own)).transpose(1, 2)
    result = judged(tmp_path, (FUSED, (*own, HEADS, "BNSD"), {"scale": SCALE}, (out.contiguous(),)))
    assert ("input_layout", "BSND") in explained(result)


def test_dropout_is_judged_by_how_far_it_spreads(tmp_path):
    own = sides()
    scores = (own[0] @ own[1].repeat_interleave(2, 1).mT * SCALE).softmax(-1)
    fallen = torch.rand(scores.shape, generator=torch.Generator().manual_seed(9)) >= 0.9
    calls = {}
    for name, kept, share in (("right", ~fallen, 0.9), ("inverted", fallen, 0.1), ("none", ~fallen | fallen, 1.0)):
        out = (scores * kept / share) @ own[2].repeat_interleave(2, 1)
        calls[name] = judged(
            tmp_path / name, (FUSED, (*own, HEADS, "BNSD"), {"scale": SCALE, "keep_prob": 0.9}, (out,))
        )
    assert calls["right"].verdict.outcome is align.Outcome.ALIGNED
    assert explained(calls["inverted"]) == [("keep_prob", "0.1")]
    assert explained(calls["none"]) == [("keep_prob", "1")]


def layer_calls(dtype: torch.dtype) -> list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[Any, ...]]]:
    """A call of each other operator with what torch gives, worked out in float32."""
    x, gamma = drawn(2, 6, 64, dtype=dtype), drawn(64, seed=1, dtype=dtype)
    pictures, weight = drawn(2, 8, 4, 4, dtype=dtype), drawn(8, seed=2, dtype=dtype)
    wide, total = x.float(), (x.float() + gamma.float()).to(dtype)
    norm = F.rms_norm(wide, (64,), gamma.float(), 1e-6).to(dtype)
    grouped = F.silu(F.group_norm(pictures.float(), 4, weight.float(), weight.float(), 1e-5)).to(dtype)
    cos, sin = (drawn(1, 6, 64, seed=seed, dtype=dtype).clamp(-1, 1) for seed in (3, 4))
    half = torch.cat((-wide[..., 32:], wide[..., :32]), -1)
    pairs = torch.view_as_real(torch.view_as_complex(wide.reshape(2, 6, 32, 2)) * 1j).flatten(-2)
    best = wide.softmax(-1).topk(5).values.to(dtype)
    return [
        ("NPU.npu_rms_norm", (x, gamma), {"epsilon": 1e-6}, (norm, (wide.square().mean(-1, True) + 1e-6).rsqrt())),
        ("NPU.npu_add_rms_norm", (x, gamma.expand(x.shape), gamma), {},
         (F.rms_norm(total.float(), (64,), gamma.float(), 1e-6).to(dtype), None, total)),
        ("NPU.npu_swiglu", (x,), {"dim": -1}, ((F.silu(wide[..., :32]) * wide[..., 32:]).to(dtype),)),
        ("NPU.npu_gelu", (x,), {"approximate": "tanh"}, (F.gelu(wide, approximate="tanh").to(dtype),)),
        ("NPU.npu_gelu", (x,), {}, (F.gelu(wide).to(dtype),)),
        ("NPU.npu_fast_gelu", (x,), {}, ((wide * torch.sigmoid(1.702 * wide)).to(dtype),)),
        ("NPU.npu_group_norm_silu", (pictures, weight, weight, 4), {}, (grouped,)),
        ("NPU.npu_rotary_mul", (x, cos, sin), {}, ((wide * cos.float() + half * sin.float()).to(dtype),)),
        ("NPU.npu_rotary_mul", (x, cos, sin, "interleave"), {},
         ((wide * cos.float() + pairs * sin.float()).to(dtype),)),
        ("NPU.npu_moe_gating_top_k_softmax", (x,), {"k": 5}, (best, None, None)),
        ("NPU.npu_scaled_masked_softmax", (x, x > 1, 0.5, False), {},
         ((wide * 0.5).masked_fill(x > 1, -1e4).softmax(-1).to(dtype),)),
        ("NPU.npu_confusion_transpose", (x, (1, 0, 2), (6, 128), True), {}, (x.permute(1, 0, 2).reshape(6, 128),)),
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_layers_are_those_of_torch(tmp_path, dtype):
    calls = layer_calls(dtype)
    result = judged(tmp_path, *calls)
    assert [one.call for one in result.calls if one.factor > 1] == []
    assert len(result.calls) == len(calls)


@pytest.mark.parametrize("dtype", DTYPES)
def test_layers_that_take_an_argument_otherwise_are_named(tmp_path, dtype):
    x, gamma = drawn(2, 6, 64, dtype=dtype) * 0.003, drawn(64, seed=1, dtype=dtype)
    wide = x.float()
    norm = F.rms_norm(wide, (64,), gamma.float(), 1e-5).to(dtype)
    shifted = F.rms_norm(drawn(2, 6, 64, dtype=dtype).float(), (64,), 1 + gamma.float(), 1e-6).to(dtype)
    y = drawn(2, 6, 64, dtype=dtype)
    tall, cos = y.float(), drawn(1, 6, 64, seed=3, dtype=dtype).clamp(-1, 1)
    pairs = torch.view_as_real(torch.view_as_complex(tall.reshape(2, 6, 32, 2)) * 1j).flatten(-2)
    best = tall.softmax(-1).topk(5).values
    faults = [
        (("NPU.npu_rms_norm", (x, gamma), {}, (norm,)), ("epsilon", "1e-05")),
        (("NPU.npu_rms_norm", (y, gamma), {}, (shifted,)), ("gamma", "1+value")),
        (("NPU.npu_swiglu", (y,), {}, ((F.silu(tall[..., 32:]) * tall[..., :32]).to(dtype),)), ("swapped", "True")),
        (("NPU.npu_rotary_mul", (y, cos, cos), {}, ((tall * cos.float() + pairs * cos.float()).to(dtype),)),
         ("rotary_mode", "interleave")),
        (("NPU.npu_moe_gating_top_k_softmax", (y,), {"k": 5}, ((best / best.sum(-1, True)).to(dtype),)),
         ("normed", "True")),
    ]  # fmt: skip
    if dtype is torch.float32:  # the others are too coarse to tell the two forms apart
        faults += [(("Functional.gelu", (4 * y,), {}, (F.gelu(4 * tall, approximate="tanh").to(dtype),)),
                    ("approximate", "tanh"))]  # fmt: skip
    result = judged(tmp_path, *(call for call, _ in faults))
    for one, (_, expected) in zip(result.calls, faults, strict=True):
        assert expected in [(other.argument, other.instead) for other in one.explained_by], one


def test_the_table_of_positions_and_the_style_of_neox(tmp_path):
    positions, query, cache = torch.arange(5), drawn(5, 2 * 16, seed=1), drawn(8, 16, seed=2)
    cos, sin = (part[:, None] for part in cache[:5].chunk(2, -1))
    wide = query.reshape(5, 2, 16)
    first, last = wide[..., ::2], wide[..., 1::2]
    turned = torch.stack((first * cos - last * sin, last * cos + first * sin), -1).reshape(5, 32)
    call = ("NPU._npu_rotary_embedding", (positions, query, query, 16, cache, True), {}, (turned, turned))
    assert ("is_neox_style", "interleave") in explained(judged(tmp_path / "a", call))
    right = (call[0], (*call[1][:5], False), {}, call[3])
    assert judged(tmp_path / "b", right).verdict.outcome is align.Outcome.ALIGNED


def test_the_operators_of_mindspore(tmp_path):
    own, x = sides(torch.float16), drawn(2, 6, 64)
    given = [laid_out(one, "BSH") for one in own]
    attention = (
        "Functional.flash_attention_score",
        (*given, HEADS),
        {"scalar_value": SCALE},
        (laid_out(kernel(*own), "BSH"),),
    )
    gelu = ("MintFunctional.gelu", (x,), {}, (F.gelu(x),))
    result = judged(tmp_path, attention, gelu, ("Mint.matmul", (x, x), {}, (x,)), framework="mindspore")
    assert (result.verdict.outcome, result.other_calls) == (align.Outcome.ALIGNED, 1)
    assert result.calls[0].pitfalls == ("layout-default",)


BAD = {
    "an unknown operator": (("NPU.npu_of_tomorrow", (1,), {}, (torch.ones(2),)), "no formula is known"),
    "an argument missing": (("NPU.npu_rms_norm", (torch.ones(2),), {}, (torch.ones(2),)), "gamma"),
    "an argument that is none": (("NPU.npu_swiglu", (torch.ones(2),), {"axis": 1}, (torch.ones(1),)), "axis"),
    "no output": (("NPU.npu_swiglu", (torch.ones(2),), {}, (None,)), "no output"),
    "another shape": (("NPU.npu_swiglu", (torch.ones(4),), {}, (torch.ones(3),)), "[3]"),
    "tensors that do not fit": (("NPU.npu_rms_norm", (torch.ones(4), torch.ones(3)), {}, (torch.ones(4),)), "(3,)"),
    "outside of the formula": (("NPU.npu_prompt_flash_attention", (*[torch.ones(1, 2, 4)] * 3,),
                                {"quant_scale1": torch.ones(1)}, (torch.ones(1, 2, 4),)), "quant_scale1"),
    "a division by nothing": (("NPU.npu_group_norm_silu", (torch.ones(1, 2, 3), None, None, 0), {},
                               (torch.ones(1, 2, 3),)), "zero"),
    "a text for a number": ((FUSED, (*[torch.ones(1, 1, 2, 4)] * 3, 1, "BNSD"), {"keep_prob": "all"},
                             (torch.ones(1, 1, 2, 4),)), "keep_prob"),
    "no key for any row": ((FUSED, (*[torch.ones(1, 1, 2, 4)] * 3, 1, "BNSD"),
                            {"atten_mask": torch.ones(2, 2, dtype=torch.bool)}, (torch.ones(1, 1, 2, 4),)), "no row"),
    "no fused operator": (("Functional.linear", (torch.ones(2),), {}, (torch.ones(2),)), "no call"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_judged_is_one_message_with_a_hint(tmp_path, name):
    call, text = BAD[name]
    with pytest.raises(AlignError) as caught:
        judged(tmp_path, call)
    assert text in caught.value.message
    assert caught.value.hint
    assert caught.value.exit_code == 2


def test_an_unjudged_call_beside_a_judged_is_a_caveat(tmp_path):
    x = drawn(2, 8)
    right = ("NPU.npu_swiglu", (x,), {}, (F.silu(x[:, :4]) * x[:, 4:],))
    result = judged(tmp_path, right, ("NPU.npu_of_tomorrow", (x,), {}, (x,)))
    assert result.verdict.outcome is align.Outcome.ALIGNED
    assert "npu_of_tomorrow" in result.verdict.caveats[0]


def test_a_dump_without_tensors_is_refused(tmp_path):
    folder = write_dump(tmp_path / "dump", [("NPU.npu_swiglu", (drawn(2, 8),), {}, (drawn(2, 4),))])
    for file in (folder / "dump_tensor_data").iterdir():
        file.unlink()
    with pytest.raises(AlignError, match="was not kept") as caught:
        align.compare_with_formulas(folder)
    assert caught.value.hint


def test_the_command_judges_a_dump_and_keeps_the_result(tmp_path, capsys):
    own = sides(torch.bfloat16)
    calls = [(FUSED, (*own, HEADS, "BNSD"), {"sparse_mode": 2}, (kernel(*own, is_causal=True),))]
    folder = str(write_dump(tmp_path / "dump", calls))
    assert main(["forward", "--against-formula", folder, "--run", str(tmp_path / "run")]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "agrees with scale=0.176777, where the call says 1" in shown
    assert "no card was run" in shown
    assert (tmp_path / "run" / "formula.json").is_file()
    assert main(["forward", "--against-formula", folder, "--emulate", "ascend:910b"]) == 2
    assert "--emulate" in capsys.readouterr().err
