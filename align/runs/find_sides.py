"""What a folder holds that a project file could name: factories of models and batches, checkpoints, logs, traces.

Source is read as text and nothing is run. What a function returns tells what it is for: a call makes a model, two or
three values a training, a dict the inputs or a batch. Of several models the one counts that the folder itself goes by:
a function without arguments first, then the call in a training, then what the folder has a configuration for.
"""

from __future__ import annotations

import ast
import contextlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from align.checkpoints.names_in_file import NAMES_OF_MINDSPORE, NAMES_OF_TORCH, source_framework
from align.checkpoints.open_checkpoint import open_checkpoint
from align.errors import AlignError
from align.runs.find_configurations import constructor, defaults_of, file_configs
from align.runs.make_recipes import Recipe, recipe_of_call, recipe_of_training
from align.runs.read_sources import FRAMEWORKS, SideName, Sources, last_return, side_of_name
from align.runs.thresholds import CONFIG_BYTES, IMPORT_STEPS, LEAST_SHARE, SEARCH_DEPTH, SEARCHED_FILES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from align.runs.find_configurations import Config
    from align.runs.read_sources import Source

Purpose = Literal["model", "training", "inputs", "batch", "checkpoint", "log", "trace", "unfit", "notebook"]
LABELS = ("label", "labels", "target", "targets", "y")
CHECKPOINTS: dict[str, SideName] = {
    ".pth": "reference",
    ".pt": "reference",
    ".bin": "reference",
    ".safetensors": "reference",
    ".ckpt": "candidate",
}
MANIFEST = "manifest.jsonl"  # of a folder of `align capture`
LOGS = (".log", ".jsonl", ".csv", ".out")
CONFIGURATIONS = (".yaml", ".yml", ".json")
SKIPPED = {"site-packages", "node_modules", "__pycache__", "build", "dist", "tests", "test"}
NO_ENTRIES = re.compile(r"(test_.*|.*_test|conftest|setup)\.py")
TRAINING_VALUES = (2, 3)  # format: model and loss, or with an optimizer
LEAVES = {"weight", "bias", "gamma", "beta", *NAMES_OF_MINDSPORE, *NAMES_OF_TORCH}
FUNCTION, CALLED, WITH_DEFAULTS, CONFIGURED, CLASS, CONFIGURED_CLASS, UNSURE, OPEN = range(
    8
)  # which model counts first


@dataclass(frozen=True, slots=True)
class Found:
    """One thing that a project file could name: `text` as one writes it there, relative to the folder.

    Of models, `rank` says which counts first, `key` what it is and `uses` what it is made of; one with a `recipe` is
    made by the lines of a function that is to be written.
    """

    purpose: Purpose
    side: SideName | None
    text: str
    rank: int = FUNCTION
    key: str = ""
    uses: frozenset[str] = frozenset()
    recipe: Recipe | None = None


def find_sides(folder: Path) -> tuple[Found, ...]:
    """Look through a folder, four levels deep, without running anything."""
    wanted = {".py", ".npz", ".ipynb", *CHECKPOINTS, *LOGS}
    paths = [*_files(folder, SEARCH_DEPTH)]
    files = [path for path in paths if path.suffix in wanted or path.name == MANIFEST][:SEARCHED_FILES]
    sources = Sources(folder)
    for path in files:
        if path.suffix == ".py":
            sources.add(path)
    of_files = [*file_configs(_texts(folder, paths))]
    found: list[Found] = []
    for path in files:
        found += _in_file(folder, path, sources, of_files)
    return tuple(found)


def _texts(folder: Path, paths: Sequence[Path]) -> list[tuple[str, str]]:
    """YAML and JSON files with what they hold, but for large ones."""
    found = []
    for path in [path for path in paths if path.suffix in CONFIGURATIONS][:SEARCHED_FILES]:
        with contextlib.suppress(OSError):
            if path.stat().st_size <= CONFIG_BYTES:
                found.append((path.relative_to(folder).as_posix(), path.read_text("utf-8", "replace")))
    return found


def _in_file(folder: Path, path: Path, sources: Sources, configurations: Sequence[Config]) -> Iterator[Found]:
    name = path.relative_to(folder)
    if path.suffix == ".py":
        if name in sources.files and not NO_ENTRIES.fullmatch(path.name):
            with contextlib.suppress(RecursionError):  # code of a program, too deep to be read
                yield from _in_source(sources, sources.files[name], configurations)
    elif path.suffix == ".npz":
        yield Found("inputs", None, str(name))
    elif path.suffix == ".ipynb":
        yield Found("notebook", None, str(name))
    elif path.name == MANIFEST:
        yield Found("trace", _side_of_trace(path), str(name.parent))
    elif path.suffix in CHECKPOINTS:
        side = _owner(path, sources)
        yield Found("checkpoint" if side else "unfit", side, str(name))
    else:
        yield Found("log", side_of_name(path.stem), str(name))


