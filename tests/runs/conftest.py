"""The code of the tests themselves, and of other tests, is nobody's side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _other_code_is_no_side(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Leave out the hundreds of files that a worker has loaded: each rung would be held against all of them."""
    from align.runs import climb_ladder as evidence

    loaded = evidence.user_files
    monkeypatch.setattr(evidence, "user_files", lambda: [file for file in loaded() if tmp_path in file.parents])
