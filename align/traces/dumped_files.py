"""Tensors that a dump keeps in files of their own, and the figures that it gives of them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial
from math import isfinite, isinf, isnan, prod, sqrt
from typing import TYPE_CHECKING, Any, Literal

from align.checkpoints.open_checkpoint import FilesBeside, open_tensor
from align.core.parameters import is_numeric
from align.core.thresholds import MOST_AXES
from align.core.traces import TensorStatistics
from align.errors import DumpError
from align.traces.thresholds import (
    DEEPEST_DUMPED_VALUE,
    DEEPEST_RUN_FOLDER,
    LONGEST_DUMP_TEXT,
    MOST_DUMPED_ELEMENTS,
    MOST_LISTED_RUNS,
)
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from align.core.parameters import Array, Shape
    from align.core.traces import DumpedTensor


_SHORT_DTYPES = {"half": "float16", "float": "float32", "double": "float64", "long": "int64", "int": "int32"}


def canonical_dtype(path: Path, name: Any) -> str:
    """The dtype that `torch.float32`, `Float32` and `BFloat16` mean; raises DumpError for what is none."""
    dtype = str(name).rpartition(".")[2].lower()
    dtype = _SHORT_DTYPES.get(dtype, dtype)
    if not is_numeric(dtype):
        raise DumpError.of("dump_error.unknown_dtype", path=path, dtype=str(name)[:60])
    return dtype


def require_tensors(path: Path, tensors: Iterable[DumpedTensor]) -> tuple[DumpedTensor, ...]:
    """Return all tensors of a dump; raises DumpError where there are none."""
    found = tuple(tensors)
    if not found:
        raise DumpError.of("dump_error.no_tensors", path=path)
    return found


def not_known(tool: str, names: Iterable[str]) -> tuple[str, ...]:
    """A note that names what a reader does not know of a dump; none for nothing."""
    listed = sorted(names)
    return (sentence("dump_note.not_known", tool=tool, names=listed),) if listed else ()


def nested_tables(
    path: Path, name: str, value: Any, is_tensor: Callable[[dict[str, Any]], bool], item: str = "", depth: int = 0
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the tables of tensors in nested lists and tables, each with its name there.

    Raises DumpError for what is nested too deep.
    """
    if depth > DEEPEST_DUMPED_VALUE:
        raise DumpError.of("dump_error.too_deep", path=path, name=name)
    if isinstance(value, dict) and is_tensor(value):
        yield item, value
        return
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from nested_tables(path, name, inner, is_tensor, f"{item}.{key}" if item else str(key), depth + 1)


def read_text(path: Path) -> str:
    """The text of a log or a table; raises DumpError for one that is too long."""
    if (size := path.stat().st_size) > LONGEST_DUMP_TEXT:
        raise DumpError.of("dump_error.too_long", path=path, size=size, most=LONGEST_DUMP_TEXT)
    return path.read_text(encoding="utf-8", errors="replace")


def sound_dims(path: Path, name: str, dims: Any) -> Shape:
    """A shape as a dump says it; raises DumpError for what is none."""
    sound = isinstance(dims, list) and len(dims) <= MOST_AXES and all(type(dim) is int and dim >= 0 for dim in dims)
    if not sound or prod([dim or 1 for dim in dims]) > MOST_DUMPED_ELEMENTS:
        raise DumpError.of("dump_error.no_shape", path=path, name=name, shape=str(dims)[:60])
    return tuple(dims)


def tensor_loader(files: FilesBeside, location: str, name: str, shape: Shape) -> Callable[[], Array] | None:
    """What loads the tensor of a file that a dump names; None if there is no such file beside it.

    Loading raises DumpError if the file holds another shape than the dump says.
    """
    found = files.file(location)
    return None if found is None else partial(_load, found, name, shape)


def _load(path: Path, name: str, shape: Shape) -> Array:
    stored = open_tensor(path)
    if stored.shape != shape:
        facts = {"held": list(stored.shape), "said": list(shape)}
        raise DumpError.of("dump_error.other_shape", path=path, name=name, **facts)
    return stored.load()


