"""What is known of one side's parameters and modules, their element types, and a checkpoint as read.

Frameworks' own loaders are too lenient with names and shapes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, Final, Literal

import ml_dtypes
import numpy as np

from align.errors import InputsError, UnsupportedTensorsError
from align.words.catalogue import say, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    import numpy.typing as npt

Shape = tuple[int, ...]
Order = Literal["registration", "execution", "file"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter or buffer.

    `name` is the key in a checkpoint and need not equal the module's path; `module` is the path of the owning
    module ("" for the root) and `attribute` its name there. `tied_to` is the first name of the same tensor.
    `trainable` is None where a file cannot tell.
    """

    name: str
    shape: Shape
    dtype: str
    module: str
    attribute: str
    trainable: bool | None = None
    buffer: bool = False
    tied_to: str | None = None

    @property
    def count(self) -> int:
        """Number of elements; 1 for a 0-d tensor."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class TensorMemory:
    """Where the values of one live tensor lie, and what they are.

    `start` and `stop` are the addresses of the whole storage, which other tensors may share, on the `device`; equal
    where it has none. `content` is a checksum of some of its elements.
    """

    dtype: str
    device: str
    start: int
    stop: int
    content: int


@dataclass(frozen=True, slots=True)
class Module:
    """One module of the tree.

    `classes` holds the public names of the class and its bases, most derived first (`torch.nn.Conv2d`);
    it is empty where only a file is known. `inputs_first` tells whether a linear layer of a class that has a layout
    rule keeps its weight as (in, out), None where no rule knows the class. `ran` is False
    where a run did not show it. `merged_into` is the path of the module that does its work too: an exporter multiplies
    a norm into a convolution.
    """

    path: str
    classes: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    inputs_first: bool | None = None
    ran: bool = True
    merged_into: str = ""

    @property
    def class_name(self) -> str:
        """Name of the class without its package, or "" if unknown."""
        return self.classes[0].rpartition(".")[2] if self.classes else ""


@dataclass(frozen=True, slots=True)
class ParameterSet:
    """Parameters and modules of one side; modules stand in the order that `order` names.

    `shared` pairs a place in the tree with the one name under which a checkpoint has the tensor that is there too.
    """

    label: str
    framework: str | None
    parameters: tuple[Parameter, ...]
    modules: tuple[Module, ...] = ()
    order: Order = "registration"
    shared: tuple[tuple[str, str], ...] = ()
    by_name: dict[str, Parameter] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {p.name: p for p in self.parameters})

    @property
    def names(self) -> tuple[str, ...]:
        """Names in registration order."""
        return tuple(p.name for p in self.parameters)

    @property
    def nbytes(self) -> int:
        """Bytes of all values, those of tied tensors once; of numbers that NumPy lacks a byte each."""
        own = (p for p in self.parameters if p.tied_to is None)
        return sum(p.count * (numpy_dtype(p.dtype).itemsize if is_numeric(p.dtype) else 1) for p in own)


@dataclass(frozen=True, slots=True)
class ParameterSummary:
    """The counts of one side: tensors, elements, trainable elements, buffers, ties, dtypes."""

    label: str
    framework: str | None
    tensors: int
    elements: int
    trainable_elements: int | None
    buffers: int
    ties: tuple[tuple[str, str], ...]
    dtypes: dict[str, int]


def summarize_parameters(side: ParameterSet) -> ParameterSummary:
    """Count a side's parameters; elements of tied tensors and of buffers are counted apart.

    `elements` covers parameters proper (no buffers, each tied tensor once), as `sum(p.numel() for p in
    model.parameters())` does in torch.
    """
    proper = [p for p in side.parameters if not p.buffer and p.tied_to is None]
    known = all(p.trainable is not None for p in proper)
    dtypes: dict[str, int] = {}
    for parameter in side.parameters:
        dtypes[parameter.dtype] = dtypes.get(parameter.dtype, 0) + 1
    return ParameterSummary(
        label=side.label,
        framework=side.framework,
        tensors=len(side.parameters),
        elements=sum(p.count for p in proper),
        trainable_elements=sum(p.count for p in proper if p.trainable) if known else None,
        buffers=sum(p.buffer for p in side.parameters),
        ties=(*((p.name, p.tied_to) for p in side.parameters if p.tied_to is not None), *side.shared),
        dtypes=dtypes,
    )


def paths_around(path: str) -> Iterator[str]:
    """Paths of the modules around one, the innermost first; "", the model itself, last."""
    while path:
        path = path.rpartition(".")[0]
        yield path


def check_state_dict(shapes: Mapping[str, Shape], values: Mapping[str, Array], what: str) -> None:
    """Raise InputsError listing every missing and unexpected name and every shape that differs.

    MindSpore's loader takes a parameter by its suffix, and even when strict a (2, 3, 1, 1) array for a (2, 3) one.
    """
    faults = state_dict_faults(shapes, {name: tuple(value.shape) for name, value in values.items()})
    if faults:
        raise InputsError(*texts("model_fault.other_weights", what=what), faults=faults)


def state_dict_faults(shapes: Mapping[str, Shape], given: Mapping[str, Shape]) -> list[str]:
    """Every name that is missing or unexpected among the given ones, and every shape that differs."""
    missing = {name: shape for name, shape in shapes.items() if name not in given}
    unexpected = {name: shape for name, shape in given.items() if name not in shapes}
    faults = [say("model_fault.missing", name=name, shape=str(list(shape))) for name, shape in missing.items()]
    faults += [say("model_fault.unexpected", name=name, shape=str(list(shape))) for name, shape in unexpected.items()]
    return faults + [
        say("model_fault.other_shape", name=name, given=list(given[name]), shape=str(list(shape)))
        for name, shape in shapes.items()
        if name in given and tuple(given[name]) != tuple(shape)
    ]


@dataclass(frozen=True, slots=True)
class OriginNorm:
    """A BatchNorm of a model that was exported: `parameters` are the names there, by torch's attributes."""

    path: str
    epsilon: float
    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Origin:
    """What an exported model is told of the one that it may have been exported from: a file does not say it all.

    `values` are those of its `parameters`, `norms` stand in their order.
    `paired` leads from a parameter's name in the exported model to the origin's; `biases` from the origin's name of a
    weight to that of the bias beside it. `usual` are the parameters of layers that compute with them as they are.
    `same_values` tells whether the exported model is meant to have these values.
    """

    parameters: ParameterSet
    values: Mapping[str, Array] = field(repr=False)
    norms: tuple[OriginNorm, ...]
    paired: Mapping[str, str]
    biases: Mapping[str, str]
    usual: frozenset[str] = frozenset()
    same_values: bool = True