def _files(folder: Path, depth: int) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name in SKIPPED or path.is_symlink():
            continue
        if path.is_file():
            yield path
        elif (path / MANIFEST).is_file():
            yield path / MANIFEST
        elif depth > 1 and path.is_dir() and not _is_environment(path) and not _is_run_folder(path):
            yield from _files(path, depth - 1)


def _is_environment(path: Path) -> bool:
    return (path / "pyvenv.cfg").is_file() or (path / "conda-meta").is_dir()


def _is_run_folder(path: Path) -> bool:
    """A folder that align wrote: of a run, or of `align repro`."""
    is_repro = any(path.glob("*_layer.py")) and any(path.glob("*_output.npz"))
    return is_repro or any((path / name).is_file() for name in ("ladder.json", "map.json"))


def _side_of_trace(manifest: Path) -> SideName | None:
    """The side of the framework that a trace was captured with, as its first line says."""
    with manifest.open(encoding="utf-8", errors="replace") as stream:
        try:
            head = json.loads(stream.readline())["head"]
            return FRAMEWORKS.get(str(head["framework"]))
        except (ValueError, KeyError, TypeError):
            return None


def _owner(path: Path, sources: Sources) -> SideName | None:
    """The side whose a checkpoint is: that of its suffix, unless its names are not those of that side's source.

    Source tells in part what parameters are called: a name is built of attributes, which layers of libraries lack.
    """
    usual = CHECKPOINTS[path.suffix]
    other: SideName = "reference" if usual == "candidate" else "candidate"
    try:
        opened = open_checkpoint(path)
    except (AlignError, OSError):
        return usual
    names = list(opened.tensors)
    torch_names = {name.rpartition(".")[2] for name in names} & NAMES_OF_TORCH
    foreign = {"reference": source_framework(opened.metadata, names)[1], "candidate": torch_names}
    mine, its = (_share(names, _attributes(sources, side)) for side in (usual, other))
    if foreign[usual]:
        return other if usual == "reference" and its != 0 else None
    if usual == "candidate":
        return usual if mine is None or mine >= max(its or 0, LEAST_SHARE) else None
    return other if (its or 0) > (mine or 0) and not foreign[other] else usual


def _share(names: Sequence[str], attributes: set[str]) -> float | None:
    """How many parts of names are attributes, None where no attributes are known."""
    parts = [part for name in names for part in name.split(".") if not part.isdigit() and part not in LEAVES]
    if not attributes or not parts:
        return None
    return sum(part in attributes for part in parts) / len(parts)


def _attributes(sources: Sources, side: SideName) -> set[str]:
    """What the modules of a side's files call their parts: attributes, and words in their constructors."""
    classes = (
        node
        for source in sources.files.values()
        for node in source.definitions.values()
        if isinstance(node, ast.ClassDef) and sources.side(source, node) == side
    )
    found = set()
    for one in (one for node in classes for one in ast.walk(node)):
        if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store):
            found.add(one.attr)
        elif isinstance(one, ast.Constant) and isinstance(one.value, str) and one.value.isidentifier():
            found.add(one.value)
    return found


def _in_source(sources: Sources, source: Source, configurations: Sequence[Config]) -> Iterator[Found]:
    for name, node in source.definitions.items():
        if name.startswith("_"):
            continue
        side = sources.side(source, node)
        is_free = isinstance(node, ast.FunctionDef) and not defaults_of(node.args)[0]
        purpose = _purpose(sources, source, node) if isinstance(node, ast.FunctionDef) and is_free else None
        if purpose in ("inputs", "batch"):
            yield from _arrays(purpose, f"{source.path}:{name}")
        elif purpose and side:
            yield Found(purpose, side, f"{source.path}:{name}")
        elif not purpose and (side or sources.side(source)):
            yield from _model(sources, source, name, configurations)
    yield from _called(sources, source, configurations)


def _arrays(purpose: Purpose, text: str) -> Iterator[Found]:
    """Inputs, or a batch; what the name says otherwise counts first, what is returned if there is no other."""
    name = text.rpartition(":")[2]
    said: Purpose = "batch" if "batch" in name else "inputs" if "input" in name else purpose
    yield Found(purpose, None, text, FUNCTION if said == purpose else UNSURE)
    if said != purpose:
        yield Found(said, None, text, UNSURE if said == "batch" else FUNCTION)


