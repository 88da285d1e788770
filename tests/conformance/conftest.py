"""Lets the tests of this folder import the real layers, which are no test themselves."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def _load() -> None:
    spec = importlib.util.spec_from_file_location("real_layers", Path(__file__).with_name("real_layers.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["real_layers"] = module
    spec.loader.exec_module(module)


_load()
