"""A trace folder, or another tool's dump, written in the form of a tool, so that this tool reads it.

Tensors are written one at a time. What the form has no place for is left out, and counted.
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Literal

from align.checkpoints.open_checkpoint import npy_bytes, torch_tensor_bytes
from align.core.atomic_files import atomic_folder, write_text
from align.core.dtypes import dtype_name, numpy_dtype
from align.core.trace_metadata import TensorKind, TracedCall, TracedTensor, TraceSummary
from align.errors import DestinationError, DumpError
from align.measure.tensor_statistics import summarize_tensor
from align.traces.dumped_side import open_dumped_side, read_dump
from align.traces.thresholds import LONGEST_FILE_NAME
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from align.core.dtypes import Array
    from align.core.traces import DumpedTensor, ForeignDump
    from align.traces.dumped_side import DumpedSide


ExportForm = Literal["npy", "msprobe", "polygraphy"]
_API = re.compile(r"[A-Z]\w*\.")  # of msprobe's names of functions, such as `Tensor.add`
_UNSAFE = re.compile(r"[^A-Za-z0-9_.\-]")
_DATA = "dump_tensor_data"
# Where a part stands in a record of msprobe: the direction of the call, the key, and the word in the name of the file.
_PLACES = {
    "input": ("forward", "input_args", "input"),
    "output": ("forward", "output", "output"),
    "parameter": ("forward", "parameters", "parameters"),
    "output gradient": ("backward", "input", "input"),
    "input gradient": ("backward", "output", "output"),
}


@dataclass(frozen=True, slots=True)
class ExportedTrace:
    """How many tensors were written where, and how many were left out, for want of values or of a place."""

    path: Path
    written: int
    left_out: int


def export_trace(trace: Path, form: ExportForm, out: Path) -> ExportedTrace:
    """Write a trace; `npy` and `polygraphy` hold the outputs of modules, `msprobe` all that was kept.

    Raises DestinationError for a destination that exists, DumpError for a dump that holds no tensor for that tool.
    """
    if out.exists():
        raise DestinationError.of("traces_error.exists", path=out)
    side = open_dumped_side(trace)
    held = [one for one in side.dump.tensors if one.load is not None and (form == "msprobe" or one.part == "output")]
    if not held:
        raise DumpError.of("dump_error.nothing_to_export", path=trace, form=form)
    written = _FORMS[form](side, held, out)
    return ExportedTrace(out, written, len(side.dump.tensors) - written)


def _write_npy(_: DumpedSide, held: list[DumpedTensor], out: Path) -> int:
    with atomic_folder(out, ()) as folder:
        for number, one in enumerate(held):
            (folder / f"{number}_{_file_name(_name(one))}.npy").write_bytes(npy_bytes(_value(one)))
    return len(held)


def _write_polygraphy(side: DumpedSide, held: list[DumpedTensor], out: Path) -> int:
    outputs = {name: _lazy(_value(one)) for name, one in zip(_unlike(map(_name, held)), held, strict=True)}
    result = {"outputs": outputs, "runtime": 0.0, "runner_name": side.label, "polygraphy_class": "IterationResult"}
    document = {"lst": [[side.label, [result]]], "polygraphy_class": "RunResults"}
    write_text(out, json.dumps(document))
    return len(outputs)


def _lazy(value: Array) -> dict[str, Any]:
    array = {"array": base64.b64encode(npy_bytes(value)).decode("ascii"), "polygraphy_class": "ndarray"}
    return {"values": array, "polygraphy_class": "LazyArray"}


def _write_msprobe(side: DumpedSide, held: list[DumpedTensor], out: Path) -> int:
    torch = side.dump.framework == "torch"
    names = _MsprobeNames("Module" if torch else "Cell", {one.path: one.class_name for one in side.parameters.modules})
    data: dict[str, dict[str, Any]] = {}
    kept = [one for one in held if one.part in (*_PLACES, "parameter gradient")]
    end = "pt" if torch else "npy"
    with atomic_folder(out, ()) as folder:
        run = folder / "step0" / "rank0"
        (run / _DATA).mkdir(parents=True)
        places = [_PLACES.get(one.part, ("parameters_grad", one.item, "")) for one in kept]
        calls = [names.of(one, way) for one, (way, *_) in zip(kept, places, strict=True)]
        files = _unlike(
            _file_name(".".join(filter(None, [name, word, one.item or "0"])))
            for one, name, (*_, word) in zip(kept, calls, places, strict=True)
        )
        for one, name, stem, (way, key, _) in zip(kept, calls, files, places, strict=True):
            file, value = f"{stem}.{end}", _value(one)
            (run / _DATA / file).write_bytes(torch_tensor_bytes(value) if torch else npy_bytes(value))
            _add(data.setdefault(name, _empty(way)), key, one.item, _record(value, file, torch=torch))
        framework = "pytorch" if torch else "mindspore"
        head = {"task": "tensor", "level": "mix" if names.parents else "L0", "framework": framework}
        _write_json(run / "dump.json", {**head, "dump_data_dir": _DATA, "data": data})
        _write_json(run / "construct.json", {name: names.parents.get(name) for name in data})
    return len(kept)


def _write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=1), encoding="utf-8")


class _MsprobeNames:
    """Names of calls; those of functions are counted over the whole run, and `parents` says what calls them."""

    def __init__(self, word: str, classes: dict[str, str]) -> None:
        self._word, self._classes = word, classes
        self._numbers: dict[tuple[str, int], int] = {}
        self._counts: Counter[str] = Counter()
        self.parents: dict[str, str] = {}

    def of(self, one: DumpedTensor, way: str) -> str:
        """The name of the call that a tensor belongs to."""
        outer, _, function = one.module.partition("/")
        if not function:
            return self._of_module(one.module, one.class_name, one.call, way)
        label = function if _API.match(function) else f"Functional.{function}"
        if (one.module, one.call) not in self._numbers:
            self._numbers[one.module, one.call] = self._counts[label]
            self._counts[label] += 1
        name = f"{label}.{self._numbers[one.module, one.call]}.{way}"
        if outer:
            self.parents[name] = self._of_module(outer, "", 0, way)
        return name

    def _of_module(self, path: str, class_name: str, call: int, way: str) -> str:
        known = class_name or self._classes.get(path, "") or "Unknown"
        return f"{self._word}.{path + '.' if path else ''}{known}.{way}.{call}"


def _add(record: dict[str, Any], key: str, item: str, value: dict[str, Any]) -> None:
    """Put a tensor where msprobe has it: lists for what is known by its place, else tables."""
    held = record.setdefault(key, [])
    if key == "parameters":
        held[item] = value
    elif item.isdecimal() or not item or item == key:
        held.append(value)
    elif key == "input_args":
        record["input_kwargs"][item] = value
    else:
        held.append({item: value})


def _empty(way: str) -> dict[str, Any]:
    if way != "forward":
        return {"input": [], "output": []} if way == "backward" else {}
    return {"input_args": [], "input_kwargs": {}, "output": [], "parameters": {}}


def _record(value: Array, file: str, *, torch: bool) -> dict[str, Any]:
    told, dtype = summarize_tensor(value), dtype_name(value.dtype)
    return {
        "type": "torch.Tensor" if torch else "mindspore.Tensor",
        "dtype": f"torch.{dtype}" if torch else dtype.capitalize(),
        "shape": list(value.shape),
        "Max": told.max,
        "Min": told.min,
        "Mean": told.mean,
        "Norm": None if told.rms is None else told.rms * value.size**0.5,
        "data_name": file,
    }


def _name(one: DumpedTensor) -> str:
    """The module's path, or what stands for the model, with the call where it is not the first, and the output."""
    name = one.module or _UNSAFE.sub("_", say("word.whole_model"))
    name += f".call{one.call}" if one.call else ""
    return f"{name}.{one.item}" if one.item else name


