"""Real torch models and real MindSpore ports that were written differently: mapped completely, and only as is true."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from align.names.map_file import read_map
from align.names.map_parameters import map_parameters

pytestmark = pytest.mark.frameworks

RESNETS = Path(__file__).parents[2] / "examples" / "resnet.py"


def torch_layers() -> Any:
    """One of each layer whose parameters MindSpore calls otherwise, or keeps elsewhere."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.volume = nn.Sequential(nn.Conv3d(3, 6, 3), nn.BatchNorm3d(6), nn.PReLU(6))
            self.signal = nn.Sequential(nn.Conv1d(5, 7, 3), nn.BatchNorm1d(7), nn.GELU())
            self.image = nn.ModuleDict({"conv": nn.Conv2d(3, 8, 3, bias=False), "bn": nn.BatchNorm2d(8)})
            self.up = nn.ConvTranspose2d(8, 9, 2)
            self.words = nn.Embedding(11, 12)
            self.ln = nn.LayerNorm(12)
            self.gn = nn.GroupNorm(2, 10)
            self.rnn = nn.LSTM(12, 13, num_layers=2, bidirectional=True)
            self.attn = nn.MultiheadAttention(14, 2)
            self.encoder = nn.TransformerEncoderLayer(16, 2, 18)
            self.fc = nn.Linear(12, 4)
            self.scale = nn.Parameter(torch.ones(17))

    return Net()


