"""Items of lists: which are made at one place, and layers that stand behind them for a while."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING, Any

import pytest

from align.forward.suspects import ListedItems, inserted_behind

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """from collections import OrderedDict
from functools import partial

from torch import nn


def block(count):
    return nn.Sequential(*[nn.Tanh() for _ in range(count)], nn.GELU())


hidden = partial(block, count=0)


class Net(nn.Module):
    def __init__(self, hides):
        super().__init__()
        self.first = block(2)
        self.second = block(1)
        self.twice = nn.Sequential(*[nn.Sigmoid()] * 2)
        self.named = nn.Sequential(OrderedDict([("0", nn.Softplus())]))
        if hides:
            self.hidden = hidden()
"""


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    path = tmp_path / "listed.py"
    path.write_text(SOURCE, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("listed", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "listed", module)
    spec.loader.exec_module(module)
    return module.Net


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("hides", "path", "together"),
    [
        (False, "second.1", ("first.2", "second.1")),
        (True, "second.1", None),  # `hidden` is made there, too, and nobody can see it
        (False, "second.0", None),  # it makes all that stand there
        (False, "twice.1", ("twice.0", "twice.1")),
        (False, "named.0", None),
    ],
)
def test_an_item_comes_with_all_that_its_place_makes(hides: bool, path: str, together: Any, net: Any) -> None:
    listed = ListedItems(net(hides))
    item = listed.get(path)
    assert (item and listed.made_with(item)) == together


@pytest.mark.frameworks
@pytest.mark.parametrize("framework", ["torch", "mindspore"])
def test_a_list_is_as_before_once_the_trial_is_over(framework: str) -> None:
    nn = importlib.import_module(f"{framework}.nn")
    kind = nn.Sequential if framework == "torch" else nn.SequentialCell
    net = kind(nn.ReLU(), kind(nn.Tanh(), nn.Sigmoid()))
    inner, added = net[1], nn.GELU()
    before = [*inner]
    with inserted_behind(net, {"1.0": [added]}):
        assert [*inner] == [before[0], added, before[1]]
    assert [*inner] == before
    assert [name for name, _ in (net.cells_and_names if framework == "mindspore" else net.named_modules)()] == [
        "", "0", "1", "1.0", "1.1",
    ]  # fmt: skip