def figures(table: dict[str, Any], shape: Shape) -> TensorStatistics | None:
    """Largest, smallest and mean value and the norm, by the names that tools give them; None where there are none.

    Where one of them is NaN or infinite, one element at least is counted as such.
    """
    given = [_number(table.get(key)) for key in ("Min", "Max", "Mean", "Norm")]
    if all(one is None for one in (given[0], given[1], given[3])):
        return None
    low, high, mean, norm = (one if one is not None and isfinite(one) else None for one in given)
    nan, inf = (any(one is not None and test(one) for one in given) for test in (isnan, isinf))
    return TensorStatistics(
        low, high, mean, None if norm is None else norm / sqrt(max(prod(shape), 1)), int(nan), int(inf)
    )


def _number(value: Any) -> float | None:
    """A number or the text of one, or a bool, whose largest and smallest value some tools give; None for others."""
    if not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except (OverflowError, ValueError):
        return None


# Names of the files that MindSpore's Dump writes, and which module an operator belongs to.
#
# `Conv2D.Default_conv1-Conv2d_Conv2D-op0.0.0.TIME.output.0.DefaultFormat.Float32.npy` is the first output of the
# operator `Default/conv1-Conv2d/Conv2D-op0`. The slashes are lost in names of files; the list of the order of
# execution has them.

FILE = re.compile(
    r"(?P<type>[^.]+)\.(?P<name>.+)\.(?P<task>[0-9]+)\.(?P<stream>[0-9]+)\.(?P<time>[0-9]+)"
    r"\.(?P<way>input|output)\.(?P<slot>[0-9]{1,4})(\.[A-Za-z0-9_]+){0,2}\.npy"
)
_SCOPE = re.compile(r"(?P<name>[^-/]+)-(?P<class>[^-/]+)")
_OPERATOR = re.compile(r"[^/_]+-op[0-9]+")
ROOT = "Default"


@dataclass(frozen=True, slots=True)
class Scope:
    """The module that an operator runs in, the classes on the way to it, and the operator's own name."""

    module: str
    class_name: str
    operator: str


def read_scope(full_name: str) -> Scope | None:
    """The scope of an operator by its name with slashes; None for one outside of the network, as of gradients.

    >>> read_scope("Default/layers-SequentialCell/0-Dense/MatMul-op3")
    Scope(module='layers.0', class_name='Dense', operator='MatMul-op3')
    """
    root, *inner = full_name.split("/")
    if root != ROOT or not inner:
        return None
    operator = inner.pop()
    found = [_SCOPE.fullmatch(part) for part in inner]
    path = [one["name"] for one in found if one]
    last = found[-1] if found else None
    return Scope(".".join(path), last["class"] if last else "", operator)


def guess_full_name(name: str) -> str:
    """The name with slashes, where no list has it: right unless a module's name holds an underscore.

    >>> guess_full_name("Default_conv1-Conv2d_Conv2D-op0")
    'Default/conv1-Conv2d/Conv2D-op0'
    """
    root, _, rest = name.partition("_")
    operator = _OPERATOR.search(rest)
    if operator is None or operator.end() != len(rest):
        return name
    scopes = re.findall(r"(?:^|_)((?:[^-_]+(?:_[^-_]+)*?)-[^-_]+)(?=_)", rest[: operator.start()])
    return "/".join([root, *scopes, operator[0]])


# Names of calls in msprobe's dumps: which module or function was called, the how manieth time, in which direction.
#
# `Module.layers.0.Linear.forward.0` is a call of torch's module `layers.0`, `Cell.` one of MindSpore's;
# `Functional.conv2d.0.forward` is one of a function, and stands for a module of its own inside the one that calls it,
# as functions do in traces of our own: `conv1/conv2d`.

