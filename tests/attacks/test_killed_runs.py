"""Killed at any change of its files, a command leaves what the same command, given again, makes whole of."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

from align.runs.run_folder import KINDS, RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

RUN = "run --keep-going"
# The last step of each part: what comes in between is one of the same kind.
MOMENTS = ["map.json", "model.json", "candidate.ckpt", "forward.json"]


def left(folder: Path) -> tuple[dict[str, str], list[str]]:
    """The states of all rungs, and what lies in the run folder."""
    document = RunFolder(folder / "align-run").read("ladder") or {"rungs": []}
    names = sorted(str(path.relative_to(folder)) for path in (folder / "align-run").rglob("*"))
    return {one["name"]: one["state"] for one in document["rungs"]}, names


def test_a_run_that_is_killed_at_any_moment_is_made_whole_by_the_next(
    commands: Any, project: Callable[[Path], Path], tmp_path: Path
) -> None:
    seen = commands(project(tmp_path / "whole"), RUN).seen
    whole = left(tmp_path / "whole")
    for name in MOMENTS:
        place = 1 + next(n for n, one in enumerate(seen) if one == f"os.rename {name}")
        folder = project(tmp_path / re.sub(r"\W", "_", name))
        assert commands(folder, RUN, kill_at=place).code == -signal.SIGKILL, name
        for kind in (*KINDS, "ladder"):
            RunFolder(folder / "align-run").read(kind)
        assert commands(folder, RUN).code == 0, name
        assert left(folder) == whole, name


def test_a_capture_that_is_killed_before_its_manifest_is_made_whole_by_the_next(
    commands: Any, project: Callable[[Path], Path], tmp_path: Path
) -> None:
    words = "capture port.py:build --inputs x.npz -o trace"
    seen = commands(project(tmp_path / "whole"), words).seen
    begun = next(n for n, one in enumerate(seen) if one == "open manifest.jsonl")
    for last in range(2, begun + 2, 4):
        folder = project(tmp_path / str(last))
        assert commands(folder, words, kill_at=last).code == -signal.SIGKILL
        assert commands(folder, words).code == 0, seen[last - 1]
        assert {path.name for path in (folder / "trace").iterdir()} == {
            path.name for path in (tmp_path / "whole" / "trace").iterdir()
        }
