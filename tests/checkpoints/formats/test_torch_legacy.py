from __future__ import annotations

import io
import pickle
import re
import tarfile
import tracemalloc
from collections import OrderedDict
from types import SimpleNamespace

import pytest

from align.checkpoints.open_checkpoint import open_checkpoint
from align.core.load_code import checkpoint_formats
from align.errors import NeedsItsCodeError, UnsupportedCheckpointError, WholeModuleError

pytestmark = pytest.mark.frameworks


@pytest.fixture
def save(tmp_path):
    import torch

    def to_file(value, **options):
        path = tmp_path / "old.pth"
        torch.save(value, path, _use_new_zipfile_serialization=False, **options)
        return path

    return to_file


def assert_as_torch_reads_it(path) -> None:
    import torch

    found = open_checkpoint(path)
    expected = torch.load(path, weights_only=False)
    assert found.format == "torch-legacy"
    assert list(found.tensors) == list(expected)
    for name, tensor in expected.items():
        stored = found.tensors[name]
        assert stored.shape == tuple(tensor.shape), name
        assert stored.dtype == str(tensor.dtype).removeprefix("torch."), name
        assert stored.load().tobytes() == bytes_of(tensor), name


def bytes_of(tensor) -> bytes:
    import torch

    flat = tensor.detach().clone().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


@pytest.mark.parametrize(
    "dtype",
    ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64",
     "complex128"],
)  # fmt: skip
def test_every_dtype_is_read_bit_for_bit(save, dtype) -> None:
    import torch

    value = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype))
    assert_as_torch_reads_it(save({"odd": torch.ones(1).bool(), "matrix": value, "scalar": value[0, 1].clone()}))


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"])
def test_dtypes_that_torch_writes_so_and_cannot_read_back_are_read(save, dtype) -> None:
    import torch

    value = torch.arange(6).to(getattr(torch, dtype))
    stored = open_checkpoint(save({"w": value, "after": torch.ones(2)})).tensors
    assert stored["w"].dtype == dtype
    assert stored["w"].load().tobytes() == bytes_of(value)
    assert stored["after"].load().tolist() == [1, 1]


def test_views_ties_and_empty_tensors_are_read_as_their_values(save) -> None:
    import torch

    base, flat = torch.arange(24.0).reshape(2, 3, 4), torch.arange(8.0)
    state_dict = {
        "transposed": base.permute(2, 0, 1),
        "stepped": base[:, ::2, 1:],
        "expanded": base[:1].expand(5, 3, 4),
        "a": flat[:4],
        "b": flat[4:],
        "tied": flat[:4],
        "empty": torch.zeros(0, 3),
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }
    path = save(state_dict)
    assert_as_torch_reads_it(path)
    found = open_checkpoint(path).tensors
    assert found["a"].storage == found["tied"].storage != found["b"].storage
    assert found["transposed"].extent is None
    assert found["b"].extent.nbytes == 16


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_binary_protocol_is_read(save, protocol) -> None:
    import torch

    assert_as_torch_reads_it(save(torch.nn.LSTM(3, 4, 2).state_dict(), pickle_protocol=protocol))


def test_a_dict_as_python_2_pickled_it_is_read(save) -> None:
    import torch

    class Pickler(pickle.Pickler):
        def reducer_override(self, value):
            if type(value) is OrderedDict:
                return OrderedDict, ([[name, item] for name, item in value.items()],)
            return NotImplemented

    old = SimpleNamespace(__name__="pickle", Pickler=Pickler, dump=pickle.dump, load=pickle.load)
    path = save(OrderedDict(b=torch.ones(2), a=torch.arange(3)), pickle_module=old)
    assert b"collections\nOrderedDict" in path.read_bytes()
    assert_as_torch_reads_it(path)


