"""A converted file fits the real port with MindSpore's own strict loader, or a warning has named what it misses."""

from __future__ import annotations

from typing import Any

import pytest

from align.convert.convert_checkpoint import convert_checkpoint
from align.errors import OpenNamesError

pytestmark = pytest.mark.frameworks

BOTH = "torch.nn.BatchNorm2d(4), torch.nn.Conv2d(4, 4, 3)"
CONV = "mindspore.nn.Conv2d(4, 4, 3, has_bias=True)"
CASES = {
    "batch norm": (BOTH, f"mindspore.nn.BatchNorm2d(4), {CONV}", (), ""),
    "batch norm without affine": (
        "torch.nn.BatchNorm2d(4, affine=False), torch.nn.Conv2d(4, 4, 3)",
        f"mindspore.nn.BatchNorm2d(4, affine=False), {CONV}", (), "0.gamma, 0.beta"),
    "batch norm without statistics": (
        "torch.nn.BatchNorm2d(4, track_running_stats=False), torch.nn.Conv2d(4, 4, 3)",
        f"mindspore.nn.BatchNorm2d(4), {CONV}", (), "batch-norm or instance-norm"),
    "batch norm without statistics, settled": (
        "torch.nn.BatchNorm2d(4, track_running_stats=False), torch.nn.Conv2d(4, 4, 3)",
        f"mindspore.nn.BatchNorm2d(4), {CONV}", ("0=batch-norm",), "0.moving_mean, 0.moving_variance"),
    "batch norm in three dimensions": (
        "torch.nn.BatchNorm3d(4), torch.nn.Conv3d(4, 4, 3)",
        "mindspore.nn.BatchNorm3d(4), mindspore.nn.Conv3d(4, 4, 3, has_bias=True)", ("0=batch-norm-3d",), ""),
    "batch norm in three dimensions without affine": (
        "torch.nn.BatchNorm3d(4, affine=False), torch.nn.Conv3d(4, 4, 3)",
        "mindspore.nn.BatchNorm3d(4), mindspore.nn.Conv3d(4, 4, 3, has_bias=True)", ("0=batch-norm-3d",),
        "0.bn2d.gamma, 0.bn2d.beta"),
    "nothing tells of three dimensions": (
        "torch.nn.BatchNorm3d(4)", "mindspore.nn.BatchNorm3d(4)", (), "--layer '0=batch-norm-3d'"),
    "instance norm": (
        "torch.nn.InstanceNorm2d(4, affine=True)", "mindspore.nn.InstanceNorm2d(4)", (), "batch-norm or instance-norm"),
    "instance norm, settled": (
        "torch.nn.InstanceNorm2d(4, affine=True)", "mindspore.nn.InstanceNorm2d(4)", ("*=instance-norm",),
        "0.moving_mean, 0.moving_variance"),
    "instance norm with statistics": (
        "torch.nn.InstanceNorm2d(4, track_running_stats=True), torch.nn.Conv2d(4, 4, 3)",
        f"mindspore.nn.InstanceNorm2d(4), {CONV}", (), "0.gamma, 0.beta"),
    "layer norm without bias": (
        "torch.nn.LayerNorm(4, bias=False)", "mindspore.nn.LayerNorm((4,))", ("0=layer-norm",), "0.beta"),
    "layer norm": ("torch.nn.LayerNorm(4)", "mindspore.nn.LayerNorm((4,))", ("*=layer-norm",), ""),
    "layer norm over two axes": ("torch.nn.LayerNorm((3, 4))", "mindspore.nn.LayerNorm((3, 4))", (), ""),
    "group norm": ("torch.nn.GroupNorm(2, 4)", "mindspore.nn.GroupNorm(2, 4)", ("*=group-norm",), ""),
    "embedding": ("torch.nn.Embedding(5, 3)", "mindspore.nn.Embedding(5, 3)", ("0=embedding",), ""),
    "prelu": ("torch.nn.PReLU(3)", "mindspore.nn.PReLU(3)", ("0=prelu",), ""),
    "one-dimensional convolution": (
        "torch.nn.Conv1d(3, 4, 5)", "mindspore.nn.Conv1d(3, 4, 5, has_bias=True)", ("*=conv-1d",), ""),
    "lstm": (
        "torch.nn.LSTM(3, 4, num_layers=2, bidirectional=True)",
        "mindspore.nn.LSTM(3, 4, num_layers=2, bidirectional=True)", (), ""),
    "attention": (
        "torch.nn.MultiheadAttention(8, 2, kdim=4, vdim=4, add_bias_kv=True)",
        "mindspore.nn.MultiheadAttention(8, 2, kdim=4, vdim=4, add_bias_kv=True)", (), ""),
    "transformer layer": (
        "torch.nn.TransformerEncoderLayer(8, 2, 16)", "mindspore.nn.TransformerEncoderLayer(8, 2, 16)",
        ("*=transformer-encoder-layer", "*norm?=layer-norm"), ""),
}  # fmt: skip
LONE = {
    "torch.nn.BatchNorm2d(4)": ("mindspore.nn.BatchNorm2d(4)", ("=batch-norm",)),
    "torch.nn.BatchNorm1d(4)": ("mindspore.nn.BatchNorm1d(4)", ("=batch-norm",)),
    "torch.nn.BatchNorm3d(4)": ("mindspore.nn.BatchNorm3d(4)", ("=batch-norm-3d",)),
    "torch.nn.PReLU(4)": ("mindspore.nn.PReLU(4)", ("=prelu",)),
    "torch.nn.LayerNorm(4)": ("mindspore.nn.LayerNorm((4,))", ("=layer-norm",)),
    "torch.nn.Conv2d(3, 4, 3)": ("mindspore.nn.Conv2d(3, 4, 3, has_bias=True)", ()),
    "torch.nn.TransformerEncoderLayer(8, 2, 16)": (
        "mindspore.nn.TransformerEncoderLayer(8, 2, 16)",
        ("=transformer-encoder-layer", "*norm?=layer-norm"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_strict_load_misses_nothing_that_was_not_said(tmp_path, case: str) -> None:
    reference, candidate, layers, said = CASES[case]
    warnings, missing, loaded = load(
        tmp_path, f"torch.nn.Sequential({reference})", f"mindspore.nn.SequentialCell({candidate})", layers
    )
    assert said in warnings if said else not warnings
    assert bool(missing) == bool(said)
    if "--layer" not in warnings:
        assert loaded
        assert all(name in warnings for name in missing)


@pytest.mark.parametrize("reference", LONE)
def test_a_layer_that_is_the_whole_net_loads(tmp_path, reference: str) -> None:
    candidate, layers = LONE[reference]
    assert load(tmp_path, reference, candidate, layers) == ("", set(), True)


@pytest.mark.parametrize(
    "reference",
    [
        "torch.nn.utils.weight_norm(torch.nn.Linear(3, 4))",
        "torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 4))",
        "torch.nn.utils.spectral_norm(torch.nn.Linear(3, 4))",
        "torch.nn.utils.parametrizations.spectral_norm(torch.nn.Conv2d(3, 4, 3, bias=False))",
        "torch.nn.LSTM(3, 4, proj_size=2)",
    ],
)
@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
def test_what_is_no_layer_of_mindspore_is_open_and_nothing_is_written(tmp_path, reference: str) -> None:
    import torch

    torch.save(build(f"torch.nn.Sequential({reference})").state_dict(), tmp_path / "m.pth")
    with pytest.raises(OpenNamesError) as error:
        convert_checkpoint(tmp_path / "m.pth", tmp_path / "m.ckpt")
    assert ": as-is" in error.value.lines[0]
    assert "=as-is'" in error.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["m.pth"]
    convert_checkpoint(tmp_path / "m.pth", tmp_path / "m.ckpt", layers=["*=as-is"])


def load(folder: Any, reference: str, candidate: str, layers: tuple[str, ...]) -> tuple[str, set[str], bool]:
    """Convert and load strictly: all warnings, the parameters that were missed, whether the rest is in the port."""
    import mindspore
    import torch

    model, port = build(reference), build(candidate)
    torch.save(model.state_dict(), folder / "m.pth")
    record = convert_checkpoint(folder / "m.pth", folder / "m.ckpt", layers=layers)
    values = mindspore.load_checkpoint(str(folder / "m.ckpt"))
    own = {parameter.name for parameter in port.get_parameters()}
    if values.keys() == own:
        assert mindspore.load_param_into_net(port, values, strict_load=True) == ([], [])
    return "\n".join(record.warnings), own - values.keys(), values.keys() <= own


def build(expression: str) -> Any:
    import mindspore
    import torch

    return eval(expression, {"torch": torch, "mindspore": mindspore})


@pytest.mark.parametrize("name", ["m.ckpt", "m.safetensors"])
def test_a_net_with_views_ties_and_narrow_dtypes_loads_strictly(tmp_path, name: str) -> None:
    """A tied head, a transposed weight, a 0-d parameter, bfloat16 and bytes, in both files that MindSpore reads."""
    import mindspore
    import torch

    weight = torch.randn(5, 3)
    values = {
        "embedding.weight": weight, "head.weight": weight, "dense.weight": torch.randn(3, 5).t(),
        "scale": torch.tensor(0.5), "half": torch.randn(4).to(torch.bfloat16), "table": torch.arange(6).to(torch.uint8),
    }  # fmt: skip
    torch.save(values, tmp_path / "m.pth")
    convert_checkpoint(tmp_path / "m.pth", tmp_path / name, layers=["*=as-is"])
    loaded = mindspore.load_checkpoint(str(tmp_path / name), format=name.partition(".")[2])
    net = mindspore.nn.Cell()
    for key, value in values.items():
        dtype = getattr(mindspore, str(value.dtype).removeprefix("torch."))
        parameter = mindspore.Parameter(mindspore.ops.zeros(tuple(value.shape), dtype), name=key)
        net.insert_param_to_cell(key.replace(".", "_"), parameter)
    assert mindspore.load_param_into_net(net, loaded, strict_load=True) == ([], [])
    for parameter in net.get_parameters():
        assert parameter.float().asnumpy().tobytes() == values[parameter.name].float().contiguous().numpy().tobytes()
