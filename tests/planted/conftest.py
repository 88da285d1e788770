"""The small real pairs; they import both frameworks, so only tests that ask for them load them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest


def _module(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


for _name in ("small_nets", "step_nets"):  # tests import them by their names, without a framework
    _module(_name, Path(__file__).with_name(f"{_name}.py"))


@pytest.fixture(scope="session")
def pairs() -> Any:
    return _module("planted_pairs", Path(__file__).with_name("pairs.py"))


@pytest.fixture(scope="session")
def resnet() -> Any:
    return _module("planted_resnet", Path(__file__).parents[2] / "examples" / "resnet.py")


@pytest.fixture(scope="session")
def faulty(pairs: Any) -> Any:
    return _module("planted_faulty_pairs", Path(__file__).with_name("faulty_pairs.py"))


@pytest.fixture(scope="session")
def unpaired() -> Any:
    return _module("planted_unpaired_pairs", Path(__file__).with_name("unpaired_pairs.py"))


@pytest.fixture
def changes_untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try no change of the code at fault, where the test asks for its place only: it takes all the time it is given."""
    monkeypatch.setattr("align.forward.compare_forward.try_edits", lambda model, bench, alone, told, budget: told)
