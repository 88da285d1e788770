"""Each public function has an example in its docstring, and the example runs; a report needs a run first.

Of the public types those have one that users make before they call anything.
"""

from __future__ import annotations

import doctest
from typing import TYPE_CHECKING

import pytest

import align

if TYPE_CHECKING:
    from pathlib import Path


MADE_BY_USERS = ["SideRequest", "Training"]
FUNCTIONS = [name for name in align.__all__ if not isinstance(getattr(align, name), type) and name != "write_report"]


@pytest.mark.parametrize("name", [*MADE_BY_USERS, *FUNCTIONS])
def test_the_example_of_each_workflow_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # an example may write files
    function = getattr(align, name)
    examples = [test for test in doctest.DocTestFinder().find(function, name) if test.examples]
    assert examples, f"align.{name} has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for example in examples:
        example.globs = {name: function}
        report: list[str] = []
        assert runner.run(example, out=report.append).failed == 0, "".join(report)
