"""Folders that DeepSpeed wrote with ZeRO 1 to 3, against what its own script makes of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from align.checkpoints.inspect_checkpoint import inspect_checkpoint, refuse_unfinished
from align.checkpoints.open_checkpoint import open_checkpoint
from align.convert.convert_checkpoint import convert_checkpoint
from align.errors import CannotRunError, ShardsError, UnsupportedCheckpointError, UsageError

DATA = Path(__file__).parents[1] / "data"  # made by make_deepspeed.py
STAGES = (1, 2, 3)


@pytest.mark.parametrize("stage", STAGES)
def test_the_weights_are_those_that_zero_to_fp32_makes(stage: int, tmp_path: Path) -> None:
    folder = DATA / f"zero{stage}"
    found, whole = open_checkpoint(folder), open_checkpoint(DATA / f"zero{stage}.pth")
    frozen = {"frozen.weight", "frozen.bias"}  # which zero_to_fp32 leaves out with ZeRO-1
    assert set(found.tensors) == set(whole.tensors) | frozen
    assert set(whole.tensors) >= (frozen if stage > 1 else {"head.weight"})
    for name, tensor in whole.tensors.items():
        assert found.tensors[name].shape == tensor.shape
        assert np.array_equal(found.tensors[name].load().astype(np.float32), tensor.load().astype(np.float32)), name
    trained = [name for name in found.tensors if not name.startswith(("frozen", "scale"))]
    assert {found.tensors[name].dtype for name in trained} == {"float32"}
    assert inspect_checkpoint(folder, check=True).ties == (("embed.weight", "head.weight"),)
    refuse_unfinished(found)
    record = convert_checkpoint(folder, tmp_path / "net.pth")
    assert len(record.tensors) == len(found.tensors) == 9
    assert open_checkpoint(folder / "global_step1").tensors.keys() == found.tensors.keys()


def test_a_rank_that_is_missing_or_of_another_run_is_named(tmp_path: Path, assert_each) -> None:
    optimizer = "bf16_zero_pp_rank_{}_mp_rank_00_optim_states.pt"
    model = "zero_pp_rank_{}_mp_rank_00_model_states.pt"
    examples = [
        ("missing", 3, {optimizer.format(1): None}, "file of rank 1 is missing, of 2 ranks"),
        ("lone", 2, {optimizer.format(0): None}, "file of rank 0 is missing"),
        ("model", 3, {model.format(1): None}, "model_states.pt: it is missing"),
        ("beyond", 2, {optimizer.format(2): f"zero2/global_step1/{optimizer.format(1)}"}, "file of rank 2"),
        ("other stage", 3, {optimizer.format(1): f"zero2/global_step1/{optimizer.format(1)}"}, "zero_stage"),
    ]

    def check(label: str, stage: int, changed: dict[str, str | None], words: str) -> None:
        folder = Path(shutil.copytree(DATA / f"zero{stage}", tmp_path / label)) / "global_step1"
        for name, other in changed.items():
            if other is None:
                (folder / name).unlink()
            else:
                shutil.copy(DATA / other, folder / name)
        with pytest.raises(ShardsError, match=words):
            open_checkpoint(folder.parent)

    assert_each(check, examples)


def test_the_last_step_is_taken_and_several_without_one_are_named(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(DATA / "zero2", tmp_path / "run"))
    shutil.copytree(folder / "global_step1", folder / "global_step2")
    assert open_checkpoint(folder).path.name == "global_step1"
    (folder / "latest").write_text("global_step2\n", encoding="utf-8")
    assert open_checkpoint(folder).path.name == "global_step2"
    (folder / "latest").unlink()
    with pytest.raises(UsageError, match="2 checkpoints"):
        open_checkpoint(folder)


def test_one_file_of_a_folder_is_not_taken_for_the_whole(tmp_path: Path) -> None:
    folder = DATA / "zero3" / "global_step1"
    for name in ("zero_pp_rank_0_mp_rank_00_model_states.pt", "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"):
        with pytest.raises(CannotRunError, match="one rank's") as error:
            refuse_unfinished(open_checkpoint(folder / name))
        assert "give the folder" in str(error.value.hint)
    half = open_checkpoint(DATA / "zero2" / "global_step1" / "mp_rank_00_model_states.pt", "module")
    assert half.tensors["fc.weight"].dtype == "bfloat16"


def test_what_cannot_be_joined_is_refused(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(DATA / "zero2" / "global_step1", tmp_path / "step"))
    rank = folder / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"
    shutil.copy(rank, folder / "bf16_zero_pp_rank_0_mp_rank_01_optim_states.pt")
    with pytest.raises(UnsupportedCheckpointError, match="2 model-parallel ranks"):
        open_checkpoint(folder)
    (folder / "bf16_zero_pp_rank_0_mp_rank_01_optim_states.pt").unlink()
    (folder / "layer_0_expert_1_mp_rank_00_model_states.pt").write_bytes(b"")
    with pytest.raises(UnsupportedCheckpointError, match="experts"):
        open_checkpoint(folder)
