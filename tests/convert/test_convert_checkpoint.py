from __future__ import annotations

import hashlib
import io
import os
import signal
import stat
import subprocess
import sys
import tracemalloc
from typing import TYPE_CHECKING

import numpy as np
import pytest
import xxhash

from align.checkpoints.open_checkpoint import open_checkpoint
from align.convert.convert_checkpoint import convert_checkpoint
from align.core.load_code import checkpoint_formats
from align.core.name_map import NameMap, Pairing
from align.core.transforms import Cast, Permute, Reshape
from align.core.verdicts import Outcome
from align.errors import (
    DestinationError,
    MapError,
    MissingFileError,
    NotACheckpointError,
    OpenNamesError,
    UnsupportedCheckpointError,
    UsageError,
    VerificationError,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def source(tmp_path) -> Path:
    path = tmp_path / "source.npz"
    np.savez(path, **{"fc.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "fc.bias": np.ones(2, np.float32)})
    return path


def name_map(*pairings):
    return NameMap("a", "b", tuple(Pairing(*pair[:2], "user", 1.0, *pair[2:]) for pair in pairings))


def listing(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_record_says_what_was_done(source, tmp_path) -> None:
    record = convert_checkpoint(source, tmp_path / "out.ckpt")
    assert record.verdict.outcome is Outcome.ALIGNED
    assert record.verdict.coverage.compared == len(record.tensors) == 2
    assert (record.source_format, record.destination_format, record.verified) == ("npz", "ckpt", True)
    assert (record.files, record.framework, record.key) == ((str(tmp_path / "out.ckpt"),), "mindspore", "")
    content = np.arange(6, dtype="<f4").tobytes()
    assert record.tensors[0].hash == f"xxh3:{xxhash.xxh3_128(content).hexdigest()}"
    signed = convert_checkpoint(source, tmp_path / "signed.ckpt", sha256=True)
    assert signed.tensors[0].hash == f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert (len(record.content_hash), len(signed.content_hash)) == (len("xxh3:") + 32, len("sha256:") + 64)
    with pytest.raises(UsageError, match="--no-verify reads nothing back"):
        convert_checkpoint(source, tmp_path / "unread.ckpt", sha256=True, verify=False)
    assert record.versions["numpy"] == np.__version__


def test_transforms_are_applied_and_verified(source, tmp_path) -> None:
    given = name_map(("fc.weight", "w", Permute((1, 0))), ("fc.bias", "b", Cast("bfloat16")))
    record = convert_checkpoint(source, tmp_path / "out.ckpt", name_map=given)
    found = open_checkpoint(tmp_path / "out.ckpt").tensors
    assert found["w"].load().tolist() == [[0, 3], [1, 4], [2, 5]]
    assert found["b"].dtype == "bfloat16"
    assert record.tensors[0].transform == {"op": "permute", "axes": [1, 0]}


def test_a_map_there_and_its_inverse_back_give_the_source_again(source, tmp_path) -> None:
    there = name_map(("fc.weight", "w", Permute((1, 0))), ("fc.bias", "b", Reshape((1, 2))))
    back = name_map(("w", "fc.weight", Permute((1, 0))), ("b", "fc.bias", Reshape((2,))))
    convert_checkpoint(source, tmp_path / "there.ckpt", name_map=there)
    convert_checkpoint(tmp_path / "there.ckpt", tmp_path / "back.npz", name_map=back)
    before, after = open_checkpoint(source).tensors, open_checkpoint(tmp_path / "back.npz").tensors
    assert {n: t.load().tobytes() for n, t in before.items()} == {n: t.load().tobytes() for n, t in after.items()}


def test_a_mindspore_file_keeps_its_names(source, tmp_path) -> None:
    np.savez(source, **{"norm.weight": np.ones(2, np.float32), "norm.bias": np.ones(2, np.float32)})
    convert_checkpoint(source, tmp_path / "a.ckpt")
    record = convert_checkpoint(tmp_path / "a.ckpt", tmp_path / "b.safetensors")
    assert [tensor.target for tensor in record.tensors] == ["norm.gamma", "norm.beta"]


def test_without_a_map_an_open_file_writes_nothing(tmp_path) -> None:
    np.savez(tmp_path / "m.npz", **{"emb.weight": np.ones((4, 2), np.float32), "x.weight": np.ones(3, np.float32)})
    with pytest.raises(OpenNamesError) as error:
        convert_checkpoint(tmp_path / "m.npz", tmp_path / "out.ckpt")
    assert len(error.value.lines) == 2
    assert "embedding -> embedding_table" in error.value.lines[0]
    assert "--layer 'emb=" in error.value.hint
    assert listing(tmp_path) == ["m.npz"]
    record = convert_checkpoint(tmp_path / "m.npz", tmp_path / "out.ckpt", layers=["emb=embedding", "x=layer_norm"])
    assert [tensor.target for tensor in record.tensors] == ["emb.embedding_table", "x.gamma"]


def test_a_map_file_is_read_by_the_workflow(source, tmp_path) -> None:
    (tmp_path / "map.toml").write_text('[names]\n"fc.weight" = "w"\n"fc.bias" = "b"\n')
    for given in (tmp_path / "map.toml", str(tmp_path / "map.toml")):
        record = convert_checkpoint(source, tmp_path / "out.ckpt", name_map=given, overwrite=True)
        assert [tensor.target for tensor in record.tensors] == ["w", "b"]
    with pytest.raises(MissingFileError, match="map file"):
        convert_checkpoint(source, tmp_path / "new.ckpt", name_map=tmp_path / "no.toml")


@pytest.mark.parametrize(
    ("option", "arguments"), [("--layer", {"layers": ["fc=linear"]}), ("--target", {"target": "nn"})]
)
def test_what_a_map_would_ignore_is_refused(source, tmp_path, option, arguments) -> None:
    given = name_map(("fc.weight", "w"), ("fc.bias", "b"))
    with pytest.raises(UsageError, match=f"{option} does not go with a map"):
        convert_checkpoint(source, tmp_path / "out.ckpt", name_map=given, **arguments)


def test_choices_of_layers_are_refused_where_the_names_stay(source, tmp_path) -> None:
    convert_checkpoint(source, tmp_path / "ms.ckpt")
    with pytest.raises(UsageError, match="--layer says nothing of"):
        convert_checkpoint(tmp_path / "ms.ckpt", tmp_path / "out.ckpt", layers=["fc=linear"])
    assert not (tmp_path / "out.ckpt").exists()


def test_what_a_cast_costs_is_counted_and_nothing_else_is_said_on_the_terminal(tmp_path, capfd) -> None:
    np.savez(
        tmp_path / "m.npz",
        a=np.array([1, np.nan, 1e30, 0.5], np.float32),
        b=np.array([1, 1e30, 0.1], np.float32),
        c=np.array([0.1, 0.2], np.float32),
        d=np.array([0.5], np.float32),
    )
    given = name_map(
        ("a", "a", Cast("int32")), ("b", "b", Cast("float16")), ("c", "c", Cast("float16")), ("d", "d", Cast("float16"))
    )
    record = convert_checkpoint(tmp_path / "m.npz", tmp_path / "out.ckpt", name_map=given)
    assert record.warnings == (
        "a: the cast float32 -> int32 cannot hold 2 of 4 values and rounds 1",
        "b: the cast float32 -> float16 cannot hold 1 of 3 values and rounds 1",
        "the cast float32 -> float16 rounds 2 values of 1 tensor: c",
    )
    assert "7 values lost or rounded by casts" in record.verdict.reason
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("layers", [["no-equals"], ["a="], ["nowhere=linear"], ["fc=lineer"]])
def test_a_useless_choice_is_an_error(source, tmp_path, layers) -> None:
    with pytest.raises(UsageError, match="--layer"):
        convert_checkpoint(source, tmp_path / "out.ckpt", layers=layers)


def test_a_map_that_does_not_fit_lists_all_faults_and_writes_nothing(source, tmp_path) -> None:
    with pytest.raises(MapError) as error:
        convert_checkpoint(source, tmp_path / "out.ckpt", name_map=name_map(("fc.weights", "w")))
    assert len(error.value.faults) == 3
    assert listing(tmp_path) == ["source.npz"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("out.xyz", "suffix"),
        ("out.onnx", "no checkpoint can be written with the suffix"),
        ("no/out.ckpt", "does not exist"),
        ("source.npz", "itself"),
        (".", "is a folder"),
    ],
)
def test_a_destination_that_cannot_be_is_refused(source, tmp_path, name, reason) -> None:
    with pytest.raises(DestinationError, match=reason):
        convert_checkpoint(source, tmp_path / name, overwrite=True)
    assert listing(tmp_path) == ["source.npz"]


def test_the_hint_names_only_suffixes_that_can_be_written(source, tmp_path) -> None:
    with pytest.raises(DestinationError) as error:
        convert_checkpoint(source, tmp_path / "out.xyz")
    assert error.value.hint == "use one of: .ckpt, .npz, .safetensors, .pth, .pt, .bin"


def test_the_source_is_not_overwritten_through_a_link(source, tmp_path) -> None:
    (tmp_path / "link.npz").symlink_to(source)
    with pytest.raises(DestinationError, match="itself"):
        convert_checkpoint(source, tmp_path / "link.npz", overwrite=True)


def test_an_existing_file_is_replaced_only_on_request(source, tmp_path) -> None:
    out = tmp_path / "out.ckpt"
    out.write_bytes(b"old")
    with pytest.raises(DestinationError, match="--overwrite"):
        convert_checkpoint(source, out)
    assert out.read_bytes() == b"old"
    convert_checkpoint(source, out, overwrite=True)
    assert set(open_checkpoint(out).tensors) == {"fc.weight", "fc.bias"}


def test_a_missing_source_and_one_that_is_no_checkpoint_are_told_apart(source, tmp_path) -> None:
    with pytest.raises(MissingFileError):
        convert_checkpoint(tmp_path / "gone.pth", tmp_path / "out.ckpt")
    (tmp_path / "text.pth").write_text("not a checkpoint")
    with pytest.raises(NotACheckpointError, match="expected one of"):
        convert_checkpoint(tmp_path / "text.pth", tmp_path / "out.ckpt")
    assert not (tmp_path / "out.ckpt").exists()


def test_what_the_target_cannot_hold_is_listed_before_anything_is_written(tmp_path) -> None:
    np.savez(tmp_path / "m.npz", c=np.ones(2, np.complex64), e=np.ones((0, 3), np.float32), f=np.ones(2, np.float32))
    with pytest.raises(DestinationError) as error:
        convert_checkpoint(tmp_path / "m.npz", tmp_path / "out.ckpt")
    assert "c: " in error.value.message
    assert "e: " in error.value.message
    assert listing(tmp_path) == ["m.npz"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), ValueError("a fault")])
def test_a_failure_in_the_middle_leaves_the_old_file_and_no_partial_one(source, tmp_path, monkeypatch, error) -> None:
    out = tmp_path / "out.ckpt"
    out.write_bytes(b"old")
    plugin = type(checkpoint_formats()["ckpt"])

    def fail(self, stream, tensors, metadata):
        stream.write(b"half")
        stream.flush()
        raise error

    monkeypatch.setattr(plugin, "write", fail)
    expected = DestinationError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected):
        convert_checkpoint(source, out, overwrite=True)
    assert out.read_bytes() == b"old"
    assert listing(tmp_path) == ["out.ckpt", "source.npz"]