def _file_name(name: str) -> str:
    """A name that any file system takes; of a long one the end, where names differ."""
    return _UNSAFE.sub("_", name)[-LONGEST_FILE_NAME:].lstrip(".")


def _unlike(names: Iterable[str]) -> Iterator[str]:
    """The names, with a number behind those that were there before."""
    counts: Counter[str] = Counter()
    for name in names:
        counts[name] += 1
        yield name if counts[name] == 1 else f"{name}~{counts[name]}"


def _value(one: DumpedTensor) -> Array:
    if one.load is None:
        msg = f"no values of {one.module}"
        raise ValueError(msg)
    return one.load()


_FORMS: dict[ExportForm, Callable[[DumpedSide, list[DumpedTensor], Path], int]] = {
    "npy": _write_npy,
    "msprobe": _write_msprobe,
    "polygraphy": _write_polygraphy,
}


# A dump of another tool as the tree of its calls.

Groups = dict[tuple[str, int], "list[DumpedTensor]"]


def show_dump(path: Path) -> TraceSummary:
    """Read a dump; raises MissingFileError or DumpError. Figures are those of the tool, or of the tensors."""
    dump = read_dump(path)
    sizes = [prod(one.shape) * numpy_dtype(one.dtype).itemsize for one in dump.tensors if one.load]
    return TraceSummary(
        folder=str(dump.path),
        head=None,
        environment={"tool": dump.tool, "framework": dump.framework},
        complete=True,
        running=(),
        failure="",
        calls=tuple(_calls(dump)),
        tensors=len(dump.tensors),
        nbytes=sum(sizes),
        parameters=len({(one.module, one.item) for one in dump.tensors if one.part == "parameter"}),
        noise=0,
        noise_missing=say("noise_note.of_dump", tool=dump.tool),
    )


def _calls(dump: ForeignDump) -> Iterator[TracedCall]:
    groups: Groups = {}
    for one in dump.tensors:
        if one.part in ("output", "input"):
            groups.setdefault((one.module, one.call), []).append(one)
    for (module, call), own in _outer_first(groups):
        inputs = {one.item: TensorKind(one.shape, one.dtype) for one in own if one.part == "input"}
        outputs = tuple(_tensor(one) for one in own if one.part == "output")
        place = dump.places.get((module, call), "")
        yield TracedCall(module, call, own[0].class_name, own[0].depth, place, inputs, outputs, returned=True)


def _outer_first(groups: Groups) -> list[tuple[tuple[str, int], list[DumpedTensor]]]:
    """Calls before those inside of them; tools note a call when it ends."""
    ordered: list[tuple[tuple[str, int], list[DumpedTensor]]] = []
    for (module, call), own in groups.items():
        place = len(ordered)
        inside = (f"{module}.", f"{module}/") if module else ("",)
        while place and ordered[place - 1][1][0].depth > own[0].depth and ordered[place - 1][0][0].startswith(inside):
            place -= 1
        ordered.insert(place, ((module, call), own))
    return ordered


def _tensor(one: DumpedTensor) -> TracedTensor:
    told = summarize_tensor(one.load()) if one.load and one.statistics is None else one.statistics
    return TracedTensor(one.item, one.shape, one.dtype, told, prod(one.shape) if one.load else 0)
