"""The Python files of a folder as text, never run: what they import and define, whose they are, what makes a model.

A file's framework is the one that it imports, else that of the files of the folder that it imports; where there are
both, what a function or class itself uses tells, then its name, then that of its file and folders.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from functools import cached_property, wraps
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

IMPORT_STEPS: Final = 8
"""How far `align init` follows a name from file to file, a function to what it returns, a class to its bases.
Choice: a name is handed on by an `__init__.py` or two; imports in a circle must end."""

SideName = Literal["reference", "candidate"]
MIND = ("mindspore", "mindnlp", "mindcv", "mindone", "mindformers", "mindocr", "mindyolo", "mindaudio", "mindspeed")
FRAMEWORKS: dict[str, SideName] = {"torch": "reference", **dict.fromkeys(MIND, "candidate")}
# Ports use these too, for a configuration or a tokenizer: they count where none of the above is imported.
LIBRARIES: dict[str, SideName] = dict.fromkeys(
    ("torchvision", "timm", "transformers", "diffusers", "lightning", "pytorch_lightning", "torchaudio", "peft",
     "open_clip", "segmentation_models_pytorch", "torch_geometric", "monai", "ultralytics", "mmengine", "mmdet"),
    "reference",
)  # fmt: skip
MODEL_LIBRARIES = {*LIBRARIES, *MIND[1:]}
BASES = ("Module", "Cell", "PreTrainedModel", "LightningModule")
CONTAINERS = ("Sequential", "SequentialCell")
SIDE_WORDS: dict[SideName, str] = {
    "reference": r"torch|pytorch|pt|ref|reference|orig|original",
    "candidate": r"mindspore|ms|port|cand|candidate|ascend|npu",
}
# What a call makes that is no model: numbers, lists, what a program is told, its data, its files, parts of a training.
OTHER_CALLS = {
    "int", "float", "str", "len", "list", "tuple", "dict", "set", "sorted", "array", "parse_args", "parse_known_args",
    "getLogger", "open", "Path", "Namespace", "getenv", "time", "now", "device",
}  # fmt: skip
OTHER_ENDS = (
    "Parser", "Loader", "Dataset", "Tokenizer", "Scheduler", "Loss", "Config", "LR", "Optimizer", "Metric", "Trainer",
    "OneStepCell", "Processor", "Callback", "Criterion",
)  # fmt: skip
OTHER_WORDS = {
    "args", "arguments", "parser", "logger", "loader", "dataset", "tokenizer", "scheduler", "device", "main", "loss",
    "optimizer", "optim", "criterion", "data", "schedule", "lr", "metric", "transform", "transforms", "mask", "config",
}  # fmt: skip
OTHER_ROOTS = {"numpy", "math", "os", "random", "json", "yaml", "time", "argparse", "collections", "logging", "pathlib"}
MODEL_WORDS = {"model", "net", "network", "build", "create", "backbone", "reference", "candidate", *MIND}
Answer = TypeVar("Answer", bound="Callable[..., Any]")
Definition = tuple["Source", "ast.FunctionDef | ast.ClassDef"]
Certainty = Literal["sure", "maybe", ""]
Import = tuple[str, int, str]  # a module, how many folders up it is looked for, and what of it


@dataclass(frozen=True, eq=False)
class Source:
    """A file of the folder, parsed; `path` is relative to the folder."""

    path: PurePath
    tree: ast.Module

    @cached_property
    def definitions(self) -> dict[str, ast.FunctionDef | ast.ClassDef]:
        """What the file defines at its top."""
        return {node.name: node for node in self.tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}

    @cached_property
    def constants(self) -> dict[str, ast.expr]:
        """What names are given at the top of the file."""
        return {
            target.id: node.value
            for node in self.tree.body
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        }

    @cached_property
    def imports(self) -> dict[str, Import]:
        """What names are imported outside of functions."""
        top = (node for part in self.tree.body if not isinstance(part, ast.FunctionDef) for node in ast.walk(part))
        return dict(imported_names(top))

    @cached_property
    def all_imports(self) -> list[Import]:
        """All that is imported anywhere, with the whole names of modules."""
        imports = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                imports += [(one.name, 0, "") for one in node.names]
            elif isinstance(node, ast.ImportFrom):
                imports += [(node.module or "", node.level, one.name) for one in node.names]
        return imports


def imported_names(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, Import]]:
    """Names, and what is imported under them."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                yield alias.asname or first, (alias.name if alias.asname else first, 0, "")
        elif isinstance(node, ast.ImportFrom):
            yield from (
                (alias.asname or alias.name, (node.module or "", node.level, alias.name)) for alias in node.names
            )


