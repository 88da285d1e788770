"""Edits of real cells' source: where a value is made is found, only layers that are to change do, all else stays."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING, Any

import pytest

from align.fixes.plan_edits import plan_edits
from align.forward.forward_result import Culprit
from align.models.function_source import CodeChange
from align.models.source_lines import made_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from align.core.protocols import Setting
    from align.fixes.plan_edits import PlannedEdits

SOURCE = """from mindspore import nn

EPS = 1e-3
SLOPES = {"small": 0.2}


class Block(nn.Cell):
    def __init__(self, dim, act=nn.GELU, eps=1e-3, slope=0.2, rate=0.5):
        super().__init__()
        self.norm = nn.BatchNorm2d(dim, eps=eps)
        self.act = act()
        self.leaky = nn.LeakyReLU(alpha=slope)
        self.rate = rate
        self.drop = nn.Dropout(p=self.rate)


class Wide(Block):
    def __init__(self, dim):
        super().__init__(dim, slope=0.3)


class Norm(nn.BatchNorm2d):
    def __init__(self, dim):
        super().__init__(dim, eps=1e-3)


def normed(size, eps=1e-3):
    return nn.BatchNorm2d(size, eps=eps)


by_lambda = lambda size: nn.BatchNorm2d(size, 1e-3)


class Net(nn.Cell):
    def __init__(self, small=True):
        super().__init__()
        self.lambda_norm = by_lambda(4)
        self.method_norm = self.of_class(4, 0.9)
        self.given = normed(4, 1e-4)
        self.default = normed(4)
        self.stack = self.stacked(2, alpha=0.6)
        self.keyword = nn.BatchNorm2d(4, eps=1e-3)  # kept: ü
        self.place = nn.BatchNorm2d(4, 1e-3, 0.9)
        self.none = nn.LeakyReLU()
        self.constant = nn.BatchNorm2d(4, eps=EPS)
        self.pool = nn.AvgPool2d((3), 1, pad_mode="same")
        self.padded = nn.Conv2d(3, 4, 3, pad_mode="pad", padding=1)
        self.lines = nn.Conv2d(
            3,
            (4),
            3,  # the kernel
        )
        if not small:
            self.branch = nn.Conv2d(3, 4, 7, pad_mode="valid")
        else:
            self.branch = nn.Conv2d(3, 4, 3, pad_mode="same")
        self.shared = nn.CellList([nn.BatchNorm2d(4) for _ in range(3)])
        self.blocks = nn.CellList([Block(4) for _ in range(2)])
        self.other = Block(4, slope=0.4)
        self.wide = Wide(4)
        self.own = Norm(4)
        self.computed = nn.LeakyReLU(SLOPES["small"])
        self.open = nn.BatchNorm2d(*(4, 1e-3))

    @classmethod
    def of_class(cls, size, momentum):
        return nn.BatchNorm2d(size, 1e-3, momentum)

    def stacked(self, count, alpha):
        layers = []
        for _ in range(count):
            layers.append(nn.LeakyReLU(alpha))
        return nn.SequentialCell(*layers)


def build():
    return Net()
"""
Edit = tuple[str, str]


def imported(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A net whose source is a file of its own."""
    file = tmp_path_factory.mktemp("fixes") / "fx_net.py"
    file.write_bytes(SOURCE.replace("\n", "\r\n").encode())
    module = imported(file)
    yield module.build()
    del sys.modules["fx_net"]


@pytest.fixture
def planned(net: Any) -> Callable[..., PlannedEdits]:
    """The plan for one change of some layers, the first of which shows the fault."""

    def planned(arguments: dict[str, Setting], path: str, *also: str) -> PlannedEdits:
        line = made_at(net, path)
        known = {"arguments": arguments, "also": also}
        return plan_edits(
            [Culprit(path, path, "", "", 0, "layer", 9.0, "rule", "confirmed", {}, "", line, **known)], net
        )

    return planned


