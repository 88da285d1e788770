from __future__ import annotations

import subprocess
import sys
import tarfile

import numpy as np
import pytest

from align.checkpoints.extents import byte_blocks
from align.checkpoints.open_checkpoint import open_checkpoint, open_trusted
from align.errors import (
    HostileFileError,
    MissingClassError,
    MissingEntryError,
    NotACheckpointError,
    SeveralEntriesError,
    UnsupportedCheckpointError,
    UserCodeError,
    WholeModuleError,
)

pytestmark = pytest.mark.frameworks


@pytest.fixture
def net():
    import torch

    class_of_torch = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    class_of_torch[0].bias.data = class_of_torch[0].bias.data.bfloat16()
    return class_of_torch


@pytest.fixture
def save(tmp_path):
    import torch

    def to_file(value, **options):
        torch.save(value, tmp_path / "file.pth", **options)
        return tmp_path / "file.pth"

    return to_file


def raw(tensor) -> bytes:
    import torch

    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}])
def test_a_whole_module_is_opened_as_its_state_dict(save, net, options) -> None:
    path = save(net, **options)
    with pytest.raises(WholeModuleError):
        open_checkpoint(path)
    checkpoint = open_trusted(path)
    assert (checkpoint.key, checkpoint.format) == ("", "torch")
    assert "ran the code" in checkpoint.notes[0]
    assert list(checkpoint.tensors) == list(net.state_dict())
    assert checkpoint.tensors["0.bias"].dtype == "bfloat16"
    for name, tensor in net.state_dict().items():
        stored = checkpoint.tensors[name]
        assert (stored.name, stored.shape) == (name, tuple(tensor.shape))
        assert b"".join(map(bytes, byte_blocks(stored))) == raw(tensor)
        assert not stored.load().flags.writeable


def test_what_the_safe_reader_can_open_is_not_run(save, net, tmp_path) -> None:
    marker = tmp_path / "was-run"

    class Bomb:
        def __reduce__(self):
            return marker.touch, ()

    path = save({"model": net.state_dict(), "callback": Bomb(), "stats": net})
    with pytest.raises(WholeModuleError):
        open_checkpoint(path)
    checkpoint = open_trusted(path, "model")
    assert checkpoint.notes == ()
    assert checkpoint.tensors["0.weight"].extent is not None
    assert not marker.exists()
    assert open_trusted(path, "stats").key == "stats"
    assert marker.exists()


def test_modules_below_keys_are_chosen_by_key(save, net) -> None:
    import torch

    other = torch.nn.Linear(2, 2)
    path = save({"epoch": 3, "model": torch.nn.DataParallel(net), "ema": other, "args": {"names": ["a"]}})
    with pytest.raises(SeveralEntriesError, match="'model', 'ema'"):
        open_trusted(path)
    checkpoint = open_trusted(path, "model")
    assert list(checkpoint.tensors) == [f"module.{name}" for name in net.state_dict()]
    assert checkpoint.other == {"epoch": "3", "ema": "mapping of 2 entries", "args": "mapping of 1 entry"}
    assert checkpoint.other_tensors == {"ema": 2}
    assert [(entry.key, entry.tensors) for entry in checkpoint.entries] == [("model", 7), ("ema", 2)]
    with pytest.raises(MissingEntryError, match="'optimizer'"):
        open_trusted(path, "optimizer")


def test_ties_are_known_and_other_views_are_no_ties(save) -> None:
    import torch

    tied = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2, bias=False), "b": torch.nn.Linear(2, 2, bias=False)})
    tied["b"].weight = tied["a"].weight
    tied.register_buffer("whole", torch.arange(4.0))
    tied.register_buffer("part", tied.whole[:2])
    tied.register_buffer("none", torch.zeros(0))
    tied.register_buffer("nothing", torch.zeros(0))
    found = open_trusted(save(tied)).tensors
    assert found["a.weight"].storage == found["b.weight"].storage
    assert found["whole"].storage != found["part"].storage
    assert found["none"].storage is None
    assert found["nothing"].load().shape == (0,)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor", "ignore:TypedStorage is deprecated")
