"""What a folder holds that a project file could name: factories of models and batches, checkpoints, logs, traces.

Source is read as text and nothing is run. A file's framework is the one that it imports; what a function returns tells
what it is for: a call makes a model, two or three values a training, a dict the inputs or a batch.
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from align.runs.thresholds import SEARCH_DEPTH, SEARCHED_FILES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

Purpose = Literal["model", "training", "inputs", "batch", "checkpoint", "log", "trace"]
SideName = Literal["reference", "candidate"]
FRAMEWORKS: dict[str, SideName] = {"torch": "reference", "mindspore": "candidate", "mindnlp": "candidate"}
BASES = ("Module", "Cell", "PreTrainedModel")
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
SIDE_WORDS: dict[SideName, str] = {
    "reference": r"torch|pytorch|pt|ref|reference|orig|original",
    "candidate": r"mindspore|ms|port|cand|candidate|ascend|npu",
}
# What a call makes that is no model: numbers, lists, what a program is told, its data, its files, parts of a training.
OTHER_CALLS = {
    "int", "float", "str", "len", "list", "tuple", "dict", "set", "sorted", "array", "parse_args", "parse_known_args",
    "getLogger", "open", "Path", "Namespace", "getenv", "time", "now", "device",
}  # fmt: skip
OTHER_ENDS = ("Parser", "Loader", "Dataset", "Tokenizer", "Scheduler", "Loss", "Config")
OTHER_WORDS = {"args", "arguments", "parser", "logger", "loader", "dataset", "tokenizer", "scheduler", "device", "main"}
SKIPPED = {"site-packages", "node_modules", "__pycache__", "build", "dist", "tests", "test"}
TRAINING_VALUES = (2, 3)  # format: model and loss, or with an optimizer


@dataclass(frozen=True, slots=True)
class Found:
    """One thing that a project file could name: `text` as one writes it there, relative to the folder."""

    purpose: Purpose
    side: SideName | None
    text: str


def find_sides(folder: Path) -> tuple[Found, ...]:
    """Look through a folder, three levels deep, without running anything."""
    wanted = {".py", ".npz", *CHECKPOINTS, *LOGS}
    files = [path for path in _files(folder, SEARCH_DEPTH) if path.suffix in wanted or path.name == MANIFEST]
    found: list[Found] = []
    for path in files[:SEARCHED_FILES]:
        name = str(path.relative_to(folder))
        if path.suffix == ".py":
            found += _in_source(path, name)
        elif path.suffix == ".npz":
            found.append(Found("inputs", None, name))
        elif path.name == MANIFEST:
            found.append(Found("trace", _side_of_trace(path), str(path.parent.relative_to(folder))))
        elif path.suffix in CHECKPOINTS:
            found.append(Found("checkpoint", CHECKPOINTS[path.suffix], name))
        else:
            found.append(Found("log", _side_of_name(path.stem), name))
    return tuple(found)


def _files(folder: Path, depth: int) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name in SKIPPED or path.is_symlink():
            continue
        if path.is_file():
            yield path
        elif (path / MANIFEST).is_file():
            yield path / MANIFEST
        elif depth > 1 and path.is_dir() and not (path / "pyvenv.cfg").is_file() and not _is_run_folder(path):
            yield from _files(path, depth - 1)


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


def _side_of_name(name: str) -> SideName | None:
    words = re.split(r"[\W_]+", name.lower())
    sides = [side for side, known in SIDE_WORDS.items() if any(re.fullmatch(known, word) for word in words)]
    return sides[0] if len(sides) == 1 else None


def _in_source(path: Path, name: str) -> Iterator[Found]:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return
    sides = {FRAMEWORKS[package] for package in _imported(tree) if package in FRAMEWORKS}
    side = _side_of_name(path.stem) if len(sides) > 1 else next(iter(sides), None)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and _needs_nothing(node.args) and not node.name.startswith("_"):
            purpose = _purpose(node)
            own = (_side_of_name(node.name) or side) if len(sides) > 1 else (side or _side_of_name(node.name))
            if purpose in ("inputs", "batch"):
                yield Found(purpose, None, f"{name}:{node.name}")
            elif purpose and (sides or own):
                yield Found(purpose, own, f"{name}:{node.name}")
        elif isinstance(node, ast.ClassDef) and sides and _is_model(node):
            yield Found("model", side, f"{name}:{node.name}")


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _needs_nothing(arguments: ast.arguments, own: int = 0) -> bool:
    """Tell whether all arguments have a default, but for the first ones that are its `own` (`self`)."""
    given = len(arguments.defaults) + own
    return len(arguments.posonlyargs) + len(arguments.args) == given and None not in arguments.kw_defaults


def _is_model(node: ast.ClassDef) -> bool:
    """A class of a framework's own base whose `__init__` needs no argument."""
    if not any(ast.unparse(base).rpartition(".")[2] in BASES for base in node.bases):
        return False
    starts = [item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"]
    return all(_needs_nothing(start.args, own=1) for start in starts)


def _purpose(function: ast.FunctionDef) -> Purpose | None:
    """What a function without arguments returns, by its last return."""
    returns = [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value is not None]
    if not returns:
        return None
    value = _value_of(function, returns[-1])
    if isinstance(value, ast.Tuple) and len(value.elts) in TRAINING_VALUES:
        return "training"
    if isinstance(value, ast.Dict):
        keys = [str(key.value) for key in value.keys if isinstance(key, ast.Constant)]
        if any(key in ("model", "network", "loss", "optimizer", "step") for key in keys):
            return "training"
        return "batch" if any(key in LABELS for key in keys) else "inputs"
    return "model" if isinstance(value, ast.Call) and not _makes_another(function.name, value) else None


def _value_of(function: ast.FunctionDef, value: ast.expr) -> ast.expr:
    """What a returned name was last given; other expressions are themselves."""
    if not isinstance(value, ast.Name):
        return value
    given = [
        node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == value.id for to in node.targets)
    ]
    return given[0] if given else value


def _makes_another(function: str, value: ast.Call) -> bool:
    """Tell whether what is called, or the function's own name, says that something else than a model is made."""
    called = ast.unparse(value.func).rpartition(".")[2]
    words = {*re.split(r"[\W_]+", function.lower())}
    return called in OTHER_CALLS or called.endswith(OTHER_ENDS) or bool(words & OTHER_WORDS)


def unclear(found: Iterable[Found], purpose: Purpose) -> list[str]:
    """What could stand for one key of either side: nothing in it tells whose it is."""
    return [one.text for one in found if one.purpose == purpose and one.side is None]


def choices(found: Iterable[Found], purpose: Purpose, side: SideName | None = None) -> list[str]:
    """What could stand for one key, in the order of the files; a class only where no function does."""
    fits = [one.text for one in found if one.purpose == purpose and side in (None, one.side)]
    return [text for text in fits if not text.rpartition(":")[2][:1].isupper()] or fits
