"""Checkpoints of quantized weights, converted as the values that they stand for, and compared so."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from align.checkpoints.open_checkpoint import open_checkpoint
from align.cli.main import main
from align.convert.convert_checkpoint import convert_checkpoint
from align.core.load_code import checkpoint_formats
from align.core.parameters import StoredTensor, dtype_name
from align.errors import CannotRunError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

DATA = Path(__file__).parents[1] / "checkpoints" / "data"
Array = np.ndarray[Any, Any]
F8, BF16 = ml_dtypes.float8_e4m3fn, ml_dtypes.bfloat16


def write(path: Path, arrays: Mapping[str, Array]) -> Path:
    tensors = [
        StoredTensor(name, value.shape, dtype_name(value.dtype), lambda value=value: value)  # type: ignore[misc]
        for name, value in arrays.items()
    ]
    plugin = next(one for one in checkpoint_formats().values() if path.suffix in one.suffixes)
    with path.open("wb") as stream:
        plugin.write(stream, tensors, {"format": "pt"})
    return path


@pytest.fixture
def quantized(tmp_path: Path) -> Path:
    """Two layers in float8, a norm in bfloat16, and a config that knows the blocks."""
    random = np.random.default_rng(0)
    weight = random.standard_normal((8, 4)).astype(F8)
    arrays = {
        "fc.weight": weight,
        "fc.weight_scale_inv": np.full((1, 1), 0.5, np.float32),
        "fc.bias": np.ones(8, BF16),
        "out.weight": weight,
        "out.weight_scale_inv": np.full((1, 1), 2, np.float32),
        "out.bias": np.ones(8, BF16),
    }
    config = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return write(tmp_path / "model.safetensors", arrays)


def test_quantized_weights_are_converted_as_plain_ones(tmp_path: Path, quantized: Path) -> None:
    out = tmp_path / "net.ckpt"
    record = convert_checkpoint(quantized, out, dequantize="bf16")
    assert record.verified
    assert "2 quantized weights (float8) were dequantized to bfloat16" in [str(one) for one in record.warnings]
    first = next(one for one in record.tensors if one.source == "fc.weight")
    assert (first.target, first.dtype) == ("fc.weight", "bfloat16")
    stored, made = open_checkpoint(quantized).tensors, open_checkpoint(out).tensors
    assert made.keys() == {"fc.weight", "fc.bias", "out.weight", "out.bias"}
    wanted = stored["out.weight"].load().astype(np.float32) * 2
    assert np.array_equal(made["out.weight"].load().astype(np.float32), wanted)


def test_a_cast_beside_it_is_of_the_values(tmp_path: Path, quantized: Path) -> None:
    out = tmp_path / "net.safetensors"
    convert_checkpoint(quantized, out, dequantize="fp32", dtype="fp16", target="torch")
    made = open_checkpoint(out).tensors
    assert {one.dtype for one in made.values()} == {"float16"}
    half = open_checkpoint(quantized).tensors["fc.weight"].load().astype(np.float16) / 2
    assert np.array_equal(made["fc.weight"].load(), half)


def test_the_command_says_what_it_did_and_refuses_what_it_cannot(
    tmp_path: Path, quantized: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = str(quantized), tmp_path / "net.ckpt"
    assert main(["convert", source, str(out)]) == 2
    assert "--dequantize bf16 writes the values" in capsys.readouterr().err
    assert main(["convert", source, str(out), "--dequantize", "bf16"]) == 0
    assert "2 quantized weights (float8) were dequantized to bfloat16" in " ".join(capsys.readouterr().out.split())
    assert main(["convert", str(out), str(tmp_path / "b.ckpt"), "--dequantize", "fp32"]) == 2
    assert "no quantized weights" in capsys.readouterr().err
    assert not (tmp_path / "b.ckpt").exists()


def test_a_cast_of_float8_whose_scale_is_missing_writes_nothing(tmp_path: Path, quantized: Path) -> None:
    tensors = open_checkpoint(quantized).tensors
    bare = {name: np.array(tensor.load()) for name, tensor in tensors.items() if name != "fc.weight_scale_inv"}
    write(quantized, bare)
    for options in ({"dtype": "bf16"}, {"dequantize": "bf16"}):
        with pytest.raises(CannotRunError):
            convert_checkpoint(quantized, tmp_path / "net.safetensors", target="torch", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "net.safetensors").exists()
    with pytest.raises(UsageError):
        convert_checkpoint(quantized, tmp_path / "a.ckpt", dequantize="fp16")  # type: ignore[arg-type]


@pytest.mark.frameworks
def test_mindspore_loads_what_bitsandbytes_packed(tmp_path: Path) -> None:
    import mindspore as ms

    shutil.copy(DATA / "bitsandbytes.safetensors", tmp_path / "model.safetensors")
    out = tmp_path / "net.ckpt"
    convert_checkpoint(tmp_path / "model.safetensors", out, dequantize="fp32", layers=["*=linear"])
    loaded = ms.load_checkpoint(str(out))
    wanted = open_checkpoint(DATA / "bitsandbytes_values.safetensors").tensors
    assert loaded.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert np.array_equal(loaded[name].asnumpy().astype(tensor.load().dtype), tensor.load())


def test_a_batch_makes_the_values_of_each_file(tmp_path: Path, quantized: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    shutil.copy(quantized, folder / "model.safetensors")
    out.mkdir()
    options = ["--target", "nn", "--dequantize", "bf16", "--run", str(tmp_path / "run")]
    assert main(["convert", str(folder), str(out), "--batch", *options]) == 0
    (made,) = out.iterdir()
    assert open_checkpoint(made).tensors["fc.weight"].dtype == "bfloat16"


def test_diff_compares_the_values(tmp_path: Path, quantized: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "net.ckpt")
    convert_checkpoint(quantized, out, dequantize="bf16")
    assert main(["diff", str(quantized), out]) != 0
    assert main(["diff", str(quantized), out, "--dequantize", "bf16"]) == 0
    assert main(["diff", str(quantized), out, "--dequantize", "fp32"]) == 1
    capsys.readouterr()
    assert main(["diff", out, out, "--dequantize", "fp32"]) == 2
    assert main(["diff", "--updates", out, out, out, out, "--dequantize", "fp32"]) == 2
    assert "no quantized weights" in capsys.readouterr().err