def mindspore_layers() -> Any:
    """The port: nn and mint.nn mixed, other words, another nesting and order."""
    from mindspore import Parameter, Tensor, mint, nn

    class Body(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.token_table = nn.Embedding(11, 12)
            self.norm = nn.LayerNorm((12,))
            self.recurrent = nn.LSTM(12, 13, num_layers=2, bidirectional=True)

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.head = mint.nn.Linear(12, 4)
            self.body = Body()
            self.vol_conv = nn.Conv3d(3, 6, 3, has_bias=True, pad_mode="valid")
            self.vol_norm = nn.BatchNorm3d(6)
            self.vol_act = nn.PReLU(6)
            self.sig = nn.SequentialCell(nn.Conv1d(5, 7, 3, has_bias=True, pad_mode="valid"), nn.BatchNorm1d(7))
            self.img_conv = mint.nn.Conv2d(3, 8, 3, bias=False)
            self.img_norm = mint.nn.BatchNorm2d(8)
            self.upsample = nn.Conv2dTranspose(8, 9, 2, has_bias=True, pad_mode="valid")
            self.group = nn.GroupNorm(2, 10)
            self.attention = nn.MultiheadAttention(14, 2)
            self.transformer = nn.TransformerEncoderLayer(16, 2, 18)
            self.gain = Parameter(Tensor(np.ones(17, np.float32)), name="gain")

    return Net()


LSTM = [
    f"{kind}_{part}_l{number}{direction}"
    for number in (0, 1)
    for direction in ("", "_reverse")
    for kind in ("weight", "bias")
    for part in ("ih", "hh")
]
ATTENTION = ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")
TRUE_LAYERS = {
    "volume.0.weight": "vol_conv.weight",
    "volume.0.bias": "vol_conv.bias",
    "volume.1.weight": "vol_norm.bn2d.gamma",
    "volume.1.bias": "vol_norm.bn2d.beta",
    "volume.1.running_mean": "vol_norm.bn2d.moving_mean",
    "volume.1.running_var": "vol_norm.bn2d.moving_variance",
    "volume.2.weight": "vol_act.w",
    "signal.0.weight": "sig.0.weight",
    "signal.0.bias": "sig.0.bias",
    "signal.1.weight": "sig.1.gamma",
    "signal.1.bias": "sig.1.beta",
    "signal.1.running_mean": "sig.1.moving_mean",
    "signal.1.running_var": "sig.1.moving_variance",
    "image.conv.weight": "img_conv.weight",
    "image.bn.weight": "img_norm.weight",
    "image.bn.bias": "img_norm.bias",
    "image.bn.running_mean": "img_norm.running_mean",
    "image.bn.running_var": "img_norm.running_var",
    "image.bn.num_batches_tracked": "img_norm.num_batches_tracked",
    "up.weight": "upsample.weight",
    "up.bias": "upsample.bias",
    "words.weight": "body.token_table.embedding_table",
    "ln.weight": "body.norm.gamma",
    "ln.bias": "body.norm.beta",
    "gn.weight": "group.gamma",
    "gn.bias": "group.beta",
    **{f"rnn.{name}": f"body.recurrent.{name}" for name in LSTM},
    **{f"attn.{name}": f"attention.{name}" for name in ATTENTION},
    **{f"encoder.self_attn.{name}": f"transformer.self_attn.{name}" for name in ATTENTION},
    "encoder.linear1.weight": "transformer.dense1.weight",
    "encoder.linear1.bias": "transformer.dense1.bias",
    "encoder.linear2.weight": "transformer.dense2.weight",
    "encoder.linear2.bias": "transformer.dense2.bias",
    "encoder.norm1.weight": "transformer.norm1.gamma",
    "encoder.norm1.bias": "transformer.norm1.beta",
    "encoder.norm2.weight": "transformer.norm2.gamma",
    "encoder.norm2.bias": "transformer.norm2.beta",
    "fc.weight": "head.weight",
    "fc.bias": "head.bias",
    "scale": "gain",
}


def test_every_layer_that_is_called_otherwise_is_mapped() -> None:
    result = map_parameters(torch_layers(), mindspore_layers())
    name_map = result.name_map
    assert {p.source: p.target for p in name_map.pairings} == TRUE_LAYERS
    assert {drop.name for drop in name_map.dropped} == {"volume.1.num_batches_tracked", "signal.1.num_batches_tracked"}
    assert name_map.complete
    assert result.verdict.exit_code == 0
    transforms = {p.source: p.transform.as_table() for p in name_map.pairings if p.transform.op != "identity"}
    assert transforms == {"signal.0.weight": {"op": "reshape", "shape": [7, 5, 1, 3], "from": [7, 5, 3]}}


def torch_gpt(*, tied: bool) -> Any:
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln_1 = nn.LayerNorm(8)
            self.attn = nn.ModuleDict({name: nn.Linear(8, 8) for name in ("q", "k", "v", "proj")})
            self.ln_2 = nn.LayerNorm(8)
            self.mlp = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wte = nn.Embedding(50, 8)
            self.wpe = nn.Embedding(20, 8)
            self.h = nn.ModuleList(Block() for _ in range(3))
            self.ln_f = nn.LayerNorm(8)
            self.lm_head = nn.Linear(8, 50, bias=False)
            if tied:
                self.lm_head.weight = self.wte.weight

    return Net()


def mindspore_gpt(*, head_first: bool = False) -> Any:
    from mindspore import nn

    class Attention(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.value, self.query, self.key = (nn.Dense(8, 8) for _ in range(3))
            self.projection = nn.Dense(8, 8)

    class Layer(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.layernorm1 = nn.LayerNorm((8,))
            self.layernorm2 = nn.LayerNorm((8,))
            self.attention = Attention()
            self.dense_in, self.dense_out = nn.Dense(8, 32), nn.Dense(32, 8)

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            table, head = nn.Embedding(50, 8), nn.Dense(8, 50, has_bias=False)
            if head_first:
                self.head, self.tokens = head, table
                self.tokens.embedding_table = self.head.weight
            else:
                self.tokens, self.head = table, head
                self.head.weight = self.tokens.embedding_table
            self.positions = nn.Embedding(20, 8)
            self.blocks = nn.CellList([Layer() for _ in range(3)])
            self.final = nn.LayerNorm((8,))

    return Net()


def true_gpt(name: str) -> str:
    """The port's name, written from both definitions and not from what the matcher says."""
    if name.startswith("h."):
        _, number, rest = name.split(".", 2)
        rest = re.sub(r"^ln_(\d)\.weight", r"layernorm\1.gamma", rest)
        rest = re.sub(r"^ln_(\d)\.bias", r"layernorm\1.beta", rest)
        words = {"q": "query", "k": "key", "v": "value", "proj": "projection"}
        rest = re.sub(r"^attn\.(\w+)", lambda match: f"attention.{words[match[1]]}", rest)
        rest = rest.replace("mlp.0", "dense_in").replace("mlp.2", "dense_out")
        return f"blocks.{number}.{rest}"
    return {
        "wte.weight": "tokens.embedding_table",
        "wpe.weight": "positions.embedding_table",
        "ln_f.weight": "final.gamma",
        "ln_f.bias": "final.beta",
    }[name]


def test_a_tied_transformer_with_crossed_projections_is_mapped() -> None:
    model = torch_gpt(tied=True)
    name_map = map_parameters(model, mindspore_gpt()).name_map
    names = [name for name in model.state_dict() if name != "lm_head.weight"]
    assert {p.source: p.target for p in name_map.pairings} == {name: true_gpt(name) for name in names}
    assert [(drop.name, drop.reason) for drop in name_map.dropped] == [
        ("lm_head.weight", "the same tensor as wte.weight, which is paired")
    ]
    assert name_map.complete


def test_a_tie_is_found_where_the_port_keeps_it_in_the_head() -> None:
    name_map = map_parameters(torch_gpt(tied=True), mindspore_gpt(head_first=True)).name_map
    pairs = {p.source: p.target for p in name_map.pairings}
    tied = {"wte.weight", "lm_head.weight"}
    assert len(tied & pairs.keys()) == 1
    assert {drop.name for drop in name_map.dropped} == tied - pairs.keys()
    assert {name: target for name, target in pairs.items() if name not in tied} == {
        name: true_gpt(name) for name in torch_gpt(tied=True).state_dict() if name not in tied
    }
    assert name_map.complete


def test_a_tie_that_the_original_does_not_have_is_said() -> None:
    name_map = map_parameters(torch_gpt(tied=False), mindspore_gpt()).name_map
    assert [(one.name, one.side) for one in name_map.unmatched] == [("lm_head.weight", "source")]
    assert not name_map.complete


@pytest.fixture(scope="module")
def resnets() -> tuple[Any, Any]:
    spec = importlib.util.spec_from_file_location("resnet_pair", RESNETS)
    assert spec is not None
    assert spec.loader is not None
    pair = importlib.util.module_from_spec(spec)
    sys.modules["resnet_pair"] = pair
    spec.loader.exec_module(pair)
    return pair.torch_model(50), pair.mindspore_model(50)


def true_resnet(name: str) -> str:
    """The name that mindcv gives to a parameter of transformers' ResNet-50."""
    norm = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}
    if match := re.fullmatch(r"classifier\.1\.(\w+)", name):
        return f"classifier.{match[1]}"
    if match := re.fullmatch(r"resnet\.embedder\.embedder\.(\w+)\.(\w+)", name):
        return "conv1.weight" if match[1] == "convolution" else f"bn1.{norm[match[2]]}"
    pattern = r"resnet\.encoder\.stages\.(\d)\.layers\.(\d)\.(shortcut|layer\.(\d))\.(convolution|normalization)\.(\w+)"
    match = re.fullmatch(pattern, name)
    assert match, name
    stage, index, part, number, kind, attribute = match.groups()
    block = f"layer{int(stage) + 1}.{index}"
    if part == "shortcut":
        return f"{block}.down_sample.0.weight" if kind == "convolution" else f"{block}.down_sample.1.{norm[attribute]}"
    place = int(number) + 1
    return f"{block}.conv{place}.weight" if kind == "convolution" else f"{block}.bn{place}.{norm[attribute]}"


def test_resnet50_of_two_libraries_is_mapped_completely(resnets: tuple[Any, Any], tmp_path: Path) -> None:
    result = map_parameters(*resnets, out=tmp_path / "map.toml")
    name_map = result.name_map
    names = [name for name in resnets[0].state_dict() if not name.endswith("num_batches_tracked")]
    assert {p.source: p.target for p in name_map.pairings} == {name: true_resnet(name) for name in names}
    assert (len(name_map.pairings), len(name_map.dropped)) == (267, 53)
    assert {drop.side for drop in name_map.dropped} == {"source"}
    assert all("momentum=None" in drop.reason for drop in name_map.dropped)
    assert name_map.complete
    assert (result.source.elements, result.target.elements) == (25_557_032, 25_557_032)
    sources, targets = list(resnets[0].state_dict()), [p.name for p in resnets[1].get_parameters()]
    read = read_map(tmp_path / "map.toml", sources, targets)
    assert {p.source: p.target for p in read.pairings} == {name: true_resnet(name) for name in names}
    assert read.complete


def test_a_layer_that_the_port_lacks_is_all_that_is_missing(resnets: tuple[Any, Any]) -> None:
    import mindcv
    from mindspore import nn

    port = mindcv.create_model("resnet50")
    port.layer2[1].conv2 = nn.Identity()
    name_map = map_parameters(resnets[0], port).name_map
    pairs = {p.source: p.target for p in name_map.pairings}
    assert pairs.items() <= {name: true_resnet(name) for name in pairs}.items()
    lost = "resnet.encoder.stages.1.layers.1.layer.1.convolution.weight"
    assert lost not in pairs
    assert len(pairs) >= 260
    said = {one.name for one in name_map.unmatched} | {n for group in name_map.ambiguous for n in group.sources}
    assert lost in said
