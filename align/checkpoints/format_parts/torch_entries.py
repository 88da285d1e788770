"""From a pickled tree to a checkpoint, for every form in which torch keeps the bytes of its storages.

The forms differ only in where the pickle and the storages lie. What the tree means, which mapping in it is meant, and
what is a tensor's place in its storage is decided here, once; so is how records that are no tensors are called.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from align.checkpoints.extents import mapped
from align.checkpoints.format_parts.nested_entries import choose_entry, describe_plain, read_others, read_tensors
from align.checkpoints.format_parts.pickle.interpreter import Global, Made, Persistent, mapping_of
from align.checkpoints.format_parts.pickle.torch_tensors import UnsupportedTensorError, is_tensor, read_view, shape_of
from align.checkpoints.thresholds import (
    LONGEST_GLOBAL_NAME,
    MOST_MAKER_ARGUMENTS,
    MOST_REPEATED_BYTES,
    MOST_VALUES_LOOKED_AT,
    MOST_VIEWS_OF_A_BYTE,
)
from align.core.checkpoints import Checkpoint, OddTensor, StoredTensor
from align.core.dtypes import numpy_dtype
from align.errors import HostileFileError, NotACheckpointError, UnsupportedCheckpointError
from align.words.catalogue import say, sentence, texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from align.checkpoints.format_parts.pickle.torch_tensors import TensorView
    from align.core.checkpoints import Extent
    from align.core.dtypes import Array
    from align.core.parameters import Shape


def torch_checkpoint(
    path: Path, form: str, tree: Any, storages: Mapping[str, Extent], key: str | None = None
) -> Checkpoint:
    """Choose the mapping of names to tensors and place each tensor in its storage.

    Raises what `choose_entry` raises, NotACheckpointError and HostileFileError for tensors outside their storage.
    """
    look = PickleTreeReader(path)
    chosen = choose_entry(path, tree, look, key)
    views, odd = read_tensors(chosen, look, look.view)
    tensors = {name: _tensor(path, name, view, storages.get(view.key)) for name, view in views.items()}
    _refuse_repetition(path, tensors, {view.key: storages[view.key].nbytes for view in views.values()})
    others, counts = read_others(path, tree, chosen, {*views, *odd}, look)
    found = Checkpoint(path, form, tensors, {"format": "pt"}, others, counts, chosen.key, chosen.entries, odd=odd)
    return replace(found, told_shapes=_told_shapes(tree), told_parts=_told_parts(tree))


def _told_shapes(tree: Any) -> dict[str, Shape]:
    """The shapes of weights that DeepSpeed writes beside them: they may be placeholders."""
    given = (mapping_of(tree) or {}).get("param_shapes")
    tables = given if isinstance(given, (list, tuple)) else [given]
    pairs = (pair for table in tables for pair in (mapping_of(table) or {}).items())
    return {name: size for name, made in pairs if isinstance(name, str) and (size := _size(made)) is not None}


def _size(made: Any) -> Shape | None:
    """What a `torch.Size` holds."""
    if isinstance(made, Made) and made.callee == TORCH_SIZE and isinstance(made.arguments, tuple) and made.arguments:
        made = made.arguments[0]
    sound = isinstance(made, (list, tuple)) and all(isinstance(one, int) for one in made)
    return tuple(made) if sound else None


def _told_parts(tree: Any) -> dict[str, int]:
    """Into how many parts a training cut its model, as its entries and its arguments say."""
    top = mapping_of(tree) or {}
    args = top.get("args")
    settings = mapping_of(args) or (mapping_of(args.state) if isinstance(args, Made) else None) or {}
    known = {**{name: settings.get(name) for name in PARALLEL_SIZES}, "mp_world_size": top.get("mp_world_size")}
    return {name: size for name, size in known.items() if isinstance(size, int) and not isinstance(size, bool)}


def single_tensor(path: Path, tree: Any, storages: Mapping[str, Extent]) -> StoredTensor:
    """The tensor that a file holds alone; raises UnsupportedCheckpointError if it is none, or of another kind."""
    look = PickleTreeReader(path)
    if not look.is_tensor(tree):
        raise UnsupportedCheckpointError(path, *texts("torch_file.no_single_tensor", found=look.describe(tree)))
    view = look.view(path.name, tree)
    if isinstance(view, OddTensor):
        raise UnsupportedCheckpointError(path, view.reason, view.remedy)
    made = _tensor(path, path.name, view, storages.get(view.key))
    _refuse_repetition(path, {path.name: made}, {view.key: storages[view.key].nbytes})
    return made


def _refuse_repetition(path: Path, tensors: Mapping[str, StoredTensor], storages: Mapping[str, int]) -> None:
    """Views of one storage may overlap; a few bytes could claim terabytes so, in many views if not in one."""
    claimed = sum({tensor.identity: tensor.nbytes for tensor in tensors.values()}.values())
    stored = sum(storages.values())
    if claimed > MOST_VIEWS_OF_A_BYTE * stored + MOST_REPEATED_BYTES:
        raise HostileFileError(path, say("torch_file.repeats", claimed=claimed, stored=stored))


def _tensor(path: Path, name: str, view: TensorView, place: Extent | None) -> StoredTensor:
    if place is None:
        raise NotACheckpointError(path, say("torch_file.no_storage", name=name, storage=view.key))
    if place.nbytes < view.storage_bytes:
        raise NotACheckpointError(
            path, say("torch_file.other_storage", name=name, nbytes=place.nbytes, claimed=view.storage_bytes)
        )
    itemsize = numpy_dtype(view.dtype).itemsize
    # The same view of the same storage is one tensor; other views of it (flattened LSTM weights) are not tied.
    # A storage goes by its place, which is short, where its key may not be.
    storage = f"{place.offset}+{view.offset}:{view.shape}:{view.stride}"
    if view.contiguous:
        extent = replace(place, offset=place.offset + view.offset * itemsize, nbytes=view.nbytes)
        return StoredTensor(name, view.shape, view.dtype, mapped(extent, view.shape, view.dtype), extent, storage)
    whole = replace(place, nbytes=view.needs)
    return StoredTensor(name, view.shape, view.dtype, lambda: _strided(view, whole), None, storage)


def _strided(view: TensorView, whole: Extent) -> Array:
    """A view that is not contiguous, over its storage mapped into memory."""
    itemsize = numpy_dtype(view.dtype).itemsize
    raw = mapped(whole, (whole.nbytes,), "uint8")()  # NumPy gives out no buffer of bfloat16 or float8
    strides = tuple(step * itemsize for step in view.stride)
    return np.ndarray(view.shape, numpy_dtype(view.dtype), raw.data, view.offset * itemsize, strides)


TORCH_SIZE = Global("torch", "Size")
PARALLEL_SIZES = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "model_parallel_size")  # of Megatron
MODULE_STATE = {"_modules", "_parameters"}
MAKERS = ("_reconstructor", "__newobj__", "_reconstruct")  # of objects, and of NumPy arrays
NUMPY_ARRAYS = tuple(Global(f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core"))
WRAPPERS = ("DataParallel", "DistributedDataParallel")


class PickleTreeReader:
    """Looks at one file's tree; each tensor is read once, however often it is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.views: dict[int, TensorView] = {}

    def mapping(self, value: Any) -> dict[Any, Any] | None:
        """The items of a dict, or of a record that is one."""
        return mapping_of(value)

    def is_tensor(self, value: Any) -> bool:
        """Tell whether the record is any kind of tensor or parameter."""
        return is_tensor(value)

    def size(self, name: str, tensor: Any) -> tuple[int, int]:
        """Elements and bytes of a tensor; (0, 0) for one of another kind."""
        view = self.view(name, tensor)
        return (0, 0) if isinstance(view, OddTensor) else (prod(view.shape), view.nbytes)

    def view(self, name: str, tensor: Any) -> TensorView | OddTensor:
        """Read a tensor's record; raises HostileFileError."""
        known = self.views.get(id(tensor))
        if known is None:
            try:
                known = read_view(self.path, name[:LONGEST_GLOBAL_NAME], tensor)
            except UnsupportedTensorError as fault:
                return OddTensor(fault.reason, fault.remedy)
            self.views[id(tensor)] = known
        return known

    def module(self, value: Any) -> str:
        """Class of a whole pickled module, with what a parallel wrapper holds."""
        state = _module_state(value)
        if state is None:
            return ""
        inner = (mapping_of(state["_modules"]) or {}).get("module")
        name = class_name(value)
        wrapped = name.rpartition(".")[2] in WRAPPERS and _module_state(inner) is not None
        return f"{name} around {class_name(inner)}" if wrapped else name

    def describe(self, value: Any) -> str:
        """A few words for an entry that is not converted."""
        if is_tensor(value):
            shape = shape_of(value)
            return "tensor" if shape is None else sentence("entry_note.tensor", shape=str(shape))
        if not isinstance(value, Made):
            if isinstance(value, dict):
                return self._mapping(value)
            return str(value) if isinstance(value, Global) else describe_plain(value)
        if _is_numpy_array(value):
            return sentence("entry_note.numpy_array")
        mapping = mapping_of(value)
        return class_name(value) if mapping is None else self._mapping(mapping)

    def _mapping(self, values: dict[Any, Any]) -> str:
        arrays = any(map(_is_numpy_array, islice(values.values(), MOST_VALUES_LOOKED_AT)))
        plain = describe_plain(values)
        return sentence("entry_note.numpy_arrays", kind=plain) if arrays else plain

    def parts(self, value: Any) -> Iterable[Any]:
        """Whatever lies directly inside a record."""
        if isinstance(value, dict):
            return value.values()
        if isinstance(value, (list, tuple)):
            return value
        return (value.arguments, value.state, value.items, value.elements) if isinstance(value, Made) else ()


def class_name(value: Any) -> str:
    """Name of the class that the pickle would have made, or the plain type's."""
    if not isinstance(value, Made):
        return type(value).__name__
    callee, arguments = value.callee, value.arguments
    if isinstance(callee, Global) and callee.name in MAKERS and isinstance(arguments, tuple):
        callee = arguments[0] if arguments else callee
    if isinstance(callee, Persistent):  # old files refer to the class of a module, with its source
        reference = callee.reference
        callee = reference[1] if isinstance(reference, tuple) and len(reference) > 1 else callee
    return str(callee) if isinstance(callee, Global) else sentence("entry_note.unnamed_class")


def _is_numpy_array(value: Any) -> bool:
    return isinstance(value, Made) and value.callee in NUMPY_ARRAYS


def _module_state(value: Any) -> dict[Any, Any] | None:
    """Attributes of a module: set as its state, or given to the function that makes it."""
    if not isinstance(value, Made):
        return None
    arguments = value.arguments[:MOST_MAKER_ARGUMENTS] if isinstance(value.arguments, tuple) else ()
    found = (mapping_of(part) for part in (value.state, *arguments))
    return next((state for state in found if state is not None and MODULE_STATE.issubset(state)), None)
