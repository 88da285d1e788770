"""Real nets of both frameworks: converted, loaded strictly by the port, converted back, loaded strictly by torch."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from align.convert.convert_checkpoint import convert_checkpoint
from align.errors import InputsError
from align.runs.run_folder import as_document

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.frameworks

# Each layer as torch, mindspore.nn and (where there is one) mint.nn write it.
LAYERS = {
    "bn1": ("torch.nn.BatchNorm1d(4)", "nn.BatchNorm1d(4)", "mint.BatchNorm1d(4)"),
    "bn2": ("torch.nn.BatchNorm2d(4)", "nn.BatchNorm2d(4)", "mint.BatchNorm2d(4)"),
    "bn3": ("torch.nn.BatchNorm3d(4)", "nn.BatchNorm3d(4)", "mint.BatchNorm3d(4)"),
    "ln": ("torch.nn.LayerNorm(6)", "nn.LayerNorm((6,))", "mint.LayerNorm(6)"),
    "gn": ("torch.nn.GroupNorm(2, 4)", "nn.GroupNorm(2, 4)", "mint.GroupNorm(2, 4)"),
    "emb": ("torch.nn.Embedding(7, 6)", "nn.Embedding(7, 6)", "mint.Embedding(7, 6)"),
    "c1": ("torch.nn.Conv1d(3, 4, 5)", "nn.Conv1d(3, 4, 5, has_bias=True)", "mint.Conv1d(3, 4, 5)"),
    "c2": ("torch.nn.Conv2d(3, 4, (1, 5))", "nn.Conv2d(3, 4, (1, 5), has_bias=True)", "mint.Conv2d(3, 4, (1, 5))"),
    "c3": ("torch.nn.Conv3d(3, 4, 2)", "nn.Conv3d(3, 4, 2, has_bias=True)", "mint.Conv3d(3, 4, 2)"),
    "act": ("torch.nn.PReLU(4)", "nn.PReLU(4)", "mint.PReLU(4)"),
    "head": ("torch.nn.Linear(6, 6, bias=False)", "nn.Dense(6, 6, has_bias=False)", "mint.Linear(6, 6, bias=False)"),
    "enc": ("torch.nn.TransformerEncoderLayer(6, 2, 8)", "nn.TransformerEncoderLayer(6, 2, 8)", None),
    "lstm": ("torch.nn.LSTM(3, 4, 2, bidirectional=True)", "nn.LSTM(3, 4, 2, bidirectional=True)", None),
}  # fmt: skip
SETTLED = {
    "torch": ("bn1=batch-norm", "bn2=batch-norm", "bn3=batch-norm-3d", "emb=embedding", "c1=conv-1d", "act=prelu",
              "head=linear", "enc=transformer-encoder-layer"),
    "nn": ("bn3.bn2d=batch-norm-3d", "c1=conv-1d", "c2=conv", "enc=transformer-encoder-layer"),
    "mint": ("c2=conv",),
}  # fmt: skip


def torch_net() -> Any:
    import torch

    torch.manual_seed(0)
    net = torch.nn.ModuleDict({name: eval(layer, {"torch": torch}) for name, (layer, *_) in LAYERS.items()})
    return randomized(net)


def torch_net_of_mint() -> Any:
    import torch

    known = {name: layer for name, (layer, _, mint) in LAYERS.items() if mint}
    return randomized(torch.nn.ModuleDict({name: eval(layer, {"torch": torch}) for name, layer in known.items()}))


def nn_port() -> Any:
    from mindspore import nn

    return port_class()({name: eval(layer, {"nn": nn}) for name, (_, layer, _) in LAYERS.items()})


def mint_port() -> Any:
    from mindspore import mint

    return port_class()({name: eval(layer, {"mint": mint.nn}) for name, (*_, layer) in LAYERS.items() if layer})


SIDES = {"nn": ("torch_net", "nn_port"), "mint": ("torch_net_of_mint", "mint_port")}


@pytest.mark.parametrize("way", ["file", "source model", "both models", "record"])
@pytest.mark.parametrize("family", ["nn", "mint"])
@pytest.mark.parametrize("suffix", [".ckpt", ".safetensors"])
def test_a_net_is_loaded_strictly_by_its_port_and_again_by_torch(tmp_path, family, suffix, way) -> None:
    import torch

    net, there, back = globals()[SIDES[family][0]](), tmp_path / f"there{suffix}", tmp_path / "back.pth"
    torch.save(net.state_dict(), tmp_path / "net.pth")
    record = convert_checkpoint(tmp_path / "net.pth", there, **options(tmp_path, "forward", family, way))
    (tmp_path / "convert.json").write_text(json.dumps(as_document(record, {})), encoding="utf-8")
    assert load_strictly(there, globals()[SIDES[family][1]]()) == ([], [])
    convert_checkpoint(there, back, **options(tmp_path, "backward", family, way))
    again = torch.load(back, weights_only=True)
    globals()[SIDES[family][0]]().load_state_dict(again, strict=True)
    for name, value in net.state_dict().items():
        if not name.endswith("num_batches_tracked") or way == "record":
            assert torch.equal(again[name], value), name
        assert (again[name].dtype, again[name].shape) == (value.dtype, value.shape), name


def options(folder: Path, direction: str, family: str, way: str) -> dict[str, Any]:
    forward = direction == "forward"
    sides = [f"{__file__}:{side}" for side in (SIDES[family] if forward else reversed(SIDES[family]))]
    target: dict[str, Any] = {"target": family} if forward else {}
    if way == "file" or (way == "record" and forward):
        kinds = () if family == "mint" and forward else SETTLED["torch" if forward else family]
        return {"layers": kinds, **target}
    if way == "record":
        return {"name_map": folder / "convert.json"}
    return {"source_model": sides[0], **target} if way == "source model" else dict(
        zip(("source_model", "target_model"), sides, strict=True)
    )  # fmt: skip


def test_a_cast_comes_back_in_the_dtype_of_the_beginning(tmp_path) -> None:
    import torch

    net = torch_net()
    torch.save(net.state_dict(), tmp_path / "net.pth")
    side = f"{__file__}:torch_net"
    record = convert_checkpoint(tmp_path / "net.pth", tmp_path / "there.ckpt", source_model=side, dtype="bf16")
    (tmp_path / "convert.json").write_text(json.dumps(as_document(record, {})), encoding="utf-8")
    convert_checkpoint(tmp_path / "there.ckpt", tmp_path / "back.pth", name_map=tmp_path / "convert.json")
    again = torch.load(tmp_path / "back.pth", weights_only=True)
    for name, value in net.state_dict().items():
        rounded = value.bfloat16().float() if value.is_floating_point() else value
        assert torch.equal(again[name], rounded), name
        assert again[name].dtype == value.dtype


def test_ties_are_stored_once_again(tmp_path) -> None:
    import torch

    first, second = torch.nn.Linear(300, 300, bias=False), torch.nn.Linear(300, 300, bias=False)
    second.weight = first.weight
    torch.save(torch.nn.ModuleDict({"a": first, "b": second}).state_dict(), tmp_path / "net.pth")
    record = convert_checkpoint(tmp_path / "net.pth", tmp_path / "there.ckpt", layers=["*=linear"])
    assert record.ties == (("a.weight", "b.weight"),)
    (tmp_path / "convert.json").write_text(json.dumps(as_document(record, {})), encoding="utf-8")
    back = convert_checkpoint(tmp_path / "there.ckpt", tmp_path / "back.pth", name_map=tmp_path / "convert.json")
    assert back.ties == record.ties
    again = torch.load(tmp_path / "back.pth", weights_only=True)
    assert again["a.weight"].data_ptr() == again["b.weight"].data_ptr()
    assert torch.equal(again["a.weight"], first.weight)


class TestFamilies:
    @pytest.mark.parametrize(
        ("name", "depths", "kind"), [("resnet50", [3, 4, 6, 3], "bottleneck"), ("resnet18", [2, 2, 2, 2], "basic")]
    )
    def test_hf_resnet_leads_to_mindcv_and_back(self, tmp_path, name, depths, kind) -> None:
        import mindcv
        import torch
        from transformers import ResNetConfig, ResNetForImageClassification

        sizes = [256, 512, 1024, 2048] if kind == "bottleneck" else [64, 128, 256, 512]
        config = ResNetConfig(depths=depths, hidden_sizes=sizes, layer_type=kind, num_labels=1000)
        net = ResNetForImageClassification(config)
        torch.save(net.state_dict(), tmp_path / "net.pth")
        there = convert_checkpoint(tmp_path / "net.pth", tmp_path / "there.ckpt", family="hf-resnet")
        assert there.warnings == ()
        assert load_strictly(tmp_path / "there.ckpt", mindcv.create_model(name)) == ([], [])
        convert_checkpoint(tmp_path / "there.ckpt", tmp_path / "back.pth", family="hf-resnet")
        again = torch.load(tmp_path / "back.pth", weights_only=True)
        net.load_state_dict(again, strict=True)
        assert again.keys() == net.state_dict().keys()


def load_strictly(path: Path, port: Any) -> Any:
    import mindspore

    loaded = mindspore.load_checkpoint(str(path), format=path.suffix[1:])
    assert {n: tuple(p.shape) for n, p in loaded.items()} == {p.name: tuple(p.shape) for p in port.get_parameters()}
    return mindspore.load_param_into_net(port, loaded, strict_load=True)


def randomized(net: Any) -> Any:
    """Values of which no two tensors share any, and counters that are not zero."""
    import torch

    with torch.no_grad():
        for number, value in enumerate(net.state_dict().values()):
            value.copy_(torch.arange(value.numel()).reshape(value.shape) + 1000 * number)
    return net


@cache
def port_class() -> Any:
    from mindspore import nn

    class Port(nn.Cell):
        def __init__(self, layers: dict[str, Any]) -> None:
            super().__init__()
            for name, layer in layers.items():
                setattr(self, name, layer)

    return Port


def tied_net() -> Any:
    import torch

    net = torch.nn.ModuleDict({"emb": torch.nn.Embedding(7, 6), "head": torch.nn.Linear(6, 7, bias=False)})
    net["head"].weight = net["emb"].weight
    return net


def test_a_file_that_holds_a_tied_tensor_once_fits_its_model_and_this_is_said(tmp_path) -> None:
    import torch

    state = tied_net().state_dict()
    torch.save({"emb.weight": state["emb.weight"]}, tmp_path / "net.pth")
    side = f"{__file__}:tied_net"
    record = convert_checkpoint(tmp_path / "net.pth", tmp_path / "there.ckpt", source_model=side)
    assert [tensor.target for tensor in record.tensors] == ["emb.embedding_table"]
    assert record.warnings == ("tied to another tensor, not in the file and not written: head.weight",)
    torch.save({"emb.weights": state["emb.weight"]}, tmp_path / "net.pth")
    with pytest.raises(InputsError, match=r"missing: emb\.weight"):
        convert_checkpoint(tmp_path / "net.pth", tmp_path / "other.ckpt", source_model=side)