def test_a_run_that_was_killed_does_no_harm_to_the_next(source, tmp_path) -> None:
    out = tmp_path / "out.ckpt"
    out.write_bytes(b"old")
    code = (
        "import os, signal, sys; from align.core.load_code import checkpoint_formats; "
        "from align.convert.convert_checkpoint import convert_checkpoint; "
        "plugin = type(checkpoint_formats()['ckpt']); "
        "plugin.write = lambda self, stream, *_: "
        "(stream.write(b'half'), stream.flush(), os.kill(os.getpid(), signal.SIGKILL)); "
        "convert_checkpoint(sys.argv[1], sys.argv[2], overwrite=True)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(source), str(out)], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert out.read_bytes() == b"old"
    assert len(set(listing(tmp_path)) - {"out.ckpt", "source.npz"}) == 1
    convert_checkpoint(source, out, overwrite=True)
    assert set(open_checkpoint(out).tensors) == {"fc.weight", "fc.bias"}
    assert listing(tmp_path) == ["out.ckpt", "source.npz"]


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "fc.bias: the bytes differ"),
        (lambda data: data[:-40], "not a readable checkpoint"),
        (lambda data: data.replace(b"fc.bias", b"fc.bios"), "fc.bios: unexpected"),
        (
            lambda data: data.replace(b"\x08\x02\x08\x03", b"\x08\x03\x08\x02"),
            r"fc.weight: shape \(3, 2\), expected \(2, 3\)",
        ),
        (lambda data: data.replace(b"Float32", b"Float31", 1), "Float31"),
    ],
)
def test_a_file_that_reads_back_otherwise_is_removed(source, tmp_path, monkeypatch, spoil, reason) -> None:
    plugin = type(checkpoint_formats()["ckpt"])
    write = plugin.write

    def badly(self, stream, tensors, metadata):
        buffer = io.BytesIO()
        write(self, buffer, tensors, metadata)
        stream.write(spoil(buffer.getvalue()))

    monkeypatch.setattr(plugin, "write", badly)
    with pytest.raises(VerificationError, match=reason):
        convert_checkpoint(source, tmp_path / "out.ckpt")
    assert listing(tmp_path) == ["source.npz"]


