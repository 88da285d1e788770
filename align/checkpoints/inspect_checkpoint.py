"""What is in a checkpoint of any format, and quantized weights as the values that they stand for.

Only headers are read: a large file takes no longer than a small one. What a quantized tensor is, its name, its dtype
and what stands beside it say (`packed_weights`); where these leave something open, the `config.json` beside the file
does. Each is made with its scales, block by block, when it is read. What is not known is refused by name: a weight
never loses its scale.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import ceil, prod
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from align.checkpoints.extents import check_whole, overlapping_names, tied_names
from align.checkpoints.names_in_file import declared_framework, training_notes
from align.checkpoints.open_checkpoint import open_checkpoint, open_trusted, read_json
from align.checkpoints.quantized_forms import FLOAT8, FORMS, Packed, QuantizationConfig, Unpacked
from align.checkpoints.thresholds import (
    DEEPEST_COMPANION,
    FEWEST_PLACEHOLDERS,
    MOST_COMPARED_PARTS,
    MOST_COMPARED_TENSORS,
)
from align.core.parameters import StoredTensor, is_float, numpy_dtype
from align.core.protocols import collector_paused
from align.core.thresholds import BLOCK_BYTES
from align.core.verdicts import ShownResult
from align.errors import CannotRunError, SeveralEntriesError
from align.rules.training_rules import part_by_name, stored_weight_rules
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.core.parameters import Array, Checkpoint, Entry, Shape
    from align.rules.training_rules import PartForm

    Tensors = Mapping[str, StoredTensor]


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """One tensor of a checkpoint as its header tells it.

    `contiguous` says whether its bytes lie in the file as they are in memory: in C order, not compressed; of a tensor
    that ranks wrote in pieces, whether those of each piece do.
    """

    name: str
    shape: Shape
    dtype: str
    nbytes: int
    contiguous: bool


@dataclass(frozen=True, slots=True)
class Inspection(ShownResult):
    """What is in a checkpoint, by its headers alone; it decides nothing, so there is no verdict.

    `naming` is whose parameter names the file has: None where it does not say. `files` maps each
    file to its size. `entries` are those that a key can choose and `key` is the one that was taken; with several and
    none chosen, `tensors` is empty and `key` None. `overlaps` pairs names whose bytes overlap without being tied.
    `other` names what is no tensor or has no plain form, and what it is; `notes` are what must be said beside that.
    `crc_unchecked` says that the file carries a crc that was not checked, `crc_checked` that it was and holds.
    """

    result_kind = "inspect"
    path: str
    format: str
    naming: Literal["torch", "mindspore"] | None
    files: dict[str, int]
    metadata: dict[str, str]
    key: str | None
    entries: tuple[Entry, ...]
    tensors: tuple[TensorFacts, ...]
    ties: tuple[tuple[str, ...], ...]
    overlaps: tuple[tuple[str, str], ...]
    other: dict[str, str]
    crc_unchecked: bool
    crc_checked: bool = False
    notes: tuple[str, ...] = ()


@collector_paused()
def inspect_checkpoint(
    path: Path | str, key: str | None = None, *, trust_pickle: bool = False, check: bool = False
) -> Inspection:
    """Read the headers of a checkpoint and say what is in it.

    `key` chooses an entry of a nested file. Without it, a file of several entries that could be the weights is
    described by those entries, without tensors. `trust_pickle` lets torch run what the file pickles. `check` reads all
    of which the file carries a crc. Raises what opening the file raises, NotACheckpointError for a crc that differs.

    >>> import numpy, tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp(), "model.npz")
    >>> numpy.savez(path, **{"fc.weight": numpy.ones((2, 3), numpy.float32), "fc.bias": numpy.ones(2, numpy.float32)})
    >>> found = inspect_checkpoint(path)
    >>> found.format, [(tensor.name, tensor.shape, tensor.dtype) for tensor in found.tensors]
    ('npz', [('fc.weight', (2, 3), 'float32'), ('fc.bias', (2,), 'float32')])
    """
    opened = partial(open_trusted if trust_pickle else open_checkpoint, path, odd_too=True)
    try:
        checkpoint = opened(key)
        described = _described(checkpoint)
    except SeveralEntriesError as error:
        checkpoint = opened(error.keys[0])
        described = _undecided(checkpoint, error)
    if not check:
        return described
    check_whole(checkpoint)
    return replace(described, crc_unchecked=False, crc_checked=described.crc_unchecked)


def _described(checkpoint: Checkpoint) -> Inspection:
    tensors = checkpoint.tensors.values()
    return Inspection(
        path=str(checkpoint.path),
        format=checkpoint.format,
        naming=declared_framework(checkpoint.metadata),
        files={str(path): path.stat().st_size for path in checkpoint.all_files},
        metadata=checkpoint.metadata,
        key=checkpoint.key,
        entries=checkpoint.entries,
        tensors=tuple(_facts(tensor, checkpoint.is_joined) for tensor in tensors),
        ties=tied_names(tensors),
        overlaps=overlapping_names(tensors),
        other={name: tensor.reason for name, tensor in checkpoint.odd.items()} | checkpoint.other,
        crc_unchecked=checkpoint.check is not None or _carries_crc(checkpoint),
        notes=(*checkpoint.notes, *training_notes(checkpoint), *unfinished_notes(checkpoint)),
    )


def _carries_crc(checkpoint: Checkpoint) -> bool:
    return bool(checkpoint.checksums) or any(tensor.blocks is not None for tensor in checkpoint.tensors.values())


def _undecided(checkpoint: Checkpoint, error: SeveralEntriesError) -> Inspection:
    """What can be said before an entry is chosen; the first of them, which was opened, stands for none."""
    entries = tuple(entry for entry in checkpoint.entries if entry.key in error.keys)
    other = {name: what for name, what in checkpoint.other.items() if name not in error.keys}
    nothing = replace(checkpoint, tensors={}, odd={}, other=other, entries=entries)
    return replace(_described(nothing), key=None)


def _facts(tensor: StoredTensor, is_joined: bool) -> TensorFacts:
    contiguous = is_joined or tensor.extent is not None or bool(tensor.pieces) or tensor.nbytes == 0
    return TensorFacts(tensor.name, tensor.shape, tensor.dtype, tensor.nbytes, contiguous)


# Tensors that are no weights by themselves: stored in fewer bits, placeholders, or a part of what several files hold.
#
# Converted as they stand they would be read back bit for bit, and be wrong. What shows each kind is asked of names,
# dtypes, shapes, the values of single elements, and of what a training said of itself; a part is known by its path
# and by the other parts that lie beside it. `mappings/stored_weights.toml` has the names.

_WEIGHT = re.compile(r"(?:.*[._])?(?:weight|kernel|embedding_table)(?:[_.].*)?")
_HALVES = frozenset({"float16", "bfloat16"})  # of the ones that ZeRO-3 left in the place of weights


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A weight in fewer bits: its values are made with its `companions`; `form` is the key of the rule."""

    name: str
    dtype: str
    companions: tuple[str, ...]
    form: str


