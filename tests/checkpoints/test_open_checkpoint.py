"""What is no checkpoint is named for what it is."""

from __future__ import annotations

import json

import numpy as np
import pytest

from align.checkpoints.open_checkpoint import open_checkpoint
from align.errors import AlignError, HostileFileError, NotACheckpointError, UnsupportedCheckpointError

LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 133508\n"


@pytest.mark.parametrize(
    ("content", "said", "hint"),
    [
        (LFS, "pointer of Git LFS", "git lfs pull"),
        ("<!DOCTYPE html>\n<html>", "web page", "download failed"),
        ("\ufeff\n <HTML lang='en'>", "web page", "download failed"),
        (json.dumps({"hidden_size": 768}), "JSON, but no index", "holds the weights"),
        ("", "it is empty", "cut short"),
    ],
)
def test_what_was_not_fetched_is_recognized(tmp_path, content, said, hint) -> None:
    path = tmp_path / "model.safetensors"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(NotACheckpointError, match=said) as error:
        open_checkpoint(path)
    assert hint in error.value.hint
    if content:
        return
    with pytest.raises(AlignError, match=r"model\.safetensors is not a folder"):
        open_checkpoint(path / "x.ckpt")


def test_a_pointer_among_shards_is_named(tmp_path) -> None:
    (tmp_path / "a.safetensors").write_text(LFS, encoding="utf-8")
    (tmp_path / "m.index.json").write_text(json.dumps({"weight_map": {"w": "a.safetensors"}}), encoding="utf-8")
    with pytest.raises(NotACheckpointError, match=r"shard a\.safetensors: .*pointer of Git LFS"):
        open_checkpoint(tmp_path)


def test_what_numpy_writes_and_cannot_be_converted_is_no_attack(tmp_path) -> None:
    for value, said in ((np.array([{}]), "Python objects"), (np.zeros(2, [("x", "<f4"), ("y", "<i8")]), "structured")):
        np.savez(tmp_path / "m.npz", w=value)
        with pytest.raises(UnsupportedCheckpointError, match=said) as error:
            open_checkpoint(tmp_path / "m.npz")
        assert not isinstance(error.value, HostileFileError)


@pytest.mark.frameworks
@pytest.mark.parametrize("protocol", [2, 4])
def test_arrays_that_numpy_pickled_are_named(tmp_path, protocol) -> None:
    import torch

    arrays = {"w": np.ones(2), "b": np.ones(3)}
    for value, said in (
        (arrays, r"w \(NumPy array, pickled by NumPy\)"),
        ({"model": arrays}, "2 entries, NumPy arrays"),
    ):
        torch.save(value, tmp_path / "m.pth", pickle_protocol=protocol)
        with pytest.raises(UnsupportedCheckpointError, match=said) as error:
            open_checkpoint(tmp_path / "m.pth")
        assert "numpy.savez" in error.value.hint
