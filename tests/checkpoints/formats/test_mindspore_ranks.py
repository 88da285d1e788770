"""Folders of MindSpore's ranks, which mindspore.transform_checkpoints cut of a whole checkpoint by their strategies."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from align.checkpoints.inspect_checkpoint import refuse_unfinished
from align.checkpoints.open_checkpoint import open_checkpoint
from align.convert.convert_checkpoint import convert_checkpoint
from align.convert.diff_checkpoints import diff_checkpoints
from align.errors import (
    CannotRunError,
    HostileFileError,
    MissingEntryError,
    NotACheckpointError,
    ShardsError,
    UsageError,
)

DATA = Path(__file__).parents[1] / "data"  # made by make_mindspore_ranks.py
RANKS, WHOLE = DATA / "mindspore_ranks", DATA / "mindspore_ranks.ckpt"


@pytest.fixture
def ranks(tmp_path: Path) -> Path:
    return Path(shutil.copytree(RANKS, tmp_path / "ranks"))


def test_the_parameters_are_those_that_mindspore_cut(tmp_path: Path) -> None:
    found, whole = open_checkpoint(RANKS), open_checkpoint(WHOLE)
    assert found.tensors.keys() == whole.tensors.keys()
    for name, tensor in whole.tensors.items():
        assert np.array_equal(found.tensors[name].load(), tensor.load()), name
    refuse_unfinished(found)
    assert diff_checkpoints(RANKS, WHOLE).verdict.outcome.value == "aligned"
    record = convert_checkpoint(RANKS, tmp_path / "net.ckpt")
    assert record.content_hash == convert_checkpoint(WHOLE, tmp_path / "other.ckpt").content_hash


@pytest.mark.frameworks
def test_strategies_that_mindspore_merged_are_read_too(ranks: Path) -> None:
    import mindspore as ms

    (ranks.parent / "strategy").mkdir()
    ms.merge_pipeline_strategys(str(ranks / "strategy"), str(ranks.parent / "strategy" / "merged.ckpt"))
    shutil.rmtree(ranks / "strategy")
    whole = open_checkpoint(WHOLE).tensors
    for name, tensor in open_checkpoint(ranks).tensors.items():
        assert np.array_equal(tensor.load(), whole[name].load()), name


def test_without_a_strategy_or_with_that_of_one_stage_nothing_is_joined(ranks: Path) -> None:
    (ranks / "strategy" / "ckpt_strategy_rank_0.ckpt").unlink()
    with pytest.raises(ShardsError, match="of the stages 1: others are missing"):
        open_checkpoint(ranks)
    shutil.rmtree(ranks / "strategy")
    with pytest.raises(CannotRunError, match="parts of one in folders of ranks"):
        open_checkpoint(ranks)
    with pytest.raises(CannotRunError, match="one rank of a distributed checkpoint"):
        refuse_unfinished(open_checkpoint(ranks / "rank_0" / "net_rank_0.ckpt"))


def test_a_rank_that_is_missing_or_differs_is_named(ranks: Path, tmp_path: Path) -> None:
    name = "layer0.whole"
    file = ranks / "rank_2" / "net_rank_2.ckpt"
    value = open_checkpoint(WHOLE).tensors[name].load().tobytes()
    data = file.read_bytes()
    file.write_bytes(data.replace(value, value[:-1] + b"\0"))
    with pytest.raises(ShardsError, match=rf"'{name}' should be one on all ranks.*rank_0 than in rank_2"):
        convert_checkpoint(ranks, tmp_path / "net.ckpt")
    assert not (tmp_path / "net.ckpt").exists()
    file.unlink()
    with pytest.raises(ShardsError, match="1 of 8 ranks is missing: rank_2"):
        open_checkpoint(ranks)
    shutil.copy(ranks / "rank_4" / "net_rank_4.ckpt", file)
    with pytest.raises(ShardsError, match=r"'layer0.column' is missing on rank_2"):
        open_checkpoint(ranks)


def test_of_several_steps_one_is_chosen_by_its_name(ranks: Path) -> None:
    for rank in range(8):
        folder = ranks / f"rank_{rank}"
        (folder / f"net_rank_{rank}.ckpt").rename(folder / f"net_rank_{rank}-1_10.ckpt")
        shutil.copy(folder / f"net_rank_{rank}-1_10.ckpt", folder / f"net_rank_{rank}-2_10.ckpt")
    with pytest.raises(UsageError, match="holds 2 steps") as error:
        open_checkpoint(ranks)
    assert "--key 'net_rank_*-2_10.ckpt'" in str(error.value.hint)
    assert open_checkpoint(ranks, "net_rank_*-2_10.ckpt").tensors
    with pytest.raises(MissingEntryError):
        open_checkpoint(ranks, "net")


def test_a_hostile_strategy_is_refused(ranks: Path, assert_each) -> None:
    file = ranks / "strategy" / "ckpt_strategy_rank_0.ckpt"
    sound = file.read_bytes()
    devices = b"\n\x02\x02\x02" if b"\n\x02\x02\x02" in sound else b"\n\x04\x08\x02\x08\x02"
    assert devices in sound
    huge = devices[:-1] + b"\x00"
    examples = [
        ("no devices", sound.replace(devices, huge, 1), "malformed"),
        ("cut short", sound[:-3], "breaks off|ends|beyond"),
        ("no layouts", sound[:2], "without the layout"),
        ("long", sound + b"\x1a\xff\xff\xff\xff\x0f", "breaks off|ends|beyond|reaches"),
    ]

    def check(label: str, data: bytes, words: str) -> None:
        file.write_bytes(data)
        with pytest.raises(NotACheckpointError) as error:
            open_checkpoint(ranks)
        assert isinstance(error.value, HostileFileError | NotACheckpointError), label
        assert any(word in str(error.value.message) for word in words.split("|")), error.value.message

    assert_each(check, examples)


@pytest.mark.frameworks
def test_what_mindspore_unified_is_read_with_its_numbers_beside(ranks: Path, tmp_path: Path) -> None:
    import mindspore as ms
    from mindspore import Tensor

    whole = open_checkpoint(WHOLE).tensors
    source, strategy = tmp_path / "source", str(tmp_path / "merged.ckpt")
    for rank in range(8):
        values = ms.load_checkpoint(str(ranks / f"rank_{rank}" / f"net_rank_{rank}.ckpt"))
        rows = [{"name": name, "data": value} for name, value in values.items()]
        rows.append({"name": "global_step", "data": Tensor(7)})
        (source / f"rank_{rank}").mkdir(parents=True)
        ms.save_checkpoint(rows, str(source / f"rank_{rank}" / "a.safetensors"), format="safetensors")
    ms.merge_pipeline_strategys(str(ranks / "strategy"), strategy)
    ms.unified_safetensors(str(source), strategy, str(tmp_path / "one"))
    found = open_checkpoint(tmp_path / "one")
    assert found.tensors.keys() - {"global_step"} == whole.keys()
    assert found.tensors["global_step"].load().item() == 7
    for name, tensor in whole.items():
        assert np.array_equal(found.tensors[name].load(), tensor.load()), name