def packed_weights(checkpoint: Checkpoint) -> list[PackedWeight]:
    """The weights whose numbers are not their values, with what stands beside them, in the file's order.

    What stands beside them may lie in another shard, whose dtypes are not known: it is taken for a scale.
    """
    tensors = checkpoint.tensors
    known = dict.fromkeys(checkpoint.elsewhere, "float32") | {name: tensor.dtype for name, tensor in tensors.items()}
    dtypes, names = {*known.values()}, "\n".join(known)
    forms = [form for form in stored_weight_rules().packed if form.dtypes & dtypes]
    if not any(mark in names for form in forms for mark in form.marks):
        return []
    packed_dtypes = frozenset[str]().union(*(form.dtypes for form in forms))
    modules: dict[str, dict[str, str]] = {}
    for name, own_dtype in known.items():
        place = len(name)
        for _ in range(DEEPEST_COMPANION):
            place = name.rfind(".", 0, place)
            modules.setdefault(name[: max(place, 0)], {})[name[place + 1 :]] = own_dtype
            if place < 0:
                break
    packed = []
    for name, tensor in tensors.items():
        if tensor.dtype not in packed_dtypes:
            continue
        module, dot, attribute = name.rpartition(".")
        siblings = {below: dtype for below, dtype in modules[module].items() if below != attribute}
        for form in forms if siblings else ():
            if own := form.companions(attribute, tensor.dtype, siblings):
                companions = tuple(module + dot + below for below in own)
                packed.append(PackedWeight(name, tensor.dtype, companions, form.key))
                break
    beside = {name for weight in packed for name in weight.companions}
    return [weight for weight in packed if weight.name not in beside]


