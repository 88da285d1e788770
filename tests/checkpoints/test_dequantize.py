"""Quantized weights as the libraries that wrote them make their values, and what cannot be made is refused by name."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from align.checkpoints.dequantize import dequantized, refuse_unscaled
from align.checkpoints.extents import byte_blocks
from align.checkpoints.open_checkpoint import open_checkpoint
from align.core.parameters import Checkpoint, StoredTensor, dtype_name
from align.core.thresholds import BLOCK_BYTES
from align.errors import CannotRunError

if TYPE_CHECKING:
    from collections.abc import Mapping

DATA = Path(__file__).parent / "data"
Array = np.ndarray[Any, Any]
F8, BF16 = ml_dtypes.float8_e4m3fn, ml_dtypes.bfloat16
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def checkpoint(folder: Path, arrays: Mapping[str, Array], config: Mapping[str, Any] | None = None) -> Checkpoint:
    folder.mkdir(parents=True, exist_ok=True)
    if config is not None:
        (folder / "config.json").write_text(json.dumps({"quantization_config": config}), encoding="utf-8")
    tensors = {
        name: StoredTensor(name, value.shape, dtype_name(value.dtype), lambda value=value: value)  # type: ignore[misc]
        for name, value in arrays.items()
    }
    return Checkpoint(folder / "model.safetensors", "safetensors", tensors)


def values_of(found: Checkpoint) -> dict[str, Array]:
    return {name: tensor.load() for name, tensor in found.tensors.items()}


def draw(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("library", ["bitsandbytes", "compressed_tensors"])
def test_the_values_are_those_of_the_library(tmp_path: Path, library: str) -> None:
    shutil.copy(DATA / f"{library}.safetensors", tmp_path / "model.safetensors")
    if (DATA / f"{library}.json").is_file():
        shutil.copy(DATA / f"{library}.json", tmp_path / "config.json")
    wanted = values_of(open_checkpoint(DATA / f"{library}_values.safetensors"))
    stored = open_checkpoint(tmp_path / "model.safetensors")
    for dtype in ("bfloat16", "float32"):
        found = dequantized(stored, dtype)
        assert found.tensors.keys() == wanted.keys()
        for name, value in wanted.items():
            assert found.tensors[name].dtype == dtype
            made = found.tensors[name].load().astype(value.dtype)
            narrow = BF16 if dtype == "bfloat16" else value.dtype
            assert np.array_equal(made.astype(narrow), value.astype(narrow)), (name, dtype)


def test_float8_in_blocks_is_multiplied_block_by_block_up_to_the_edges(tmp_path: Path) -> None:
    weight, scale = draw(1, 200, 300).astype(F8), np.abs(draw(2, 2, 3))
    wanted = weight.astype(np.float32)
    for row in range(2):
        for column in range(3):
            wanted[row * 128 : (row + 1) * 128, column * 128 : (column + 1) * 128] *= scale[row, column]
    found = dequantized(checkpoint(tmp_path, {"q.weight": weight, "q.weight_scale_inv": scale}), "float32")
    assert np.array_equal(found.tensors["q.weight"].load(), wanted)
    assert found.notes == ("1 quantized weight (float8) was dequantized to float32",)


def test_a_scale_reaches_what_its_shape_says(tmp_path: Path, assert_each: Any) -> None:
    def check(label: str, weight: Array, scale: Array, spread: Array) -> None:
        arrays = {"q.weight": weight, "q.weight_scale": scale, "q.input_scale": np.ones(1, np.float32)}
        found = dequantized(checkpoint(tmp_path / label, arrays), "float32").tensors
        assert [*found] == ["q.weight"]
        assert np.array_equal(found["q.weight"].load(), weight.astype(np.float32) * spread)

    flat, experts = draw(3, 6, 8).astype(F8), draw(4, 3, 6, 8).astype(F8)
    rows, columns = np.abs(draw(5, 6)), np.abs(draw(6, 8))
    powers = np.arange(120, 126, dtype=np.uint8)
    examples: list[tuple[str, Array, Array, Array]] = [
        ("one number", flat, rows[0], rows[0]),
        ("of one element", flat, rows[:1], rows[:1]),
        ("rows", flat, rows, rows[:, None]),
        ("a column of rows", flat, rows[:, None], rows[:, None]),
        ("columns", flat, columns[None], columns[None]),
        ("experts", experts, rows[:3], rows[:3, None, None]),
        ("experts and columns", experts, columns[None, None], columns[None, None]),
        ("powers of two", flat, powers[:, None], 2.0 ** (powers.astype(np.float32) - 127)[:, None]),
        (
            "powers by dtype",
            flat,
            powers.view(ml_dtypes.float8_e8m0fnu),
            2.0 ** (powers.astype(np.float32) - 127)[:, None],
        ),
        ("whole numbers", (flat.astype(np.float32) * 9).astype(np.int8), rows[:, None], rows[:, None]),
    ]
    assert_each(check, examples)


def pack_bits(values: Array, bits: int) -> Array:
    """Whole numbers along the last axis, bit behind bit in 32-bit numbers: by one long number a row."""
    packed = []
    for row in values.tolist():
        number = sum(value << (place * bits) for place, value in enumerate(row))
        packed.append([number >> (32 * word) & 0xFFFFFFFF for word in range(-(-len(row) * bits // 32))])
    return np.array(packed, np.uint32).view(np.int32)


def gptq(bits: int, added: int, groups: int = 4, *, ordered: bool) -> tuple[dict[str, Array], Array]:
    """A layer of 64 inputs and 32 outputs as GPTQ packs it, with the values by the published formula."""
    random = np.random.default_rng(bits)
    numbers, zeros = random.integers(0, 1 << bits, (64, 32)), random.integers(1, 1 << bits, (groups, 32))
    scales = (random.random((groups, 32)) + 0.1).astype(np.float16)
    group_of = np.arange(64) // (64 // groups)
    arrays = {"l.scales": scales, "l.qweight": pack_bits(numbers.T, bits).T.copy(), "l.bias": draw(1, 32)}
    arrays["l.qzeros"] = pack_bits(zeros - added, bits)
    if ordered:
        group_of = random.permutation(group_of)
        arrays["l.g_idx"] = group_of.astype(np.int32)
    wanted = np.empty((32, 64), np.float32)
    for place, group in enumerate(group_of):
        wanted[:, place] = (numbers[place] - zeros[group]) * scales[group].astype(np.float32)
    return arrays, wanted


def test_gptq_is_unpacked_for_all_bits_orders_and_both_conventions_of_zeros(tmp_path: Path, assert_each: Any) -> None:
    def check(bits: int, layout: str, ordered: bool) -> None:
        arrays, wanted = gptq(bits, 1 if layout == "gptq" else 0, ordered=ordered)
        config = {"quant_method": "gptq", "bits": bits, "checkpoint_format": layout}
        config = {key: value for key, value in config.items() if value != "gptq" or key == "quant_method"}
        found = dequantized(checkpoint(tmp_path / f"{bits}{layout}{ordered}", arrays, config), "float32").tensors
        assert found.keys() == {"l.weight", "l.bias"}
        assert np.array_equal(found["l.weight"].load(), wanted)

    examples = [(bits, layout, way) for bits in (2, 3, 4, 8) for layout in ("gptq", "gptq_v2") for way in (True, False)]
    assert_each(check, examples)


def test_the_config_of_older_gptq_files_counts_as_well(tmp_path: Path) -> None:
    arrays, wanted = gptq(4, 1, ordered=True)
    stored = checkpoint(tmp_path, arrays)
    (tmp_path / "quantize_config.json").write_text('{"bits": 4, "desc_act": true}', encoding="utf-8")
    assert np.array_equal(dequantized(stored, "float32").tensors["l.weight"].load(), wanted)


def awq() -> tuple[dict[str, Array], Array]:
    """A layer of 32 inputs and 24 outputs as AutoAWQ's GEMM packs it, with the values by the published formula."""
    random = np.random.default_rng(7)
    numbers, zeros = random.integers(0, 16, (32, 24)), random.integers(0, 16, (2, 24))
    scales = (random.random((2, 24)) + 0.1).astype(np.float16)

    def pack(values: Array) -> Array:
        words = np.zeros((values.shape[0], values.shape[1] // 8), np.uint32)
        for word in range(words.shape[1]):
            for place, column in enumerate(AWQ_ORDER):
                words[:, word] |= values[:, 8 * word + column].astype(np.uint32) << np.uint32(4 * place)
        return words.view(np.int32)

    wanted = np.stack([(numbers[n] - zeros[n // 16]) * scales[n // 16].astype(np.float32) for n in range(32)], 1)
    return {"l.qweight": pack(numbers), "l.qzeros": pack(zeros), "l.scales": scales}, wanted.astype(np.float32)


def test_awq_is_unpacked_in_its_order_of_columns(tmp_path: Path) -> None:
    arrays, wanted = awq()
    found = dequantized(checkpoint(tmp_path, arrays), "float32").tensors["l.weight"]
    assert np.array_equal(found.load(), wanted)
    small_blocks = b"".join(byte_blocks(found, 3 * 32 * 4))
    assert np.array_equal(np.frombuffer(small_blocks, np.float32).reshape(wanted.shape), wanted)


@pytest.mark.frameworks
def test_float8_and_mxfp4_are_made_as_transformers_makes_them(tmp_path: Path) -> None:
    import torch
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    random = np.random.default_rng(0)
    blocks = random.integers(0, 256, (2, 6, 3, 16)).astype(np.uint8)
    scales = random.integers(110, 130, (2, 6, 3)).astype(np.uint8)
    arrays = {"e.gate_up_proj_blocks": blocks, "e.gate_up_proj_scales": scales, "e.gate_up_proj_bias": draw(1, 2, 6)}
    wanted = convert_moe_packed_tensors(torch.from_numpy(blocks), torch.from_numpy(scales))
    for dtype in ("bfloat16", "float32"):
        found = dequantized(checkpoint(tmp_path, arrays, {"quant_method": "mxfp4"}), dtype).tensors
        assert [*found] == ["e.gate_up_proj", "e.gate_up_proj_bias"]
        assert np.array_equal(found["e.gate_up_proj"].load().astype(np.float32), wanted.float().numpy())
    weight, scale = draw(1, 256, 384).astype(F8), np.abs(draw(2, 2, 3))
    quantized = torch.from_numpy(weight.view(np.uint8)).view(torch.float8_e4m3fn)
    theirs = Fp8Dequantize(None)._dequantize_one(quantized, torch.from_numpy(scale))
    ours = dequantized(checkpoint(tmp_path / "f8", {"w.weight": weight, "w.weight_scale_inv": scale}), "float32")
    assert np.array_equal(ours.tensors["w.weight"].load(), theirs.numpy())


def bitsandbytes(**changed: Array) -> dict[str, Array]:
    stored = open_checkpoint(DATA / "bitsandbytes.safetensors").tensors
    layer = {name: one.load() for name, one in stored.items() if name.startswith("nested.")}
    return {name: value for name, value in {**layer, **changed}.items() if value.size}


def test_what_cannot_be_made_is_refused_with_the_reason(tmp_path: Path, assert_each: Any) -> None:
    def check(label: str, arrays: Mapping[str, Array], config: Mapping[str, Any] | None, words: str) -> None:
        with pytest.raises(CannotRunError) as caught:
            dequantized(checkpoint(tmp_path / label, arrays, config), "bfloat16")
        assert words in caught.value.message
        assert caught.value.hint

    one, row = np.ones((1, 1), np.float32), np.ones((4, 1), np.float32)
    f8, i8 = draw(1, 4, 4).astype(F8), np.ones((4, 4), np.int8)
    odd, wide = draw(1, 192, 4).astype(F8), np.ones((2, 1), np.float32)
    gptq_layer, _ = gptq(4, 1, ordered=True)
    awq_layer, _ = awq()
    nothing = np.ones(0, np.float32)
    pack = {"q.weight_packed": np.ones((4, 1), np.int32), "q.weight_scale": row, "q.weight_shape": np.array([4, 6])}
    state = "nested.weight.quant_state.bitsandbytes__nf4"
    text = np.frombuffer(b'{"shape": [24, 100], "blocksize": 63}', np.uint8)
    gptq_config = {"quant_method": "gptq"}
    examples: list[tuple[str, Mapping[str, Array], Mapping[str, Any] | None, str]] = [
        ("plain", {"q.weight": draw(1, 4, 4)}, None, "holds no quantized weights"),
        ("one lacks it", {"q.weight": f8, "q.weight_scale": one, "k.weight": f8}, None, "k.weight: no scale stands"),
        ("all lack it", {"k.weight": f8}, {"quant_method": "fp8"}, "k.weight: no scale stands beside it"),
        ("packed without", {"q.weight": f8, "q.weight_scale": one, "k.qweight": i8}, None, "k.qweight: no scale"),
        ("blocks", {"q.weight": f8, "q.weight_scale": np.ones((3, 1), np.float32)}, None, "into equal blocks"),
        ("two readings", {"q.weight": odd, "q.weight_scale": wide}, None, "in blocks of 96, 128"),
        ("axes", {"q.weight": f8, "q.weight_scale": np.ones((4, 1, 1, 2), np.float32)}, None, "has the shape"),
        ("scale", {"q.weight": f8, "q.weight_scale": np.ones((4, 1), np.int32)}, None, "is int32"),
        ("method", {"q.weight": f8, "q.weight_scale": row}, {"quant_method": "quark"}, "of the method quark"),
        ("beside", {"q.weight": i8, "q.weight_scale": row, "q.quant_bias": row}, None, "meaning of quant_bias beside"),
        ("ascend", {"q.weight": i8, "q.dequant_scale": row}, None, "no form that is known"),
        ("row order", {"q.weight": i8, "q.SCB": row[:, 0], "q.weight_format": np.array(2, np.uint8)}, None, "one kind"),
        ("no config", gptq_layer, None, "checkpoint_format gptq or gptq_v2"),
        ("marlin", gptq_layer, {**gptq_config, "checkpoint_format": "marlin"}, "it says marlin"),
        ("five bits", {**gptq_layer, "l.qzeros": np.ones((4, 5), np.int32)}, gptq_config, "no number of bits"),
        ("index", {**gptq_layer, "l.g_idx": np.full(64, 9, np.int32)}, gptq_config, "g_idx does not give each of 64"),
        ("taken", {**gptq_layer, "l.weight": draw(1, 32, 64)}, gptq_config, "also holds l.weight"),
        ("gemv", awq_layer, {"quant_method": "awq", "version": "gemv"}, "version gemm"),
        ("zeros", {**awq_layer, "l.qzeros": np.ones((1, 3), np.int32)}, None, "qzeros has the shape (1, 3)"),
        ("no absmax", bitsandbytes(**{"nested.weight.absmax": nothing}), None, "are not complete"),
        ("no inner absmax", bitsandbytes(**{"nested.weight.nested_absmax": nothing}), None, "are not complete"),
        ("odd block", bitsandbytes(**{state: text}), None, "are not complete"),
        ("short", bitsandbytes(**{"nested.weight": np.ones((7, 1), np.uint8)}), None, "do not fit the shape (24, 100)"),
        ("two bits", pack, None, "several do and no config"),
        ("quanto", {"q.weight._data": i8, "q.weight._scale": row}, None, "no form that is known"),
    ]
    assert_each(check, examples)


def test_a_text_of_bitsandbytes_that_is_no_json_is_refused(tmp_path: Path) -> None:
    text = np.frombuffer(b"{[", np.uint8)
    arrays = bitsandbytes(**{"nested.weight.quant_state.bitsandbytes__nf4": text})
    with pytest.raises(CannotRunError, match="nested"):
        dequantized(checkpoint(tmp_path, arrays), "bfloat16")


def test_scales_in_another_shard_are_asked_for(tmp_path: Path) -> None:
    from dataclasses import replace

    stored = checkpoint(tmp_path, {"q.weight": draw(1, 4, 4).astype(F8)})
    with pytest.raises(CannotRunError, match="another shard holds q"):
        dequantized(replace(stored, elsewhere=("q.weight_scale",)), "bfloat16")


def test_a_cast_of_float8_without_its_scale_is_refused_where_a_config_knows_it(tmp_path: Path) -> None:
    refuse_unscaled(checkpoint(tmp_path / "plain", {"q.weight": draw(1, 4, 4).astype(F8)}))
    told = checkpoint(tmp_path / "told", {"q.weight": draw(1, 4, 4).astype(F8)}, {"quant_method": "fp8"})
    with pytest.raises(CannotRunError, match="no scale stands beside it"):
        refuse_unscaled(told)


def test_values_are_made_in_blocks_and_never_held_whole(tmp_path: Path) -> None:
    weight = np.zeros((2048, 4096), np.int8)
    stored = checkpoint(tmp_path, {"q.weight": weight, "q.SCB": np.ones(2048, np.float32)})
    found = dequantized(stored, "float32").tensors["q.weight"]
    tracemalloc.start()
    try:
        sizes = [len(block) for block in byte_blocks(found)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(sizes) == found.nbytes == 32 << 20
    assert max(sizes) <= BLOCK_BYTES
    assert peak < 8 * BLOCK_BYTES
