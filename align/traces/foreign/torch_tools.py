"""Logs of torch's `DebugMode` (`debug_string()` in a file): every operator in the modules that call it, with hashes.

With `log_tensor_hashes` each line ends with a hash of what the operator returned: by default the sum of the sizes of
its elements, which is compared as a figure; a whole number is a checksum.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isfinite, isinf, isnan, prod, sqrt
from typing import TYPE_CHECKING, Any

from align.checkpoints.open_checkpoint import read_json
from align.core.traces import DumpedTensor, ForeignDump, TensorStatistics
from align.errors import DumpError
from align.traces.dumped_files import (
    canonical_dtype,
    figures,
    has_run,
    nested_tables,
    not_known,
    only_run,
    read_text,
    require_tensors,
    sound_dims,
)
from align.traces.thresholds import DEEPEST_DUMPED_VALUE, PRINTED_PRECISION, RECOGNIZED_BYTES
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from align.core.parameters import Shape
    from align.core.traces import TensorPart


_OPERATOR = re.compile(r"(?P<indent> *)aten::(?P<name>[\w.]+)\(.*\)  ->  (?P<returned>.*?)(  # (?P<log>\{.*\}))?")
_MODULE = re.compile(r"(?P<indent> *)\[nn\.Mod[^\]]*\] (?P<path>[\w.]+).*")
_TENSOR = re.compile(r"t(?:\$[0-9]+)?: (?P<dtype>[a-z]+[0-9]*)\[(?P<shape>[0-9, ]*)\]")
_LENGTH = re.compile("[0-9]{1,18}")
_HASH = re.compile(r"'hash': \(?(?P<hashes>[^)}]*)")
_DTYPES = {"f": "float", "bf": "bfloat", "i": "int", "u": "uint", "c": "complex"}


@dataclass(frozen=True, slots=True)
class TorchDebugModeReader:
    """A text file."""

    name: str = "torch_debug_mode"
    summary: str = "logs of torch's DebugMode: operators by module, with hashes"
    requires: tuple[str, ...] = ()
    last_resort: bool = False
    tried_with: str = "torch 2.13.0"

    def recognizes(self, path: Path) -> bool:
        """Tell by the first lines."""
        if not path.is_file() or path.suffix == ".json":
            return False
        with path.open("rb") as stream:
            lines = stream.read(RECOGNIZED_BYTES).decode("utf-8", "replace").splitlines()
        return any(_OPERATOR.fullmatch(line) for line in lines)

    def read(self, path: Path) -> ForeignDump:
        """Read all operators."""
        tensors = require_tensors(path, _tensors(path, read_text(path).splitlines()))
        return ForeignDump(path, "torch DebugMode", "torch", tensors, of_modules=False)


TORCH_DEBUG_MODE = TorchDebugModeReader()


def _tensors(path: Path, lines: list[str]) -> Iterator[DumpedTensor]:
    scopes: list[tuple[int, str]] = []
    counts: dict[str, int] = {}
    order = 0
    for line in lines:
        if match := _MODULE.fullmatch(line):
            scopes = [scope for scope in scopes if scope[0] < len(match["indent"])]
            scopes.append((len(match["indent"]), match["path"].partition(".")[2]))
        elif match := _OPERATOR.fullmatch(line):
            inside = [scope for scope in scopes if scope[0] < len(match["indent"])]
            module = f"{inside[-1][1] if inside else ''}/{match['name']}"
            call = counts.get(module, 0)
            counts[module] = call + 1
            returned = [*_TENSOR.finditer(match["returned"])]
            hashes = _hashes(match["log"] or "", len(returned))
            for place, (printed, value) in enumerate(zip(returned, hashes, strict=True)):
                item = "" if len(returned) == 1 else str(place)
                yield _tensor(path, (order, module, call, item), printed, value)
                order += 1


def _tensor(path: Path, place: tuple[int, str, int, str], match: re.Match[str], value: str) -> DumpedTensor:
    order, module, call, item = place
    letters, bits = re.fullmatch(r"([a-z]+)([0-9]*)", match["dtype"]).groups()  # type: ignore[union-attr]
    dtype = "bool" if letters == "b" else canonical_dtype(path, f"{_DTYPES.get(letters, letters)}{bits}")
    parts = [one.strip() for one in match["shape"].split(",") if one.strip()]
    shape = sound_dims(path, module, [int(one) if _LENGTH.fullmatch(one) else one for one in parts])
    kind = module.partition("/")[2]
    digest = f"hash:{value}" if value.lstrip("-").isdecimal() else ""
    figures = None if digest else _figures_of_log(value, prod(shape))
    return DumpedTensor(
        order, "output", module, call, item, kind, shape, dtype, figures, digest, depth=module.count(".")
    )


def _figures_of_log(value: str, count: int) -> TensorStatistics | None:
    """The mean size of the elements; it differs by no more than the elements do."""
    try:
        total = float(value)
    except ValueError:
        return None
    if isfinite(total):
        return TensorStatistics(None, None, total / max(count, 1), None)
    return TensorStatistics(None, None, None, None, int(isnan(total)), int(isinf(total)))


def _hashes(log: str, count: int) -> list[str]:
    found = _HASH.search(log)
    values = [one.strip() for one in found["hashes"].split(",") if one.strip()] if found else []
    return values if len(values) == count else [""] * count


# The JSON of transformers' `model_addition_debugger`: the tree of modules, with what each was given and returned.
#
# Values are printed with five digits, and often cut; only the figures are compared.

_FILES = ("*_debug_tree_FULL_TENSORS.json", "*_debug_tree_SUMMARY.json")
_KNOWN = {"module_path", "inputs", "outputs", "children"}
_NUMBER = re.compile(r"tensor\((?P<number>[-+0-9.einfa]+)")


@dataclass(frozen=True, slots=True)
class TransformersDebuggerReader:
    """The file, or the folder that was given as `debug_path`."""

    name: str = "transformers_debugger"
    summary: str = "the JSON of transformers' model_addition_debugger: figures of every module"
    requires: tuple[str, ...] = ()
    last_resort: bool = False
    tried_with: str = "transformers 5.23.0"

    def recognizes(self, path: Path) -> bool:
        """Tell by the names of the files, or the first key."""
        if path.is_dir():
            return has_run(path, _is_run)
        if path.suffix != ".json":
            return False
        with path.open("rb") as stream:
            return re.match(rb'\s*\{\s*"module_path"', stream.read(RECOGNIZED_BYTES)) is not None

    def read(self, path: Path) -> ForeignDump:
        """Read the figures of all modules."""
        file = path if path.is_file() else next(_trees(only_run(path, _is_run)))
        tree = _Tree(file)
        tensors = require_tensors(file, tree.tensors())
        notes = (sentence("dump_note.printed_figures"), *not_known(self.tried_with, tree.unknown))
        return ForeignDump(file, "transformers", "torch", tensors, notes=notes)


TRANSFORMERS_DEBUGGER = TransformersDebuggerReader()


def _is_run(folder: Path) -> bool:
    return next(_trees(folder), None) is not None


def _trees(folder: Path) -> Iterator[Path]:
    """The files of trees, those with whole tensors first."""
    for form in _FILES:
        yield from sorted(folder.glob(form))


class _Tree:
    def __init__(self, file: Path) -> None:
        self.file, self.order = file, 0
        self.root = read_json(file)
        self.unknown: set[str] = set()
        self._counts: dict[str, int] = {}
        name = self.root.get("module_path") if isinstance(self.root, dict) else None
        if not isinstance(name, str):
            raise DumpError.of("dump_error.no_table", path=file)
        self._prefix = name

    def tensors(self) -> Iterator[DumpedTensor]:
        """What each module was given, what those inside have, and what it returned."""
        yield from self._module(self.root, 0)

    def _module(self, node: Any, depth: int) -> Iterator[DumpedTensor]:
        if not isinstance(node, dict) or not isinstance(node.get("module_path"), str):
            raise DumpError.of("dump_error.no_table", path=self.file)
        if depth > DEEPEST_DUMPED_VALUE:
            raise DumpError.of("dump_error.too_deep", path=self.file, name=node["module_path"][:60])
        self.unknown |= node.keys() - _KNOWN
        path = node["module_path"].removeprefix(self._prefix).removeprefix(".")
        call = self._counts.get(path, 0)
        self._counts[path] = call + 1
        inputs = node.get("inputs")
        for key, given in inputs.items() if isinstance(inputs, dict) else ():
            if key in ("args", "kwargs"):
                yield from self._values((path, call, depth), "input", given)
        children = node.get("children")
        for child in children if isinstance(children, list) else ():
            yield from self._module(child, depth + 1)
        yield from self._values((path, call, depth), "output", node.get("outputs"))

    def _values(self, place: tuple[str, int, int], part: TensorPart, value: Any) -> Iterator[DumpedTensor]:
        path, call, depth = place
        for item, table in nested_tables(self.file, path, value, _is_tensor):
            lengths = [int(number) for number in re.findall(r"-?[0-9]{1,18}", table["shape"])]
            shape = sound_dims(self.file, item, lengths)
            statistics = _figures_of_json(table, shape)
            dtype = canonical_dtype(self.file, table["dtype"])
            self.order += 1
            yield DumpedTensor(
                self.order - 1,
                part,
                path,
                call,
                item,
                "",
                shape,
                dtype,
                statistics,
                depth=depth,
                precision=PRINTED_PRECISION,
            )


def _is_tensor(table: dict[str, Any]) -> bool:
    return isinstance(table.get("shape"), str) and "dtype" in table


def _figures_of_json(value: dict[str, Any], shape: Shape) -> TensorStatistics | None:
    low, high, mean, deviation = (_number(value.get(key)) for key in ("min", "max", "mean", "std"))
    if low is None and high is None and mean is None:
        return None
    count = prod(shape)
    norm = None
    if mean is not None and deviation is not None and count > 1:
        norm = sqrt(mean * mean * count + deviation * deviation * (count - 1))
    return figures({"Min": low, "Max": high, "Mean": mean, "Norm": norm}, shape)


def _number(text: Any) -> float | None:
    found = _NUMBER.match(text) if isinstance(text, str) else None
    try:
        return float(found["number"]) if found else None
    except ValueError:
        return None


PLUGINS = (TORCH_DEBUG_MODE, TRANSFORMERS_DEBUGGER)
