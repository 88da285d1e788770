"""A file that grows by a line a step while a training runs, so that a process that is killed leaves its last steps.

Each line is a JSON object and is handed to the system when its step is over: after `kill -9` all steps are there but for
the one that ran. The file is begun anew, whole, when it holds twice the steps that are kept.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from align.core.atomic_files import write_text
from align.core.json_data import to_json_data
from align.errors import CannotRunError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class StepLines:
    """Writes the lines of one training."""

    def __init__(self, path: Path, keep: int) -> None:
        self._path, self._keep = path, keep
        self._lines: list[str] = []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, "")
        except OSError as error:
            raise CannotRunError.of("watch_error.no_steps_file", path=path, reason=error.strerror) from error

    def add(self, step: int, loss_scale: float, figures: Mapping[tuple[str, str, int, str, int], float]) -> None:
        """Add a step: the figures are root mean squares by direction, layer, call, operator and its number."""
        rows = [[*key, rms] for key, rms in figures.items()]
        self._write({"step": step, "loss_scale": loss_scale, "rms": rows})

    def end(self, event: Any) -> None:
        """Add what was found."""
        self._write({"event": to_json_data(dataclasses.asdict(event))})

    def _write(self, row: Mapping[str, Any]) -> None:
        line = json.dumps(to_json_data(row)) + "\n"
        self._lines.append(line)
        if len(self._lines) > 2 * self._keep:
            self._lines = self._lines[-self._keep :]
            write_text(self._path, "".join(self._lines))
        else:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line)


def read_steps(path: Path) -> list[dict[str, Any]]:
    """The lines of such a file; a last one that is cut off is left out. Raises CannotRunError for any other file."""
    found = []
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    for number, line in enumerate(lines):
        try:
            row = json.loads(line) if line else None
        except ValueError as error:
            if number == len(lines) - 1:
                break
            raise CannotRunError.of("watch_error.damaged", path=path, line=number + 1) from error
        if isinstance(row, dict):
            found.append(row)
    return found
