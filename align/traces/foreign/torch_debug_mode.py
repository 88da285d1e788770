"""Logs of torch's `DebugMode` (`debug_string()` in a file): every operator in the modules that call it, with hashes.

With `log_tensor_hashes` each line ends with a hash of what the operator returned: by default the sum of the sizes of
its elements, which is compared as a figure; a whole number is a checksum.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isfinite, isinf, isnan, prod
from typing import TYPE_CHECKING

from align.core.measurements import TensorStatistics
from align.core.traces import DumpedTensor, ForeignDump
from align.errors import DumpError
from align.traces.foreign_parts.dumped_files import canonical_dtype, sound_dims
from align.traces.thresholds import LONGEST_DUMP_TEXT, RECOGNIZED_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
        if (size := path.stat().st_size) > LONGEST_DUMP_TEXT:
            raise DumpError.of("dump_error.too_long", path=path, size=size, most=LONGEST_DUMP_TEXT)
        tensors = tuple(_tensors(path, path.read_text(encoding="utf-8", errors="replace").splitlines()))
        if not tensors:
            raise DumpError.of("dump_error.no_tensors", path=path)
        return ForeignDump(path, "torch DebugMode", "torch", tensors, of_modules=False)


PLUGIN = TorchDebugModeReader()


def _tensors(path: Path, lines: list[str]) -> Iterator[DumpedTensor]:
    scopes: list[tuple[int, str]] = []
    counts: dict[str, int] = {}
    order = 0
    for line in lines:
        if found := _MODULE.fullmatch(line):
            scopes = [one for one in scopes if one[0] < len(found["indent"])]
            scopes.append((len(found["indent"]), found["path"].partition(".")[2]))
        elif found := _OPERATOR.fullmatch(line):
            inside = [one for one in scopes if one[0] < len(found["indent"])]
            module = f"{inside[-1][1] if inside else ''}/{found['name']}"
            call = counts.get(module, 0)
            counts[module] = call + 1
            returned = [*_TENSOR.finditer(found["returned"])]
            hashes = _hashes(found["log"] or "", len(returned))
            for place, (one, value) in enumerate(zip(returned, hashes, strict=True)):
                item = "" if len(returned) == 1 else str(place)
                yield _tensor(path, (order, module, call, item), one, value)
                order += 1


def _tensor(path: Path, place: tuple[int, str, int, str], found: re.Match[str], value: str) -> DumpedTensor:
    order, module, call, item = place
    letters, bits = re.fullmatch(r"([a-z]+)([0-9]*)", found["dtype"]).groups()  # type: ignore[union-attr]
    dtype = "bool" if letters == "b" else canonical_dtype(path, f"{_DTYPES.get(letters, letters)}{bits}")
    parts = [one.strip() for one in found["shape"].split(",") if one.strip()]
    shape = sound_dims(path, module, [int(one) if _LENGTH.fullmatch(one) else one for one in parts])
    kind = module.partition("/")[2]
    digest = f"hash:{value}" if value.lstrip("-").isdecimal() else ""
    figures = None if digest else _figures(value, prod(shape))
    return DumpedTensor(
        order, "output", module, call, item, kind, shape, dtype, figures, digest, depth=module.count(".")
    )


def _figures(value: str, count: int) -> TensorStatistics | None:
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
