"""Sides written down layer by layer, for the tests of matching."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType


@pytest.fixture(scope="session")
def written() -> ModuleType:
    spec = importlib.util.spec_from_file_location("written_sides", Path(__file__).with_name("written_sides.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["written_sides"] = module
    spec.loader.exec_module(module)
    return module
