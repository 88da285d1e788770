"""Each rule about source finds its hits, and nothing in its misses; a scan shows them with file and line."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

import align
from align.scan.scan_model import FINDERS, rules_broken, source_rules

if TYPE_CHECKING:
    from pathlib import Path


def broken(code: str) -> list[str]:
    (function,) = ast.parse(code).body
    assert isinstance(function, ast.FunctionDef)
    return [rule for rule, _ in rules_broken(function)]


def test_each_rule_finds_its_hits_and_nothing_in_its_misses(assert_each) -> None:
    def is_found(rule: str, code: str) -> None:
        assert broken(code) == [rule]

    def is_missed(_rule: str, code: str) -> None:
        assert broken(code) == []

    rules = source_rules().values()
    assert_each(is_found, [(one.id, code) for one in rules for code in one.hits])
    assert_each(is_missed, [(one.id, code) for one in rules for code in one.misses])


def test_every_rule_has_a_table_and_a_function() -> None:
    assert source_rules().keys() == FINDERS.keys()
    assert all(one.hits and one.misses and one.why and one.write for one in source_rules().values())


MODEL = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 2)

    def forward(self, x):
        x[:, 0].add_(1)
        if x.sum() > 0:
            x = x.to("cpu")
        return self.fc(x)


def build():
    net = Net()
    torch.load("net.pth") if False else None
    return net
"""


@pytest.mark.frameworks
def test_a_scan_tells_each_with_file_and_line_why_and_what_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules_model.py").write_text(MODEL, encoding="utf-8")
    found = align.scan_model("rules_model.py:build").findings
    assert {(one.code, one.subject) for one in found} == {
        ("in-place-on-view", "rules_model.py:11"),
        ("control-flow-on-data", "rules_model.py:12"),
        ("load-without-map-location", "rules_model.py:19"),
    }
    assert all("Write " in one.message for one in found)