def packed_error(checkpoint: Checkpoint, packed: Sequence[PackedWeight]) -> CannotRunError:
    """What to say where the values would be lost."""
    first = packed[0]
    facts = {"path": checkpoint.path, "name": first.name, "dtype": first.dtype, "companions": [*first.companions]}
    return CannotRunError.of(f"packed_weights.{first.form}", count=len(packed), **facts)


def packed_note(packed: Sequence[PackedWeight]) -> str:
    """What to say where weights and what belongs to them stay together, as they are."""
    first = packed[0]
    return sentence("unfinished_note.packed", count=len(packed), name=first.name, companions=[*first.companions])


def refuse_unfinished(checkpoint: Checkpoint, *, compare: bool = True) -> None:
    """Raise CannotRunError for a file that holds placeholders, or a part of a model only.

    What only the values of other files tell is found where they are to be compared.
    """
    refuse_placeholders(checkpoint)
    if (error := _part_error(checkpoint.path, checkpoint, compare=compare)) is not None:
        raise error


def refuse_placeholders(checkpoint: Checkpoint) -> None:
    """Raise CannotRunError for a file in which some weights are left out, and an empty tensor stands for each."""
    if names := placeholders(checkpoint):
        facts = {"count": len(names), "total": len(checkpoint.tensors), "names": names, "path": checkpoint.path}
        shapes = [*dict.fromkeys(str(checkpoint.tensors[name].shape) for name in names)]
        raise CannotRunError.of("unfinished.placeholders", shapes=shapes, **facts)


def unfinished_error(checkpoint: Checkpoint, *, compare: bool = True) -> CannotRunError | None:
    """What makes the tensors of a file no weights, whichever kind it is; None if nothing does."""
    try:
        refuse_unfinished(checkpoint, compare=compare)
    except CannotRunError as error:
        return error
    packed = packed_weights(checkpoint)
    return packed_error(checkpoint, packed) if packed else None


def unfinished_notes(checkpoint: Checkpoint) -> Iterator[str]:
    """The same, for whoever only looks at the headers of a file."""
    if (error := unfinished_error(checkpoint, compare=False)) is not None:
        yield sentence("unfinished_note.error", message=error.message, hint=error.hint)


def placeholders(checkpoint: Checkpoint) -> list[str]:
    """The tensors that only stand for a weight: ZeRO-3 leaves one of shape (0,), in older versions a one, in its place.

    A file of a training may tell the true shapes. Else an empty `weight` shows it, which no layer has, or ones where
    both a weight and a bias are of one element, in several layers, or nothing else in half precision. A bias of no
    elements is its layer's own where its weight is empty in one of its axes.
    """
    tensors = checkpoint.tensors
    stand_ins = [
        name
        for name, shape in checkpoint.told_shapes.items()
        if name in tensors and prod(tensors[name].shape) <= 1 < prod(shape)
    ]
    if stand_ins:
        shapes = {tensors[name].shape for name in stand_ins}
        return [
            name
            for name, one in tensors.items()
            if name in stand_ins or (one.shape in shapes and name not in checkpoint.told_shapes and is_float(one.dtype))
        ]
    empty = [name for name, one in tensors.items() if one.shape == (0,) and is_float(one.dtype)]
    if any(_WEIGHT.fullmatch(name) for name in empty):
        return [name for name in empty if not _beside_empty_matrix(name, tensors)]
    return [] if checkpoint.told_shapes else _ones_for_weights(tensors)