@dataclass(frozen=True)
class Place:
    """How a file is imported: as `module`, with the folders `roots` on the import path.

    `side` is how a side's name begins (`file.py` or `package.module`), "" where that does not reach all folders.
    """

    module: str
    roots: tuple[str, ...]
    side: str


def _kept(method: Answer) -> Answer:
    """A method of Sources whose answers are kept: names are followed again and again."""

    @wraps(method)
    def answer(self: Sources, *asked: Any) -> Any:
        key = (method.__name__, *asked)
        if key not in self.answers:
            self.answers[key] = method(self, *asked)
        return self.answers[key]

    return cast("Answer", answer)


@dataclass
class Sources:
    """The files of a folder by their paths in it."""

    folder: Path
    files: dict[PurePath, Source] = field(default_factory=dict)
    answers: dict[Any, Any] = field(default_factory=dict)

    def add(self, path: Path) -> None:
        """Parse a file; one that is no Python is left out."""
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, RecursionError, OSError):
            return
        name = PurePath(path.relative_to(self.folder))
        self.files[name] = Source(name, tree)

    def module(self, source: Source, module: str, level: int) -> tuple[PurePath, Source] | None:
        """The file of the folder that a module is, and the folder in which it is found."""
        parents = source.path.parents
        places = [*parents, PurePath("src")] if not level else parents[level - 1 : level]
        for place in places:
            path = place.joinpath(*module.split(".")) if module else place
            for file in (path.with_name(f"{path.name}.py") if path.name else path, path / "__init__.py"):
                if file in self.files and file != source.path:
                    return place, self.files[file]
        return None

    def resolve(self, source: Source, name: ast.expr, scope: ast.AST | None = None, steps: int = 0) -> Definition | str:
        """What a name or a chain of names stands for: a definition of the folder, else its full name."""
        parts = _parts(name)
        inside = self.imports_inside(scope) if scope is not None else {}
        if parts[0] in source.definitions and len(parts) == 1 and parts[0] not in inside:
            return source, source.definitions[parts[0]]
        found_import = inside.get(parts[0]) or source.imports.get(parts[0])
        if steps > IMPORT_STEPS or found_import is None:
            return self._from_all(source, parts) or ".".join(parts)
        module, level, attribute = found_import
        names = [part for part in (attribute, *parts[1:]) if part]
        for count in range(len(names), -1, -1):
            found = self.module(source, ".".join(filter(None, [module, *names[:count]])), level)
            if found and len(names) == count + 1:
                return self.resolve(found[1], ast.Name(names[count]), None, steps + 1)
        return ".".join([module, *names])

    @_kept
    def imports_inside(self, scope: ast.AST) -> dict[str, Import]:
        """What is imported inside of a function or class."""
        return dict(imported_names(ast.walk(scope)))

    def _from_all(self, source: Source, parts: Sequence[str]) -> Definition | None:
        """What `from module import *` brings."""
        found = (self.module(source, module, level) for module, level, name in source.all_imports if name == "*")
        fits = (one[1] for one in found if one and len(parts) == 1 and parts[0] in one[1].definitions)
        return next(((one, one.definitions[parts[0]]) for one in fits), None)

    @_kept
    def imported(self, source: Source) -> list[tuple[PurePath | None, Source]]:
        """The files of the folder that a file imports, each with the folder that must be on the import path for it."""
        return [
            (None if level else found[0], found[1])
            for module, level, name in source.all_imports
            if (
                found := self.module(source, f"{module}.{name}".strip("."), level) or self.module(source, module, level)
            )
        ]

    @_kept
    def _roots_of_importers(self) -> dict[Source, set[PurePath]]:
        """The folders that must be on the import path for a file, as others import it."""
        roots: dict[Source, set[PurePath]] = {}
        for one in self.files.values():
            for root, other in self.imported(one):
                roots.setdefault(other, set()).update([] if root is None else [root])
        return roots

    @_kept
    def place(self, source: Source) -> Place:
        """How a file is imported, with all files of the folder that it imports in turn."""
        needed = {root for file in self._closure(source) for root, _ in self.imported(file) if root is not None}
        levels = max((level for _, level, _ in source.all_imports), default=0)
        top = (self.folder.resolve() / source.path).parents
        packages = levels
        while (top[packages] / "__init__.py").is_file():
            packages += 1
        here = source.path.parent
        is_free = all(part.isidentifier() and part not in {*FRAMEWORKS, *LIBRARIES} for part in here.parts)
        by_others = self._roots_of_importers().get(source, set())
        root = PurePath() if needed <= {PurePath()} and is_free and here not in by_others else here
        names = [] if root == here else [*here.parts]
        if packages:
            root = _relative(top[packages], self.folder.resolve())
            names = [file.name for file in reversed(top[:packages])]
        dotted = ".".join([*names, *([] if source.path.stem == "__init__" else [source.path.stem])])
        side = str(source.path) if needed <= {here, *([root] if levels else [])} else ""
        side = dotted if not side and needed == {root} == {PurePath()} else side
        return Place(dotted, tuple(sorted({str(file) for file in (*needed, root)} - {"."})), side)

    def _closure(self, source: Source) -> list[Source]:
        closure = {source: None}
        waiting = [source]
        for one in waiting:
            new = dict.fromkeys(other for _, other in self.imported(one) if other not in closure)
            closure |= new
            waiting += new
        return waiting

    @_kept
    def side(self, source: Source, node: ast.FunctionDef | ast.ClassDef | None = None) -> SideName | None:
        """Whose a file is, or what it defines."""
        sides = self._sides(source)
        if len(sides) > 1 and node is not None:
            sides = self._used(source, node) or sides
        if len(sides) == 1:
            return next(iter(sides))
        words = [*([node.name] if node is not None else []), source.path.stem, *reversed(source.path.parent.parts)]
        return next(filter(None, map(side_of_name, words)), None)

    @_kept
    def _sides(self, source: Source) -> set[SideName]:
        """The sides of what a file imports; of one that imports no framework those of the files that it imports."""
        local = {file.path.parts[0].removesuffix(".py") for _, file in self.imported(source)}
        roots = {module.partition(".")[0] for module, level, _ in source.all_imports if not level}
        return _sides_of(roots - local) or {
            side
            for file in self._closure(source)[1:]
            for side in _sides_of({m.partition(".")[0] for m, *_ in file.all_imports})
        }

    def _used(self, source: Source, node: ast.AST) -> set[SideName]:
        """The sides of what a function or class uses: names of frameworks, files of one side, what these define."""
        used_sides: set[SideName] = set()
        waiting: list[tuple[Source, ast.AST]] = [(source, node)]
        for one in waiting:
            for used in self.used(*one):
                if isinstance(used, str):
                    used_sides |= _sides_of({used.partition(".")[0]})
                elif len(sides := self._sides(used[0])) == 1:
                    used_sides |= sides
                elif used not in waiting:
                    waiting.append(used)
        bases = {base_name(base) for base in getattr(node, "bases", ())}
        return used_sides or ({"candidate"} if "Cell" in bases else {"reference"} if "Module" in bases else set())

    @_kept
    def used(self, source: Source, node: ast.AST) -> list[Definition | str]:
        """What the names in a function or class stand for."""
        names = {one.id: one for one in ast.walk(node) if isinstance(one, ast.Name)}
        stored = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)}
        names = {name: one for name, one in names.items() if name not in stored}
        return [self.resolve(source, names[name], node) for name in sorted(names)]

    def is_model(self, source: Source, node: ast.AST, steps: int = 0) -> bool:
        """A class of a framework's own base, or of a class of the folder or of a library of models that is one."""
        if (
            not isinstance(node, ast.ClassDef)
            or node.name.endswith(OTHER_ENDS)
            or "WithLoss" in node.name
            or steps > IMPORT_STEPS
        ):
            return False
        for base in node.bases:
            origin = self.resolve(source, base)
            if base_name(base) in BASES:
                return True
            if isinstance(origin, str):
                if origin.partition(".")[0] in MODEL_LIBRARIES and not origin.endswith(OTHER_ENDS):
                    return True
            elif self.is_model(origin[0], origin[1], steps + 1):
                return True
        return False

    def makes_model(self, source: Source, value: ast.expr, scope: ast.AST | None, steps: int = 0) -> Certainty:
        """Tell whether an expression is a call that makes a model, behind calls such as `.eval()`."""
        call = inner_call(value, scope)
        if call is None or steps > IMPORT_STEPS:
            return ""
        origin = self.resolve(source, call.func, scope)
        if isinstance(origin, tuple):
            if isinstance(origin[1], ast.ClassDef):
                return "sure" if self.is_model(origin[0], origin[1]) else ""
            return self.returns_model(*origin, steps + 1) if isinstance(origin[1], ast.FunctionDef) else ""
        called, root = origin.rpartition(".")[2], origin.partition(".")[0]
        if called in OTHER_CALLS or called.endswith(OTHER_ENDS) or root in OTHER_ROOTS:
            return ""
        if called in CONTAINERS or (root in MODEL_LIBRARIES and called != "transforms"):
            return "sure"
        return "" if root in FRAMEWORKS and ".nn" not in origin and "load" not in called else "maybe"

    def returns_model(self, source: Source, function: ast.AST, steps: int = 0) -> Certainty:
        """Tell by its last return whether a function makes a model; of a call that is not known its name tells."""
        if not isinstance(function, ast.FunctionDef):
            return ""
        words = {*re.split(r"[\W_]+", function.name.lower())}
        returned = last_return(function)
        if returned is None or words & OTHER_WORDS:
            return ""
        made = self.makes_model(source, returned, function, steps)
        return "sure" if made == "maybe" and words & MODEL_WORDS else made


