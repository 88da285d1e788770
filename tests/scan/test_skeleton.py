"""The skeleton of a port: it imports, builds, has the right settings, and maps by names altogether."""

from __future__ import annotations

import importlib.util
import re
from typing import TYPE_CHECKING, Any

import pytest

import align
from align.core.verdicts import Outcome
from align.errors import CannotRunError, DestinationError
from align.models.frameworks.arrays import ArrayLayer, ArrayModel
from align.scan.write_skeleton import write_skeleton

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.frameworks


def images() -> Any:
    """Blocks that repeat, a list, and names in a Sequential."""
    from collections import OrderedDict

    from torch import nn

    class Residual(nn.Module):
        def __init__(self, width: int, stride: int = 1) -> None:
            super().__init__()
            self.conv = nn.Conv2d(width, width, 3, stride, padding=1, groups=2, bias=False)
            self.norm = nn.BatchNorm2d(width, eps=1e-3, momentum=0.01)
            self.act = nn.LeakyReLU(0.2)

        def forward(self, x: Any) -> Any:
            return x + self.act(self.norm(self.conv(x)))

    class Images(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            stem = OrderedDict(conv=nn.Conv2d(3, 8, 7, 2, padding=(3, 2)), pool=nn.MaxPool2d(3, 2, padding=1))
            self.stem = nn.Sequential(stem)
            self.blocks = nn.ModuleList([*(Residual(8) for _ in range(5)), Residual(8, 2)])
            self.up = nn.ConvTranspose2d(8, 4, 4, 2, padding=1)
            self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.GroupNorm(2, 4), nn.Linear(4, 3))

        def forward(self, x: Any) -> Any:
            x = self.stem(x)
            for block in self.blocks:
                x = block(x)
            return self.head(self.up(x))

    return Images()


def tokens() -> Any:
    """Tensors of its own, a tie, a derived layer, and layers of transformers."""
    import torch
    from torch import nn

    class Wide(nn.LayerNorm):
        def forward(self, x: Any) -> Any:
            return super().forward(x) * 2

    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(50, 16, padding_idx=0)
            self.place = nn.Parameter(torch.zeros(1, 9, 16))
            self.register_buffer("scale", torch.ones(16))
            self.register_buffer("mask", torch.ones(9, 9, dtype=torch.bool), persistent=False)
            self.attention = nn.MultiheadAttention(16, 4, batch_first=True, kdim=16)
            self.norms = nn.ModuleDict({"first": nn.LayerNorm(16), "second": Wide((9, 16), eps=1e-6)})
            self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU("tanh"), nn.Dropout(0.1), nn.Linear(32, 16))
            self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 20, batch_first=True), 2)
            self.out = nn.Linear(16, 50, bias=False)
            self.out.weight = self.embed.weight

        def forward(self, ids: Any, scale: float = 1.0, *, mask: Any = None) -> Any:
            """Not to be quoted."""
            x = self.embed(ids) + self.place * scale
            return self.out(self.encoder(self.norms["first"](x + self.mlp(x))))

    return Tokens()


def steps() -> Any:
    """Recurrent layers, a layer that stands twice, and one without counterpart."""
    from torch import nn

    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(5, 8, num_layers=2, batch_first=True, bidirectional=True)
            self.cell = nn.GRUCell(16, 4)
            self.slope = nn.PReLU(4)
            self.shrink = nn.Softshrink(0.3)
            self.drop = nn.AlphaDropout(0.2)
            self.again = self.slope

        def forward(self, x: Any) -> Any:
            return self.drop(self.shrink(self.again(self.slope(self.cell(self.rnn(x)[0][:, -1])))))

    return Steps()


MODELS = {"images": images, "tokens": tokens, "steps": steps}


def built(model: Any, name: str, folder: Path) -> tuple[Any, str]:
    """The port of a skeleton, and its text."""
    file = write_skeleton(model, folder / f"{name}_port.py")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.build(), file.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["images", "tokens", "steps"])
def test_a_skeleton_imports_builds_maps_by_names_and_has_the_settings(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    net, _ = built(model, name, tmp_path)
    found = align.map_parameters(model, net)
    assert found.verdict.outcome is Outcome.ALIGNED, found.verdict.reason
    assert found.name_map.unmatched == ()
    settings = align.lint_models(model, net)
    assert [one.rule for one in settings.findings] == []


def test_equal_blocks_are_one_class_and_other_ones_another(tmp_path: Path) -> None:
    _, text = built(images(), "images", tmp_path)
    assert re.findall(r"^class (\w+)", text, re.MULTILINE) == ["Residual", "Residual2", "Images"]
    assert "nn.CellList([*(Residual() for _ in range(5)), Residual2()])" in text
    assert "momentum=0.99" in text
    assert 'nn.Conv2d(3, 8, 7, has_bias=True, pad_mode="pad", padding=(3, 3, 2, 2), stride=2)' in text


def test_construct_holds_the_torch_code_as_a_comment_and_says_that_it_is_to_be_written(tmp_path: Path) -> None:
    net, text = built(tokens(), "tokens", tmp_path)
    assert "    def construct(self, ids, scale=1.0, *, mask=None):\n        # " in text
    assert "        #     x = self.embed(ids) + self.place * scale\n" in text
    assert "Not to be quoted" not in text
    assert "# mask (9, 9) bool is no part of checkpoints" in text
    assert "class Wide(nn.LayerNorm):" in text
    with pytest.raises(NotImplementedError, match=r"Tokens\.construct"):
        net.construct(None)


def test_what_has_no_counterpart_is_told_and_the_file_still_builds(tmp_path: Path) -> None:
    net, text = built(steps(), "steps", tmp_path)
    assert "# TODO: torch.nn.AlphaDropout(p=0.2) has no counterpart here; write nothing in evaluation mode" in text
    assert "net.again = net.slope  # the same layer" in text
    with pytest.raises(NotImplementedError, match="AlphaDropout"):
        net.drop.construct(1)


def test_a_file_that_is_there_is_replaced_only_if_asked(tmp_path: Path) -> None:
    import torch

    file = tmp_path / "port.py"
    file.write_text("mine", encoding="utf-8")
    with pytest.raises(DestinationError, match="is there already"):
        write_skeleton(torch.nn.Linear(3, 2), file)
    assert file.read_text(encoding="utf-8") == "mine"
    assert "nn.Dense(3, 2, has_bias=True)" in write_skeleton(torch.nn.Linear(3, 2), file, force=True).read_text("utf-8")
    with pytest.raises(CannotRunError, match="torch model"):
        write_skeleton(ArrayModel((ArrayLayer("a", "x.Y", lambda x: x, {}),)), tmp_path / "other.py")
    assert not (tmp_path / "other.py").exists()


@pytest.mark.parametrize("kernel", [3, 4])
def test_padding_to_the_inputs_size_is_written_as_mindspore_takes_it(kernel: int, tmp_path: Path) -> None:
    from torch import nn

    layers = [nn.Conv1d(3, 4, kernel, padding="same"), nn.Conv1d(4, 4, kernel, padding="same", dilation=2)]
    net, text = built(nn.Sequential(*layers), "same", tmp_path)
    assert text.count('pad_mode="same"') == 2
    assert [cell.pad_mode for _, cell in net.cells_and_names() if hasattr(cell, "pad_mode")] == ["same", "same"]
