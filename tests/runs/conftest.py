"""The code of the tests themselves is nobody's side."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _tests_are_no_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the hundreds of test files that a worker has loaded: each rung would be held against all of them."""
    from align.runs import evidence

    loaded = evidence.user_files
    monkeypatch.setattr(evidence, "user_files", lambda: [file for file in loaded() if TESTS not in file.parents])
