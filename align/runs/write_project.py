"""`align.toml` written from what a folder holds and what the user says."""

from __future__ import annotations

import ast
import contextlib
import json
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import TYPE_CHECKING, Final, Literal

from align.checkpoints.names_in_file import NAMES_OF_MINDSPORE, NAMES_OF_TORCH, source_framework
from align.checkpoints.open_checkpoint import open_checkpoint
from align.core.atomic_files import write_text
from align.errors import AlignError, DestinationError, UsageError
from align.runs.make_recipes import Recipe, constructor, defaults_of, file_configs, recipe_of_call, recipe_of_training
from align.runs.project_file import NAME
from align.runs.read_sources import FRAMEWORKS, IMPORT_STEPS, SideName, Sources, last_return, side_of_name
from align.words.catalogue import say, speaking

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from align.runs.make_recipes import Config
    from align.runs.read_sources import Source

SEARCH_DEPTH: Final = 4
"""Levels of folders that `align init` looks through: a port and its original seldom lie deeper.
Choice: fewer would miss `src/package/models/net.py`; more would read data sets and environments."""
SEARCHED_FILES: Final = 500
"""Files that `align init` looks at, so that a folder of data costs seconds at most.
Choice: a project has tens of Python files, checkpoints and logs; each takes about a millisecond to read."""
CONFIG_BYTES: Final = 1_000_000
"""Larger YAML and JSON files are no configurations.
Choice: configurations have kilobytes; annotations of a data set have hundreds of megabytes."""
LEAST_SHARE: Final = 0.1
"""So many of the words in the names of a checkpoint are attributes of the port's source, or it is not the port's.
Choice: layers of libraries hide most names; words such as `layers` are in every model."""
LISTED_MODELS: Final = 12
"""So many models are listed where several could be meant.
Choice: a library has hundreds; a message with more than a dozen is not read."""


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
    Key("reference", "data", "data", "reference"),
    Key("reference", "log", "log", "reference"),
    Key("candidate", "model", "model", "candidate", is_needed=True),
    Key("candidate", "checkpoint", "checkpoint", "candidate"),
    Key("candidate", "trace", "trace", "candidate"),
    Key("candidate", "training", "training", "candidate"),
    Key("candidate", "data", "data", "candidate"),
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
    model that no function without arguments returns gets one, in a file of its own beside align.toml. Comments are in
    the language of the reader.
    Raises DestinationError if the file is there and must not be replaced.
    """
    path = folder / NAME
    if path.exists() and not overwrite:
        raise DestinationError.of("run_usage.project_is_there", path=path)
    candidates = find_sides(folder)
    chosen, left_out = _choose(candidates, given, ask)
    with speaking():  # comments are for whoever calls
        texts, sides = _write_sides(folder, candidates, chosen, given)
        texts[path] = _text(chosen, left_out)
    written: list[Path] = []
    try:
        for file, text in texts.items():
            write_text(file, text)
            written.append(file)
    except BaseException:
        for file in written:
            file.unlink()
        raise
    return WrittenProject(chosen, left_out, sides, tuple(choices(candidates, "unfit")))


def _write_sides(
    folder: Path, candidates: Sequence[Found], chosen: dict[str, str], given: Mapping[str, str]
) -> tuple[dict[Path, str], tuple[WrittenSide, ...]]:
    """The files that make those chosen models that have recipes, which are `chosen` then in their place."""
    recipes: dict[Path, dict[SideName, Recipe]] = {}
    for key in KEYS:
        name = f"{key.table} {key.name}"
        fits = [
            model for model in candidates if model.purpose == key.name == "model" and model.text == chosen.get(name)
        ]
        model = min(fits, key=lambda model: _order(model, is_given=name in given), default=None)
        if model and model.recipe and key.side:
            file = _free_name(folder / _own_folder(folder, model.recipe, chosen, key.side))
            recipes.setdefault(file, {})[key.side] = model.recipe
            chosen[name] = f"{file.relative_to(folder)}:{key.side}"
    texts = {file: _sides_text(len(file.relative_to(folder).parts) - 1, of_file) for file, of_file in recipes.items()}
    sides = []
    for file, of_file in recipes.items():
        lines = texts[file].splitlines()
        for side, recipe in of_file.items():
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
    candidates: Sequence[Found], given: Mapping[str, str], ask: Ask | None
) -> tuple[dict[str, str], tuple[LeftOut, ...]]:
    chosen: dict[str, str] = {}
    left_out: list[LeftOut] = []
    needed: list[LeftOut] = []
    for key in KEYS:
        name = f"{key.table} {key.name}"
        traces = _traces(candidates, given, key)
        fits = traces if key.name == "trace" else choices(candidates, key.purpose, key.side)
        doubtful = unclear(candidates, key.purpose) if key.side and not fits and key.name != "trace" else []
        is_needed = key.is_needed and not traces and f"{key.table} trace" not in given
        fits = _of_same_name(fits, candidates, given, key)
        sure = fits[0] if len(fits) == 1 else ""
        several = fits or doubtful
        if value := given.get(name) or sure or (ask(key, several) if ask and (several or is_needed) else ""):
            chosen[name] = value
        elif several or is_needed:
            (needed if is_needed else left_out).append(LeftOut(key, tuple(several)))
    if needed:
        raise _without_model(needed, choices(candidates, "notebook"))
    return chosen, tuple(left_out)


def _of_same_name(fits: list[str], candidates: Sequence[Found], given: Mapping[str, str], key: Key) -> list[str]:
    """Of several models the one that is called as one of the other side is, if that is only one."""
    other: SideName = "reference" if key.side == "candidate" else "candidate"
    if key.name != "model" or len(fits) < 2:  # no limit: two are several
        return fits
    theirs = [given[f"{other} model"]] if f"{other} model" in given else choices(candidates, "model", other)
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
    for key_left_out in needed:
        more = ["..."] if len(key_left_out.choices) > LISTED_MODELS else []
        facts = {
            "side": key_left_out.key.side,
            "names": [*key_left_out.choices[:LISTED_MODELS], *more],
            "option": key_left_out.key.option,
        }
        key = "several_models" if key_left_out.choices else "no_model_found"
        faults.append(say(f"run_usage.{key}", **facts))
        hints.append(say(f"run_usage.{key}_hint", trace=f"{key_left_out.key.option}-trace", **facts))
    if notebooks and any(not key_left_out.choices for key_left_out in needed):
        hints.append(say("run_usage.notebooks_hint", notebook=shlex.quote(notebooks[0])))
    return UsageError.of("run_usage.without_model", faults=faults, hints=hints)


def _text(chosen: Mapping[str, str], left_out: Sequence[LeftOut]) -> str:
    """The file: what is known, and as comments what may be added."""
    several = {item.key: item.choices for item in left_out}
    lines = [say("project_key.head")]
    table = ""
    for key in KEYS:
        if key.table != table:
            table = key.table
            lines += ["", f"[{table}]"]
        value = chosen.get(f"{key.table} {key.name}")
        quoted = f"{key.name} = {json.dumps(value, ensure_ascii=False)}" if value else f'# {key.name} = ""'
        one_of = say("project_key.one_of", names=[json.dumps(item) for item in several[key]]) if key in several else ""
        lines.append(f"{quoted}  # {key.about}{one_of}")
    return "\n".join(lines) + "\n"


# What a folder holds that a project file could name: factories of models and batches, checkpoints, logs, traces.
#
# Source is read as text and nothing is run. What a function returns tells what it is for: a call makes a model, two
# or three values a training, a dict the inputs or a batch. Of several models the one counts that the folder itself
# goes by: a function without arguments first, then the call in a training, then what the folder has a configuration
# for.

Purpose = Literal["model", "training", "data", "inputs", "batch", "checkpoint", "log", "trace", "unfit", "notebook"]
OF_DATASETS = {"batch", "map", "shuffle", "repeat", "project", "take", "skip", "padded_batch"}
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
    texts = []
    for path in [path for path in paths if path.suffix in CONFIGURATIONS][:SEARCHED_FILES]:
        with contextlib.suppress(OSError):
            if path.stat().st_size <= CONFIG_BYTES:
                texts.append((path.relative_to(folder).as_posix(), path.read_text("utf-8", "replace")))
    return texts


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
    attributes = set()
    for inner in (inner for node in classes for inner in ast.walk(node)):
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
            attributes.add(inner.attr)
        elif isinstance(inner, ast.Constant) and isinstance(inner.value, str) and inner.value.isidentifier():
            attributes.add(inner.value)
    return attributes


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
    certainty = sources.returns_model(source, node) or ("sure" if sources.is_model(source, node) else "")
    takes = constructor(source, sources, node)
    needed, optional = defaults_of(takes.args, int(is_class)) if takes else ([], [])
    is_open = not is_class and "raise NotImplementedError" in ast.unparse(node)
    if not certainty or (needed and certainty == "maybe"):
        return
    place = sources.place(source)
    recipe = recipe_of_call(sources, source, node, configurations) if needed or not place.side else None
    if is_open or (recipe and recipe.missing):
        rank = OPEN
    elif is_class:
        rank = CONFIGURED_CLASS if needed else CLASS
    elif certainty == "maybe":
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
    recipe, of, name = found
    side = sources.side(of, of.definitions.get(name)) or sources.side(source)
    text = f"{source.path}:{name.rpartition('.')[2]}"
    if side and isinstance(recipe, Recipe):
        yield Found("model", side, text, OPEN if recipe.missing else CALLED, f"{text}()", frozenset(), recipe)
    elif side and (place := sources.place(of)).side:
        yield Found("model", side, f"{place.side}:{name}", CALLED, f"{of.path}:{name}")


def _uses(sources: Sources, source: Source, node: ast.AST) -> frozenset[str]:
    """What a definition is made of, in turn."""
    places: dict[str, None] = {}
    waiting: list[tuple[Source, ast.AST]] = [(source, node)]
    for inner in waiting:
        for one in sources.used(*inner):
            if isinstance(one, tuple) and (key := f"{one[0].path}:{one[1].name}") not in places:
                places[key] = None
                waiting.append(one)
    return frozenset(places)


def _purpose(sources: Sources, source: Source, function: ast.FunctionDef, steps: int = 0) -> Purpose | None:
    """What a function returns that can be called without arguments, by its last return; of models others tell.

    What another function of the folder makes is what that one returns, if it is a dict.
    """
    value = last_return(function)
    if isinstance(value, ast.Call) and _makes_data(value, function):
        return "data"
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


def _makes_data(call: ast.Call, function: ast.FunctionDef) -> bool:
    """Whether a call makes a loader, or a dataset of a library that is batched, mapped or shuffled behind its name."""
    while isinstance(call.func, ast.Attribute) and call.func.attr in OF_DATASETS:
        inner: ast.expr = call.func.value
        if isinstance(inner, ast.Name):
            made = [line.value for line in ast.walk(function) if isinstance(line, ast.Assign)
                    and any(isinstance(one, ast.Name) and one.id == inner.id for one in line.targets)]  # fmt: skip
            inner = next((value for value in made if isinstance(value, ast.Call)), inner)
        if not isinstance(inner, ast.Call):
            return False
        call = inner
    name = ast.unparse(call.func).rpartition(".")[2]
    return name == "DataLoader" or (name.endswith("Dataset") and not name.startswith(("get", "build", "create")))


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
    fits = [candidate for candidate in found if candidate.purpose == purpose and side in (None, candidate.side)]
    whole = [candidate for candidate in fits if not any(_is_part(candidate, other) for other in fits)]
    order = {
        candidate.text: (candidate.rank, candidate.key.count("/")) for candidate in reversed(whole)
    }  # entry files before packages
    best = min(order.values(), default=())
    return [text for text in dict.fromkeys(candidate.text for candidate in whole) if order[text] == best]


def _is_part(one: Found, other: Found) -> bool:
    """Tell whether another model is made of this one; a class that takes more than a function does is none of it."""
    is_made_of = one.key in other.uses and other.key not in one.uses
    return is_made_of and (other.rank <= one.rank or one.rank == OPEN or min(one.rank, other.rank) >= CLASS != UNSURE)
