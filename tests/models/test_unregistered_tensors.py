"""Tensors that a model keeps as plain attributes, which its framework does not see."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from align.models.open_side import unregistered_tensors
from align.names.map_parameters import map_parameters

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.frameworks

ORIGINAL = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.places = nn.Parameter(torch.zeros(3, 4))
def build():
    return Net()
"""
PORT = """
import numpy as np
from mindspore import Parameter, Tensor, nn
class Port(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(4, 4)
        self.scale = Tensor(np.ones((2, 2), np.float32))
        self.places = {places}
def build():
    return Port()
"""
PLAIN = "Tensor(np.zeros((3, 4), np.float32))"


def sides(folder: Path, places: str) -> tuple[str, str]:
    (folder / "original.py").write_text(ORIGINAL)
    (folder / "port.py").write_text(PORT.format(places=places))
    return f"{folder / 'original.py'}:build", f"{folder / 'port.py'}:build"


def test_a_plain_tensor_in_the_place_of_a_parameter_is_named_with_its_line(tmp_path: Path) -> None:
    result = map_parameters(*sides(tmp_path, PLAIN))
    assert [one.name for one in result.name_map.unmatched] == ["places"]
    (warning,) = result.warnings
    assert "places is a plain tensor of shape [3, 4]" in warning
    assert warning.endswith("write places = Parameter(...) at port.py:9")
    assert "scale" not in warning  # no parameter lacks a counterpart of its shape


def test_a_registered_tensor_is_no_matter(tmp_path: Path) -> None:
    result = map_parameters(*sides(tmp_path, f"Parameter({PLAIN})"))
    assert result.name_map.complete
    assert not result.warnings


def test_torch_parameters_and_buffers_are_registered_and_its_plain_tensors_are_not() -> None:
    torch = sys.modules.get("torch") or pytest.importorskip("torch")
    net = torch.nn.Linear(4, 3)
    net.register_buffer("known", torch.zeros(5))
    net.plain = torch.zeros(5)
    found = unregistered_tensors(net, "torch", {(5,), (3, 4), (3,)})
    assert [(one.path, one.shape, one.change) for one in found] == [("plain", (5,), "nn.Parameter(...)")]
