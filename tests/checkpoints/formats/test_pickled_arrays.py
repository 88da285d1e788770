"""Pickles of NumPy arrays: files of the real Paddle (`data/make_paddle_files.py`) and of `pickle.dump`, never run."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from align.checkpoints.inspect_checkpoint import inspect_checkpoint
from align.checkpoints.open_checkpoint import open_checkpoint
from align.cli.main import main
from align.convert.convert_checkpoint import convert_checkpoint
from align.errors import (
    HostileFileError,
    NotACheckpointError,
    SeveralEntriesError,
    UnsupportedCheckpointError,
    UnsupportedTensorsError,
    UsageError,
)

DATA = Path(__file__).parent / "data"
SAID = ["emb=embedding", "head=linear"]
VALUES = {
    "conv.weight": np.arange(54.0, dtype=np.float32).reshape(2, 3, 3, 3),
    "columns": np.asfortranarray(np.arange(600.0).reshape(20, 30)),
    "turned": np.arange(6, dtype=">i4").reshape(2, 3),
    "mask": np.array([True, False]),
    "count": np.array(7, dtype=np.int64),
    "none": np.zeros((0, 3), np.float16),
    "bytes": np.arange(256, dtype=np.uint8).repeat(4),
}


def dumped(path: Path, contents: Any, protocol: int = 4) -> Path:
    path.write_bytes(pickle.dumps(contents, protocol))
    return path


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_arrays_of_a_model_zoo_are_read_bit_for_bit(tmp_path: Path, protocol: int) -> None:
    path = dumped(tmp_path / "zoo.pkl", {"model": VALUES, "__author__": "A", "matching_heuristics": True}, protocol)
    found = open_checkpoint(path)
    assert (found.key, found.format, [*found.tensors]) == ("model", "pickled-arrays", [*VALUES])
    assert {*found.other} == {"__author__", "matching_heuristics"}
    for name, value in VALUES.items():
        tensor = found.tensors[name]
        assert (tensor.shape, tensor.dtype) == (value.shape, value.dtype.newbyteorder("<").name)
        assert tensor.load().tobytes() == value.astype(value.dtype.newbyteorder("<")).tobytes(), name
    if protocol > 2:  # whose bytes are characters there
        assert found.tensors["conv.weight"].extent is not None


def test_names_of_a_model_zoo_are_torchs(tmp_path: Path) -> None:
    names = {"stem.conv.weight": np.ones((2, 3, 3, 3), np.float32)}
    names |= {f"stem.norm.{name}": np.ones(2, np.float32) for name in ("weight", "bias", "running_mean", "running_var")}
    record = convert_checkpoint(dumped(tmp_path / "zoo.pkl", {"model": names}), tmp_path / "zoo.ckpt")
    assert [one.target for one in record.tensors][-1] == "stem.norm.moving_variance"


@pytest.mark.frameworks
def test_a_converted_file_of_paddle_computes_what_its_model_did(tmp_path: Path) -> None:
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.bn = torch.nn.Conv2d(1, 2, 2), torch.nn.BatchNorm2d(2)
            self.fc, self.norm = torch.nn.Linear(8, 5), torch.nn.LayerNorm(5)
            self.head, self.emb = torch.nn.Linear(5, 3, bias=False), torch.nn.Embedding(6, 3)

        def forward(self, image: Any, index: Any) -> Any:
            x = torch.relu(self.bn(self.conv(image))).flatten(1)
            return self.head(self.norm(self.fc(x))) + self.emb(index)

    known, net = np.load(DATA / "paddle_outputs.npz"), Net().eval()
    record = convert_checkpoint(DATA / "net.pdparams", tmp_path / "net.pth", layers=SAID)
    net.load_state_dict(torch.load(tmp_path / "net.pth", weights_only=True), strict=False)
    found = net(torch.from_numpy(known["image"]), torch.from_numpy(known["index"])).detach().numpy()
    np.testing.assert_allclose(found, known["out"], rtol=1e-5, atol=1e-6)
    assert "2 weights of Linear turned to (out, in), 2 names changed" in " ".join(map(str, record.warnings))


def test_a_file_of_paddle_goes_to_mindspore_at_once(tmp_path: Path) -> None:
    convert_checkpoint(DATA / "net.pdparams", tmp_path / "net.ckpt", layers=SAID)
    found, raw = open_checkpoint(tmp_path / "net.ckpt").tensors, open_checkpoint(DATA / "net.pdparams").tensors
    assert np.array_equal(found["fc.weight"].load(), raw["fc.weight"].load().T)
    assert np.array_equal(found["emb.embedding_table"].load(), raw["emb.weight"].load())
    assert np.array_equal(found["bn.moving_variance"].load(), raw["bn._variance"].load())


def test_of_paddles_matrices_without_a_bias_the_user_says_what_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match=r"2 weights of two axes .*: head.weight, emb.weight"):
        convert_checkpoint(DATA / "net.pdparams", tmp_path / "net.pth")
    assert main(["convert", str(DATA / "net.pdparams"), str(tmp_path / "net.pth"), "--layer", "head=linear"]) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert "1 weight of two axes" in shown
    assert "--layer '*embeddings=embedding'" in shown
    assert not (tmp_path / "net.pth").exists()
    notes = inspect_checkpoint(DATA / "net.pdparams").notes
    assert any("keeps the weight of a Linear as (in, out): `align convert" in str(note) for note in notes)


def test_all_forms_of_a_file_of_paddle_hold_the_same(tmp_path: Path) -> None:
    plain = open_checkpoint(DATA / "net.pdparams").tensors
    for name in ("net_protocol2", "nested"):
        found = open_checkpoint(DATA / f"{name}.pdparams")
        assert found.format == "paddle"
        assert {n: one.load().tobytes() for n, one in found.tensors.items()} == {
            n: one.load().tobytes() for n, one in plain.items()
        }
    half = open_checkpoint(DATA / "half.pdparams").tensors["weight"]
    assert (half.dtype, half.shape) == ("bfloat16", (2, 3))
    assert half.load().dtype == ml_dtypes.bfloat16
    assert 0 < np.abs(half.load().astype(np.float32)).max() < 2


def test_a_map_speaks_of_a_file_of_paddle_as_it_is(tmp_path: Path) -> None:
    text = '[names]\n"weight" = { to = "w", op = "permute", axes = [1, 0] }\n"bias" = "b"\n'
    (tmp_path / "map.toml").write_text(text, encoding="utf-8")
    convert_checkpoint(DATA / "half.pdparams", tmp_path / "o.safetensors", name_map=tmp_path / "map.toml")
    assert open_checkpoint(tmp_path / "o.safetensors").tensors["w"].shape == (3, 2)


def test_an_array_file_of_a_dict_is_read_and_one_of_an_array_is_not(tmp_path: Path) -> None:
    np.save(tmp_path / "dict.npy", np.array({"a": VALUES["conv.weight"], "b": VALUES["columns"]}))
    found = open_checkpoint(tmp_path / "dict.npy").tensors
    assert all(np.array_equal(found[n].load(), VALUES[k]) for n, k in (("a", "conv.weight"), ("b", "columns")))
    np.save(tmp_path / "deep.npy", np.array({"a": VALUES["columns"], "in": {"b": VALUES["columns"]}}))
    with pytest.raises(SeveralEntriesError):
        open_checkpoint(tmp_path / "deep.npy")
    assert [*open_checkpoint(tmp_path / "deep.npy", "in").tensors] == ["b"]
    np.save(tmp_path / "lone.npy", np.ones(3))
    with pytest.raises(UnsupportedCheckpointError, match="one array, which has no name") as refused:
        open_checkpoint(tmp_path / "lone.npy")
    assert "numpy.savez" in refused.value.hint


class Evil:
    """What a hostile pickle would have done."""

    def __reduce__(self) -> Any:
        return open, ("done.txt", "w")


def test_nothing_in_a_pickle_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = dumped(tmp_path / "a.pkl", {"w": np.ones(3), "evil": Evil()})
    found = open_checkpoint(path)
    assert [*found.tensors] == ["w"]
    assert found.other["evil"] == "io.open"
    assert found.tensors["w"].load().sum() == 3.0
    assert not Path("done.txt").exists()


def test_a_pickle_without_arrays_and_one_of_torch_say_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedCheckpointError, match="no arrays of NumPy are in it by name") as refused:
        open_checkpoint(dumped(tmp_path / "a.pkl", {"lr": 0.1, "names": ["a"]}))
    assert "python -c 'import pickle, numpy" in refused.value.hint
    objects = {"w": np.ones(3), "o": np.array([{"a": 1}, None]), "t": np.array(["text"])}
    with pytest.raises(UnsupportedTensorsError, match="'o' is an array of objects"):
        open_checkpoint(dumped(tmp_path / "b.pkl", objects))


@pytest.mark.frameworks
def test_a_tensor_of_torch_in_a_bare_pickle_is_refused_with_the_line_that_helps(tmp_path: Path) -> None:
    import torch

    path = dumped(tmp_path / "a.pkl", {"w": torch.ones(2, 2)})
    with pytest.raises(UnsupportedTensorsError, match="'w' is a tensor of torch within a pickle") as refused:
        open_checkpoint(path)
    assert f'torch.save(pickle.load(open("{path}", "rb")), "weights.pth")' in refused.value.hint
    torch.save(pickle.loads(path.read_bytes()), tmp_path / "weights.pth")
    assert open_checkpoint(tmp_path / "weights.pth").tensors["w"].shape == (2, 2)


def test_damage_ends_in_a_message(tmp_path: Path, assert_each: Any) -> None:
    whole = pickle.dumps({"w": np.arange(500.0), "b": np.ones(3, np.float32)}, 4)
    path = tmp_path / "a.pkl"

    def is_refused(data: bytes) -> None:
        path.write_bytes(data)
        with pytest.raises((NotACheckpointError, UnsupportedCheckpointError)):
            open_checkpoint(path).tensors["w"].load()

    cuts = [(whole[:cut],) for cut in (3, 20, 100, len(whole) // 2, len(whole) - 1)]
    assert_each(is_refused, cuts)


def test_an_array_that_has_other_bytes_than_it_says_is_refused(tmp_path: Path) -> None:
    whole = pickle.dumps({"w": np.arange(500.0)}, 4)
    shape = b"M\xf4\x01"  # BININT2 500
    assert whole.count(shape) == 1
    (tmp_path / "a.pkl").write_bytes(whole.replace(shape, b"M\xf4\x7f"))
    with pytest.raises(HostileFileError, match="has 4000 bytes where its shape and dtype need"):
        open_checkpoint(tmp_path / "a.pkl")


def test_a_text_of_other_length_than_its_array_is_found_when_it_is_read(tmp_path: Path) -> None:
    stream = io.BytesIO()
    pickle.dump({"w": np.arange(400, dtype=np.uint8)}, stream, 2)
    data = stream.getvalue()
    place = data.index("\u00ff".encode())
    (tmp_path / "a.pkl").write_bytes(data[:place] + b"ab" + data[place + 2 :])
    with pytest.raises(NotACheckpointError, match="has 401 bytes where"):
        open_checkpoint(tmp_path / "a.pkl").tensors["w"].load()


def test_an_array_beside_a_checkpoint_makes_a_folder_no_riddle(tmp_path: Path) -> None:
    np.save(tmp_path / "inputs.npy", np.ones(3))
    dumped(tmp_path / "vocabulary.pkl", {"a": 1})
    np.savez(tmp_path / "net.npz", w=np.ones(2))
    assert [*open_checkpoint(tmp_path).tensors] == ["w"]
    (tmp_path / "paddle").mkdir()
    (tmp_path / "paddle" / "net.pdparams").write_bytes((DATA / "half.pdparams").read_bytes())
    assert open_checkpoint(tmp_path / "paddle").format == "paddle"
