"""From a pickled tree to a checkpoint, for every form in which torch keeps the bytes of its storages.

The forms differ only in where the pickle and the storages lie. What the tree means, which mapping in it is meant, and
what is a tensor's place in its storage is decided here, once; so is how records that are no tensors are called.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from align.checkpoints.extents import mapped
from align.checkpoints.names_in_file import is_extra_state
from align.checkpoints.pickled_tensors import (
    Global,
    Made,
    Persistent,
    UnsupportedTensorError,
    is_tensor,
    mapping_of,
    read_pickle,
    read_view,
    shape_of,
)
from align.checkpoints.sound_records import read_record, record_checksums, zip_records
from align.checkpoints.thresholds import (
    DEEPEST_KEY,
    ENTRIES_SHOWN,
    LONGEST_ENTRY_NAME,
    LONGEST_GLOBAL_NAME,
    LONGEST_KEY,
    LONGEST_PICKLE_BYTES,
    MOST_MAKER_ARGUMENTS,
    MOST_NAMED_ENTRIES,
    MOST_REPEATED_BYTES,
    MOST_VALUES_LOOKED_AT,
    MOST_VIEWS_OF_A_BYTE,
    MOST_VISITED_VALUES,
)
from align.core.parameters import Checkpoint, Entry, OddTensor, StoredTensor, numpy_dtype
from align.errors import (
    HostileFileError,
    MissingEntryError,
    NeedsItsCodeError,
    NotACheckpointError,
    SeveralEntriesError,
    UnsupportedCheckpointError,
    WholeModuleError,
)
from align.words.catalogue import say, sentence, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
    from pathlib import Path

    from align.checkpoints.pickled_tensors import TensorView
    from align.checkpoints.sound_records import Record
    from align.core.parameters import Array, Extent, Shape


def torch_checkpoint(
    path: Path, form: str, tree: Any, storages: Mapping[str, Extent], key: str | None = None
) -> Checkpoint:
    """Choose the mapping of names to tensors and place each tensor in its storage.

    Raises what `choose_entry` raises, NotACheckpointError and HostileFileError for tensors outside their storage.
    """
    look = TreeReader(path)
    chosen = choose_entry(path, tree, look, key)
    views, odd = read_tensors(chosen, look, look.view)
    tensors = {name: placed_tensor(path, name, view, storages.get(view.key)) for name, view in views.items()}
    refuse_repetition(path, tensors, {view.key: storages[view.key].nbytes for view in views.values()})
    others, counts = read_others(path, tree, chosen, {*views, *odd}, look)
    found = Checkpoint(path, form, tensors, {"format": "pt"}, others, counts, chosen.key, chosen.entries, odd=odd)
    return replace(found, told_shapes=_told_shapes(tree), told_parts=_told_parts(tree))


def _told_shapes(tree: Any) -> dict[str, Shape]:
    """The shapes of weights that DeepSpeed writes beside them: they may be placeholders."""
    given = (mapping_of(tree) or {}).get("param_shapes")
    tables = given if isinstance(given, (list, tuple)) else [given]
    pairs = (pair for table in tables for pair in (mapping_of(table) or {}).items())
    return {name: size for name, made in pairs if isinstance(name, str) and (size := size_of(made)) is not None}


def size_of(value: Any) -> Shape | None:
    """What a `torch.Size` holds, or a list of whole numbers; None for all else."""
    if (
        isinstance(value, Made)
        and value.callee == TORCH_SIZE
        and isinstance(value.arguments, tuple)
        and value.arguments
    ):
        value = value.arguments[0]
    sound = isinstance(value, (list, tuple)) and all(isinstance(length, int) for length in value)
    return tuple(value) if sound else None


def _told_parts(tree: Any) -> dict[str, int]:
    """Into how many parts a training cut its model, as its entries and its arguments say."""
    top = mapping_of(tree) or {}
    args = top.get("args")
    settings = mapping_of(args) or (mapping_of(args.state) if isinstance(args, Made) else None) or {}
    known = {**{name: settings.get(name) for name in PARALLEL_SIZES}, "mp_world_size": top.get("mp_world_size")}
    return {name: size for name, size in known.items() if isinstance(size, int) and not isinstance(size, bool)}


def archive_tree(path: Path, part: Extent | None = None) -> tuple[Any, dict[str, Extent], tuple[Extent, ...]]:
    """The pickled tree, where the storages lie that it refers to, and all records that have a checksum.

    `part` is where in the file the archive lies, None for all of it. Raises NotACheckpointError, HostileFileError,
    NeedsItsCodeError and UnsupportedCheckpointError.
    """
    records = zip_records(path, part)
    pickles = [name for name in records if is_pickle(name)]
    if len(pickles) != 1:
        raise NotACheckpointError(path, say("torch_file.other_pickles", count=len(pickles)))
    folder = pickles[0].removesuffix(f"/{PICKLE}")
    _refuse_unreadable(path, folder, records)
    tree = read_pickle(path, read_record(records[f"{folder}/{PICKLE}"])).value
    return tree, _zip_storages(folder, records), record_checksums(records)


def is_pickle(name: str) -> bool:
    """Tell the record that holds the tree by its name."""
    return name.endswith(f"/{PICKLE}") and name.count("/") == 1


def _refuse_unreadable(path: Path, folder: str, records: Mapping[str, Record]) -> None:
    if (size := records[f"{folder}/{PICKLE}"].size) > LONGEST_PICKLE_BYTES:
        raise HostileFileError(path, say("torch_file.long_pickle", size=size))
    if f"{folder}/constants.pkl" in records or any(name.startswith(f"{folder}/code/") for name in records):
        raise NeedsItsCodeError(path, *texts("torch_file.script"))
    if packed := [name for name, record in records.items() if record.compressed]:
        raise HostileFileError(path, say("torch_file.packed_records", count=len(packed), name=packed[0]))
    order = records.get(f"{folder}/byteorder")
    if order is not None and order.size < 16 and read_record(order) != b"little":
        raise UnsupportedCheckpointError(path, *texts("torch_file.big_endian"))


def _zip_storages(folder: str, records: Mapping[str, Record]) -> dict[str, Extent]:
    prefix = f"{folder}/data/"
    return {name.removeprefix(prefix): r.extent for name, r in records.items() if name.startswith(prefix)}


def single_tensor(path: Path, tree: Any, storages: Mapping[str, Extent]) -> StoredTensor:
    """The tensor that a file holds alone; raises UnsupportedCheckpointError if it is none, or of another kind."""
    look = TreeReader(path)
    if not look.is_tensor(tree):
        raise UnsupportedCheckpointError(path, *texts("torch_file.no_single_tensor", found=look.describe(tree)))
    view = look.view(path.name, tree)
    if isinstance(view, OddTensor):
        raise UnsupportedCheckpointError(path, view.reason, view.remedy)
    made = placed_tensor(path, path.name, view, storages.get(view.key))
    refuse_repetition(path, {path.name: made}, {view.key: storages[view.key].nbytes})
    return made


def refuse_repetition(path: Path, tensors: Mapping[str, StoredTensor], storages: Mapping[str, int]) -> None:
    """Views of one storage may overlap; a few bytes could claim terabytes so, in many views if not in one."""
    claimed = sum({tensor.identity: tensor.nbytes for tensor in tensors.values()}.values())
    stored = sum(storages.values())
    if claimed > MOST_VIEWS_OF_A_BYTE * stored + MOST_REPEATED_BYTES:
        raise HostileFileError(path, say("torch_file.repeats", claimed=claimed, stored=stored))


def placed_tensor(path: Path, name: str, view: TensorView, place: Extent | None) -> StoredTensor:
    """The tensor of a view at the place of its storage; raises NotACheckpointError where that is not what it says."""
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


PICKLE = "data.pkl"
TORCH_SIZE = Global("torch", "Size")
PARALLEL_SIZES = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "model_parallel_size")  # of Megatron
MODULE_STATE = {"_modules", "_parameters"}
MAKERS = ("_reconstructor", "__newobj__", "_reconstruct")  # of objects, and of NumPy arrays
NUMPY_ARRAYS = Global("numpy.core.multiarray", "_reconstruct"), Global("numpy._core.multiarray", "_reconstruct")
WRAPPERS = ("DataParallel", "DistributedDataParallel")


class TreeReader:
    """How the values of a file are looked at; each tensor is read once, however often it is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.views: dict[int, TensorView] = {}

    def mapping(self, value: Any) -> dict[Any, Any] | None:
        """The items of a dict, or of a record that is one; None for all else."""
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
        """Class of a whole pickled module, with what a parallel wrapper holds; "" for all else."""
        state = _module_state(value)
        if state is None:
            return ""
        inner = (mapping_of(state["_modules"]) or {}).get("module")
        name = class_name(value)
        wrapped = name.rpartition(".")[2] in WRAPPERS and _module_state(inner) is not None
        return sentence("entry_kind.around", name=name, inner=class_name(inner)) if wrapped else name

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


