"""Checkpoints written in the parts of ranks: read back as one, and by those whose ranks they are."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from align.checkpoints.open_checkpoint import open_checkpoint
from align.convert.convert_checkpoint import convert_checkpoint
from align.core.load_code import checkpoint_formats
from align.core.parameters import StoredTensor
from align.errors import DestinationError, InputsError, UsageError

DATA = Path(__file__).parents[1] / "checkpoints" / "data"
MEGATRON = {"dense": "tp=2,pp=2,groups=2", "experts": "tp=2,ep=2,groups=2"}


def write(path: Path, values: dict[str, np.ndarray[Any, Any]], flavour: str = "pt") -> Path:
    tensors = [StoredTensor(n, v.shape, v.dtype.name, lambda v=v: v) for n, v in values.items()]
    with path.open("wb") as stream:
        checkpoint_formats()["safetensors"].write(stream, tensors, {"format": flavour})
    return path


def values_of(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    return {name: tensor.load() for name, tensor in open_checkpoint(path).tensors.items()}


def assert_same(found: dict[str, np.ndarray[Any, Any]], wanted: dict[str, np.ndarray[Any, Any]]) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name].dtype == value.dtype, name
        assert found[name].tobytes() == value.tobytes(), name


@pytest.mark.parametrize("kind", MEGATRON)
def test_the_ranks_that_megatron_core_wrote_come_out_again(kind: str, tmp_path: Path) -> None:
    """A folder of megatron-core's ranks, joined into one file and cut again, holds what each rank had."""
    folder = DATA / f"megatron_{kind}" / "iter_0000003"
    convert_checkpoint(folder, tmp_path / "net.safetensors", target="torch")
    record = convert_checkpoint(
        tmp_path / "net.safetensors", tmp_path / "ranks", target="torch", shards=MEGATRON[kind], layout="megatron"
    )
    assert record.verified
    assert (tmp_path / "ranks" / "latest_checkpointed_iteration.txt").read_text(encoding="utf-8") == "release"
    for rank in sorted(path.name for path in folder.iterdir()):
        own, other = (
            values_of(place / rank / "model_optim_rng.pt") for place in (tmp_path / "ranks" / "release", folder)
        )
        assert own.keys() == other.keys()
        for name, value in other.items():
            padded = own[name]
            if name in ("embedding.word_embeddings.weight", "output_layer.weight"):  # padded to 128 rows a rank
                continue
            assert np.array_equal(padded, value), (rank, name)
    assert_same(values_of(tmp_path / "ranks"), values_of(tmp_path / "net.safetensors"))


LLAMA = {
    "model.embed_tokens.weight": (12, 8), "lm_head.weight": (12, 8), "model.norm.weight": (8,),
    **{
        f"model.layers.{layer}.{name}": shape
        for layer in range(4)
        for name, shape in {
            "self_attn.q_proj.weight": (8, 8), "self_attn.k_proj.weight": (4, 8), "self_attn.o_proj.weight": (8, 8),
            "mlp.gate_proj.weight": (12, 8), "mlp.down_proj.weight": (8, 12), "input_layernorm.weight": (8,),
        }.items()
    },
}  # fmt: skip


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    generator = np.random.default_rng(0)
    values = {name: generator.standard_normal(shape).astype(np.float16) for name, shape in LLAMA.items()}
    return write(tmp_path / "llama.safetensors", values)


@pytest.mark.parametrize("layout", ["safetensors", "mindspore"])
def test_a_model_comes_back_bit_for_bit(layout: Any, llama: Path, tmp_path: Path) -> None:
    how: Any = {"target": "torch"} if layout == "safetensors" else {}
    source = llama if how else write(tmp_path / "ms.safetensors", values_of(llama), "ms")
    record = convert_checkpoint(source, tmp_path / "ranks", shards="tp=2,pp=2", layout=layout, **how)
    assert record.verified
    back = values_of(tmp_path / "ranks")
    assert_same(back, values_of(llama))
    assert record.content_hash is not None
    files = [path for path in (tmp_path / "ranks").rglob("model.*") if path.is_file()]
    assert len(files) == 4
    sizes = {sum(value.nbytes for value in values_of_rank(path).values()) for path in files}
    assert max(sizes) < 0.6 * sum(value.nbytes for value in back.values())