Direction = Literal["forward", "backward", "parameters_grad"]
_MODULE = re.compile(
    r"(?:Module|Cell)\.(?:(?P<path>.+)\.)?(?P<class>[^.]+)\.(?P<way>forward|backward|parameters_grad)\.(?P<call>[0-9]{1,9})"
)
_FUNCTION = re.compile(r"(?P<name>[A-Z]\w*\..+)\.(?P<call>[0-9]{1,9})\.(?P<way>forward|backward)")


@dataclass(frozen=True, slots=True)
class MsprobeCall:
    """One call; `depth` counts those around it."""

    module: str
    call: int
    class_name: str
    way: str
    depth: int = 0


@dataclass(slots=True)
class CallNames:
    """The calls that names stand for; `parents` names, by the name of a call, the one that runs around it.

    Functions are counted anew in each module, forwards; their calls backwards are those of the same name.
    """

    parents: Mapping[str, str]
    _known: dict[str, tuple[str, int]] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def read(self, name: str) -> MsprobeCall | None:
        """The call of a name, None for a name of no known form."""
        if match := _MODULE.fullmatch(name):
            path = "" if match["path"] is None else match["path"]
            return MsprobeCall(path, int(match["call"]), match["class"], match["way"], self._depth(name))
        match = _FUNCTION.fullmatch(name)
        if match is None:
            return None
        key = f"{match['name']}.{match['call']}"
        if key not in self._known:
            around = _MODULE.fullmatch(self.parents.get(name, ""))
            module = f"{around['path'] or ''}/{match['name']}" if around else f"/{match['name']}"
            self._known[key] = module, self._counts.get(module, 0)
            self._counts[module] = self._counts.get(module, 0) + 1
        function = match["name"].rpartition(".")[2].replace("_", "").lower()
        return MsprobeCall(*self._known[key], function, match["way"], self._depth(name))

    def _depth(self, name: str) -> int:
        """How many calls run around it; those of a circle count once."""
        seen: set[str] = set()
        while name in self.parents and name not in seen:
            seen.add(name)
            name = self.parents[name]
        return len(seen)


# Folders of steps, ranks and processes: which of them holds the dump of one run.

RUN = re.compile(r"(step|rank|proc|iteration)[_-]?[0-9]*|[0-9]+")


def has_run(folder: Path, is_run: Callable[[Path], bool], names: re.Pattern[str] = RUN) -> bool:
    """Tell whether a folder, or one inside of such a name, is what `is_run` says."""
    return next(_runs(folder, is_run, names), None) is not None


def only_run(folder: Path, is_run: Callable[[Path], bool], names: re.Pattern[str] = RUN) -> Path:
    """The one folder that is a run; raises DumpError naming all of several, for the user to choose from."""
    runs = all_runs(folder, is_run, names)
    if not runs:
        raise DumpError.of("dump_error.no_run", path=folder)
    if len(runs) > 1:
        shown = [str(one) for one in runs[:MOST_LISTED_RUNS]]
        raise DumpError.of("dump_error.several_runs", path=folder, count=len(runs), runs=shown, first=shown[0])
    return runs[0]


def all_runs(folder: Path, is_run: Callable[[Path], bool], names: re.Pattern[str] = RUN) -> list[Path]:
    """The folders that are runs: this one, or those inside of such names, step2 before step10."""
    return sorted(_runs(folder, is_run, names), key=lambda path: natural_key(str(path)))


def natural_key(name: str) -> list[tuple[int, str]]:
    """A key by which step2 comes before step10."""
    return [(int(part) if part.isdecimal() else 0, part) for part in re.split(r"([0-9]+)", name)]


def _runs(folder: Path, is_run: Callable[[Path], bool], names: re.Pattern[str], depth: int = 0) -> Iterator[Path]:
    if is_run(folder):
        yield folder
    elif depth < DEEPEST_RUN_FOLDER:
        for inner in sorted(folder.iterdir()):
            if names.fullmatch(inner.name) and inner.is_dir() and not inner.is_symlink():
                yield from _runs(inner, is_run, names, depth + 1)