def _beside_empty_matrix(name: str, tensors: Tensors) -> bool:
    module, dot, _ = name.rpartition(".")
    weight = tensors.get(f"{module}{dot}weight")
    return weight is not None and len(weight.shape) > 1


def _ones_for_weights(tensors: Tensors) -> list[str]:
    single = [name for name, tensor in tensors.items() if tensor.shape == (1,) and is_float(tensor.dtype)]
    weights = [name for name in single if name.rpartition(".")[2] == "weight"]
    if len(weights) < FEWEST_PLACEHOLDERS:
        return []
    alone = all(
        prod(tensor.shape) <= 1 and tensor.dtype in _HALVES for tensor in tensors.values() if is_float(tensor.dtype)
    )
    biases = {*single}
    both = [(name, bias) for name in weights if (bias := f"{name.removesuffix('weight')}bias") in biases]
    layers = (pair for pair in both if all(_is_one(tensors[name]) for name in pair))
    if len([*islice(layers, FEWEST_PLACEHOLDERS)]) == FEWEST_PLACEHOLDERS:
        return [name for name in single if _is_one(tensors[name])]
    return single if alone and all(_is_one(tensors[name]) for name in single) else []


def _is_one(tensor: StoredTensor) -> bool:
    return float(np.asarray(tensor.load(), np.float64)[0]) == 1.0


def _part_error(path: Path, checkpoint: Checkpoint, *, compare: bool) -> CannotRunError | None:
    if checkpoint.is_joined:
        return None
    if by_name := part_by_name(path):
        return CannotRunError.of(f"part_of_model.{by_name}", path=path, others=[], told="")
    if sizes := {name: size for name, size in checkpoint.told_parts.items() if size > 1}:
        told = ", ".join(f"{name} {size}" for name, size in sizes.items())
        return CannotRunError.of("part_of_model.model_parallel", path=path, others=[], told=told, number="")
    for form in stored_weight_rules().parts:
        others = _other_parts(path, form)
        if form.proof == "values":
            others = others if compare and any(_holds_other_values(checkpoint, one) for one in _spread(others)) else []
        number = form.later_number(path)
        if others or number:
            shown = [_from_common_folder(path, one) for one in others]
            return CannotRunError.of(f"part_of_model.{form.key}", path=path, others=shown, told="", number=number)
    return None


def _other_parts(path: Path, form: PartForm) -> list[Path]:
    """The files that are to this one as another number is to its own; for `values` only where one has the number 0."""
    text = path.absolute().as_posix()
    match = form.path.search(text)
    if match is None or form.proof == "name":
        return []
    start = text.rfind("/", 0, match.start(1)) + 1
    end = text.find("/", match.start(1))
    end = len(text) if end < 0 else end
    name = _numbered(text[start:end], [match.span(n) for n in range(1, 1 + len(match.groups()))], start)
    matches = ((sibling, name.fullmatch(sibling.name)) for sibling in sorted(Path(text[:start]).iterdir()))
    numbers = {sibling: match_of_name[1] for sibling, match_of_name in matches if match_of_name is not None}
    beside = {sibling: number for sibling, number in numbers.items() if sibling.name != text[start:end]}
    if form.proof == "beside":
        return [sibling for sibling in beside if sibling.is_file() or any(sibling.iterdir())]
    if not any(int(number) == 0 for number in numbers.values()):
        return []
    others = [Path(f"{sibling}{_with_number(text[end:], match[1], number)}") for sibling, number in beside.items()]
    return [sibling for sibling in others if sibling.is_file()]


def _numbered(text: str, spans: Iterable[tuple[int, int]], start: int) -> re.Pattern[str]:
    """What the text looks like with any number in these places of it, counted from `start`."""
    pattern, at = "", 0
    for first, last in spans:
        if first >= 0:
            pattern += re.escape(text[at : first - start]) + r"(\d+)"
            at = last - start
    return re.compile(pattern + re.escape(text[at:]))


def _with_number(rest: str, own: str, other: str) -> str:
    """What stands behind the folder of a rank, where files may have its number too: `rank_0/net_rank_0-1_10.ckpt`."""
    return re.sub(rf"(?i)(rank[_-]?){own}(?!\d)", rf"\g<1>{other}", rest)


