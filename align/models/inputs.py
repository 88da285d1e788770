"""The fixed inputs that both sides get: from a file, from a function, or made from a seed.

A model is given one batch of named arrays, or several that it is run on one after another. Several stand in one file
under names of their own, `batch2/x`: what was written can be read again.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import re
import weakref
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from align.checkpoints.open_checkpoint import open_checkpoint
from align.core.atomic_files import atomic_writer, existing_file
from align.core.load_code import checkpoint_formats, model_readers
from align.core.operating_system import file_without_name, write_at
from align.core.parameters import FLOATS, StoredTensor, in_numpy, is_float, is_numeric, numpy_dtype
from align.core.protocols import ModelCaller
from align.core.verdicts import Finding
from align.errors import InputsError, ModelFailedError, UserCodeError
from align.models.thresholds import MOST_CASTS_TRIED, MOST_INPUT_ELEMENTS, SMALLEST_SPILLED_BYTES, USUAL_INTEGER_BOUND
from align.models.user_code import load_function
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from align.core.parameters import Array
    from align.core.protocols import Batch, Inputs
    from align.core.traces import Capture
    from align.models.open_side import Side


_SPEC = re.compile(r"(?P<name>\w+)=(?P<dtype>\w+)\[(?P<shape>[\d, ]*)\](?:<(?P<below>\d+))?")
_DTYPES = FLOATS | {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
InputsSource: TypeAlias = "Path | str | Mapping[str, Array] | Sequence[InputsSource]"


def read_inputs(source: InputsSource) -> dict[str, Array]:
    """Return the inputs of one batch by name, in the order in which the model takes them.

    `source` is as for `read_batches`. Raises InputsError for anything else, and for several batches.
    """
    batches = read_batches(source)
    if len(batches) > 1:
        raise InputsError.of("inputs_fault.several_batches", count=len(batches))
    return batches[0]


def read_batches(
    source: InputsSource, made_batch: Callable[[object, Any], dict[str, Any]] | None = None
) -> tuple[dict[str, Any], ...]:
    """Return batches of inputs by name, in the order in which the model is to be run on them.

    `source` is a mapping, a file of named arrays (`.npz`, `.safetensors`) or `module:function`; a function may return
    several mappings in a list or tuple, and a file that `save_inputs` wrote may hold several batches. A list or tuple
    of sources is one after another. `made_batch(source, mapping)` checks what comes from Python where its values may be
    others than arrays. Raises InputsError for anything else.
    """
    checked = made_batch or _batch
    if isinstance(source, Path) or (isinstance(source, str) and ":" not in source):
        path = existing_file(Path(source), "inputs file")
        arrays = {name: tensor.load() for name, tensor in open_checkpoint(path).tensors.items()}
        return tuple(_checked(source, batch) for batch in batches_from_names(arrays))
    if not isinstance(source, (str, list, tuple)):
        return (checked(source, source),)
    if isinstance(source, str):
        made: Any = load_function(source, "inputs file")()
        several = isinstance(made, (list, tuple)) and made and all(hasattr(batch, "items") for batch in made)
        return tuple(checked(source, batch) for batch in (made if several else [made]))
    if not source:
        raise InputsError.of("inputs_fault.no_batch")
    return tuple(batch for part in source for batch in read_batches(part, made_batch))


def read_both_inputs(
    source: InputsSource, candidate: InputsSource | None = None
) -> tuple[tuple[dict[str, Array], ...], tuple[dict[str, Array], ...]]:
    """Return the batches of both sides, which are the same ones unless the candidate has its own.

    Raises InputsError where it has more or fewer.
    """
    batches = read_batches(source)
    own = batches if candidate is None else read_batches(candidate)
    if len(own) != len(batches):
        raise InputsError.of("inputs_fault.other_count", reference=len(batches), candidate=len(own))
    return batches, own


def _batch(source: object, made: Any) -> dict[str, Array]:
    named = named_values(source, made)
    arrays = {name: as_array(value) for name, value in named.items()}
    if unlike := [f"{name} ({kind_of(value)})" for name, value in named.items() if arrays[name].dtype.hasobject]:
        raise _no_numbers(unlike)
    return _checked(source, arrays)


def named_values(source: object, returned: Any) -> dict[str, Any]:
    """What a batch from Python holds by name; raises InputsError for what is no mapping."""
    if not hasattr(returned, "items"):
        place = source if isinstance(source, str) else say("inputs_fault.given")
        raise InputsError.of("inputs_fault.returned", place=place, returned=_returned_fault(returned))
    return {str(name): value for name, value in returned.items()}


def _returned_fault(returned: Any) -> str:
    name = type(returned).__name__
    if not isinstance(returned, (list, tuple)):
        return say("inputs_fault.object", kind=name)
    if not returned:
        return say("inputs_fault.empty", name=name)
    strange = next(type(one).__name__ for one in returned if not hasattr(one, "items"))
    return say("inputs_fault.no_dicts", name=name, strange=strange)


def as_array(value: Any) -> Array:
    """An array, or a tensor of any framework, on any device, of any dtype and with or without a gradient."""
    try:
        for adapter in model_readers().values():
            if isinstance(adapter, ModelCaller) and (found := adapter.as_array(value)) is not None:
                return np.array(found)
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError):  # ragged lists, tensors of a dtype that NumPy cannot take
        return np.empty((), np.object_)


def kind_of(value: Any) -> str:
    """What a value is called in a message: its dtype if it has one, else its type."""
    return str(getattr(value, "dtype", type(value).__name__))


def _no_numbers(unlike: Sequence[str]) -> InputsError:
    return InputsError.of("inputs_fault.unknown_dtypes", unlike=unlike)


def unknown_dtypes(inputs: Mapping[str, Array]) -> list[str]:
    """Name each input that is no array of numbers of which a framework makes a tensor, with its dtype."""
    return [f"{name} ({value.dtype})" for name, value in inputs.items() if not is_numeric(value.dtype.name)]


def _checked(source: object, inputs: dict[str, Array]) -> dict[str, Array]:
    if unlike := unknown_dtypes(inputs):
        raise _no_numbers(unlike)
    refuse_empty(source, inputs)
    return {name: value.astype(numpy_dtype(value.dtype.name), copy=False) for name, value in inputs.items()}


def refuse_empty(source: object, inputs: Mapping[str, Array]) -> None:
    """Raise InputsError if there are no arrays of numbers, or none of the numbers of one is finite."""
    if not inputs:
        place = source if isinstance(source, (str, Path)) else "the mapping"
        raise InputsError.of("inputs_fault.none", place=place)
    if hollow := [name for name, value in inputs.items() if _is_hollow(value)]:
        raise InputsError.of("inputs_fault.no_finite", names=hollow)


def _is_hollow(value: Array) -> bool:
    return is_float(value.dtype.name) and value.size > 0 and not np.isfinite(value).any()


def make_inputs(specs: Sequence[str], seed: int) -> dict[str, Array]:
    """Draw inputs from a seed: floats standard normal, integers uniform in [0, bound), bools fair.

    Raises InputsError listing every specification that cannot be read.
    """
    matches = [(spec, _SPEC.fullmatch(spec.strip())) for spec in specs]
    names = [match["name"] for _, match in matches if match]
    faults = [say("fault_list.one", head=spec, fault=fault) for spec, match in matches if (fault := _fault(match))]
    faults += [
        say("inputs_fault.name_twice", name=name) for name in sorted({name for name in names if names.count(name) > 1})
    ]
    if faults:
        raise InputsError.of("inputs_fault.not_made", faults=faults, form=say("inputs_fault.form"))
    generator = np.random.default_rng(seed)
    return {match["name"]: _draw(match, generator) for _, match in matches if match}


def save_inputs(path: Path, inputs: Inputs) -> None:
    """Write inputs as `.npz`, whole or not at all; bfloat16 and float8, which it cannot hold, as float32.

    Nothing is lost: floating inputs are cast to the dtype of the model that they are given to. Several batches are
    distinguished by their names, `batch1/x`.
    """
    arrays = named_arrays(inputs)
    wide = {name: value if in_numpy(value.dtype.name) else value.astype(np.float32) for name, value in arrays.items()}
    tensors = [StoredTensor(name, v.shape, v.dtype.name, partial(np.asarray, v)) for name, v in wide.items()]
    with atomic_writer(path) as stream:
        checkpoint_formats()["npz"].write(stream, tensors, {})  # np.savez takes no input called `file`


def describe_inputs(inputs: Inputs) -> dict[str, dict[str, object]]:
    """Shape, dtype and SHA-256 of the bytes of each input; of several batches by the names `batch1/x`."""
    return {
        name: {
            "shape": list(value.shape),
            "dtype": value.dtype.name,
            "sha256": hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest(),
        }
        for name, value in named_arrays(inputs).items()
    }


def _fault(match: re.Match[str] | None) -> str:
    if match is None:
        return say("inputs_fault.other_form")
    if match["dtype"] not in _DTYPES:
        return say("inputs_fault.no_such_dtype", dtype=match["dtype"], known=sorted(_DTYPES))
    below, elements = int(match["below"] or USUAL_INTEGER_BOUND), prod(_shape(match))
    if numpy_dtype(match["dtype"]).kind in "iu" and not 0 < below <= np.iinfo(match["dtype"]).max + 1:
        fault = "inputs_fault.none_below" if below == 0 else "inputs_fault.ends_before"
        return say(fault, dtype=match["dtype"], below=below)
    return say("inputs_fault.too_many", elements=elements) if elements > MOST_INPUT_ELEMENTS else ""


def _draw(match: re.Match[str], generator: np.random.Generator) -> Array:
    shape, dtype = _shape(match), numpy_dtype(match["dtype"])
    if dtype.kind in "iub":
        return generator.integers(0, int(match["below"] or USUAL_INTEGER_BOUND), shape, np.uint64).astype(dtype)
    return generator.standard_normal(shape).astype(dtype)


def _shape(match: re.Match[str]) -> tuple[int, ...]:
    return tuple(int(n) for n in match["shape"].replace(" ", "").split(",") if n)


_NAME = re.compile(r"batch(?P<number>[1-9][0-9]*)/(?P<name>.+)", re.DOTALL)


def batches_of(inputs: Inputs) -> tuple[Batch, ...]:
    """The batches in the order of the run; a mapping is one."""
    return (inputs,) if isinstance(inputs, Mapping) else tuple(inputs)


def named_arrays(inputs: Inputs) -> dict[str, Array]:
    """All arrays by name: as they are called where there is one batch, else as `batch1/x`, `batch2/x`."""
    batches = batches_of(inputs)
    if len(batches) == 1:
        return dict(batches[0])
    return {f"batch{number}/{name}": value for number, one in enumerate(batches, 1) for name, value in one.items()}


def batches_from_names(arrays: Mapping[str, Array]) -> tuple[dict[str, Array], ...]:
    """Undo `named_arrays`; arrays that are not all named so, with every number from 1 on, are one batch."""
    found = [(_NAME.fullmatch(name), value) for name, value in arrays.items()]
    batches: dict[int, dict[str, Array]] = {}
    for match, value in found:
        if match is None:
            return (dict(arrays),)
        batches.setdefault(int(match["number"]), {})[match["name"]] = value
    if not batches or set(batches) != set(range(1, len(batches) + 1)):
        return (dict(arrays),)
    return tuple(batches[number] for number in sorted(batches))


# Inputs as a side takes them: the same numbers, where it must be in another dtype.
#
# torch's losses take int64 labels, MindSpore's int32, and a model in several precisions takes each input in that of
# the layer that it goes to.

_WHOLE = ("int64", "int32")  # what layers and losses index with, the usual one first


def run_fitted(side: Side, inputs: Inputs, run: Callable[[Inputs], None]) -> Inputs:
    """Run a side on inputs that it takes, and return them: `inputs`, or a copy in which some have another dtype.

    Floating inputs of a model in several precisions get the dtype of the layer that they go to. Whole numbers are cast
    only where the model fails without, on dtypes: the fewest that let it run. `run` may be called twice. Raises
    ModelFailedError, the first one, if nothing helps.
    """
    given = _as_consumed(side, inputs)
    try:
        run(given)
    except ModelFailedError as error:
        other = _other_widths(side, given) if error.kind in ("dtype", "kernel") else None
        if other is None:
            raise
        run(other)
        return other
    return given


def cast_findings(role: str, side: Side, before: Inputs, after: Inputs) -> Iterator[Finding]:
    """Note which inputs a side got in another dtype than that of what was given."""
    casts = {
        name: (value.dtype.name, new[name].dtype.name)
        for old, new in zip(batches_of(before), batches_of(after), strict=True)
        for name, value in old.items()
        if value.dtype != new[name].dtype
    }
    if casts:
        dtypes = casts.items()
        cast = [sentence("side_finding.cast", name=name, old=old, new=new) for name, (old, new) in dtypes]
        message = sentence("side_finding.inputs_cast", side=role, casts=cast)
        yield Finding("inputs-cast", "note", side.label, message)


def _other_widths(side: Side, inputs: Inputs) -> Inputs | None:
    """The inputs with the fewest whole numbers in another width that let the side run; None if there are none."""
    names = [name for name, value in batches_of(inputs)[0].items() if value.dtype.kind in "iu"]
    choices = ((own, dtype) for size in range(len(names)) for own in combinations(names, size + 1) for dtype in _WHOLE)
    for (own, dtype), _ in zip(choices, range(MOST_CASTS_TRIED), strict=False):
        other = _cast(inputs, dict.fromkeys(own, dtype))
        if other is not None and _runs(side, other):
            return other
    return None


def _cast(inputs: Inputs, dtypes: Mapping[str, str]) -> Inputs | None:
    """The inputs in other dtypes; None if nothing changes, or a number would."""
    changed = [{name: value.astype(numpy_dtype(dtypes.get(name, value.dtype.name))) for name, value in one.items()}
               for one in batches_of(inputs)]  # fmt: skip
    pairs = [
        (value, new[name])
        for old, new in zip(batches_of(inputs), changed, strict=True)
        for name, value in old.items()
        if name in dtypes
    ]
    if all(old.dtype == new.dtype for old, new in pairs):
        return None
    if any(old.dtype.kind in "iu" and not np.array_equal(old, new) for old, new in pairs):
        return None
    return changed[0] if isinstance(inputs, dict) else changed


def _runs(side: Side, inputs: Inputs) -> bool:
    try:
        side.runner.run(side.model, inputs, _Consumers({}))
    except UserCodeError:
        return False
    return True


def _as_consumed(side: Side, inputs: Inputs) -> Inputs:
    """Floating inputs in the dtype of the layer that they go to, where the layers of a model have several."""
    if not any(is_float(value.dtype.name) for value in batches_of(inputs)[0].values()):
        return inputs
    parameters = side.reader.read_parameters(side.model, side.label).parameters
    dtypes = {one.module: one.dtype for one in reversed(parameters) if is_float(one.dtype)}
    if len({one.dtype for one in parameters if is_float(one.dtype)}) < 2:
        return inputs
    for _ in batches_of(inputs)[0]:  # a model may fail before it comes to the next input
        sink = _Consumers(dtypes, batches_of(inputs)[0])
        with contextlib.suppress(UserCodeError):
            side.runner.run(side.model, inputs, sink)
        other = _cast(inputs, sink.wanted)
        if other is None:
            break
        inputs = other
    return inputs


@dataclass
class _Consumers:
    """Sees which layer with parameters is given an input first; `dtypes` are those of the layers' own parameters.

    A module that hands an input on to one inside is not the one that takes it.
    """

    dtypes: Mapping[str, str]
    inputs: Batch = field(default_factory=dict)
    found: dict[str, str] = field(default_factory=dict)

    @property
    def wanted(self) -> dict[str, str]:
        return {name: self.dtypes[module] for name, module in self.found.items()}

    def add(self, capture: Capture, value: Array) -> None:
        """Keep nothing of what modules return."""

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> None:  # noqa: ARG002 - what sinks get
        for value in inputs.values() if module in self.dtypes else ():
            for name, own in self.inputs.items():
                before = self.found.get(name)
                inside = before is None or module.startswith(f"{before}." if before else "")
                if inside and is_float(own.dtype.name) and _is_same(own, value):
                    self.found[name] = module


def _is_same(own: Array, value: Array) -> bool:
    return own.shape == value.shape and is_float(value.dtype.name) and np.array_equal(own.astype(value.dtype), value)


# Arrays by name that lie in a file without a name and are mapped when they are read: they take no memory meanwhile.

_NOTHING: Mapping[str, Array] = {}


class SpilledArrays(MutableMapping[str, "Array"]):
    """Copies of arrays; what is read is a read-only view of the file. A name that is given again takes new space.

    The file is deleted with the object; views stay valid as long as they are held.

    >>> kept = SpilledArrays({"w": np.ones(100_000)})
    >>> kept["w"] = kept["w"] + 1
    >>> float(kept["w"].sum())
    200000.0
    """

    def __init__(self, arrays: Mapping[str, Array] = _NOTHING) -> None:
        self._kept: dict[str, Array | tuple[int, np.dtype, tuple[int, ...]]] = {}  # type: ignore[type-arg]
        self._file: int | None = None
        self._end = 0
        self.update(arrays)

    def __setitem__(self, name: str, value: Array) -> None:
        if value.nbytes <= SMALLEST_SPILLED_BYTES:
            self._kept[name] = np.array(value)
            return
        if self._file is None:
            self._file = file_without_name()
            weakref.finalize(self, os.close, self._file)
        content = np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
        written = 0
        while written < len(content):
            written += write_at(self._file, content[written:], self._end + written)
        self._kept[name] = self._end, value.dtype, value.shape
        self._end += -(-len(content) // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY

    def __getitem__(self, name: str) -> Array:
        kept = self._kept[name]
        if isinstance(kept, np.ndarray) or self._file is None:
            return np.array(kept)
        offset, dtype, shape = kept
        count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        mapped = mmap.mmap(self._file, count, access=mmap.ACCESS_READ, offset=offset)
        return np.frombuffer(mapped, np.uint8).view(dtype).reshape(shape)

    def __contains__(self, name: object) -> bool:
        return name in self._kept

    def __delitem__(self, name: str) -> None:
        del self._kept[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)


class MadeArrays(Mapping[str, "Array"]):
    """Arrays that are made when they are read, each by its name, and not kept."""

    def __init__(self, makers: Mapping[str, Callable[[], Array]]) -> None:
        self._makers = makers

    def __getitem__(self, name: str) -> Array:
        return self._makers[name]()

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)
