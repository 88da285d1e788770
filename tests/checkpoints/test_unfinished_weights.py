"""Files whose tensors are no weights by themselves, beside those that look so and are."""

from __future__ import annotations

from argparse import Namespace
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from align.checkpoints.inspect_checkpoint import (
    inspect_checkpoint,
    packed_weights,
    placeholders,
    refuse_unfinished,
    unfinished_error,
)
from align.checkpoints.open_checkpoint import open_checkpoint
from align.core.load_code import checkpoint_formats
from align.core.parameters import StoredTensor, dtype_name
from align.errors import CannotRunError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

F8, BF16 = ml_dtypes.float8_e4m3fn, ml_dtypes.bfloat16
HALF = np.float16


def write(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = [
        StoredTensor(name, value.shape, dtype_name(value.dtype), lambda value=value: value)  # type: ignore[misc]
        for name, value in arrays.items()
    ]
    form = "mindspore" if path.suffix == ".ckpt" else "torch"
    plugin = next(one for one in checkpoint_formats().values() if path.suffix in one.suffixes)
    with path.open("wb") as stream:
        plugin.write(stream, tensors, {"format": "ms" if form == "mindspore" else "pt"})
    return path


def ones(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.ones(shape, dtype)


def matrix(seed: int = 0, *, rows: int = 4) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal((rows, 4)).astype(np.float32)


def test_weights_in_fewer_bits_are_known_by_what_stands_beside_them(tmp_path: Path, assert_each: Any) -> None:
    def check(label: str, arrays: dict[str, Any], packed: list[str]) -> None:
        path = write(tmp_path / f"{label}.safetensors", arrays)
        assert [one.name for one in packed_weights(open_checkpoint(path))] == packed

    norm = {"norm.weight": ones(4, dtype=BF16)}
    q, s = ones(4, 4, dtype=F8), ones(1, 1)
    examples: list[tuple[str, dict[str, Any], list[str]]] = [
        ("blocks", {"l.0.q.weight": q, "l.0.q.weight_scale_inv": s, **norm}, ["l.0.q.weight"]),
        ("channels", {"l.0.q.weight": q, "l.0.q.weight_scale": ones(4, 1, dtype=BF16), **norm}, ["l.0.q.weight"]),
        ("own", {"q.weight": q, "q.scale": s, "q.input_scale": s}, ["q.weight"]),
        ("experts", {"e.w13_weight": ones(2, 4, 4, dtype=F8), "e.w13_weight_scale": ones(2)}, ["e.w13_weight"]),
        (
            "gptq",
            {"q.qweight": ones(1, 4, dtype=np.int32), "q.qzeros": ones(1, 1, dtype=np.int32), "q.scales": s},
            ["q.qweight"],
        ),
        ("awq", {"q.qweight": ones(4, 1, dtype=np.int32), "q.scales": ones(1, 4, dtype=HALF)}, ["q.qweight"]),
        (
            "nf4",
            {"q.weight": ones(8, 1, dtype=np.uint8), "q.weight.absmax": ones(1), "q.weight.quant_map": ones(16)},
            ["q.weight"],
        ),
        ("int8", {"q.weight": ones(4, 4, dtype=np.int8), "q.SCB": ones(4), **norm}, ["q.weight"]),
        ("plain cast", {"q.weight": q, "q.norm.scale": ones(4, dtype=F8), "logit_scale": ones(1)}, []),
        ("own scale", {"attn.weight": matrix(), "attn.scale": ones(4), "attn.bias": ones(4, 4, dtype=np.uint8)}, []),
        ("whole numbers", {"relative_index": ones(4, 4, dtype=np.int64), "scale": ones(1), "w.weight": matrix()}, []),
        ("quantizer of codes", {"vq.codes": ones(4, dtype=np.int64), "vq.weight": matrix(), "out.scales": ones(4)}, []),
    ]
    assert_each(check, examples)


def test_placeholders_are_no_weights(tmp_path: Path, assert_each: Any) -> None:
    def check(label: str, arrays: dict[str, Any], count: int) -> None:
        found = placeholders(open_checkpoint(write(tmp_path / f"{label}.safetensors", arrays)))
        assert len(found) == count, found

    empty, one = ones(0, dtype=HALF), ones(1, dtype=HALF)
    layer = {"fc1.weight": one, "fc1.bias": one, "fc2.weight": one, "fc2.bias": one}
    norm = {"n1.weight": one, "n1.bias": one * 0, "n2.weight": one, "n2.bias": one * 0}
    examples: list[tuple[str, dict[str, Any], int]] = [
        ("some", {"embed.weight": matrix(), "q.weight": empty, "q.bias": empty, "alpha": one}, 2),
        ("all", {"q.weight": empty, "k.weight": empty}, 2),
        ("one of many", {"embed.weight": matrix(), "attn.in_proj_weight": empty}, 1),
        ("ones", layer, 4),
        ("ones beside matrices", {**layer, "embed.weight": matrix()}, 4),
        ("ones without a bias", {"q.weight": one, "k.weight": one}, 2),
        ("slopes", {"a.weight": ones(1) / 4, "b.weight": ones(1) / 4, "fc.weight": matrix()}, 0),
        ("norms of one feature", {**norm, "fc.weight": matrix()}, 0),
        ("scales of one element", {"a.weight": ones(1), "b.weight": ones(1), "c.weight": ones(1)}, 0),
        ("an empty buffer", {"fc.weight": matrix(), "cache": ones(0), "head.ids": ones(0, dtype=np.int64)}, 0),
        ("a head of no classes", {"fc.weight": matrix(), "head.weight": ones(0, 4), "head.bias": ones(0)}, 0),
    ]
    assert_each(check, examples)


@pytest.mark.frameworks
def test_a_training_tells_the_true_shapes(tmp_path: Path, assert_each: Any) -> None:
    import torch

    def check(label: str, module: dict[str, Any], shapes: dict[str, tuple[int, ...]], count: int) -> None:
        path = tmp_path / f"{label}.pt"
        told = [OrderedDict((name, torch.Size(shape)) for name, shape in shapes.items())]
        torch.save({"module": module, "param_shapes": told, "optimizer": None, "mp_world_size": 1}, path)
        assert len(placeholders(open_checkpoint(path))) == count

    one, empty = torch.ones(1).half(), torch.empty(0).half()
    examples: list[tuple[str, dict[str, Any], dict[str, tuple[int, ...]], int]] = [
        ("ones", {"a.weight": one, "b.scale": one}, {"a.weight": (4, 4), "b.scale": (1,)}, 1),
        ("empty", {"a.weight": empty, "a.bias": empty}, {"a.weight": (4, 4), "a.bias": (4,)}, 2),
        ("one of six is told", {f"l{n}.weight": one for n in range(6)}, {"l0.weight": (4, 4)}, 6),
        ("whole", {"a.weight": torch.ones(4, 4), "s": one}, {"a.weight": (4, 4), "s": (1,)}, 0),
    ]
    assert_each(check, examples)


@pytest.mark.frameworks
def test_arguments_tell_that_a_file_is_one_rank(tmp_path: Path, assert_each: Any) -> None:
    import torch

    def check(label: str, entries: dict[str, Any], word: str) -> None:
        path = tmp_path / f"{label}.pt"
        torch.save({"model": {"fc.weight": torch.ones(4, 4)}, **entries}, path)
        error = unfinished_error(open_checkpoint(path))
        assert (word in error.message) if word else error is None

    parallel = Namespace(tensor_model_parallel_size=2, pipeline_model_parallel_size=1, hidden_size=4)
    alone = Namespace(tensor_model_parallel_size=1, pipeline_model_parallel_size=1)
    stages = Namespace(tensor_model_parallel_size=1, pipeline_model_parallel_size=4)
    examples: list[tuple[str, dict[str, Any], str]] = [
        ("tensor", {"args": parallel, "checkpoint_version": 3.0}, "tensor_model_parallel_size 2"),
        ("stages", {"args": stages}, "pipeline_model_parallel_size 4"),
        ("deepspeed", {"mp_world_size": 8}, "mp_world_size 8"),
        ("alone", {"args": alone, "mp_world_size": 1}, ""),
        ("other arguments", {"args": Namespace(lr=0.1, epochs=3)}, ""),
    ]
    assert_each(check, examples)


def test_a_part_is_known_by_the_parts_beside_it(tmp_path: Path, assert_each: Any) -> None:
    def check(label: str, files: dict[str, Any], is_part: bool) -> None:
        paths = [write(tmp_path / label / name, arrays) for name, arrays in files.items()]
        error = unfinished_error(open_checkpoint(paths[0]))
        assert (error is not None) == is_part
        if error is not None and len(paths) > 1:
            assert next(iter(list(files)[1].split("/"))) in error.message

    a, b = {"fc.weight": matrix(1)}, {"fc.weight": matrix(2)}
    statistics = {"bn.moving_mean": ones(4), **a}
    examples: list[tuple[str, dict[str, Any], bool]] = [
        ("megatron", {"mp_rank_00/model_rng.pt": a, "mp_rank_01/model_rng.pt": b}, True),
        ("stages", {"mp_rank_00_000/model_rng.pt": a, "mp_rank_00_001/model_rng.pt": b}, True),
        ("nemo", {"tp_rank_00_pp_rank_000/m.pt": a, "tp_rank_01_pp_rank_000/m.pt": b}, True),
        ("llama", {"consolidated.00.pth": a, "consolidated.01.pth": b}, True),
        ("layers", {"layer_00-model_00-model_states.pt": a}, True),
        ("mindspore", {"rank_0/net-1_10.ckpt": a, "rank_1/net-1_10.ckpt": b}, True),
        ("named", {"rank_0/n_rank_0-1_10.ckpt": a, "rank_1/n_rank_1-1_10.ckpt": b}, True),
        ("pipeline", {"rank_1/net.ckpt": {"b.weight": matrix()}, "rank_0/net.ckpt": {"a.weight": matrix()}}, True),
        ("far", {"rank_0/n.ckpt": a, "rank_1/n.ckpt": a, "rank_2/n.ckpt": b}, True),
        ("one file", {"consolidated.00.pth": a}, False),
        ("one rank", {"mp_rank_00/model_rng.pt": a}, False),
        ("lone rank", {"mp_rank_01/model_rng.pt": a}, True),
        ("lone stage", {"mp_rank_00_001/model_rng.pt": a}, True),
        ("lone first stage", {"tp_rank_00_pp_rank_000/m.pt": a}, False),
        ("lone file", {"mp_rank_01_model_states.pt": a}, True),
        ("lone first file", {"mp_rank_00_model_states.pt": a}, False),
        ("lone llama", {"consolidated.01.pth": a}, True),
        ("lone shard", {"model-shard1.pt": a}, False),
        ("lone replica", {"rank_1/net.ckpt": a}, False),
        ("data parallel", {"rank_0/n.ckpt": a, "rank_1/n.ckpt": a}, False),
        (
            "statistics",
            {"rank_0/n.ckpt": statistics, "rank_1/n.ckpt": {**statistics, "bn.moving_mean": ones(4) * 2}},
            False,
        ),
        ("other steps", {"rank_0/net-1_10.ckpt": a, "rank_1/net-2_10.ckpt": b}, False),
        ("a sweep over ranks", {"lora_rank_8.pt": a, "lora_rank_16.pt": {"fc.weight": matrix(rows=8)}}, False),
    ]
    assert_each(check, examples)


def test_a_note_of_inspect_says_what_a_file_is(tmp_path: Path) -> None:
    path = write(tmp_path / "a.safetensors", {"q.weight": ones(0, dtype=HALF), "embed.weight": matrix()})
    (note,) = inspect_checkpoint(path).notes
    assert "does not hold the weights: 1 of 2 tensors is a placeholder of shape (0,)" in note
    assert "zero_to_fp32.py" in note
    packed = write(tmp_path / "b.safetensors", {"q.weight": ones(4, 4, dtype=F8), "q.weight_scale": ones(1)})
    assert "quantized weights: 1 tensor is stored in fewer bits" in inspect_checkpoint(packed).notes[0]
    assert inspect_checkpoint(write(tmp_path / "c.safetensors", {"fc.weight": matrix()})).notes == ()


def test_folders_of_distributed_checkpoints_are_told_as_such(tmp_path: Path, assert_each: Any) -> None:
    def fill(folder: Path, names: list[str]) -> Path:
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(b"\x80\x02.")
        return folder

    def check(label: str, names: list[str], opened: str, words: str) -> None:
        folder = fill(tmp_path / label, names)
        with pytest.raises(CannotRunError) as caught:
            open_checkpoint(folder / opened)
        assert words in caught.value.message

    pieces = [".metadata", "__0_0.distcp", "__1_0.distcp"]
    zero = [f"zero_pp_rank_{n}_mp_rank_00_{kind}_states.pt" for n in (0, 1) for kind in ("model", "optim")]
    examples = [
        ("dcp", pieces, ".", "uses an object that it never made"),
        ("dcp file", pieces, "__0_0.distcp", "distributed checkpoint of torch"),
        ("dcp metadata", pieces, ".metadata", "uses an object that it never made"),
        ("beside", [*pieces, "common.pt"], ".", "uses an object that it never made"),
        ("accelerate", [f"pytorch_model_fsdp_0/{name}" for name in pieces], ".", "uses an object that it never made"),
        ("zero", zero, ".", "it is no zip archive of torch.save"),
        ("optimizer", [zero[1]], ".", "it is no zip archive of torch.save"),
        (
            "megatron",
            ["mp_rank_00/m.pt", "mp_rank_01/m.pt"],
            ".",
            "it is no zip archive of torch.save",
        ),
        ("mindspore", ["rank_0/n.ckpt", "rank_1/n.ckpt"], ".", "parts of one in folders of ranks: rank_0, rank_1"),
        ("neither", ["a/n.txt"], ".", "the folder holds no checkpoint"),
    ]
    assert_each(check, examples)


@pytest.mark.frameworks
def test_the_model_beside_an_optimizers_parts_is_the_checkpoint_of_a_folder(tmp_path: Path) -> None:
    import torch

    torch.save({"module": {"fc.weight": torch.ones(2, 2)}, "mp_world_size": 1}, tmp_path / "mp_rank_00_model_states.pt")
    for rank in (0, 1):
        flat = {"optimizer_state_dict": {"fp32_flat_groups": [torch.ones(4)]}}
        torch.save(flat, tmp_path / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
    assert list(open_checkpoint(tmp_path).tensors) == ["fc.weight"]
    with pytest.raises(CannotRunError, match="one rank's optimizer state"):
        open_checkpoint(tmp_path / "zero_pp_rank_1_mp_rank_00_optim_states.pt")


def test_several_whole_files_in_a_folder_are_still_named(tmp_path: Path) -> None:
    for name in ("a.safetensors", "b.safetensors"):
        write(tmp_path / name, {"fc.weight": matrix()})
    with pytest.raises(UsageError, match="holds 2 checkpoints"):
        open_checkpoint(tmp_path)


def test_a_whole_file_is_not_refused(tmp_path: Path, assert_each: Any) -> None:
    def check(make: Callable[[], dict[str, Any]]) -> None:
        refuse_unfinished(open_checkpoint(write(tmp_path / "whole.safetensors", make())))

    examples: list[Callable[[], dict[str, Any]]] = [
        lambda: {"fc.weight": matrix(), "scale": ones(1), "logit_scale": np.float32(4.6).reshape(())},
        lambda: {"act.weight": ones(1), "fc.weight": matrix()},
        lambda: {"ema.fc.weight": matrix(), "ema.fc.bias": ones(4)},
        lambda: {"fc.weight": matrix().astype(F8)},
    ]
    assert_each(check, examples)