def test_tensors_without_a_plain_form_are_all_named(save) -> None:
    import torch

    odd = torch.nn.Module()
    odd.register_buffer("q", torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8))
    odd.register_buffer("s", torch.eye(2).to_sparse())
    odd.register_buffer("m", torch.ones(2, device="meta"))
    odd.register_buffer("fine", torch.ones(2))
    with pytest.raises(UnsupportedCheckpointError) as error:
        open_trusted(save(odd))
    assert all(word in error.value.message for word in ("'q'", "'s'", "'m'", "quantized", "sparse", "meta"))
    assert "fine" not in error.value.message


def test_a_conjugated_and_a_strided_buffer_have_their_values(save) -> None:
    import torch

    holder = torch.nn.Module()
    holder.register_buffer("c", torch.tensor([1 + 2j]).conj())
    holder.register_buffer("t", torch.arange(6.0).reshape(2, 3).t())
    found = open_trusted(save(holder)).tensors
    assert found["c"].load().tolist() == [1 - 2j]
    assert found["t"].load().tolist() == [[0, 3], [1, 4], [2, 5]]


def test_a_file_whose_class_is_in_the_current_folder_is_opened_there_and_only_there(tmp_path, monkeypatch) -> None:
    code = "import torch\n\nclass Port(torch.nn.Linear):\n    pass\n"
    (tmp_path / "home").mkdir()
    (tmp_path / "away").mkdir()
    (tmp_path / "home" / "port_of_mine.py").write_text(code, encoding="utf-8")
    script = "import torch, port_of_mine; torch.save(port_of_mine.Port(2, 3), '../file.pth')"
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path / "home", check=True)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path / "away")
    with pytest.raises(MissingClassError, match="the module 'port_of_mine'") as error:
        open_trusted(tmp_path / "file.pth")
    assert "folder of the code" in error.value.hint
    (tmp_path / "away" / "port_of_mine.py").write_text("", encoding="utf-8")
    with pytest.raises(MissingClassError, match=r"port_of_mine\.Port"):
        open_trusted(tmp_path / "file.pth")
    monkeypatch.delitem(sys.modules, "port_of_mine")
    monkeypatch.chdir(tmp_path / "home")
    assert list(open_trusted(tmp_path / "file.pth").tensors) == ["weight", "bias"]
    monkeypatch.delitem(sys.modules, "port_of_mine")


def test_code_that_fails_is_told_as_such(save, net) -> None:
    class Fails:
        def __reduce__(self):
            return int, ("many",)

    with pytest.raises(UserCodeError, match=r"loading .* failed: ValueError: invalid literal"):
        open_trusted(save({"model": net, "bad": Fails()}))


def test_a_parameter_name_with_control_characters_is_refused(save, net) -> None:
    net[0].register_buffer("x\x1b[2J", net[1].running_mean)
    with pytest.raises(HostileFileError, match="must not be shown"):
        open_trusted(save(net))


@pytest.mark.filterwarnings("ignore")
def test_a_torchscript_program_and_a_tar_file_go_through_torch(save, net, tmp_path) -> None:
    import torch

    plain = torch.nn.Linear(2, 3)
    torch.jit.script(plain).save(tmp_path / "script.pt")
    found = open_trusted(tmp_path / "script.pt").tensors
    assert np.array_equal(found["weight"].load(), plain.weight.detach().numpy())
    with tarfile.open(tmp_path / "old.pth", "w", format=tarfile.USTAR_FORMAT) as archive:
        archive.add(save(net), "storages")
    with pytest.raises(UserCodeError, match="with torch failed"):
        open_trusted(tmp_path / "old.pth")


def test_trust_does_not_turn_another_file_into_a_checkpoint(tmp_path) -> None:
    (tmp_path / "notes.txt").write_text("nothing here", encoding="utf-8")
    with pytest.raises(NotACheckpointError, match="no known format"):
        open_trusted(tmp_path / "notes.txt")


def test_without_torch_the_install_line_is_given(save, net) -> None:
    block = (
        "import sys; from importlib.machinery import PathFinder as P\n"
        "class F:\n"
        "    find_spec = staticmethod(lambda n, p=None, t=None: None if n == 'torch' else P.find_spec(n, p, t))\n"
        "sys.meta_path = [F if finder is P else finder for finder in sys.meta_path]\n"
    )
    code = f"{block}from align.checkpoints.open_checkpoint import open_trusted\nopen_trusted({str(save(net))!r})"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr
    assert "FrameworkMissingError: torch is not installed" in said
    assert 'pip install "mindalign[torch]"' in said