def _spread(others: list[Path]) -> list[Path]:
    """Some of the other parts, the first and the last among them."""
    step = max(len(others) // MOST_COMPARED_PARTS, 1)
    return list(dict.fromkeys([*others[::step], *others[-1:]]))


def _holds_other_values(checkpoint: Checkpoint, other: Path) -> bool:
    """Whether another rank has other tensors, or other values in the largest matrices; running statistics differ."""
    try:
        tensors = open_checkpoint(other, checkpoint.key or None).tensors
    except CannotRunError:
        return False
    ours = checkpoint.tensors
    if ours.keys() != tensors.keys() or any(tensor.shape != tensors[name].shape for name, tensor in ours.items()):
        return True
    matrices = sorted((tensor for tensor in ours.values() if len(tensor.shape) > 1), key=lambda tensor: -tensor.nbytes)
    chosen = matrices[:MOST_COMPARED_TENSORS]
    return any(tensor.load().tobytes() != tensors[tensor.name].load().tobytes() for tensor in chosen)


def _from_common_folder(path: Path, other: Path) -> str:
    own, theirs = path.absolute().parts, other.parts
    same = next((n for n, both in enumerate(zip(own, theirs, strict=False)) if both[0] != both[1]), 0)
    return "/".join(theirs[same:])


QUANTIZATION_CONFIGS = {"config.json": "", "quantize_config.json": "gptq", "quant_config.json": "awq"}
# Scales and zeros of what a layer is given or makes: the weights do not need them.
OF_ACTIVATIONS = re.compile(
    r"(?:input|output|act)_(?:global_)?(?:scale|zero_point)\w*|scale_(?:input|output)|act_scale\w*"
)
# What is packed by its name and dtype alone, so that scales must stand beside it.
NEEDS_SCALES = re.compile(r"qweight|\w+_(?:packed|blocks)")


def dequantized(checkpoint: Checkpoint, dtype: str) -> Checkpoint:
    """The checkpoint with each quantized weight in `dtype`, under the name that it has in a plain one.

    Its notes say how many were made of which form. Nothing is read but what tells the shapes. Raises CannotRunError
    for a checkpoint without any, and one that names every weight of a form that is not known or does not fit.
    """
    packed = packed_weights(checkpoint)
    companions = {name for one in packed for name in one.companions}
    config = quantization_config(checkpoint.path)
    values: dict[str, StoredTensor] = {}
    counts: Counter[str] = Counter()
    faults = [
        say("fault_list.one", head=n, fault=say("dequantize_fault.no_scale")) for n in unscaled(checkpoint, config)
    ]
    for stored in packed:
        try:
            form, weight = _unpacked(checkpoint, stored, config)
            module, dot, _ = stored.name.rpartition(".")
            name = f"{module}{dot}{weight.attribute}"
            if name in values or (name in checkpoint.tensors and name not in {stored.name, *stored.companions}):
                raise ValueError(say("dequantize_fault.name_taken", name=name))
        except ValueError as error:
            faults.append(say("fault_list.one", head=stored.name, fault=error))
            continue
        values[stored.name] = stored_tensor(name, weight, dtype)
        counts[form] += 1
    if faults:
        raise CannotRunError.of("dequantize.refused", path=checkpoint.path, count=len(faults), faults=faults)
    if not values:
        raise CannotRunError.of("dequantize.nothing", path=checkpoint.path)
    tensors = [values.get(name, tensor) for name, tensor in checkpoint.tensors.items() if name not in companions]
    notes = [sentence("dequantize.note", count=number, form=form, dtype=dtype) for form, number in counts.items()]
    plain = {tensor.name: tensor for tensor in tensors}
    return replace(checkpoint, tensors=plain, elsewhere=(), notes=(*checkpoint.notes, *notes))


def refuse_unscaled(checkpoint: Checkpoint) -> None:
    """Raise CannotRunError for float8 weights without scales where a config says that the model is quantized."""
    config = quantization_config(checkpoint.path)
    if config.method and (
        names := [name for name in unscaled(checkpoint, config) if checkpoint.tensors[name].dtype in FLOAT8]
    ):
        faults = [say("fault_list.one", head=name, fault=say("dequantize_fault.no_scale")) for name in names]
        raise CannotRunError.of("dequantize.refused", path=checkpoint.path, count=len(faults), faults=faults)


def unscaled(checkpoint: Checkpoint, config: QuantizationConfig) -> list[str]:
    """Names of weights in fewer bits beside which no scale stands, although others have them or the config tells so."""
    packed = packed_weights(checkpoint)
    known = {name for one in packed for name in (one.name, *one.companions)}
    quantized = {one.dtype for one in packed} | (FLOAT8 if config.method else frozenset())
    return [
        name
        for name, tensor in checkpoint.tensors.items()
        if name not in known
        and (
            (tensor.dtype in FLOAT8 & quantized and len(tensor.shape) > 1)
            or (tensor.dtype in ("int32", "uint8", "int8") and NEEDS_SCALES.fullmatch(name.rpartition(".")[2]))
        )
    ]


def quantization_config(path: Path) -> QuantizationConfig:
    """What the configs beside a file say of quantization; raises NotACheckpointError for one that cannot be read."""
    folder = path if path.is_dir() else path.parent
    for name, method in QUANTIZATION_CONFIGS.items():
        if (folder / name).is_file():
            table = read_json(folder / name)
            table = table if isinstance(table, dict) else {}
            if not method:
                table = table.get("quantization_config") or table.get("compression_config")
            if table and isinstance(table, dict):
                return QuantizationConfig({"quant_method": method, **table} if method else table)
    return QuantizationConfig({})


def _unpacked(checkpoint: Checkpoint, packed: PackedWeight, config: QuantizationConfig) -> tuple[str, Unpacked]:
    """The form of a weight and what it holds; raises ValueError with the reason why it cannot be made."""
    tensors = checkpoint.tensors
    if absent := [name for name in packed.companions if name not in tensors]:
        raise ValueError(say("dequantize_fault.elsewhere", names=absent))
    if empty := [name for name in (packed.name, *packed.companions) if not tensors[name].nbytes]:
        raise ValueError(say("dequantize_fault.empty", names=empty))
    module, dot, attribute = packed.name.rpartition(".")
    beside = {name[len(module) + len(dot) :]: tensors[name] for name in packed.companions}
    given = Packed(attribute, tensors[packed.name], beside, config)
    method = "compressed-tensors" if config.method == "compressed_tensors" else config.method
    for form in FORMS[packed.form]:
        if method and method not in form.methods:
            continue
        weight = form.unpack(given)
        if weight is not None:
            unknown = [name for name in beside if name not in weight.used and not OF_ACTIVATIONS.fullmatch(name)]
            if unknown:
                raise ValueError(say("dequantize_fault.unknown_beside", names=unknown))
            return form.name, weight
    raise ValueError(say("dequantize_fault.unknown_form", dtype=packed.dtype, names=[*beside], method=method))


def stored_tensor(name: str, weight: Unpacked, dtype: str) -> StoredTensor:
    """A tensor whose values are made when they are read, and never held whole where they are read in blocks."""
    kind, count = numpy_dtype(dtype), prod(weight.shape)
    units = ceil(count / weight.unit) if count else 0

    def blocks(size: int) -> Iterator[memoryview]:
        rows = weight.open()
        step = max(size // (weight.unit * kind.itemsize), 1)
        for first in range(0, units, step):
            with np.errstate(all="ignore"):  # NaN and Inf are values of scales too
                made = rows(first, min(first + step, units)).astype(kind)
            data = np.ascontiguousarray(made).reshape(-1).view(np.uint8)
            for start in range(0, data.size, size):
                yield data[start : start + size].data

    def load() -> Array:
        whole: Array = np.empty(weight.shape, kind)
        data, done = whole.reshape(-1).view(np.uint8), 0
        for block in blocks(BLOCK_BYTES):
            data[done : done + len(block)] = block
            done += len(block)
        return whole

    return StoredTensor(name, weight.shape, dtype, load, blocks=blocks)
