"""Edits of real cells' source: keywords, places, arguments alone; what is shared, computed or elsewhere is refused."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING, Any

import pytest

from align.fixes.plan_edits import plan_edits
from align.forward.forward_result import Culprit
from align.models.source_lines import made_at

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """from mindspore import nn

EPS = 1e-3


class Net(nn.Cell):
    def __init__(self, small=True):
        super().__init__()
        self.keyword = nn.BatchNorm2d(4, eps=1e-3)  # kept
        self.place = nn.BatchNorm2d(4, 1e-3, 0.9)
        self.none = nn.LeakyReLU()
        self.computed = nn.BatchNorm2d(4, eps=EPS)
        self.pool = nn.AvgPool2d(3, 1)
        if not small:
            self.branch = nn.Conv2d(3, 4, 7, has_bias=True)
        else:
            self.branch = nn.Conv2d(3, 4, 3, has_bias=True)
        self.shared = nn.CellList([nn.BatchNorm2d(4) for _ in range(3)])


def build():
    return Net()
"""
NORM = "nn.BatchNorm2d(..., eps=1e-05)"


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A net whose source is a file of its own."""
    file = tmp_path / "fx_net.py"
    file.write_bytes(SOURCE.replace("\n", "\r\n").encode())
    spec = importlib.util.spec_from_file_location("fx_net", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fx_net", module)
    spec.loader.exec_module(module)
    return module.build()


def culprit(net: Any, path: str, change: str) -> Culprit:
    line = made_at(net, path)
    return Culprit(path, path, "", "", 0, "layer", 9.0, "rule", "confirmed", {}, change, line)


@pytest.mark.frameworks
def test_settings_are_changed_or_added_and_all_else_stays(net: Any) -> None:
    wanted = {
        "keyword": (NORM, "nn.BatchNorm2d(4, eps=1e-05)"),
        "place": (NORM, "nn.BatchNorm2d(4, 1e-05, 0.9)"),
        "none": ("nn.LeakyReLU(..., alpha=0.01)", "nn.LeakyReLU(alpha=0.01)"),
        "pool": (
            'pad_mode="pad", padding=1, count_include_pad=True',
            'nn.AvgPool2d(3, 1, pad_mode="pad", padding=1, count_include_pad=True)',
        ),
    }
    planned = plan_edits([culprit(net, path, change) for path, (change, _) in wanted.items()], net)
    assert planned.refused == ()
    assert {one.layers: one.after for one in planned.edits} == {(path,): after for path, (_, after) in wanted.items()}
    (text,) = planned.texts.values()
    befores = {one.after: one.before for one in planned.edits}
    for after, before in befores.items():
        text = text.replace(after, before, 1)
    assert text == SOURCE.replace("\n", "\r\n")


@pytest.mark.frameworks
def test_what_is_computed_shared_or_made_by_another_branch_is_refused_with_the_reason(net: Any) -> None:
    for path, change, reason in (
        ("computed", NORM, "computed"),
        ("shared.1", NORM, "shared_line"),
        ("branch", 'nn.Conv2d(..., pad_mode="valid")', "no_line"),
        ("pool", "an activation in front of it", "no_setting"),
        ("pool", 'pad_mode="pad", count_include_pad=True', "no_padding"),
    ):
        planned = plan_edits([culprit(net, path, change)], net)
        assert [one.reason for one in planned.refused] == [f"fix_refused.{reason}"], path
        assert (planned.edits, planned.texts) == ((), {})


@pytest.mark.frameworks
def test_a_line_that_makes_several_layers_is_changed_once_if_all_are_at_fault(net: Any) -> None:
    planned = plan_edits([culprit(net, f"shared.{number}", NORM) for number in range(3)], net)
    (edit,) = planned.edits
    assert edit.layers == ("shared.0", "shared.1", "shared.2")
    assert edit.after == "nn.BatchNorm2d(4, eps=1e-05)"