def test_old_and_new_files_of_one_object_say_the_same(save, tmp_path) -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3, 4, 4)).sum().backward()
    optimizer.step()
    value = {"epoch": 3, "net": model.state_dict(), "optimizer": optimizer.state_dict(), "best": torch.tensor(0.5)}
    old = open_checkpoint(save(value))
    torch.save(value, tmp_path / "new.pth")
    new = open_checkpoint(tmp_path / "new.pth")
    assert (old.key, old.entries, old.other, old.other_tensors) == (new.key, new.entries, new.other, new.other_tensors)
    assert old.other_tensors == {"optimizer": 12, "best": 1}
    for name, tensor in new.tensors.items():
        assert old.tensors[name].load().tobytes() == tensor.load().tobytes()


@pytest.mark.parametrize("wrap", [lambda model: model, lambda model: {"model": model, "epoch": 1}])
def test_a_whole_pickled_module_is_named_by_its_class(save, wrap) -> None:
    import torch

    with pytest.raises(WholeModuleError, match=r"module, torch\.nn\.modules\.linear\.Linear"):
        open_checkpoint(save(wrap(torch.nn.Linear(2, 2))))


def test_opening_reads_only_the_pickles(save) -> None:
    import torch

    path = save({"big": torch.zeros(4 << 20), "small": torch.ones(3)})
    tracemalloc.start()
    tensors = open_checkpoint(path).tensors
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    assert tensors["small"].load().tolist() == [1, 1, 1]
    assert not tensors["big"].load().flags.writeable


def test_a_file_from_a_big_endian_machine_is_refused(save) -> None:
    import torch

    path = save({"w": torch.ones(2)})
    changed, count = re.subn(b"(little_endianq.)\x88", b"\\1\x89", path.read_bytes(), flags=re.DOTALL)
    assert count == 1
    path.write_bytes(changed)
    with pytest.raises(UnsupportedCheckpointError, match="little-endian"):
        open_checkpoint(path)


def test_a_file_saved_from_another_device_is_read(save) -> None:
    import torch

    path = save({"w": torch.arange(3.0)})
    path.write_bytes(path.read_bytes().replace(b"X\x03\x00\x00\x00cpu", b"X\x05\x00\x00\x00npu:0"))
    assert open_checkpoint(path).tensors["w"].load().tolist() == [0, 1, 2]


def test_a_tensor_as_torch_npu_saves_it_is_read(save) -> None:
    """Its maker takes the plain tensor's arguments and the device's format; the bytes are the plain ones."""
    import torch

    path = save({"w": torch.arange(3.0)})
    plain, of_npu = b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch_npu.utils.storage\n_rebuild_npu_tensor\n"
    changed, count = re.subn(b"(Rq.)(tq.R)", b"\\1K\x02\\2", path.read_bytes().replace(plain, of_npu), flags=re.DOTALL)
    assert count == 1
    path.write_bytes(changed)
    assert open_checkpoint(path).tensors["w"].load().tolist() == [0, 1, 2]


def test_the_old_form_is_never_written() -> None:
    plugin = checkpoint_formats()["torch-legacy"]
    (line,) = plugin.problems([], {})
    assert "read only" in line
    with pytest.raises(NotImplementedError, match="read only"):
        plugin.write(io.BytesIO(), [], {})


def test_pickles_without_arrays_and_tar_files_are_refused_with_what_to_do(save, tmp_path) -> None:
    import torch

    path = tmp_path / "bare.pth"
    path.write_bytes(pickle.dumps({"w": [1.0, 2.0]}, 4))
    with pytest.raises(UnsupportedCheckpointError, match="a pickle, which is not run") as error:
        open_checkpoint(path)
    assert "numpy.savez" in error.value.hint
    with tarfile.open(tmp_path / "older.pth", "w", format=tarfile.USTAR_FORMAT) as archive:
        archive.add(save({"w": torch.ones(2)}), "storages")
    with pytest.raises(NeedsItsCodeError, match="tar file") as error:
        open_checkpoint(tmp_path / "older.pth")
    assert "--trust-pickle" in error.value.hint