class StoredTreeReader(TreeReader):
    """Looks at a tree of plain data whose tensors are stored ones."""

    def mapping(self, value: Any) -> dict[Any, Any] | None:
        """A dict."""
        return value if isinstance(value, dict) else None

    def is_tensor(self, value: Any) -> bool:
        """A stored one, or one of another kind."""
        return isinstance(value, (StoredTensor, OddTensor))

    def size(self, _name: str, tensor: Any) -> tuple[int, int]:
        """Elements and bytes; nothing is loaded."""
        return (0, 0) if isinstance(tensor, OddTensor) else (prod(tensor.shape), tensor.nbytes)

    def module(self, _value: Any) -> str:
        """There are none."""
        return ""

    def describe(self, value: Any) -> str:
        """A few words for an entry that is not converted."""
        if isinstance(value, StoredTensor):
            return sentence("entry_note.tensor", shape=str(value.shape))
        return "tensor" if isinstance(value, OddTensor) else describe_plain(value)

    def parts(self, value: Any) -> Iterable[Any]:
        """What lies in a dict or a list."""
        if isinstance(value, dict):
            return value.values()
        return value if isinstance(value, list) else ()


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


# Mappings of names to tensors in a nested file: found by looking, one taken only where it alone can be meant.
#
# Training checkpoints hold their weights some keys down, beside counters, optimizer states and 0-d figures such as an
# accuracy. A mapping with real weights wins over lone scalars; two of them, or one beside a whole pickled module, are
# for the user to tell apart. An optimizer's state is never looked into. What stands beside the mapping is described,
# and the tensors in there are counted, so that nothing is left out in silence.