def values_of_rank(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    plugin = checkpoint_formats()["ckpt" if path.suffix == ".ckpt" else "safetensors"]
    return {name: tensor.load() for name, tensor in plugin.read(path).tensors.items()}


@pytest.mark.frameworks
def test_mindspore_puts_together_what_was_cut_for_it(llama: Path, tmp_path: Path) -> None:
    import mindspore as ms

    ranks = tmp_path / "ranks"
    source = write(tmp_path / "ms.safetensors", values_of(llama), "ms")
    convert_checkpoint(source, ranks, shards="tp=2,pp=2", layout="mindspore")
    wanted = values_of(ranks)
    merged = str(tmp_path / "merged.ckpt")
    ms.merge_pipeline_strategys(str(ranks / "strategy"), merged)
    shutil.rmtree(ranks / "strategy")
    ms.transform_checkpoints(str(ranks), str(tmp_path / "whole"), "net", merged, None)
    (file,) = (tmp_path / "whole" / "rank_0").iterdir()
    found = {name: value.asnumpy() for name, value in ms.load_checkpoint(str(file)).items()}
    assert_same(found, wanted)


def test_fused_layers_are_cut_layer_by_layer(tmp_path: Path) -> None:
    values = {
        "m.layers.0.attention.w_qkv.weight": np.repeat(np.float32([0, 1, 2, 3, 10, 11, 20, 21])[:, None], 4, 1),
        "m.layers.0.attention.wo.weight": np.zeros((4, 4), np.float32),
        "m.layers.0.mlp.linear_fc1.weight": np.repeat(np.float32([0, 1, 10, 11])[:, None], 4, 1),
        "m.layers.0.mlp.linear_fc2.weight": np.zeros((4, 2), np.float32),
    }
    source = write(tmp_path / "fused.safetensors", values)
    convert_checkpoint(source, tmp_path / "ranks", target="torch", shards="tp=2", layout="safetensors")
    first = values_of_rank(tmp_path / "ranks" / "mp_rank_00" / "model.safetensors")
    assert first["m.layers.0.attention.w_qkv.weight"][:, 0].tolist() == [0, 1, 10, 20]
    assert first["m.layers.0.mlp.linear_fc1.weight"][:, 0].tolist() == [0, 10]
    assert_same(values_of(tmp_path / "ranks"), values)


def test_what_cannot_be_cut_is_named_and_nothing_is_written(llama: Path, tmp_path: Path, assert_each: Any) -> None:
    qkv = {
        "decoder.layers.0.self_attention.linear_qkv.weight": np.ones((8, 4), np.float32),
        "decoder.layers.0.self_attention.linear_proj.weight": np.ones((4, 4), np.float32),
    }
    write(tmp_path / "qkv.safetensors", qkv)
    write(tmp_path / "odd.safetensors", {"layers.0.mixer.kernel": np.ones((4, 4), np.float32)})
    examples = [
        ("odd", "tp=2", "megatron", "not known along which axis"),
        ("llama", "tp=5", "safetensors", "cannot be cut evenly"),
        ("llama", "pp=3", "safetensors", "the number of layers, 4, is no multiple of 3"),
        ("llama", "ep=2", "safetensors", "the number of experts"),
        ("qkv", "tp=2", "megatron", "how many groups of queries"),
        ("qkv", "tp=2,groups=3", "megatron", "groups of queries, 3, is no multiple of 2"),
    ]

    def check(name: str, shards: str, layout: Any, words: str) -> None:
        with pytest.raises(InputsError) as error:
            convert_checkpoint(
                tmp_path / f"{name}.safetensors", tmp_path / "out", target="torch", shards=shards, layout=layout
            )
        assert words in str(error.value)
        assert not (tmp_path / "out").exists()

    assert_each(check, examples)
    unclear = [(None, "megatron"), ("tp=2", None), ("tp=0", "megatron"), ("tp=2,tp=4", "megatron"), ("x", "megatron")]
    for shards, layout in unclear:
        with pytest.raises(UsageError, match="--shards"):
            convert_checkpoint(llama, tmp_path / "out", shards=shards, layout=layout)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no ranks of experts"):
        convert_checkpoint(llama, tmp_path / "out", shards="ep=2", layout="mindspore")


def test_a_folder_that_is_there_is_kept_or_replaced_whole(llama: Path, tmp_path: Path) -> None:
    def cut(shards: str, **how: bool) -> None:
        convert_checkpoint(llama, tmp_path / "ranks", target="torch", shards=shards, layout="safetensors", **how)

    cut("tp=2")
    with pytest.raises(DestinationError, match="exists"):
        cut("tp=4,pp=2")
    assert len([*(tmp_path / "ranks").iterdir()]) == 2
    cut("tp=4,pp=2", overwrite=True)
    assert len([*(tmp_path / "ranks").iterdir()]) == 8
    (tmp_path / "ranks" / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(DestinationError, match=r"notes\.txt"):
        cut("tp=2", overwrite=True)
    assert len([*(tmp_path / "ranks").iterdir()]) == 9
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")] == []


@pytest.mark.parametrize("moment", ["after mkdir 1", "before write 9", "before fsync 4", "before unlink 1"])
def test_a_killed_run_leaves_the_old_folder_or_the_new_one(tmp_path: Path, moment: str, run_until: Any) -> None:
    values = {f"model.layers.{n}.mlp.up_proj.weight": np.full((1024, 512), n, np.float32) for n in range(4)}
    source, ranks = write(tmp_path / "net.safetensors", values), tmp_path / "ranks"
    convert_checkpoint(source, ranks, target="torch", shards="tp=2", layout="safetensors")
    words = ["--target", "torch", "--shards", "tp=4", "--layout", "safetensors", "--overwrite"]
    ended = run_until(moment, signal.SIGKILL, "convert", str(source), str(ranks), *words)
    assert ended.returncode == -signal.SIGKILL
    assert len([*ranks.iterdir()]) == (4 if moment == "before unlink 1" else 2)
    assert_same(values_of(ranks), values)
