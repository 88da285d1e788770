"""Folders of Megatron's ranks, against the places at which megatron-core says that their pieces lie."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from align.checkpoints.formats.torch import TORCH_ZIP
from align.checkpoints.inspect_checkpoint import refuse_unfinished
from align.checkpoints.open_checkpoint import open_checkpoint
from align.convert.convert_checkpoint import convert_checkpoint
from align.core.load_code import checkpoint_formats
from align.core.parameters import StoredTensor
from align.errors import CannotRunError, MapError, ShardsError, UnsupportedCheckpointError, UsageError

DATA = Path(__file__).parents[1] / "data"  # made by make_megatron.py
# What megatron-core calls a parameter where its name in a file of ranks differs.
KEYS = {
    "input_layernorm.weight": "self_attention.linear_qkv.layer_norm_weight",
    "pre_mlp_layernorm.weight": "mlp.linear_fc1.layer_norm_weight",
}


def whole_value(name: str, whole: dict[str, StoredTensor]) -> np.ndarray[Any, Any]:
    """The parameter as the distributed form has it: the layers, and the experts of a layer, in one tensor."""
    parts = name.split(".")
    if "layers" not in parts:
        return whole[name].load()
    layer, rest = int(parts[2]), ".".join(parts[3:])
    if "local_experts" in parts:
        place = parts.index("local_experts")
        key = ".".join(["decoder.layers.mlp.experts.experts", *parts[place + 2 :]])
        return whole[key].load()[layer, int(parts[place + 1])]
    return whole[f"decoder.layers.{KEYS.get(rest, rest)}"].load()[layer]


@pytest.mark.parametrize(("kind", "count"), [("dense", 31), ("experts", 31)])
def test_the_parameters_are_those_that_megatron_core_puts_together(kind: str, count: int, tmp_path: Path) -> None:
    folder, whole = DATA / f"megatron_{kind}", open_checkpoint(DATA / f"megatron_{kind}.pth").tensors
    found = open_checkpoint(folder)
    assert len(found.tensors) == count
    for name, tensor in found.tensors.items():
        value = whole_value(name, whole)
        assert tensor.shape == value.shape, name
        assert np.array_equal(tensor.load(), value), name
    refuse_unfinished(found)
    record = convert_checkpoint(folder, tmp_path / "net.pth")
    assert record.verified
    assert any("16 rows may have padding" in warning for warning in record.warnings)


@pytest.fixture
def dense(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA / "megatron_dense" / "iter_0000003", tmp_path / "iter_0000003"))


def test_a_rank_that_is_missing_or_of_another_run_is_named(dense: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    (dense / "mp_rank_01_001").rename(kept)
    with pytest.raises(ShardsError, match=r"1 of 4 ranks is missing: mp_rank_01_001"):
        open_checkpoint(dense)
    lone = tmp_path / "lone"
    lone.mkdir()
    shutil.copytree(kept, lone / "mp_rank_01_001")
    with pytest.raises(ShardsError, match=r"3 of 4 ranks are missing"):
        open_checkpoint(lone)
    with pytest.raises(CannotRunError, match=r"one rank of a model-parallel checkpoint") as error:
        refuse_unfinished(open_checkpoint(lone / "mp_rank_01_001" / "model_optim_rng.pt"))
    assert "give the folder" in str(error.value.hint)
    shutil.copytree(DATA / "megatron_experts" / "iter_0000003" / "mp_rank_01_001", dense / "mp_rank_01_001")
    with pytest.raises(ShardsError, match=r"num_layers is 2 and 4"):
        open_checkpoint(dense)
    shutil.rmtree(dense / "mp_rank_01_001")
    (dense / "mp_rank_01_001").mkdir()
    with pytest.raises(ShardsError, match=r"mp_rank_01_001 should hold one file"):
        open_checkpoint(dense)


def test_what_all_ranks_should_hold_alike_and_do_not_is_named_when_it_is_read(dense: Path, tmp_path: Path) -> None:
    name = "decoder.layers.0.input_layernorm.weight"
    value = open_checkpoint(dense).tensors[name].load().tobytes()
    file = dense / "mp_rank_01_000" / "model_optim_rng.pt"
    data = file.read_bytes()
    other = bytearray(data.replace(value, value[:-1] + b"\0"))  # equal in another layer
    file.write_bytes(without_checksums(other))
    with pytest.raises(
        ShardsError, match=rf"'{name}' should be one on all ranks.*mp_rank_00_000 than in mp_rank_01_000"
    ):
        convert_checkpoint(dense, tmp_path / "net.pth")
    assert not (tmp_path / "net.pth").exists()


def without_checksums(data: bytearray) -> bytes:
    """The archive with the checksum of each record set to that of its bytes: as another run would have written it."""
    import io
    import zipfile
    import zlib

    with zipfile.ZipFile(io.BytesIO(bytes(data))) as archive:
        infos = archive.infolist()
    for info in infos:
        start = info.header_offset
        length = 30 + int.from_bytes(data[start + 26 : start + 28], "little")
        length += int.from_bytes(data[start + 28 : start + 30], "little")
        content = bytes(data[start + length : start + length + info.file_size])
        old, new = info.CRC.to_bytes(4, "little"), zlib.crc32(content).to_bytes(4, "little")
        if old != new:
            data = bytearray(bytes(data).replace(old, new))
    return bytes(data)


def ranks_of(folder: Path, pieces: list[dict[str, np.ndarray[Any, Any]]], **settings: object) -> Path:
    """A folder of tensor-parallel ranks, as `align convert --shards` writes them."""
    import json

    told = {"tensor_model_parallel_size": len(pieces), **settings}
    for rank, values in enumerate(pieces):
        path = folder / f"mp_rank_{rank:02d}" / "model.safetensors"
        path.parent.mkdir(parents=True)
        tensors = [StoredTensor(n, v.shape, v.dtype.name, lambda v=v: v) for n, v in values.items()]
        with path.open("wb") as stream:
            checkpoint_formats()["safetensors"].write(stream, tensors, {"format": "pt", "shards": json.dumps(told)})
    return folder


def test_a_parameter_of_an_unknown_cut_is_asked_for_and_told_in_a_file(tmp_path: Path) -> None:
    halves = [np.arange(8, dtype=np.float32).reshape(2, 4) + 8 * rank for rank in (0, 1)]
    folder = ranks_of(tmp_path / "ranks", [{"layers.0.mixer.kernel": half} for half in halves])
    with pytest.raises(ShardsError, match=r"not known along which axis.*layers.0.mixer.kernel.*shard_layouts.toml"):
        open_checkpoint(folder)
    for axis in (0, 1):
        rules = f'[[cut]]\nnames = ["*.mixer.kernel"]\naxis = {axis}\n'
        other = Path(shutil.copytree(folder, tmp_path / f"axis{axis}"))
        (other / "shard_layouts.toml").write_text(rules, encoding="utf-8")
        value = open_checkpoint(other).tensors["layers.0.mixer.kernel"].load()
        assert np.array_equal(value, np.concatenate(halves, axis))
    (folder / "shard_layouts.toml").write_text('[[cut]]\nnames = "x"\naxis = 5\n', encoding="utf-8")
    with pytest.raises(CannotRunError, match=r"shard_layouts.toml"):
        open_checkpoint(folder)


def test_layers_in_one_are_joined_layer_by_layer(tmp_path: Path, assert_each) -> None:
    def rows(*numbers: int) -> np.ndarray[Any, Any]:
        return np.repeat(np.float32(numbers)[:, None], 3, 1)

    def behind(width: int) -> np.ndarray[Any, Any]:
        return np.zeros((3, width), np.float32)

    gate, plain = "mlp.l.linear_fc1.weight", "mlp.l.linear_fc2.weight"
    qkv, out = "m.attention.w_qkv.weight", "m.attention.wo.weight"
    examples = [
        ("gated", gate, plain, [rows(0, 10), rows(1, 11)], 1, [0, 1, 10, 11]),
        ("not gated", gate, plain, [rows(0, 1), rows(2, 3)], 2, [0, 1, 2, 3]),
        ("blocks", qkv, out, [rows(0, 1, 10, 20), rows(2, 3, 11, 21)], 2, [0, 1, 2, 3, 10, 11, 20, 21]),
        ("odd", gate, plain, [rows(0, 1, 2), rows(3, 4, 5)], 2, None),
    ]

    def check(label: str, name: str, other: str, pieces: list, width: int, wanted: list[int] | None) -> None:
        folder = ranks_of(tmp_path / label, [{name: piece, other: behind(width)} for piece in pieces])
        if wanted is None:
            with pytest.raises(ShardsError, match=r"how .* is cut is not known"):
                open_checkpoint(folder)
            return
        assert open_checkpoint(folder).tensors[name].load()[:, 0].tolist() == wanted

    assert_each(check, examples)


def test_what_cannot_be_joined_is_refused(tmp_path: Path, assert_each) -> None:
    values = {"decoder.layers.0.self_attention.linear_qkv.weight": np.ones((4, 2), np.float32)}
    examples = [
        ("version", {"checkpoint_version": 1.0}, "checkpoint_version is 1.0"),
        ("groups", {"num_query_groups": 1}, "groups of queries, 1, is no multiple of 2"),
        ("experts", {"expert_tensor_parallel_size": 1}, "expert_tensor_parallel_size"),
        ("ranks", {"tensor_model_parallel_size": 1 << 40}, "claims"),
        ("more", {"tensor_model_parallel_size": 1}, "other sizes"),
    ]

    def check(label: str, settings: dict[str, object], words: str) -> None:
        folder = ranks_of(tmp_path / label, [values, values], **settings)
        with pytest.raises((ShardsError, UnsupportedCheckpointError), match=words):
            open_checkpoint(folder)

    assert_each(check, examples)


# What megatron-core's dist_checkpointing writes: one tensor for all layers, objects of ranks, and arguments beside.


def test_layers_and_experts_of_one_tensor_have_the_names_of_the_model() -> None:
    dense, experts = (open_checkpoint(DATA / f"megatron_dist_{kind}") for kind in ("dense", "experts"))
    assert dense.format == "torch-distributed (Megatron, 4 files)"
    assert dense.tensors["decoder.layers.1.mlp.linear_fc1.weight"].shape == (24, 8)
    assert experts.tensors["decoder.layers.1.mlp.experts.local_experts.3.linear_fc2.weight"].shape == (8, 12)
    numbered = open_checkpoint(DATA / "megatron_dist_biases")
    assert "decoder.layers.1.self_attention.linear_qkv.bias" in numbered.tensors
    for found in (dense, experts, numbered):
        assert not [name for name in found.tensors if "_extra_state" in name or "optimizer" in name]
        assert {"rng_state", "optimizer"} <= found.other.keys()
        assert any("16 rows may have padding" in note for note in found.notes)
        refuse_unfinished(found)


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("kind", "family", "model"),
    [("dense", "mcore-qwen3", "Qwen3"), ("biases", "mcore-llama", "Qwen2"), ("experts", "mcore-qwen3-moe", "Qwen3Moe")],
)
def test_the_logits_of_megatron_core_are_those_of_transformers(kind, family, model, tmp_path: Path) -> None:
    import torch
    import transformers

    convert_checkpoint(
        DATA / f"megatron_dist_{kind}", tmp_path / "model.safetensors", family=family, target="torch", overwrite=True
    )
    sizes = {"vocab_size": 16, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"num_key_value_heads": 2, "intermediate_size": 12, "tie_word_embeddings": False, "rms_norm_eps": 1e-6}
    more = {"head_dim": 2} if kind == "dense" else {}
    if kind == "experts":
        more = {"head_dim": 2, "moe_intermediate_size": 12, "num_experts": 4, "num_experts_per_tok": 2}
        more["norm_topk_prob"] = True
    getattr(transformers, f"{model}Config")(**sizes, **more).save_pretrained(tmp_path)
    read, said = getattr(transformers, f"{model}ForCausalLM").from_pretrained(tmp_path, output_loading_info=True)
    assert not said["missing_keys"]
    assert not said["unexpected_keys"]
    recorded = np.load(DATA / f"megatron_dist_{kind}.npz")
    with torch.no_grad():
        logits = read.eval()(torch.tensor(recorded["tokens"])).logits.numpy()
    assert np.allclose(logits, recorded["logits"], rtol=1e-4, atol=1e-4)  # float32, of size 10


def test_names_of_the_family_stay_where_they_are_to_be_written(tmp_path: Path) -> None:
    record = convert_checkpoint(DATA / "megatron_dist_dense", tmp_path / "net.ckpt", family="mcore-qwen3")
    assert "decoder.layers.1.self_attention.linear_k.weight" in {tensor.target for tensor in record.tensors}
    assert any("4 parameters held several" in warning for warning in record.warnings)
    with pytest.raises(MapError, match=r"q_layernorm"):
        convert_checkpoint(DATA / "megatron_dist_dense", tmp_path / "other.ckpt", family="mcore-llama")
    ranks = convert_checkpoint(DATA / "megatron_dense", tmp_path / "hf.pth", family="mcore-llama")
    assert "model.layers.3.self_attn.v_proj.bias" in {tensor.target for tensor in ranks.tensors}


def test_a_fused_layer_is_not_taken_apart_by_a_guess(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(DATA / "megatron_dist_dense" / "iter_0000003", tmp_path / "iter"))
    write_arguments(folder / "common.pt", num_attention_heads=6, num_query_groups=2, group_query_attention=True)
    with pytest.raises(UsageError, match=r"16 rows are not those of 6 heads of queries in 2 groups"):
        convert_checkpoint(folder, tmp_path / "net.pth", family="mcore-qwen3")
    write_arguments(folder / "common.pt", hidden_size=8)
    with pytest.raises(UsageError, match=r"2 parameters cannot be taken apart") as error:
        convert_checkpoint(folder, tmp_path / "net.pth", family="mcore-qwen3")
    assert "common.pt" in str(error.value.hint)
    (folder / "common.pt").unlink()
    assert "decoder.layers.mlp.linear_fc2.weight" in open_checkpoint(folder).tensors  # not Megatron's: as it is saved


def write_arguments(path: Path, **arguments: int) -> None:
    with path.open("wb") as stream:
        TORCH_ZIP.write_tree(stream, {"args": arguments, "iteration": 3})