GENERATOR_BYTES = (5056, 16)  # format: what `get_rng_state` of torch returns for a CPU, and for a device
OPTIMIZER = {"state", "param_groups"}  # what `torch.optim.Optimizer.state_dict` returns

PLAIN = (str, bytes, int, float, type(None))  # nothing is inside

Keys = tuple[str, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ChosenEntry:
    """The mapping that was taken, the keys that lead to it, and every entry that could be asked for."""

    keys: Keys
    key: str
    values: dict[Any, Any]
    entries: tuple[Entry, ...]


def choose_entry(path: Path, tree: Any, reader: TreeReader, key: str | None) -> ChosenEntry:
    """Find the mappings of names to tensors and take the one of this key, or the only one that can be meant.

    Raises MissingEntryError, SeveralEntriesError, WholeModuleError, or UnsupportedCheckpointError if there is none.
    """
    mappings, modules = _survey(tree, reader, _Walk(path, reader))
    mappings = mappings if key is None else _under_the_key(key, mappings, tree, reader)
    whole = {_joined(keys): name for keys, name in modules.items()}
    if key in whole:
        raise WholeModuleError(path, {key: whole[key]})
    if not mappings:
        if whole:
            raise WholeModuleError(path, whole)
        raise UnsupportedCheckpointError(path, *texts("nested_file.holds", contents=_contents_fault(tree, reader)))
    names = _dotted(mappings)
    sizes = {keys: _sizes(values, reader) for keys, values in mappings.items()}
    weighty = {keys for keys in mappings if any(not _is_figure(*size) for size in sizes[keys])}
    entries = {keys: Entry(names[keys], len(s), sum(nbytes for _, nbytes in s)) for keys, s in sizes.items()}
    if key is None:
        keys = _only_one(path, entries, weighty)
        _refuse_modules_above(path, keys, names[keys], modules)
    else:
        keys = _asked_for(path, key, names)
    return ChosenEntry(keys, names[keys], mappings[keys], tuple(entries.values()))


def read_tensors(
    chosen: ChosenEntry, reader: TreeReader, read: Callable[[str, Any], T | OddTensor]
) -> tuple[dict[str, T], dict[str, OddTensor]]:
    """What `read` makes of each tensor under a name: the plain ones, and the odd ones."""
    values = chosen.values.items()
    found = {name: read(name, value) for name, value in values if isinstance(name, str) and reader.is_tensor(value)}
    odd = {name: value for name, value in found.items() if isinstance(value, OddTensor)}
    return {name: value for name, value in found.items() if not isinstance(value, OddTensor)}, odd


def read_others(
    path: Path, tree: Any, chosen: ChosenEntry, names: Collection[str], reader: TreeReader
) -> tuple[dict[str, str], dict[str, int]]:
    """What the tree holds beside the tensors of these names: each entry in a few words, and how many tensors are in it.

    Entries without tensors of their own are missing in the second table. Raises HostileFileError for a tree that nobody
    can count.
    """
    words: dict[str, str] = {}
    tensors: dict[str, int] = {}
    taken, walk = _Names(), _Walk(path, reader, {id(chosen.values[name]) for name in names})
    value = tree
    for depth in range(len(chosen.keys) + 1):
        above = _joined(chosen.keys[:depth])
        inside = depth < len(chosen.keys)
        converted = {chosen.keys[depth]} if inside else names
        items = dict(_items(value, reader))
        value = items[chosen.keys[depth]] if inside else None
        for key, item in items.items():
            if key not in converted:
                walk.name_entry()
                name = taken.fresh(_word(key, reader) if depth == 0 else f"{above}.{_word(key, reader)}")
                same = inside and item is value
                words[name] = (
                    sentence("entry_note.same_as", name=_joined(chosen.keys[: depth + 1]))
                    if same
                    else reader.describe(item)
                )
                if count := walk.count_tensors(item):
                    tensors[name] = count
    return words, tensors


def describe_plain(value: Any) -> str:
    """A few words for a value of Python's own types, the class of any other."""
    if isinstance(value, dict):
        return sentence("entry_kind.mapping", count=len(value))
    if isinstance(value, (list, tuple)):
        return sentence("entry_kind.several", kind=type(value).__name__, count=len(value))
    if isinstance(value, str):
        return sentence("entry_kind.text", text=value[:40])
    if isinstance(value, (float, type(None))) or (isinstance(value, int) and abs(value) < 1 << 64):
        return repr(value)
    return type(value).__name__


def _survey(tree: Any, reader: TreeReader, walk: _Walk) -> tuple[dict[Keys, dict[Any, Any]], dict[Keys, str]]:
    """All mappings with tensors and all whole modules, the shallowest first, each once."""
    mappings: dict[Keys, dict[Any, Any]] = {}
    modules: dict[Keys, str] = {}
    seen = {id(tree)}
    level: dict[Keys, Any] = {(): tree}
    for _ in range(DEEPEST_KEY + 1):
        inner: dict[Keys, Any] = {}
        for keys, value in level.items():
            if module := reader.module(value):
                if walk.count_tensors(value):  # a loss has none
                    modules[keys] = module
                continue
            values = reader.mapping(value) or {}
            if OPTIMIZER.issubset(values):
                continue
            if any(isinstance(name, str) and reader.is_tensor(v) for name, v in values.items()):
                mappings[keys] = values
            for name, item in _containers(value, reader, seen):
                walk.name_entry()
                if is_extra_state(name):
                    continue
                inner[(*keys, name)] = item
        level = inner
    return mappings, modules


def _containers(value: Any, reader: TreeReader, seen: set[int]) -> Iterable[tuple[str, Any]]:
    """What may hold mappings, under names; each once."""
    for name, item in _items(value, reader):
        if not _is_bare(item) and isinstance(name, str) and id(item) not in seen:
            seen.add(id(item))
            if not reader.is_tensor(item) and _holds_something(item, reader):
                yield name, item


def _is_bare(value: Any) -> bool:
    """Tell plain values, and the containers of which a small file can hold millions."""
    return isinstance(value, PLAIN) or (isinstance(value, (list, tuple, dict)) and not value)


def _holds_something(value: Any, reader: TreeReader) -> bool:
    """Tell what need not be looked into: the many pairs of a list of pairs of numbers are not worth a name each."""
    if isinstance(value, (list, tuple)):
        return not all(_is_bare(item) for item in value)
    return bool(reader.mapping(value) or reader.module(value))


def _items(value: Any, reader: TreeReader) -> Iterable[tuple[Any, Any]]:
    """Items of a mapping; those of a list go by their index."""
    if isinstance(value, (list, tuple)):
        return ((str(index), item) for index, item in enumerate(value))
    return (reader.mapping(value) or {}).items()


def _under_the_key(
    key: str, mappings: dict[Keys, dict[Any, Any]], tree: Any, reader: TreeReader
) -> dict[Keys, dict[Any, Any]]:
    """What was found, where a mapping that lies under several keys goes by the one that was asked for."""
    for alias, item in _led_to(key, tree, reader):
        if alias not in mappings:
            values = reader.mapping(item)
            return {alias if mapping is values else keys: mapping for keys, mapping in mappings.items()}
    return mappings


def _led_to(key: str, value: Any, reader: TreeReader) -> Iterator[tuple[Keys, Any]]:
    """All values to which a key leads, with its parts; these may hold dots themselves."""
    for name, item in _items(value, reader):
        if isinstance(name, str):
            if (shown := _shown(name)) == key:
                yield (name,), item
            if key.startswith(f"{shown}."):
                yield from (((name, *keys), inner) for keys, inner in _led_to(key[len(shown) + 1 :], item, reader))


def _dotted(found: Iterable[Keys]) -> dict[Keys, str]:
    taken = _Names()
    return {keys: taken.fresh(_joined(keys)) for keys in found}


def _sizes(values: Mapping[Any, Any], reader: TreeReader) -> list[tuple[int, int]]:
    return [reader.size(name, v) for name, v in values.items() if isinstance(name, str) and reader.is_tensor(v)]


def _is_figure(count: int, nbytes: int) -> bool:
    """Whether a tensor is one number, or the state of a generator of random numbers: bytes in a number of their own."""
    return count == 1 or count == nbytes in GENERATOR_BYTES


def _only_one(path: Path, entries: Mapping[Keys, Entry], weights: Collection[Keys]) -> Keys:
    """The shallowest one, if no other lies as high or directly under it; lone scalars count where all are such."""
    plausible = [keys for keys in entries if keys in weights] or list(entries)
    first = plausible[0]
    rivals = [keys for keys in plausible if len(keys) == len(first) or keys[:-1] == first]
    if len(rivals) > 1:
        raise SeveralEntriesError(path, [entries[keys].key for keys in rivals])
    return first


def _refuse_modules_above(path: Path, keys: Keys, name: str, modules: Mapping[Keys, str]) -> None:
    """A module that lies as high as the mapping is as likely to be the weights."""
    rivals = {_joined(held): name for held, name in modules.items() if len(held) <= len(keys)}
    if rivals:
        raise WholeModuleError(path, rivals, name)


def _asked_for(path: Path, key: str, names: Mapping[Keys, str]) -> Keys:
    for keys, name in names.items():
        if name == key:
            return keys
    raise MissingEntryError(path, key, list(names.values()))


def _contents_fault(tree: Any, reader: TreeReader) -> str:
    if reader.is_tensor(tree):
        return say("nested_file.lone_tensor")
    mapping = reader.mapping(tree)
    if mapping is None:
        return say("nested_file.no_tensors", contents=reader.describe(tree))
    if not mapping:
        return say("nested_file.empty")
    shown = list(mapping.items())[:ENTRIES_SHOWN]
    listed = ", ".join(
        f"{_word(name, reader)[:LONGEST_ENTRY_NAME]} ({reader.describe(value)})" for name, value in shown
    )
    left = len(mapping) - len(shown)
    return say("nested_file.no_tensors_among", listed=listed, left=left)


def _joined(keys: Keys) -> str:
    return _cut(".".join(map(_shown, keys)))


def _shown(key: str) -> str:
    key = _cut(key)
    return key if key.isprintable() else repr(key)


def _cut(name: str) -> str:
    """A few bytes can refer to one endless key again and again; names that were cut alike are numbered."""
    return name if len(name) <= LONGEST_KEY else f"{name[:LONGEST_KEY]}..."


def _word(key: Any, reader: TreeReader) -> str:
    """A key as a person is to read it; what is no plain text stands in brackets or quotes."""
    return _shown(key) if isinstance(key, str) else f"[{reader.describe(key)}]"


class _Names:
    """Names given out so far; the second of one name is numbered."""

    def __init__(self) -> None:
        self.given: dict[str, int] = {}

    def fresh(self, name: str) -> str:
        while True:
            number = self.given[name] = self.given.get(name, 0) + 1
            fresh = name if number == 1 else f"{name} ({number})"
            if number == 1 or fresh not in self.given:
                self.given[fresh] = 1
                return fresh


class _Walk:
    """Counts tensors anywhere in values, within a limit: values can share their parts so that no count would end."""

    def __init__(self, path: Path, reader: TreeReader, known: Set[int] = frozenset()) -> None:
        self.path = path
        self.reader = reader
        self.known = known
        self.visits = 0
        self.entries = 0

    def count_tensors(self, value: Any) -> int:
        """Tensors in a value that are not known, each once: references which double at every level cost nothing."""
        seen: set[int] = set()
        waiting, count = [value], 0
        while waiting:
            item = waiting.pop()
            if id(item) not in seen:
                seen.add(id(item))
                if self.reader.is_tensor(item):
                    count += id(item) not in self.known
                else:
                    waiting += [part for part in self.reader.parts(item) if not _is_bare(part)]
                if self.visits + len(seen) > MOST_VISITED_VALUES:
                    raise HostileFileError(self.path, say("nested_file.shares_values"))
        self.visits += len(seen)
        return count

    def name_entry(self) -> None:
        self.entries += 1
        if self.entries > MOST_NAMED_ENTRIES:
            raise HostileFileError(self.path, say("nested_file.too_many_entries", most=MOST_NAMED_ENTRIES))