# One vocabulary for element types, whatever a framework calls them.
#
# The canonical name is NumPy's (`float32`), with bfloat16 and the float8 kinds of `ml_dtypes`; comparing `Float32`
# with `torch.float32` as strings is how other tools turn every row into an error. At the end stands in which formats
# a chip computes.


Array = np.ndarray[Any, np.dtype[Any]]

_EXTENDED: dict[str, npt.DTypeLike] = {
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "float8_e8m0fnu": ml_dtypes.float8_e8m0fnu,  # powers of two: scales of other tensors
}

INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
FLOATS = frozenset({"float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"})

# Machine epsilon: distance from 1 to the next larger number (IEEE 754; bfloat16 has 8 bits of significand).
EPSILON = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float8_e4m3fn": 2.0**-3,
    "float8_e5m2": 2.0**-2,
    "float8_e8m0fnu": 1.0,
}


@cache  # asked several times for each tensor
def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy dtype (little-endian) of a canonical name; raises TypeError for an unknown one."""
    return np.dtype(_EXTENDED.get(name, name)).newbyteorder("<") if name not in _EXTENDED else np.dtype(_EXTENDED[name])


def dtype_name(dtype: npt.DTypeLike) -> str:
    """Return the canonical name of a NumPy dtype."""
    return _name(np.dtype(dtype))


@cache  # NumPy puts it together anew each time
def _name(dtype: np.dtype[Any]) -> str:
    return dtype.name


def in_numpy(name: str) -> bool:
    """Tell whether NumPy has a dtype of this name itself, and not from `ml_dtypes`: what an `.npz` file can hold."""
    return name not in _EXTENDED


def is_float(name: str) -> bool:
    """Tell whether values of this dtype are rounded, so that a tolerance makes sense."""
    return name in FLOATS


def rounded_as(name: str) -> str:
    """Floating dtype whose rounding the values of a dtype carry (float32 for complex64); "" for exact ones."""
    return name if name in FLOATS else {"complex64": "float32", "complex128": "float64"}.get(name, "")


def is_numeric(name: str) -> bool:
    """Tell whether this is the canonical name of a dtype that tensors have: a number or a bool."""
    return name in FLOATS | INTEGERS | {"bool", "complex64", "complex128"}


def is_complex(name: str) -> bool:
    """Tell whether the dtype is complex64 or complex128."""
    return name.startswith("complex")


Format = Literal["float16", "HF32", "TF32", "float32"]

LARGEST_FLOAT16: Final = 65504.0  # format: (2 - 2^-10) * 2^15


@dataclass(frozen=True, slots=True)
class OperatorRounding:
    """How one operator computes: its inputs are rounded to a format, sums are taken in float32, the result is rounded.

    `entry` is the id of the rule that says so.
    """

    entry: str
    computes: Format
    result: Format


@dataclass(frozen=True, slots=True)
class Emulation:
    """Roundings by the names of operators as the framework that runs them calls them.

    On a chip that `saturates`, what is beyond float16 becomes its largest number and NaN becomes 0; on others IEEE 754
    holds. Those `reordered` add in another order.
    """

    operators: Mapping[str, OperatorRounding]
    saturates: bool = False
    reordered: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class GradientsMet:
    """Gradients inside of one module that one operator is given or makes and that the chip would hold in float16.

    `exponents` counts those other than zero by the exponent of their largest power of two; `largest` is a magnitude.
    """

    module: str
    operator: str
    entry: str
    largest: float
    exponents: Mapping[int, int]


NOT_EMULATED: Final = ""
"""The entry of an operator that may hold what a chip computes otherwise, but cannot be looked into."""


@dataclass(frozen=True, slots=True)
class EmulatedCalls:
    """The calls of one operator inside of one module that were computed as the chip does.

    Where the `entry` is NOT_EMULATED they were not: what such an operator does inside is not seen. `largest` is the
    largest magnitude of what the operator was given or made, `overflowed` the number of elements that were finite and
    beyond float16.
    """

    module: str
    operator: str
    entry: str
    calls: int
    largest: float
    overflowed: int


# A checkpoint as read: tensors by name, none of them loaded until asked for.


@dataclass(slots=True)
class Checksum:
    """The CRC-32 that a format carries of a record: of `nbytes` at `offset` of its file; `holds` once that was seen."""

    record: str
    offset: int
    nbytes: int
    crc: int
    holds: bool = False


@dataclass(frozen=True, slots=True)
class Extent:
    """Where a tensor's bytes lie contiguously, little-endian and in C order: `nbytes` at `offset` of `path`.

    `checksum` is that of the record in which they lie, None where the format has none; what reads bytes of an extent
    (`checkpoints.extents`) checks it.
    """

    path: Path
    offset: int
    nbytes: int
    checksum: Checksum | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a checkpoint.

    `load` returns its value, memory-mapped and read-only where the file allows. `extent` is None where the
    bytes are not contiguous in one file: a strided view, a compressed array, or a tensor cut into `pieces`, which
    follow each other. `storage` is equal for tensors that are one tensor in the source (the same view of the same
    memory), so that ties are known; None where the format has no such notion. `blocks`, where it is given, makes the
    value's bytes (little-endian, C order) in blocks of at most so many bytes, without ever holding it whole.
    """

    name: str
    shape: Shape
    dtype: str
    load: Callable[[], Array] = field(repr=False, compare=False)
    extent: Extent | None = None
    storage: str | None = None
    pieces: tuple[Extent, ...] = ()
    blocks: Callable[[int], Iterator[memoryview]] | None = field(default=None, repr=False, compare=False)

    @property
    def nbytes(self) -> int:
        """Size of the value in bytes."""
        return prod(self.shape) * numpy_dtype(self.dtype).itemsize

    @property
    def identity(self) -> object:
        """Equal for tied tensors, which may be written once under several names; unique for any other."""
        return self.name if self.storage is None else (self.storage, self.shape, self.dtype)


