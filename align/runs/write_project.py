"""`align.toml` written from what a folder holds and what the user says."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import TYPE_CHECKING

from align.core.atomic_files import write_text
from align.errors import DestinationError, UsageError
from align.runs.find_sides import Purpose, choices, find_sides, unclear
from align.runs.project_file import NAME
from align.runs.thresholds import LISTED_MODELS
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from align.runs.find_sides import Found
    from align.runs.make_recipes import Recipe
    from align.runs.read_sources import SideName


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
class WrittenSide:
    """A function of a file that was written: whose, `file.py:function`, and what it does; `line` is to be filled in."""

    side: SideName
    text: str
    recipe: Recipe
    line: int = 0


@dataclass(frozen=True, slots=True)
class WrittenProject:
    """What the file names, by `table key`, and the keys that were left out although something was found for them.

    `sides` are functions that were written for it, `unfit` checkpoints whose names are not their side's.
    """

    chosen: dict[str, str]
    left_out: tuple[LeftOut, ...] = ()
    sides: tuple[WrittenSide, ...] = ()
    unfit: tuple[str, ...] = ()


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
OPEN_PLACE = "raise NotImplementedError"
Ask = Callable[[Key, Sequence[str]], str]


def write_project(
    folder: Path, given: Mapping[str, str], ask: Ask | None = None, *, overwrite: bool = False
) -> WrittenProject:
    """Write `align.toml` into a folder and return what it names.

    `given` has what the user says by `table key`; `ask` chooses among several, and is asked for models of which
    nothing is found. Without it a key of which there are several is left out. A side without a model or a trace is a
    UsageError, which lists what there is of both sides. A trace that is found stands in for a model that is not. A
    model that no function without arguments returns gets one, in a file of its own beside align.toml.
    Raises DestinationError if the file is there and must not be replaced.
    """
    path = folder / NAME
    if path.exists() and not overwrite:
        raise DestinationError.of("run_usage.project_is_there", path=path)
    found = find_sides(folder)
    chosen, left_out = _choose(found, given, ask)
    texts, sides = _write_sides(folder, found, chosen, given)
    written: list[Path] = []
    try:
        for file, text in (*texts.items(), (path, _text(chosen, left_out))):
            write_text(file, text)
            written.append(file)
    except BaseException:
        for file in written:
            file.unlink()
        raise
    return WrittenProject(chosen, left_out, sides, tuple(choices(found, "unfit")))


def _write_sides(
    folder: Path, found: Sequence[Found], chosen: dict[str, str], given: Mapping[str, str]
) -> tuple[dict[Path, str], tuple[WrittenSide, ...]]:
    """The files that make those chosen models that have recipes, which are `chosen` then in their place."""
    recipes: dict[Path, dict[SideName, Recipe]] = {}
    for key in KEYS:
        name = f"{key.table} {key.name}"
        fits = [one for one in found if one.purpose == key.name == "model" and one.text == chosen.get(name)]
        one = min(fits, key=lambda one: _order(one, is_given=name in given), default=None)
        if one and one.recipe and key.side:
            file = _free_name(folder / _own_folder(folder, one.recipe, chosen, key.side))
            recipes.setdefault(file, {})[key.side] = one.recipe
            chosen[name] = f"{file.relative_to(folder)}:{key.side}"
    texts = {file: _sides_text(len(file.relative_to(folder).parts) - 1, made) for file, made in recipes.items()}
    sides = []
    for file, made in recipes.items():
        lines = texts[file].splitlines()
        for side, recipe in made.items():
            start = lines.index(f"def {side}():")
            line = next((at for at, text in enumerate(lines[start:], start + 1) if OPEN_PLACE in text), 0)
            sides.append(WrittenSide(side, f"{file.relative_to(folder)}:{side}", recipe, line if recipe.missing else 0))
    return texts, tuple(sides)


def _order(one: Found, *, is_given: bool) -> tuple[bool, int, int]:
    """What is given and can be named stays; else the one that counts first, of two the one of which more is known."""
    return is_given and one.recipe is not None, one.rank, -len(one.recipe.lines) if one.recipe else 0


def _own_folder(folder: Path, recipe: Recipe, chosen: Mapping[str, str], side: SideName) -> str:
    """The folder whose files a recipe imports by their bare names, where the other side has files of these names."""
    other = chosen.get("candidate model" if side == "reference" else "reference model", "").rpartition("/")[0]
    for root in recipe.roots:
        names = {path.name for path in (folder / root).glob("*.py")} - {"__init__.py"}
        if root != other and names & {path.name for path in (folder / other).glob("*.py")} and ".." not in root:
            return root
    return ""


def _free_name(folder: Path) -> Path:
    """A file that is not there yet."""
    names = chain(("sides", "align_sides"), (f"align_sides_{number}" for number in count(2)))
    return next(path for name in names if not (path := folder / f"{name}.py").exists())


def _sides_text(up: int, recipes: Mapping[SideName, Recipe]) -> str:
    """A file with a function for each side, so many folders below that of align.toml."""
    functions = [_function(side, recipe) for side, recipe in recipes.items()]
    text = "".join(functions)
    here = [f"HERE = pathlib.Path(__file__).resolve().parents[{up}]"] if "HERE" in text else []
    imports = [line for line, word in (("import pathlib", "HERE"), ("import sys", "sys.")) if word in text]
    head = "\n\n".join(filter(None, [f'"""{say("project_sides.head")}"""', "\n".join(imports), *here]))
    return "\n\n\n".join([head, *functions]) + "\n"


def _function(side: SideName, recipe: Recipe) -> str:
    lines = [f"sys.path.insert(0, str(HERE / {json.dumps(root)}))" for root in recipe.roots]
    lines += recipe.lines
    if recipe.missing:
        said = say("project_sides.fill_in", call=recipe.call, origin=recipe.origin, missing=recipe.missing)
        lines.append(f"{OPEN_PLACE}({json.dumps(said, ensure_ascii=False)})")
    about = say("project_sides.about", call=recipe.call, origin=recipe.origin)
    return "\n    ".join([f"def {side}():", f'"""{about}"""', *lines, f"return {recipe.call}"])


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
        fits = _of_same_name(fits, found, given, key)
        sure = fits[0] if len(fits) == 1 else ""
        several = fits or doubtful
        if value := given.get(name) or sure or (ask(key, several) if ask and (several or is_needed) else ""):
            chosen[name] = value
        elif several or is_needed:
            (needed if is_needed else left_out).append(LeftOut(key, tuple(several)))
    if needed:
        raise _without_model(needed, choices(found, "notebook"))
    return chosen, tuple(left_out)


def _of_same_name(fits: list[str], found: Sequence[Found], given: Mapping[str, str], key: Key) -> list[str]:
    """Of several models the one that is called as one of the other side is, if that is only one."""
    other: SideName = "reference" if key.side == "candidate" else "candidate"
    if key.name != "model" or len(fits) < 2:  # no limit: two are several
        return fits
    theirs = [given[f"{other} model"]] if f"{other} model" in given else choices(found, "model", other)
    names = {text.rpartition(":")[2] for text in theirs}
    same = [text for text in fits if text.rpartition(":")[2] in names]
    return same if len(same) == 1 else fits


def _traces(found: Sequence[Found], given: Mapping[str, str], key: Key) -> list[str]:
    """The traces that stand in for a side: those of one of which there is no model."""
    has_model = f"{key.table} model" in given or choices(found, "model", key.side)
    return choices(found, "trace", key.side) if key.side and not has_model else []


def _without_model(needed: Sequence[LeftOut], notebooks: Sequence[str]) -> UsageError:
    """What there is of sides that have neither a model nor a trace, all of them in one message."""
    faults, hints = [], []
    for one in needed:
        more = ["..."] if len(one.choices) > LISTED_MODELS else []
        facts = {"side": one.key.side, "names": [*one.choices[:LISTED_MODELS], *more], "option": one.key.option}
        key = "several_models" if one.choices else "no_model_found"
        faults.append(say(f"run_usage.{key}", **facts))
        hints.append(say(f"run_usage.{key}_hint", trace=f"{one.key.option}-trace", **facts))
    if notebooks and any(not one.choices for one in needed):
        hints.append(say("run_usage.notebooks_hint", notebook=shlex.quote(notebooks[0])))
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
