"""MindSpore reports errors where they happen only if it is told so before its first operation, in whatever test."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _blocking(request: pytest.FixtureRequest) -> None:
    """Set MindSpore up as the adapter does before a model is built."""
    if request.node.get_closest_marker("frameworks"):
        from align.models.frameworks.mindspore import _mindspore

        _mindspore()
