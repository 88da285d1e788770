"""What a checkpoint holds is told from its headers; quantized weights become the values of their libraries."""

from __future__ import annotations

import io
import json
import shutil
import tracemalloc
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import align
from align.checkpoints.extents import byte_blocks
from align.checkpoints.inspect_checkpoint import dequantized, inspect_checkpoint, refuse_unscaled
from align.checkpoints.open_checkpoint import open_checkpoint
from align.core.load_code import checkpoint_formats
from align.core.parameters import Checkpoint, StoredTensor, dtype_name
from align.core.thresholds import BLOCK_BYTES
from align.errors import CannotRunError, NotACheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMATS = checkpoint_formats()
VALUES = {"fc.weight": np.ones((4, 3), np.float32), "fc.bias": np.arange(4, dtype=np.float32), "ids": np.arange(6)}
TENSORS = [StoredTensor(name, v.shape, v.dtype.name, lambda v=v: v) for name, v in VALUES.items()]
WRITERS = [name for name, plugin in FORMATS.items() if not plugin.problems(TENSORS, {"format": "ms"})]


def written(folder: Path, name: str, flavour: str = "ms") -> Path:
    path = folder / f"m{FORMATS[name].suffixes[0]}"
    with path.open("wb") as stream:
        FORMATS[name].write(stream, TENSORS, {"format": flavour})
    return path


@pytest.mark.parametrize("name", WRITERS)
def test_shapes_dtypes_and_sizes_are_told_of_every_format(tmp_path, name):
    path = written(tmp_path, name)
    found = inspect_checkpoint(path)
    assert (found.format, found.path, found.files) == (name, str(path), {str(path): path.stat().st_size})
    facts = {tensor.name: (tensor.shape, tensor.dtype, tensor.nbytes, tensor.contiguous) for tensor in found.tensors}
    assert facts == {n: (v.shape, v.dtype.name, v.nbytes, True) for n, v in VALUES.items()}
    assert (found.key, found.ties, found.overlaps, found.crc_checked) == ("", (), (), False)
    assert found.crc_unchecked == (path.read_bytes()[:2] == b"PK")  # zip files have one of each record


@pytest.mark.parametrize(
    ("name", "flavour", "naming"),
    [
        ("safetensors", "pt", "torch"),
        ("safetensors", "ms", "mindspore"),
        ("ckpt", "ms", "mindspore"),
        ("npz", "", None),
    ],
)
def test_whose_names_a_file_has_is_what_the_file_says(tmp_path, name, flavour, naming):
    assert inspect_checkpoint(written(tmp_path, name, flavour)).naming == naming


def test_what_is_no_tensor_is_named_and_what_is_compressed_is_not_contiguous(tmp_path):
    np.savez_compressed(tmp_path / "m.npz", w=np.zeros((2, 2)), note=np.array("made by hand"))
    found = inspect_checkpoint(tmp_path / "m.npz")
    assert found.other == {"note": "text array of shape ()"}
    assert [(tensor.name, tensor.contiguous) for tensor in found.tensors] == [("w", False)]


def test_a_crc_is_named_and_not_checked(tmp_path):
    path = written(tmp_path, "ckpt")
    data = path.read_bytes()
    path.write_bytes(data + b"crc_num" + (zlib.crc32(data) ^ 1).to_bytes(10, "big"))
    assert inspect_checkpoint(path).crc_unchecked


def test_a_damaged_file_ends_in_the_error_of_its_reader(tmp_path):
    path = written(tmp_path, "safetensors")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(NotACheckpointError, match="end at byte"):
        inspect_checkpoint(path)


@pytest.mark.parametrize("name", WRITERS)
def test_only_headers_are_read(tmp_path, name, bytes_read):
    """The system counts what a process asks it to read."""
    value = np.zeros(16 << 20, np.uint8)
    path = tmp_path / "big"
    with path.open("wb") as stream:
        FORMATS[name].write(stream, [StoredTensor("w", value.shape, "uint8", lambda: value)], {"format": "ms"})
    inspect_checkpoint(path)
    before = bytes_read()
    assert inspect_checkpoint(path).tensors[0].nbytes == 16 << 20
    assert bytes_read() - before < 256 << 10


@pytest.mark.frameworks
def test_ties_strides_overlaps_and_the_entry_of_a_torch_file_are_told(tmp_path):
    import torch

    word, flat = torch.zeros(5, 3), torch.zeros(12)
    weights = {"word": word, "decoder": word, "turned": word.t(), "flat": flat, "head": flat[:6]}
    torch.save({"model": weights, "epoch": 3}, tmp_path / "m.pth")
    found = inspect_checkpoint(tmp_path / "m.pth")
    assert found.key == "model"
    assert found.ties == (("word", "decoder"),)
    assert [tensor.name for tensor in found.tensors if not tensor.contiguous] == ["turned"]
    assert found.overlaps == (("flat", "head"),)
    assert found.other == {"epoch": "3"}