EPSILON: dict[str, Setting] = {"eps": 1e-5}


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("arguments", "paths", "before", "after"),
    [
        (EPSILON, ["keyword"], "BatchNorm2d(4, eps=1e-3)  #", "BatchNorm2d(4, eps=1e-05)  #"),
        (EPSILON, ["place"], "(4, 1e-3, 0.9)", "(4, 1e-05, 0.9)"),
        ({"alpha": 0.01}, ["none"], "nn.LeakyReLU()", "nn.LeakyReLU(alpha=0.01)"),
        (EPSILON, ["constant"], "EPS = 1e-3", "EPS = 1e-05"),
        ({"padding": 1, "pad_mode": "pad"}, ["pool"], '1, pad_mode="same")', '1, pad_mode="pad", padding=1)'),
        ({"pad_mode": "valid"}, ["padded"], 'pad_mode="pad", padding=1', 'pad_mode="valid", padding=0'),
        ({"has_bias": True}, ["lines"], "3,  # the kernel", "3, has_bias=True,  # the kernel"),
        ({"pad_mode": "valid"}, ["branch"], '3, 4, 3, pad_mode="same"', '3, 4, 3, pad_mode="valid"'),
        (EPSILON, ["shared.1", "shared.0", "shared.2"], "BatchNorm2d(4) for", "BatchNorm2d(4, eps=1e-05) for"),
        (EPSILON, [f"{one}.norm" for one in ("blocks.0", "blocks.1", "other", "wide")], "eps=1e-3,", "eps=1e-05,"),
        ({"alpha": 0.01}, ["blocks.0.leaky", "blocks.1.leaky"], "slope=0.2", "slope=0.01"),
        ({"alpha": 0.01}, ["other.leaky"], "slope=0.4", "slope=0.01"),
        ({"alpha": 0.01}, ["wide.leaky"], "slope=0.3", "slope=0.01"),
        ({"p": 0.1}, [f"{one}.drop" for one in ("other", "blocks.0", "blocks.1", "wide")], "rate=0.5", "rate=0.1"),
        (EPSILON, ["given"], "normed(4, 1e-4)", "normed(4, 1e-05)"),
        (EPSILON, ["default"], "size, eps=1e-3", "size, eps=1e-05"),
        ({"alpha": 0.01}, ["stack.0", "stack.1"], "alpha=0.6", "alpha=0.01"),
        (EPSILON, ["own"], "super().__init__(dim, eps=1e-3)", "super().__init__(dim, eps=1e-05)"),
    ],
)
def test_a_value_is_changed_where_it_is_made_and_nothing_else_is(
    arguments: dict[str, Setting],
    paths: list[str],
    before: str,
    after: str,
    net: Any,
    planned: Callable[..., PlannedEdits],
) -> None:
    found = planned(arguments, *paths)
    assert found.refused == ()
    (text,) = found.texts.values()
    assert text == SOURCE.replace(before, after, 1).replace("\n", "\r\n")
    assert SOURCE.count(before) == 1
    (edit,) = found.edits
    assert set(edit.layers) == set(paths)
    assert arguments.items() <= edit.arguments.items()
    line = SOURCE[: SOURCE.index(before)].count("\n")
    assert edit.before == SOURCE.splitlines()[line].strip()
    assert edit.line == line + 1


@pytest.mark.frameworks
def test_a_class_that_is_handed_down_gets_its_arguments_where_it_is_named(
    net: Any, planned: Callable[..., PlannedEdits]
) -> None:
    found = planned({"approximate": False}, "blocks.0.act", "blocks.1.act", "other.act", "wide.act")
    (text,) = found.texts.values()
    meant = SOURCE.replace("act=nn.GELU", "act=partial(nn.GELU, approximate=False)")
    assert text == f"from functools import partial\n{meant}".replace("\n", "\r\n")
    compile(text, "fx_net.py", "exec")


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("arguments", "paths", "reason"),
    [
        (EPSILON, ["shared.1"], "shared_line"),
        (EPSILON, ["blocks.0.norm"], "shared_line"),
        ({"approximate": False}, ["other.act"], "shared_line"),
        ({"alpha": 0.01}, ["computed"], "computed"),
        (EPSILON, ["open"], "no_call"),
        ({}, ["pool"], "no_setting"),
        ({"nonsense": 1}, ["keyword"], "not_taken"),
        ({"pad_mode": "same"}, ["branch"], "no_line"),
        (EPSILON, ["lambda_norm"], "no_call"),
        (EPSILON, ["method_norm"], "no_call"),
    ],
)
def test_what_is_shared_computed_or_not_there_is_refused_with_the_reason(
    arguments: dict[str, Setting], paths: list[str], reason: str, planned: Callable[..., PlannedEdits]
) -> None:
    found = planned(arguments, *paths)
    assert [one.reason for one in found.refused] == [f"fix_refused.{reason}"]
    assert (found.edits, found.texts) == ((), {})


@pytest.mark.frameworks
def test_two_changes_that_want_one_place_otherwise_are_not_both_made(net: Any) -> None:
    own = {"arguments": EPSILON, "also": ()}
    other = {"arguments": {"eps": 1e-6}, "also": ()}
    found = plan_edits(
        [
            Culprit(path, path, "", "", 0, "layer", 9.0, "rule", "confirmed", {}, "", "", **known)
            for path, known in (("shared.0", own), ("shared.1", own), ("shared.2", other))
        ],
        net,
    )
    assert found.edits == ()
    assert {one.reason for one in found.refused} == {"fix_refused.shared_line"}


NESTED = """from mindspore import nn, ops


class Net(nn.Cell):
    def construct(self, x):
        return ops.cat([x, ops.tanh(x * 2.0)], 1)
"""


@pytest.mark.frameworks
def test_of_changes_of_code_one_inside_another_only_the_first_is_made(tmp_path: Path) -> None:
    file = tmp_path / "fx_nested.py"
    file.write_text(NESTED, encoding="utf-8")
    net = imported(file).Net()
    line = NESTED.splitlines()[5]
    changes = [
        CodeChange(str(file), 6, line.index(before), before, after)
        for before, after in (("[x, ops.tanh(x * 2.0)]", "[ops.tanh(x * 2.0), x]"), ("2.0", "3.0"), ("1", "2"))
    ]
    changes.append(CodeChange(str(file), 6, 4, "gone", "there"))
    known = ("", "", "", "", 0, "layer", 9.0, "rule", "confirmed", {}, "", "")
    found = plan_edits([Culprit(*known, code=one) for one in changes], net)
    assert [one.reason for one in found.refused] == ["fix_refused.two_values", "fix_refused.no_expression"]
    assert found.refused[0].facts["values"] == ["[ops.tanh(x * 2.0), x]", "3.0"]
    assert found.texts[file] == NESTED.replace("[x, ops.tanh(x * 2.0)], 1", "[ops.tanh(x * 2.0), x], 2")
