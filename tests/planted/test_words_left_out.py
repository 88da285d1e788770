"""A word that a port leaves to its framework, one slip at two places, a soft cap, a number too large for float16."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.forward.compare_forward import compare_forward

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.frameworks
SIDE = """
import torch
from torch.nn import functional as F

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = torch.nn.Linear(6, 6), torch.nn.Linear({width}, 3)

    def forward(self, x):
        h = self.a(x)
        {code}

def build():
    return Net()
"""
CASES = {
    "soft cap": (6, "return 2.0 * torch.tanh(self.b(h) / 2.0)", "return self.b(h)", "2.0 * torch.tanh"),
    "soft cap within": (6, "return self.b(5 * torch.tanh(h / 5))", "return self.b(h)", "5.0 * torch.tanh"),
    "deviation at two places": (
        7,
        "return self.b(torch.cat([h / h.std(-1, keepdim=True, unbiased=False), "
        "h.std(0, unbiased=False).mean().expand(len(h), 1)], 1))",
        "return self.b(torch.cat([h / h.std(-1, keepdim=True), h.std(0).mean().expand(len(h), 1)], 1))",
        "unbiased=False",
    ),
    "grid": (
        6,
        "y, z = torch.meshgrid(h[0], h[1], indexing='ij'); return self.b(torch.tanh(y) - z)",
        "y, z = torch.meshgrid(h[0], h[1], indexing='xy'); return self.b(torch.tanh(y) - z)",
        '"ij"',
    ),
    "another form of a function": (
        6,
        'return self.b(F.gelu(h, approximate="tanh"))',
        "return self.b(F.gelu(h))",
        "tanh",
    ),
}


def side(folder: Path, name: str, width: int, code: str) -> Any:
    path = folder / f"{name}.py"
    path.write_text(SIDE.format(width=width, code=code), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module.build()


@pytest.mark.parametrize("name", CASES)
def test_what_is_to_be_written_is_tried(tmp_path: Path, name: str) -> None:
    width, right, wrong, written = CASES[name]
    sides = side(tmp_path, "left_out_reference", width, right), side(tmp_path, "left_out_port", width, wrong)
    inputs = {"x": np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)}
    (culprit,) = compare_forward(*sides, inputs=inputs, power=False).culprits
    assert culprit.sureness == "confirmed"
    assert written in culprit.code.after
