from __future__ import annotations

import re
import zipfile

import pytest

from align.checkpoints.open_checkpoint import open_checkpoint
from align.errors import MissingEntryError, UnsupportedCheckpointError

pytestmark = pytest.mark.frameworks


@pytest.fixture
def save(tmp_path):
    import torch

    def to_file(value, **options):
        path = tmp_path / "file.pth"
        torch.save(value, path, **options)
        return path

    return to_file


def bytes_of(tensor) -> bytes:
    import torch

    return (
        tensor.detach().clone().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
    )


def assert_same(path, state_dict) -> None:
    found = open_checkpoint(path).tensors
    assert list(found) == list(state_dict)
    for name, tensor in state_dict.items():
        stored = found[name]
        assert stored.shape == tuple(tensor.shape), name
        assert stored.dtype == str(tensor.dtype).removeprefix("torch."), name
        assert stored.load().tobytes() == bytes_of(tensor), name


@pytest.mark.parametrize(
    "dtype",
    ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64",
     "complex128", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"],
)  # fmt: skip
def test_every_dtype_is_read_bit_for_bit(save, dtype) -> None:
    import torch

    value = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype))
    state_dict = {"matrix": value, "scalar": value[0, 1].clone(), "empty": value[:0].clone()}
    assert_same(save(state_dict), state_dict)


def test_views_of_any_stride_are_read_as_their_values(save) -> None:
    import torch

    base = torch.arange(24.0).reshape(2, 3, 4)
    state_dict = {
        "transposed": base.permute(2, 0, 1),
        "stepped": base[:, ::2, 1:],
        "expanded": base[:1].expand(5, 3, 4),
        "repeated": torch.ones(1).expand(3, 0),
        "row": base[1, 2],
        "channels_last": torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
    }
    assert_same(save(state_dict), state_dict)
    found = open_checkpoint(save(state_dict)).tensors
    assert found["row"].extent is not None
    assert found["transposed"].extent is None


def test_parameters_buffers_and_subclass_state_are_plain_tensors(save) -> None:
    import torch

    marked = torch.nn.Parameter(torch.ones(2))
    marked.note = "kept by torch, not by a checkpoint"
    state_dict = {"parameter": torch.nn.Parameter(torch.ones(2)), "buffer": torch.zeros(3), "marked": marked}
    assert_same(save(state_dict), state_dict)


def test_a_whole_models_state_dict_is_read(save) -> None:
    import torch

    model = torch.nn.TransformerEncoderLayer(8, 2, 16)
    assert_same(save(model.state_dict()), model.state_dict())


def test_ties_are_known_and_neighbouring_views_are_not_ties(save) -> None:
    import torch

    table, flat = torch.ones(4, 3), torch.arange(8.0)
    found = open_checkpoint(save({"embed": table, "head": table, "a": flat[:4], "b": flat[4:]})).tensors
    assert found["embed"].storage == found["head"].storage
    assert len({found[name].storage for name in ("embed", "a", "b")}) == 3


def test_a_file_saved_from_another_device_is_read(save, tmp_path) -> None:
    path = save({"w": __import__("torch").arange(3.0)})
    with zipfile.ZipFile(path) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in records.items():
            archive.writestr(name, content.replace(b"X\x03\x00\x00\x00cpu", b"X\x03\x00\x00\x00npu"))
    assert open_checkpoint(path).tensors["w"].load().tolist() == [0, 1, 2]


def test_a_file_without_checksums_is_read(save) -> None:
    import torch

    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        assert_same(save({"w": torch.ones(2)}), {"w": torch.ones(2)})
    finally:
        torch.serialization.set_crc32_options(before)


@pytest.mark.parametrize("key", ["state_dict", "model", "weights"])
def test_a_wrapper_is_taken_off_and_the_rest_is_named(save, key) -> None:
    import torch

    optimizer = {"state": {0: {"exp_avg": torch.ones(2)}}, "param_groups": [{"lr": 0.1}]}
    checkpoint = open_checkpoint(save({key: {"w": torch.ones(2)}, "epoch": 3, "optimizer": optimizer}))
    assert list(checkpoint.tensors) == ["w"]
    assert checkpoint.other == {"epoch": "3", "optimizer": "mapping of 2 entries"}
    assert checkpoint.other_tensors == {"optimizer": 1}


def test_nothing_beside_the_tensors_vanishes_at_any_depth(save) -> None:
    import torch

    one = torch.ones(2)
    weights = {"w": one, 1: one, "1": 7, "parts": [one, (one, {"x": torch.zeros(2)})], "lr": {"base": 0.1}}
    checkpoint = open_checkpoint(save({"run": {"model": weights, "step": 4}, "seed": 0, "x\x1b[2J": None}))
    assert list(checkpoint.tensors) == ["w"]
    assert checkpoint.other == {
        "seed": "0",
        "'x\\x1b[2J'": "None",
        "run.step": "4",
        "run.model.[1]": "tensor of shape (2,)",
        "run.model.1": "7",
        "run.model.parts": "list of 2 entries",
        "run.model.lr": "mapping of 1 entry",
    }
    assert checkpoint.other_tensors == {"run.model.parts": 1}  # the other one is converted, under the name w