def test_the_file_has_the_mode_of_the_users_umask(source, tmp_path) -> None:
    before = os.umask(0o027)
    try:
        convert_checkpoint(source, tmp_path / "out.ckpt")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out.ckpt").stat().st_mode) == 0o640


def test_progress_covers_writing_and_verifying(source, tmp_path) -> None:
    calls = []
    convert_checkpoint(source, tmp_path / "out.ckpt", progress=lambda *call: calls.append(call))
    for what in ("writing", "verifying"):
        assert [call for call in calls if call[0] == what][-1] == (what, 32, 32)


def test_a_large_tensor_is_never_held_in_memory(tmp_path) -> None:
    np.savez(tmp_path / "big.npz", **{"c.weight": np.zeros((8, 1 << 20, 1, 1), np.float32)})
    tracemalloc.start()
    convert_checkpoint(tmp_path / "big.npz", tmp_path / "big.ckpt")
    assert tracemalloc.get_traced_memory()[1] < 10 << 20
    tracemalloc.stop()


@pytest.mark.frameworks
def test_a_torch_model_is_loaded_by_its_port_with_equal_outputs(tmp_path) -> None:
    import mindspore
    import torch

    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(4 * 5 * 5, 6), torch.nn.LayerNorm(6),
    )  # fmt: skip
    with torch.no_grad():
        model[1].running_mean.uniform_(-1, 1)
        model[1].running_var.uniform_(0.5, 2)
    torch.save(model.state_dict(), tmp_path / "model.pth")
    record = convert_checkpoint(tmp_path / "model.pth", tmp_path / "model.ckpt")
    assert list(record.dropped) == ["1.num_batches_tracked"]

    nn = mindspore.nn
    port = nn.SequentialCell(
        nn.Conv2d(3, 4, 3, pad_mode="pad", padding=1, has_bias=True), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
        nn.Dense(4 * 5 * 5, 6), nn.LayerNorm((6,), epsilon=1e-5),
    )  # fmt: skip
    loaded = mindspore.load_checkpoint(str(tmp_path / "model.ckpt"))
    assert mindspore.load_param_into_net(port, loaded, strict_load=True) == ([], [])
    x = np.random.default_rng(0).normal(size=(2, 3, 5, 5)).astype(np.float32)
    expected = model.eval()(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(port.set_train(False)(mindspore.Tensor(x)).asnumpy(), expected, atol=1e-5)


@pytest.mark.frameworks
@pytest.mark.parametrize("suffix", [".ckpt", ".safetensors"])
def test_every_dtype_arrives_in_mindspore_with_its_bits(tmp_path, suffix) -> None:
    import mindspore
    import torch

    dtypes = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
    state = {kind: torch.arange(-3, 3).reshape(2, 3).to(getattr(torch, kind)) for kind in dtypes}
    state |= {f"{kind}-0d": torch.tensor(1).to(getattr(torch, kind)) for kind in dtypes}
    state["transposed"] = torch.arange(6.0).reshape(2, 3).T
    torch.save(state, tmp_path / "m.pth")
    convert_checkpoint(tmp_path / "m.pth", tmp_path / f"m{suffix}")
    loaded = mindspore.load_checkpoint(str(tmp_path / f"m{suffix}"), format=suffix[1:])
    assert set(loaded) == set(state)
    for name, tensor in state.items():
        kind = str(tensor.dtype).removeprefix("torch.")
        raw = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        found = loaded[name].asnumpy()
        assert found.tobytes() == raw, name
        assert found.dtype.name == kind, name
        assert found.shape == tuple(tensor.shape)


@pytest.mark.frameworks
def test_tied_weights_are_written_under_each_name_and_recorded(tmp_path) -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    model[1].weight = model[0].weight
    torch.save(model.state_dict(), tmp_path / "m.pth")
    record = convert_checkpoint(tmp_path / "m.pth", tmp_path / "m.ckpt")
    assert record.ties == (("0.weight", "1.weight"),)
    found = open_checkpoint(tmp_path / "m.ckpt").tensors
    assert found["0.weight"].load().tobytes() == found["1.weight"].load().tobytes()


@pytest.mark.frameworks
def test_a_square_weight_is_not_transposed_and_swapped_siblings_stay_apart(tmp_path) -> None:
    import torch

    state = {
        f"{name}.{part}": torch.randn(3, 3) if part == "weight" else torch.randn(3)
        for name in "qkv"
        for part in ("weight", "bias")
    }
    torch.save(state, tmp_path / "m.pth")
    convert_checkpoint(tmp_path / "m.pth", tmp_path / "m.ckpt")
    found = open_checkpoint(tmp_path / "m.ckpt").tensors
    for name, tensor in state.items():
        np.testing.assert_array_equal(found[name].load(), tensor.numpy())


@pytest.mark.frameworks
def test_a_1x1_convolution_keeps_its_axes(tmp_path) -> None:
    """MindSpore's loader would fill a (2, 3) parameter from (2, 3, 1, 1) without a word."""
    import torch

    torch.save({"c.weight": torch.randn(2, 3, 1, 1)}, tmp_path / "m.pth")
    convert_checkpoint(tmp_path / "m.pth", tmp_path / "m.ckpt")
    assert open_checkpoint(tmp_path / "m.ckpt").tensors["c.weight"].shape == (2, 3, 1, 1)


@pytest.mark.frameworks
def test_what_is_left_out_of_a_training_checkpoint_is_said(tmp_path) -> None:
    import torch

    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    state = {"net": model.state_dict(), "optimizer": optimizer.state_dict(), "acc": torch.tensor(0.9), "epoch": 3}
    torch.save(state, tmp_path / "m.pth")
    record = convert_checkpoint(tmp_path / "m.pth", tmp_path / "m.ckpt")
    assert [tensor.target for tensor in record.tensors] == ["weight", "bias"]
    assert record.left_out == {
        "optimizer": "mapping of 2 entries", "acc": "tensor of shape ()", "epoch": "3",
    }  # fmt: skip
    assert record.warnings == (
        "optimizer (mapping of 2 entries) holds 6 tensors: NOT CONVERTED",
        "acc (tensor of shape ()) holds 1 tensor: NOT CONVERTED",
    )
    assert "7 tensors beside them NOT CONVERTED" in record.verdict.reason


@pytest.mark.frameworks
def test_a_whole_pickled_module_is_refused_before_anything_is_written(tmp_path) -> None:
    import torch

    torch.save(torch.nn.Linear(2, 2), tmp_path / "m.pth")
    with pytest.raises(UnsupportedCheckpointError, match=r"Linear.*\n.*state_dict"):
        convert_checkpoint(tmp_path / "m.pth", tmp_path / "m.ckpt")
    assert listing(tmp_path) == ["m.pth"]
