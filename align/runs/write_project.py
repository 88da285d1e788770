"""`align.toml` written from what a folder holds and what the user says."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.core.atomic_files import write_text
from align.errors import DestinationError, UsageError
from align.runs.find_sides import Purpose, SideName, choices, find_sides, unclear
from align.runs.project_file import NAME
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from align.runs.find_sides import Found


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


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A key that was left out because several could stand for it, or nothing tells whose the one is."""

    key: Key
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WrittenProject:
    """What the file names, by `table key`, and the keys that were left out although something was found for them."""

    chosen: dict[str, str]
    left_out: tuple[LeftOut, ...] = ()


KEYS = (
    Key("reference", "model", "model", "reference", is_needed=True),
    Key("reference", "checkpoint", "checkpoint", "reference"),
    Key("reference", "trace", "trace", "reference"),
    Key("reference", "training", "training", "reference"),
    Key("reference", "log", "log", "reference"),
    Key("candidate", "model", "model", "candidate", is_needed=True),
    Key("candidate", "checkpoint", "checkpoint", "candidate"),
    Key("candidate", "trace", "trace", "candidate"),
    Key("candidate", "training", "training", "candidate"),
    Key("candidate", "log", "log", "candidate"),
    Key("forward", "inputs", "inputs", None),
    Key("training", "batch", "batch", None),
)
Ask = Callable[[Key, Sequence[str]], str]


def write_project(
    folder: Path, given: Mapping[str, str], ask: Ask | None = None, *, overwrite: bool = False
) -> WrittenProject:
    """Write `align.toml` into a folder and return what it names.

    `given` has what the user says by `table key`; `ask` chooses among several, and is asked for models of which
    nothing is found. Without it a key of which there are several is left out. A side without a model or a trace is a
    UsageError, which lists what there is of both sides. A trace that is found stands in for a model that is not.
    Raises DestinationError if the file is there and must not be replaced.
    """
    path = folder / NAME
    if path.exists() and not overwrite:
        raise DestinationError.of("run_usage.project_is_there", path=path)
    chosen, left_out = _choose(find_sides(folder), given, ask)
    write_text(path, _text(chosen, left_out))
    return WrittenProject(chosen, left_out)


def _choose(
    found: Sequence[Found], given: Mapping[str, str], ask: Ask | None
) -> tuple[dict[str, str], tuple[LeftOut, ...]]:
    chosen: dict[str, str] = {}
    left_out: list[LeftOut] = []
    needed: list[LeftOut] = []
    for key in KEYS:
        name = f"{key.table} {key.name}"
        traces = _traces(found, given, key)
        fits = traces if key.name == "trace" else choices(found, key.purpose, key.side)
        doubtful = unclear(found, key.purpose) if key.side and not fits and key.name != "trace" else []
        is_needed = key.is_needed and not traces and f"{key.table} trace" not in given
        sure = fits[0] if len(fits) == 1 else ""
        several = fits or doubtful
        if value := given.get(name) or sure or (ask(key, several) if ask and (several or is_needed) else ""):
            chosen[name] = value
        elif several or is_needed:
            (needed if is_needed else left_out).append(LeftOut(key, tuple(several)))
    if needed:
        raise _without_model(needed)
    return chosen, tuple(left_out)


def _traces(found: Sequence[Found], given: Mapping[str, str], key: Key) -> list[str]:
    """The traces that stand in for a side: those of one of which there is no model."""
    has_model = f"{key.table} model" in given or choices(found, "model", key.side)
    return choices(found, "trace", key.side) if key.side and not has_model else []


def _without_model(needed: Sequence[LeftOut]) -> UsageError:
    """What there is of sides that have neither a model nor a trace, all of them in one message."""
    faults, hints = [], []
    for one in needed:
        facts = {"side": one.key.side, "names": one.choices, "option": one.key.option}
        key = "several_models" if one.choices else "no_model_found"
        faults.append(say(f"run_usage.{key}", **facts))
        hints.append(say(f"run_usage.{key}_hint", trace=f"{one.key.option}-trace", **facts))
    return UsageError.of("run_usage.without_model", faults=faults, hints=hints)


def _text(chosen: Mapping[str, str], left_out: Sequence[LeftOut]) -> str:
    """The file: what is known, and as comments what may be added."""
    several = {one.key: one.choices for one in left_out}
    lines = [say("project_key.head")]
    table = ""
    for key in KEYS:
        if key.table != table:
            table = key.table
            lines += ["", f"[{table}]"]
        value = chosen.get(f"{key.table} {key.name}")
        quoted = f"{key.name} = {json.dumps(value, ensure_ascii=False)}" if value else f'# {key.name} = ""'
        one_of = say("project_key.one_of", names=[json.dumps(one) for one in several[key]]) if key in several else ""
        lines.append(f"{quoted}  # {key.about}{one_of}")
    return "\n".join(lines) + "\n"
