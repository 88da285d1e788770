from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.checkpoints.open_checkpoint import open_checkpoint
from align.core.load_code import checkpoint_formats
from align.core.parameters import StoredTensor
from align.errors import HostileFileError, NotACheckpointError, ShardsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

W, NORM = np.arange(24, dtype=np.float32).reshape(4, 6), np.ones(6, np.float32)
RANKS = {
    "net-model-0000000-0000002.safetensors": {"w": W[:, :3], "norm": NORM},
    "net-model-0000001-0000002.safetensors": {"w": W[:, 3:], "norm": NORM},
}


def write(path: Path, arrays: dict[str, Any]) -> None:
    tensors = [StoredTensor(name, v.shape, v.dtype.name, lambda v=v: v) for name, v in arrays.items()]
    with path.open("wb") as stream:
        checkpoint_formats()["safetensors"].write(stream, tensors, {"format": "ms"})


def folder(at: Path, change: Callable[[dict[str, Any]], object] = lambda _: None) -> Path:
    """Two ranks in the form that mindformers/checkpoint/metadata.py writes."""
    step = at / "iteration_00000010"
    step.mkdir(parents=True)
    for name, arrays in RANKS.items():
        write(step / name, arrays)
    first, second = ([{"file_name": name, "storage_rank": rank}] for rank, name in enumerate(RANKS))
    chunks = [{"global_offset": [0, start], "local_shape": [4, 3]} for start in (0, 3)]
    document = {
        "state_dict_metadata": {
            "w": {"properties": {"dtype": "float32"}, "global_shape": [4, 6], "chunk": chunks},
            "norm": {"global_shape": [6], "chunk": [{"global_offset": [0], "local_shape": [6]}]},
        },
        "storage_data": {"('w', (0, 0))": first, "('w', (0, 3))": second, "('norm', (0,))": first + second},
    }
    change(document)
    (step / "metadata.json").write_text(json.dumps(document, indent=4))
    (step / "common.json").write_text("{}")
    return step


def test_chunks_are_joined_wherever_the_folder_is_named(tmp_path: Path) -> None:
    step = folder(tmp_path)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("10")
    (tmp_path / "iteration_00000005").mkdir()
    for path in (tmp_path, step, step / "metadata.json"):
        found = open_checkpoint(path)
        assert found.format == "mindspore-chunks (2 files)"
        assert [*found.tensors] == ["w", "norm"]
        assert np.array_equal(found.tensors["w"].load(), W)
        assert np.array_equal(found.tensors["norm"].load(), NORM)


def test_what_is_missing_or_does_not_fit_is_named(tmp_path: Path, assert_each: Any) -> None:
    tables = "state_dict_metadata", "storage_data"

    def check(label: str, kind: type[Exception], reason: str, change: Callable[[dict[str, Any]], object]) -> None:
        step = folder(tmp_path / label, change)
        if label == "file":
            (step / "net-model-0000001-0000002.safetensors").unlink()
        if label == "copies":
            write(step / "net-model-0000001-0000002.safetensors", {"w": W[:, 3:], "norm": NORM * 2})
        with pytest.raises(kind) as caught:
            open_checkpoint(step).tensors["norm"].load()
        assert reason in str(caught.value)

    examples: list[tuple[str, type[Exception], str, Callable[[dict[str, Any]], object]]] = [
        ("file", ShardsError, "net-model-0000001-0000002.safetensors", lambda _: None),
        ("copies", ShardsError, "'norm'", lambda _: None),
        ("place", ShardsError, "at (0, 3) has no place", lambda one: one[tables[1]].pop("('w', (0, 3))")),
        ("gap", NotACheckpointError, "'w'", lambda one: one[tables[0]]["w"]["chunk"].pop()),
        ("shape", NotACheckpointError, "is (5,) by the list",
         lambda one: one[tables[0]]["norm"]["chunk"][0].update(local_shape=[5])),
        ("dims", HostileFileError, "'w'", lambda one: one[tables[0]]["w"].update(global_shape=[4, -6])),
        ("chunk", HostileFileError, "'w'", lambda one: one[tables[0]]["w"].update(chunk=[None])),
        ("names", HostileFileError, "'norm'", lambda one: one[tables[1]].update({"('norm', (0,))": ["x"]})),
        ("outside", HostileFileError, "../x", lambda one: one[tables[1]].update(z=[{"file_name": "../x"}])),
        ("empty", NotACheckpointError, "no tensors", lambda one: one.update(storage_data={})),
    ]  # fmt: skip
    assert_each(check, examples)