@pytest.mark.frameworks
def test_of_a_file_with_several_state_dicts_the_entries_are_told_until_one_is_chosen(tmp_path):
    import torch

    weights = {"fc.weight": torch.zeros(4, 3)}
    torch.save({"model": weights, "ema": {"fc.weight": torch.ones(4, 3)}, "epoch": 3}, tmp_path / "m.pth")
    found = align.inspect_checkpoint(tmp_path / "m.pth")
    assert [(entry.key, entry.tensors, entry.nbytes) for entry in found.entries] == [("model", 1, 48), ("ema", 1, 48)]
    assert (found.key, found.tensors, found.format, found.naming) == (None, (), "torch", "torch")
    assert found.other == {"epoch": "3"}
    chosen = align.inspect_checkpoint(tmp_path / "m.pth", "ema")
    assert (chosen.key, [tensor.name for tensor in chosen.tensors]) == ("ema", ["fc.weight"])


def test_a_file_without_tensors_is_told_as_such(tmp_path):
    stream = io.BytesIO()
    FORMATS["safetensors"].write(stream, [], {"format": "pt"})
    (tmp_path / "empty.safetensors").write_bytes(stream.getvalue())
    assert inspect_checkpoint(tmp_path / "empty.safetensors").tensors == ()


def test_shards_are_told_as_one_with_all_their_files(tmp_path):
    from align.convert.convert_checkpoint import convert_checkpoint

    source = written(tmp_path, "safetensors")
    folder = tmp_path / "shards"
    folder.mkdir()
    convert_checkpoint(source, folder / "model.safetensors", max_shard_size="64")
    found = inspect_checkpoint(folder)
    assert {tensor.name for tensor in found.tensors} == VALUES.keys()
    assert found.files == {str(path): path.stat().st_size for path in folder.iterdir()}
    assert (len(found.files), found.naming, found.crc_unchecked) == (3, "mindspore", False)


@pytest.mark.frameworks
@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_one_odd_tensor_does_not_hide_the_others(tmp_path):
    import torch

    from align.checkpoints.open_checkpoint import open_checkpoint
    from align.errors import UnsupportedTensorsError

    odd = {
        "conjugated": torch.ones(2, dtype=torch.complex64).conj(),
        "sparse": torch.eye(3).to_sparse(),
        "meta": torch.empty(2, device="meta"),
    }
    torch.save({"fc.weight": torch.ones(2), **odd, "epoch": 3}, tmp_path / "m.pth")
    found = inspect_checkpoint(tmp_path / "m.pth")
    assert [tensor.name for tensor in found.tensors] == ["fc.weight"]
    assert list(found.other) == [*odd, "epoch"]
    assert "conjugated" in found.other["conjugated"]
    with pytest.raises(UnsupportedTensorsError) as error:
        open_checkpoint(tmp_path / "m.pth")
    assert all(name in error.value.message for name in odd)


@pytest.mark.frameworks
def test_odd_tensors_in_shards_do_not_hide_the_others(tmp_path):
    import json

    import torch

    torch.save({"a": torch.ones(2), "s": torch.eye(3).to_sparse()}, tmp_path / "p-00001-of-00002.bin")
    torch.save({"b": torch.ones(2)}, tmp_path / "p-00002-of-00002.bin")
    places = {"a": "p-00001-of-00002.bin", "s": "p-00001-of-00002.bin", "b": "p-00002-of-00002.bin"}
    (tmp_path / "p.bin.index.json").write_text(json.dumps({"weight_map": places}), encoding="utf-8")
    found = inspect_checkpoint(tmp_path)
    assert ([tensor.name for tensor in found.tensors], list(found.other)) == (["a", "b"], ["s"])


@pytest.mark.frameworks
def test_a_module_is_inspected_if_its_code_is_trusted(tmp_path):
    import torch

    torch.save(torch.nn.Linear(2, 3), tmp_path / "m.pth")
    found = inspect_checkpoint(tmp_path / "m.pth", trust_pickle=True)
    assert [tensor.name for tensor in found.tensors] == ["weight", "bias"]
    assert "ran the code" in found.notes[0]


def test_the_state_of_an_optimizer_is_set_apart(tmp_path):
    weights = {f"fc{n}.weight": np.ones((2, 3), np.float32) for n in range(2)}
    state = {f"{kind}.{name}": value for kind in ("moment1", "moment2") for name, value in weights.items()}
    path = tmp_path / "m.ckpt"
    tensors = [StoredTensor(n, v.shape, v.dtype.name, lambda v=v: v) for n, v in (weights | state).items()]
    with path.open("wb") as stream:
        FORMATS["ckpt"].write(stream, tensors, {})
    assert inspect_checkpoint(path).notes == (
        "no weights but optimizer state: 4 tensors (moment1.fc0.weight, moment1.fc1.weight, moment2.fc0.weight, ...)",
    )


def test_no_words_of_a_file_can_steer_a_terminal(tmp_path, capsys):
    from align.cli.main import main

    steer = "\x9b2J\x1b[2J\u202e"
    stream = io.BytesIO()
    FORMATS["safetensors"].write(stream, TENSORS, {"format": "pt", steer: steer})
    (tmp_path / "m.safetensors").write_bytes(stream.getvalue())
    np.savez(tmp_path / "m.npz", **VALUES, **{steer: np.array("text")})
    for name in ("m.safetensors", "m.npz"):
        for options in ([], ["--json"]):
            assert main(["inspect", str(tmp_path / name), *options]) == 0
            printed = capsys.readouterr().out
            assert "x9b2J" in printed
            assert not set(steer[:1] + "\x1b\u202e") & set(printed)


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