@dataclass(frozen=True, slots=True)
class OddTensor:
    """A tensor that is no plain strided one: `reason` names it, `remedy` says what to save instead."""

    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A mapping of names to tensors in a nested file, by the keys that lead to it, joined by dots; "" at the top."""

    key: str
    tensors: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Tensors in file order, with what else the file says.

    `other` names the entries that are none of them (an epoch, optimizer state) and what they are; `other_tensors` says
    how many tensors lie in such an entry, where there are any. `entries` lists the mappings of a nested file that can
    be asked for, `key` is the one that was taken. `files` are all files that it consists of, `path` if there is but
    one. `odd` are tensors without a plain form, for which `require_plain` refuses the checkpoint; `notes` say what
    whoever uses it must know. `told_shapes` and `told_parts` are what a training said of itself: the true shapes of
    weights, and into how many parts the model was cut, by setting. `elsewhere` are the names in the other shards, where
    the file is one of several. `checksums` are where records with a checksum lie, which is checked as they are read.
    `check` reads what nothing else vouches for (a crc over the whole file) and raises NotACheckpointError. `states` are
    the size and the time of change (in nanoseconds) of each file from before it was read. `is_joined` says that ranks
    of a training wrote it in parts, all of which were read.
    """

    path: Path
    format: str
    tensors: dict[str, StoredTensor]
    metadata: dict[str, str] = field(default_factory=dict)
    other: dict[str, str] = field(default_factory=dict)
    other_tensors: dict[str, int] = field(default_factory=dict)
    key: str = ""
    entries: tuple[Entry, ...] = ()
    files: tuple[Path, ...] = ()
    odd: dict[str, OddTensor] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    told_shapes: dict[str, Shape] = field(default_factory=dict)
    told_parts: dict[str, int] = field(default_factory=dict)
    elsewhere: tuple[str, ...] = ()
    checksums: tuple[Extent, ...] = field(default=(), repr=False, compare=False)
    check: Callable[[], None] | None = field(default=None, repr=False, compare=False)
    states: dict[Path, tuple[int, int]] = field(default_factory=dict, repr=False, compare=False)
    is_joined: bool = False

    @property
    def all_files(self) -> tuple[Path, ...]:
        """Every file that it was read from."""
        return self.files or (self.path,)


def require_plain(checkpoint: Checkpoint) -> Checkpoint:
    """Raise UnsupportedTensorsError naming all odd tensors, if there are any."""
    if odd := list(checkpoint.odd.values()):
        raise UnsupportedTensorsError(checkpoint.path, [tensor.reason for tensor in odd], odd[0].remedy)
    return checkpoint