def _relative(path: Path, folder: Path) -> PurePath:
    if path.is_relative_to(folder):
        return PurePath(path.relative_to(folder))
    return PurePath(*[".."] * (len(folder.parts) - len(path.parts)))


def _parts(name: ast.expr) -> list[str]:
    """`a.b.c` taken apart; [""] for what is no chain of names."""
    reversed_parts: list[str] = []
    while isinstance(name, ast.Attribute):
        reversed_parts.append(name.attr)
        name = name.value
    return [name.id, *reversed(reversed_parts)] if isinstance(name, ast.Name) else [""]


def _sides_of(roots: Iterable[str]) -> set[SideName]:
    """The sides of packages; libraries count only where no framework is among them."""
    named = {*roots}
    return {FRAMEWORKS[one] for one in named & FRAMEWORKS.keys()} or {
        LIBRARIES[one] for one in named & LIBRARIES.keys()
    }


def side_of_name(name: str) -> SideName | None:
    """The side that the words of a name tell, None where they tell none or both."""
    words = re.split(r"[\W_]+", name.lower())
    sides = [side for side, known in SIDE_WORDS.items() if any(re.fullmatch(known, word) for word in words)]
    return sides[0] if len(sides) == 1 else None


def base_name(base: ast.expr) -> str:
    """The last part of a base class's name."""
    return ast.unparse(base).rpartition(".")[2]