def _model(sources: Sources, source: Source, name: str, configurations: Sequence[Config]) -> Iterator[Found]:
    """A function that returns a model, or a class of models, with how it is made."""
    node = source.definitions[name]
    is_class = isinstance(node, ast.ClassDef)
    made = sources.returns_model(source, node) or ("sure" if sources.is_model(source, node) else "")
    takes = constructor(source, sources, node)
    needed, optional = defaults_of(takes.args, int(is_class)) if takes else ([], [])
    is_open = not is_class and "raise NotImplementedError" in ast.unparse(node)
    if not made or (needed and made == "maybe"):
        return
    place = sources.place(source)
    recipe = recipe_of_call(sources, source, node, configurations) if needed or not place.side else None
    if is_open or (recipe and recipe.missing):
        rank = OPEN
    elif is_class:
        rank = CONFIGURED_CLASS if needed else CLASS
    elif made == "maybe":
        rank = UNSURE
    else:
        rank = CONFIGURED if needed else WITH_DEFAULTS if optional else FUNCTION
    text = f"{source.path if recipe else place.side}:{name}"
    yield Found(
        "model", sources.side(source, node), text, rank, f"{source.path}:{name}", _uses(sources, source, node), recipe
    )


def _called(sources: Sources, source: Source, configurations: Sequence[Config]) -> Iterator[Found]:
    """The model that a training of the file makes."""
    if not (found := recipe_of_training(sources, source, configurations)):
        return
    made, of, name = found
    side = sources.side(of, of.definitions.get(name)) or sources.side(source)
    text = f"{source.path}:{name.rpartition('.')[2]}"
    if side and isinstance(made, Recipe):
        yield Found("model", side, text, OPEN if made.missing else CALLED, f"{text}()", frozenset(), made)
    elif side and (place := sources.place(of)).side:
        yield Found("model", side, f"{place.side}:{name}", CALLED, f"{of.path}:{name}")


def _uses(sources: Sources, source: Source, node: ast.AST) -> frozenset[str]:
    """What a definition is made of, in turn."""
    found: dict[str, None] = {}
    waiting: list[tuple[Source, ast.AST]] = [(source, node)]
    for inner in waiting:
        for one in sources.used(*inner):
            if isinstance(one, tuple) and (key := f"{one[0].path}:{one[1].name}") not in found:
                found[key] = None
                waiting.append(one)
    return frozenset(found)


def _purpose(sources: Sources, source: Source, function: ast.FunctionDef, steps: int = 0) -> Purpose | None:
    """What a function returns that can be called without arguments, by its last return; of models others tell.

    What another function of the folder makes is what that one returns, if it is a dict.
    """
    value = last_return(function)
    if isinstance(value, ast.Tuple) and len(value.elts) in TRAINING_VALUES:
        return "training" if not steps else None
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "dict":
        return _purpose_of_values({one.arg: one.value for one in value.keywords if one.arg})
    if isinstance(value, ast.Dict):
        named = zip(value.keys, value.values, strict=True)
        return _purpose_of_values({str(key.value): one for key, one in named if isinstance(key, ast.Constant)})
    if isinstance(value, ast.Call) and steps < IMPORT_STEPS:
        made_by = sources.resolve(source, value.func, function)
        if isinstance(made_by, tuple) and isinstance(made_by[1], ast.FunctionDef):
            return _purpose(sources, made_by[0], made_by[1], steps + 1)
    return "inputs" if isinstance(value, ast.DictComp) else None


def _purpose_of_values(values: Mapping[str, ast.expr]) -> Purpose | None:
    """What a dict of these keys is for."""
    if any(key in ("model", "network", "loss", "optimizer", "step") for key in values):
        return "training"
    if values and all(isinstance(one, ast.Constant) for one in values.values()):
        return None  # settings
    return "batch" if any(key in LABELS for key in values) else "inputs"


def unclear(found: Iterable[Found], purpose: Purpose) -> list[str]:
    """What could stand for one key of either side: nothing in it tells whose it is."""
    return [one.text for one in found if one.purpose == purpose and one.side is None]


def choices(found: Iterable[Found], purpose: Purpose, side: SideName | None = None) -> list[str]:
    """What could stand for one key, in the order of the files; of models those that count first, and are no parts."""
    fits = [one for one in found if one.purpose == purpose and side in (None, one.side)]
    whole = [one for one in fits if not any(_is_part(one, other) for other in fits)]
    order = {one.text: (one.rank, one.key.count("/")) for one in reversed(whole)}  # entry files before packages
    best = min(order.values(), default=())
    return [text for text in dict.fromkeys(one.text for one in whole) if order[text] == best]


def _is_part(one: Found, other: Found) -> bool:
    """Tell whether another model is made of this one; a class that takes more than a function does is none of it."""
    is_made_of = one.key in other.uses and other.key not in one.uses
    return is_made_of and (other.rank <= one.rank or one.rank == OPEN or min(one.rank, other.rank) >= CLASS != UNSURE)