@pytest.mark.parametrize("beside", [{"acc": 0.9}, {"acc": 0.9, "best": [0.8]}, {"metrics": {"acc": 0.9}}])
def test_lone_figures_beside_the_weights_do_not_compete_with_them(save, beside) -> None:
    import torch

    as_tensors = {
        name: {k: torch.tensor(v) for k, v in value.items()} if isinstance(value, dict) else torch.tensor(value)
        for name, value in beside.items()
    }
    checkpoint = open_checkpoint(
        save({**as_tensors, "net": {"w": torch.nn.Parameter(torch.ones(2)), "n": torch.tensor(1)}})
    )
    assert list(checkpoint.tensors) == ["w", "n"]
    assert checkpoint.other_tensors == dict.fromkeys(beside, 1)
    deeper = open_checkpoint(save({**as_tensors, "run": {"net": {"w": torch.ones(2)}}}))
    assert list(deeper.tensors) == ["w"]


def test_where_there_is_nothing_but_scalars_they_are_the_weights(save) -> None:
    import torch

    assert list(open_checkpoint(save({"scale": torch.tensor(2.0)})).tensors) == ["scale"]
    with pytest.raises(UnsupportedCheckpointError, match=r"top level.*'net'"):
        open_checkpoint(save({"scale": torch.tensor(2.0), "net": {"shift": torch.tensor(1.0)}}))


@pytest.mark.parametrize(
    ("value", "words"),
    [({}, "an empty dict, no tensors"), ({"epoch": 3}, r"epoch \(3\)$"), ([], "but: list of 0 entries"), (3, "but: 3")],
)
def test_a_file_without_tensors_says_what_it_holds(save, value, words) -> None:
    with pytest.raises(UnsupportedCheckpointError) as error:
        open_checkpoint(save(value))
    assert re.search(words, error.value.message)


def test_one_mapping_under_two_names_is_no_choice(save) -> None:
    import torch

    weights = {"w": torch.ones(2)}
    path = save({"run": {"model": weights, "ema": weights}, "copy": {"by": {"of": dict(weights)}}, "epoch": 3})
    for asked, key, same in ((None, "run.model", "run.ema"), ("run.ema", "run.ema", "run.model")):
        checkpoint = open_checkpoint(path, asked)
        assert (checkpoint.key, list(checkpoint.tensors)) == (key, ["w"])
        assert key in [entry.key for entry in checkpoint.entries]
        assert checkpoint.other == {
            "copy": "mapping of 1 entry", "epoch": "3", same: f"the same as {key}"
        }  # fmt: skip
        assert checkpoint.other_tensors == {}
    with pytest.raises(MissingEntryError):
        open_checkpoint(path, "epoch")


def test_two_possible_state_dicts_are_both_named(save) -> None:
    import torch

    path = save({"model": {"w": torch.ones(2)}, "ema": {"w": torch.ones(2)}})
    with pytest.raises(UnsupportedCheckpointError, match="'model', 'ema'"):
        open_checkpoint(path)


def test_a_tensor_beside_a_state_dict_makes_it_ambiguous(save) -> None:
    import torch

    path = save({"mean": torch.ones(3), "state_dict": {"w": torch.ones(2)}})
    with pytest.raises(UnsupportedCheckpointError, match=r"top level.*'state_dict'"):
        open_checkpoint(path)


@pytest.mark.parametrize("wrap", [lambda model: model, lambda model: {"model": model, "epoch": 1}])
def test_a_whole_pickled_module_is_named_and_refused(save, wrap) -> None:
    import torch

    with pytest.raises(UnsupportedCheckpointError, match=r"torch\.nn\.modules\.linear\.Linear"):
        open_checkpoint(save(wrap(torch.nn.Linear(2, 2))))


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_tensors_that_are_not_plain_are_all_named(save) -> None:
    import torch

    quantized = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
    with pytest.raises(UnsupportedCheckpointError) as error:
        open_checkpoint(save({"s": torch.eye(2).to_sparse(), "q": quantized, "fine": torch.ones(1)}))
    assert "'s'" in error.value.message
    assert "'q'" in error.value.message
    assert "fine" not in error.value.message


def test_a_tensor_without_values_is_refused_by_name(save) -> None:
    import torch

    with pytest.raises(UnsupportedCheckpointError, match="'m' is no plain tensor: meta_tensor"):
        open_checkpoint(save({"m": torch.ones(2, device="meta"), "fine": torch.ones(1)}))


def test_a_lazily_conjugated_tensor_is_refused(save) -> None:
    import torch

    with pytest.raises(UnsupportedCheckpointError, match="conjugated"):
        open_checkpoint(save({"c": torch.ones(2, dtype=torch.complex64).conj()}))


def test_a_torchscript_program_is_recognized_and_refused(tmp_path) -> None:
    import io
    import zipfile

    path = tmp_path / "script.pt"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("m/data.pkl", "m/constants.pkl", "m/code/__torch__.py"):
            archive.writestr(name, io.BytesIO(b"").read())
    with pytest.raises(UnsupportedCheckpointError, match="TorchScript"):
        open_checkpoint(path)
