"""`align.toml` written from what a folder holds and what the user says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.core.atomic_files import write_text
from align.errors import DestinationError, UsageError
from align.runs.find_sides import Purpose, SideName, choices, find_sides
from align.runs.project_file import NAME
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the file: its table and name, what may fill it, whether the file is of no use without it."""

    table: str
    name: str
    purpose: Purpose
    side: SideName | None
    is_needed: bool = False

    @property
    def about(self) -> str:
        """What it is for."""
        return say(f"project_key.{self.table}_{self.name}")

    @property
    def option(self) -> str:
        """The option of `align init` that gives it."""
        return f"--{self.side}-{self.name}" if self.side and self.name != "model" else f"--{self.side or self.name}"


KEYS = (
    Key("reference", "model", "model", "reference", is_needed=True),
    Key("reference", "checkpoint", "checkpoint", "reference"),
    Key("reference", "training", "training", "reference"),
    Key("reference", "log", "log", "reference"),
    Key("candidate", "model", "model", "candidate", is_needed=True),
    Key("candidate", "checkpoint", "checkpoint", "candidate"),
    Key("candidate", "training", "training", "candidate"),
    Key("candidate", "log", "log", "candidate"),
    Key("forward", "inputs", "inputs", None),
    Key("training", "batch", "batch", None),
)


def write_project(
    folder: Path,
    given: Mapping[str, str],
    ask: Callable[[Key, Sequence[str]], str] | None = None,
    *,
    overwrite: bool = False,
) -> dict[str, str]:
    """Write `align.toml` into a folder and return what it names, by `table key`.

    `given` has what the user says by the same keys; `ask` chooses among several, and is asked for models of which
    nothing is found. Without it a key of which there are several is left out, but for the models: then UsageError
    lists them. Raises DestinationError if the file is there and must not be replaced.
    """
    path = folder / NAME
    if path.exists() and not overwrite:
        raise DestinationError.of("run_usage.project_is_there", path=path)
    found = find_sides(folder)
    chosen: dict[str, str] = {}
    for key in KEYS:
        name = f"{key.table} {key.name}"
        fits = choices(found, key.purpose, key.side)
        value = given.get(name) or (fits[0] if len(fits) == 1 else _asked(key, fits, ask))
        if value:
            chosen[name] = value
    write_text(path, _text(chosen))
    return chosen


def _asked(key: Key, fits: Sequence[str], ask: Callable[[Key, Sequence[str]], str] | None) -> str:
    if ask and (fits or key.is_needed):
        return ask(key, fits)
    if key.is_needed:
        if fits:
            raise UsageError.of("run_usage.several_models", side=key.side, names=fits, option=key.option)
        raise UsageError.of("run_usage.no_model_found", side=key.side, option=key.option)
    return ""


def _text(chosen: Mapping[str, str]) -> str:
    """The file: what is known, and as comments what may be added."""
    lines = [say("project_key.head")]
    table = ""
    for key in KEYS:
        if key.table != table:
            table = key.table
            lines += ["", f"[{table}]"]
        value = chosen.get(f"{key.table} {key.name}")
        quoted = f"{key.name} = {json.dumps(value, ensure_ascii=False)}" if value else f'# {key.name} = ""'
        lines.append(f"{quoted}  # {key.about}")
    return "\n".join(lines) + "\n"
