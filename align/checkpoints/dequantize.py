"""Quantized weights as what they stand for: each is made with the scales beside it, block by block, when it is read.

What a tensor is, its name, its dtype and what stands beside it say (`packed_weights`), and where these leave something
open, the quantization that a `config.json` beside the file tells of. What is not known is refused by name: a weight
never loses its scale.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from math import ceil, prod
from typing import TYPE_CHECKING

import numpy as np

from align.checkpoints.inspect_checkpoint import packed_weights
from align.checkpoints.open_checkpoint import read_json
from align.checkpoints.quantized_forms import FLOAT8, FORMS, Packed, QuantizationConfig, Unpacked
from align.core.parameters import StoredTensor, numpy_dtype
from align.core.thresholds import BLOCK_BYTES
from align.errors import CannotRunError
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from align.checkpoints.inspect_checkpoint import PackedWeight
    from align.core.parameters import Array, Checkpoint

CONFIGS = {"config.json": "", "quantize_config.json": "gptq", "quant_config.json": "awq"}
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
    for name, method in CONFIGS.items():
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