def last_return(function: ast.FunctionDef) -> ast.expr | None:
    """What a function returns at its end; what the functions inside of it return is theirs."""
    returns = [node for node in _own_nodes(function) if isinstance(node, ast.Return) and node.value is not None]
    last = max(returns, key=lambda node: node.lineno, default=None)
    return value_of(function, last.value) if last and last.value else None


def _own_nodes(function: ast.FunctionDef) -> list[ast.AST]:
    """The nodes of a function's body but for those in functions and classes that it defines."""
    nodes: list[ast.AST] = [*function.body]
    for node in nodes:
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            nodes += ast.iter_child_nodes(node)
    return nodes


def value_of(function: ast.AST, value: ast.expr) -> ast.expr:
    """What a name was first given in a function; other expressions are themselves."""
    if not isinstance(value, ast.Name):
        return value
    given = [
        node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == value.id for to in node.targets)
    ]
    return given[0] if given else value


def inner_call(value: ast.expr, scope: ast.AST | None) -> ast.Call | None:
    """The first call of a chain: `Net(3)` of `Net(3).eval()`, also where a name was given it before."""
    inner = None
    for _ in range(IMPORT_STEPS):
        value = value_of(scope, value) if scope is not None else value
        if not isinstance(value, ast.Call):
            break
        inner = value
        if not isinstance(value.func, ast.Attribute):
            break
        value = value.func.value
    return inner
