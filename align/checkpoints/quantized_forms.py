"""The forms in which libraries store weights in fewer bits, and how each of them makes the values.

A form looks at one packed tensor and what stands beside it, by shapes and dtypes alone, and says what the weight is:
its name, its shape, and how its rows are made. Rows are made in float32 and rounded once, so that bfloat16 is what
the library makes where its scales are bfloat16, and float32 loses nothing. Nothing is guessed: what two readings would
fit is refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import ceil, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from align.checkpoints.sound_records import parse_json
from align.checkpoints.thresholds import LONGEST_QUANT_STATE
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from align.core.parameters import Array, Shape, StoredTensor

Rows = Callable[[int, int], "Array"]
FLOAT8 = frozenset({"float8_e4m3fn", "float8_e5m2"})
SCALES = frozenset({"float32", "bfloat16", "float16"})
WHOLE = frozenset({"int8"})
INDICES = frozenset({"int32", "int64"})
E8M0_BIAS = 127  # format: a scale of one byte is a power of two (OCP Microscaling Formats, version 1.0)
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)  # format: OCP MX, FP4
AWQ_PLACES = [0, 4, 1, 5, 2, 6, 3, 7]  # format: the places of eight columns in one number (AutoAWQ, GEMM version)
INT8_STEP = np.float32(7.874015718698502e-3)  # format: 1 / 127 (bitsandbytes, int8_vectorwise_dequant)
USUAL_BLOCK = 128  # format: what `weight_scale_inv` covers (DeepSeek-V3, weight_block_size)


@dataclass(frozen=True, slots=True)
class QuantizationConfig:
    """What a `config.json` beside a checkpoint says of its quantization; `table` is empty where there is none."""

    table: Mapping[str, Any]

    @property
    def method(self) -> str:
        """Which library quantized it, "" where nothing says so."""
        found = self.table.get("quant_method", "")
        return found.lower() if isinstance(found, str) else ""

    def word(self, name: str, default: str = "") -> str:
        """A setting that is a word, in small letters."""
        found = self.table.get(name)
        return found.lower() if isinstance(found, str) else default

    def schemes(self) -> list[Mapping[str, Any]]:
        """What compressed-tensors says of weights, in each of its groups."""
        groups = self.table.get("config_groups")
        tables = [*groups.values()] if isinstance(groups, dict) else []
        found = [table.get("weights") for table in tables if isinstance(table, dict)]
        return [scheme for scheme in found if isinstance(scheme, dict)]

    def blocks(self, axis: int) -> set[int]:
        """How many elements of one of the last two axes (-2, -1) a scale covers, as far as it says so."""
        shapes = [self.table.get("weight_block_size"), *(one.get("block_structure") for one in self.schemes())]
        found = [one[axis] for one in shapes if isinstance(one, list) and len(one) == 2]
        found += [one.get("group_size") for one in self.schemes()] if axis == -1 else []
        return {size for one in found if (size := _size(one))}


@dataclass(frozen=True, slots=True)
class Packed:
    """A packed tensor: `attribute` is the last part of its name, `beside` what belongs to it by names from there on."""

    attribute: str
    tensor: StoredTensor
    beside: Mapping[str, StoredTensor]
    config: QuantizationConfig


@dataclass(frozen=True, slots=True)
class Unpacked:
    """The weight that it holds.

    `attribute` takes the place of the packed tensor's; `used` are the names beside it that its values are made with.
    Elements are made `unit` at a time: `open` reads the small tensors and returns what makes units first to last, as
    float32, without ever holding more of the weight.
    """

    attribute: str
    shape: Shape
    unit: int
    open: Callable[[], Rows]
    used: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QuantizedForm:
    """One way to store a weight: `unpack` returns None for what it does not know, and raises ValueError for a fault.

    `methods` are the words by which a config names libraries that write it.
    """

    name: str
    methods: frozenset[str]
    unpack: Callable[[Packed], Unpacked | None]


def unpack_scaled(packed: Packed, dtypes: frozenset[str]) -> Unpacked | None:
    """float8 or int8 with a scale for the whole, each row, or each block: (value - zero point) * scale.

    Source: DeepSeek-V3 `weight_dequant` (blocks), compressed-tensors `dequantize`, fbgemm; scales of one byte are
    powers of two (MXFP8). A scale of fewer axes stands for the first ones.
    """
    name, tensor = packed.attribute, packed.tensor
    scale = _first(packed, f"{name}_scale_inv", f"{name}_scale", f"scale_{name}", "weight_scale", "scale", "scale_inv")
    if tensor.dtype not in dtypes or scale is None:
        return None
    zero = _first(packed, f"{name}_zero_point", "weight_zero_point")
    wanted = SCALES | ({"uint8", "float8_e8m0fnu"} if tensor.dtype in FLOAT8 else set())
    _require_dtype(packed, scale, wanted)
    blocks = _axis_blocks(packed, scale, tensor.shape, exact=scale.endswith("_inv"))
    if zero is not None:
        _require_dtype(packed, zero, WHOLE)
        if packed.beside[zero].shape != packed.beside[scale].shape:
            raise ValueError(_misfit(packed, zero, packed.beside[scale].shape))

    unit = tensor.shape[-1] if tensor.shape else 1

    def opened() -> Rows:
        values, scales = tensor.load().reshape(-1, unit), _scales(packed.beside[scale], tensor.shape)
        zeros = None if zero is None else _scales(packed.beside[zero], tensor.shape)

        def rows(first: int, last: int) -> Array:
            made = values[first:last].astype(np.float32)
            if zeros is not None:
                made -= _spread(zeros, tensor.shape, blocks, first, last)
            return np.asarray(made * _spread(scales, tensor.shape, blocks, first, last))

        return rows

    used = (scale,) if zero is None else (scale, zero)
    return Unpacked(name, tensor.shape, unit, opened, used)


def unpack_bitsandbytes_int8(packed: Packed) -> Unpacked | None:
    """int8 of `Linear8bitLt`: value * SCB of the row / 127, in this order (bitsandbytes, int8_vectorwise_dequant)."""
    tensor, scale = packed.tensor, packed.beside.get("SCB")
    if tensor.dtype != "int8" or scale is None:
        return None
    layout = packed.beside.get("weight_format")
    if layout is not None and (
        layout.dtype != "uint8" or layout.load().any()
    ):  # 0 is "row"; others are layouts of one kind of chip
        raise ValueError(say("dequantize_fault.layout"))
    if len(tensor.shape) != 2 or scale.shape != tensor.shape[:1]:
        raise ValueError(_misfit(packed, "SCB", tensor.shape[:1]))

    def opened() -> Rows:
        values, rows_scale = tensor.load(), scale.load().astype(np.float32)[:, None]
        return lambda first, last: values[first:last].astype(np.float32) * rows_scale[first:last] * INT8_STEP

    return Unpacked(packed.attribute, tensor.shape, tensor.shape[1], opened, ("SCB", "weight_format"))


def unpack_gptq(packed: Packed) -> Unpacked | None:
    """GPTQ: (in, out) packed along the first axis, (value - zero) * scale of the input's group, then transposed.

    Source: AutoGPTQ and GPTQModel, `qlinear` (dequantize_weight): values lie bit behind bit in 32-bit numbers, zeros
    likewise along the outputs; format `gptq` stores each zero less 1, `gptq_v2` stores it as it is; `g_idx` gives the
    group of each input, without it groups follow each other.
    """
    packed_weight, zeros, scales = packed.tensor, packed.beside.get("qzeros"), packed.beside.get("scales")
    if scales is None or zeros is None or len(scales.shape) != 2 or packed_weight.shape[-1:] != scales.shape[-1:]:
        return None
    layout = packed.config.word("checkpoint_format", "gptq")
    if packed.config.method != "gptq" or layout not in ("gptq", "gptq_v2"):
        raise ValueError(say("dequantize_fault.gptq_layout", layout=layout if packed.config.table else ""))
    _require_int32(packed, "qzeros")
    _require_dtype(packed, "scales", SCALES)
    groups, outputs = scales.shape
    bits = _quotient(32 * zeros.shape[-1], outputs)
    inputs = _quotient(32 * packed_weight.shape[0], bits)
    if bits not in (2, 3, 4, 8) or zeros.shape[0] != groups or not inputs:
        raise ValueError(say("dequantize_fault.bits", shape=str(packed_weight.shape), zeros=str(zeros.shape)))
    group_of = _group_index(packed, "g_idx", inputs, groups)
    added = 1 if layout == "gptq" else 0

    def opened() -> Rows:
        words, groups_of_inputs = packed_weight.load(), group_of()
        zero = unpacked_bits(zeros.load(), bits, outputs).T.astype(np.float32) + added
        scale = scales.load().astype(np.float32).T

        def rows(first: int, last: int) -> Array:
            values = unpacked_bits(words[:, first:last].T, bits, inputs).astype(np.float32)
            return np.asarray((values - zero[first:last, groups_of_inputs]) * scale[first:last, groups_of_inputs])

        return rows

    return Unpacked("weight", (outputs, inputs), inputs, opened, ("qzeros", "scales", "g_idx"))


def unpack_awq(packed: Packed) -> Unpacked | None:
    """AWQ of 4 bits: (in, out) packed along the second axis, (value - zero) * scale of the input's group, transposed.

    Source: AutoAWQ, `packing_utils` (unpack_awq, reverse_awq_order, dequantize_gemm): eight columns in one number, in
    the order 0, 2, 4, 6, 1, 3, 5, 7. The other versions of AutoAWQ (GEMV, Marlin) have another order and are refused.
    """
    packed_weight, zeros, scales = packed.tensor, packed.beside.get("qzeros"), packed.beside.get("scales")
    if zeros is None or scales is None or len(packed_weight.shape) != 2 or len(scales.shape) != 2:
        return None
    groups, outputs = scales.shape
    if packed_weight.shape[1] * 8 != outputs:
        return None
    version = packed.config.word("version", "gemm")
    if version != "gemm" or packed.config.method not in ("", "awq"):
        raise ValueError(say("dequantize_fault.awq_version", version=version))
    _require_int32(packed, "qzeros")
    _require_dtype(packed, "scales", SCALES)
    if zeros.shape != (groups, outputs // 8):
        raise ValueError(_misfit(packed, "qzeros", (groups, outputs // 8)))
    inputs = packed_weight.shape[0]
    group_of = _group_index(packed, "", inputs, groups)

    def opened() -> Rows:
        words, groups_of_inputs = packed_weight.load(), group_of()
        zero = _awq_columns(zeros.load()).T.astype(np.float32)
        scale = scales.load().astype(np.float32).T

        def rows(first: int, last: int) -> Array:
            start = first // 8
            values = _awq_columns(words[:, start : ceil(last / 8)])[:, first - 8 * start : last - 8 * start]
            made = values.T.astype(np.float32) - zero[first:last, groups_of_inputs]
            return np.asarray(made * scale[first:last, groups_of_inputs])

        return rows

    return Unpacked("weight", (outputs, inputs), inputs, opened, ("qzeros", "scales"))


def unpack_bitsandbytes_4bit(packed: Packed) -> Unpacked | None:
    """nf4 and fp4: quant_map[value] * absmax of its block, the upper half of a byte first, whatever dtype holds it.

    Source: bitsandbytes, `functional.py` (QuantState.from_dict, dequantize_4bit): the shape and sizes of blocks stand
    in JSON beside it; absmax may be quantized itself: nested_quant_map[absmax] * nested_absmax + nested_offset.
    """
    name, beside = packed.attribute, packed.beside
    absmax, table = beside.get(f"{name}.absmax"), beside.get(f"{name}.quant_map")
    states = [key for key in beside if key.startswith(f"{name}.quant_state.bitsandbytes__")]
    if absmax is None or table is None or len(states) != 1:
        raise ValueError(say("dequantize_fault.no_state"))
    state = _QuantState.read(beside[states[0]])
    count = prod(state.shape)
    if (
        packed.tensor.nbytes != ceil(count / 2)
        or table.shape != (16,)
        or prod(absmax.shape) != ceil(count / state.block)
    ):
        raise ValueError(say("dequantize_fault.state_misfit", shape=str(state.shape), block=state.block))
    nested = [beside.get(f"{name}.{part}") for part in ("nested_absmax", "nested_quant_map")]
    if absmax.dtype == "uint8" and (None in nested or not state.nested_block):
        raise ValueError(say("dequantize_fault.no_state"))

    def opened() -> Rows:
        data, values, step = (
            packed.tensor.load().reshape(-1).view(np.uint8),
            table.load().astype(np.float32),
            state.block,
        )
        largest = absmax.load().reshape(-1)
        if absmax.dtype == "uint8":
            inner, inner_map = (one.load().astype(np.float32) for one in nested if one is not None)
            largest = inner_map[largest] * inner[np.arange(largest.size) // state.nested_block] + np.float32(
                state.offset
            )
        largest = largest.astype(np.float32)

        def rows(first: int, last: int) -> Array:
            halves = _halves(data[first * step // 2 : ceil(min(last * step, count) / 2)])[:, ::-1].reshape(-1)
            made = values[halves][: min(last * step, count) - first * step]
            return np.asarray(made * np.repeat(largest[first:last], step)[: made.size])

        return rows

    used = tuple(key for key in beside if key.startswith(f"{name}."))
    return Unpacked(name, state.shape, state.block, opened, used)


def unpack_compressed(packed: Packed) -> Unpacked | None:
    """pack-quantized of compressed-tensors: (value - 2^(bits-1) - zero point) * scale of its row or group.

    Source: compressed-tensors, `pack_quantized` (unpack_from_int32, decompress): values lie bit behind bit in int32,
    zero points likewise along the rows; `weight_shape` is the true shape, `weight_g_idx` the group of each column.
    """
    stem = packed.attribute.removesuffix("_packed")
    names = [f"{stem}_{part}" for part in ("scale", "shape", "zero_point", "g_idx")]
    scale, shape, zero = (packed.beside.get(name) for name in names[:3])
    if packed.tensor.dtype != "int32" or scale is None or shape is None:
        return None
    _require_dtype(packed, names[0], SCALES)
    _require_dtype(packed, names[1], INDICES)
    true_shape = tuple(int(one) for one in shape.load().reshape(-1)) if prod(shape.shape) == 2 else ()
    if not true_shape or min(true_shape) < 1 or packed.tensor.shape[:1] != true_shape[:1] or len(scale.shape) != 2:
        raise ValueError(_misfit(packed, names[1], packed.tensor.shape))
    (rows_count, columns), groups = true_shape, scale.shape[1]
    bits = _bits_of(packed, columns)
    blocks = _axis_blocks(packed, names[0], true_shape)
    if zero is not None and zero.shape != (ceil(rows_count * bits / 32), groups):
        raise ValueError(_misfit(packed, names[2], (ceil(rows_count * bits / 32), groups)))
    group_of = _group_index(packed, names[3], columns, groups) if names[3] in packed.beside else None

    def opened() -> Rows:
        words, scales, index = packed.tensor.load(), scale.load().astype(np.float32), group_of() if group_of else None
        middle = np.float32(1 << (bits - 1))
        zeros = None if zero is None else unpacked_bits(zero.load().T, bits, rows_count).T.astype(np.float32) - middle

        def rows(first: int, last: int) -> Array:
            made = unpacked_bits(words[first:last], bits, columns).astype(np.float32) - middle
            if zeros is not None:
                made -= _spread(zeros, true_shape, blocks, first, last, index)
            return np.asarray(made * _spread(scales, true_shape, blocks, first, last, index))

        return rows

    return Unpacked(stem, true_shape, columns, opened, tuple(names))


def unpack_fp4(packed: Packed) -> Unpacked | None:
    """nvfp4 and mxfp4 of compressed-tensors: FP4 values, the lower half of a byte first, * scale of their group.

    Source: compressed-tensors, `nvfp4` and `mxfp4` (decompress): groups of 16 have float8 scales, which are divided by
    the global scale; groups of 32 have powers of two.
    """
    stem = packed.attribute.removesuffix("_packed")
    names = [f"{stem}_scale", f"{stem}_global_scale"]
    scale, whole = (packed.beside.get(name) for name in names)
    if packed.tensor.dtype != "uint8" or scale is None or len(packed.tensor.shape) != 2:
        return None
    shape = (packed.tensor.shape[0], 2 * packed.tensor.shape[1])
    size = 16 if scale.dtype in FLOAT8 else 32
    _require_dtype(packed, names[0], FLOAT8 if whole is not None else frozenset({"uint8"}))
    if scale.shape != (shape[0], shape[1] // size) or (whole is not None and prod(whole.shape) != 1):
        raise ValueError(_misfit(packed, names[0], (shape[0], shape[1] // size)))

    def opened() -> Rows:
        data, scales = packed.tensor.load(), _scales(scale, shape)
        if whole is not None:
            scales = scales / whole.load().astype(np.float32).reshape(())

        def rows(first: int, last: int) -> Array:
            values = E2M1[_halves(data[first:last])].reshape(last - first, -1)
            return np.asarray(values * np.repeat(scales[first:last], size, 1))

        return rows

    return Unpacked(stem, shape, shape[1], opened, tuple(names))


def unpack_mxfp4_experts(packed: Packed) -> Unpacked | None:
    """MXFP4 of gpt-oss: blocks (experts, outputs, groups, 16) of FP4 values -> (experts, inputs, outputs).

    Source: transformers, `integrations/mxfp4.py` (convert_moe_packed_tensors): the lower half of a byte first, times
    2^(scale - 127), then the last two axes are exchanged.
    """
    stem = packed.attribute.removesuffix("_blocks")
    scale = packed.beside.get(f"{stem}_scales")
    if packed.tensor.dtype != "uint8" or scale is None or len(packed.tensor.shape) != 4:
        return None
    experts, outputs, groups, size = packed.tensor.shape
    _require_dtype(packed, f"{stem}_scales", frozenset({"uint8"}))
    if scale.shape != packed.tensor.shape[:3] or size != 16:
        raise ValueError(_misfit(packed, f"{stem}_scales", packed.tensor.shape[:3]))
    inputs = 2 * size * groups

    def opened() -> Rows:
        data, powers = packed.tensor.load(), scale.load()

        def rows(first: int, last: int) -> Array:
            expert, place = np.divmod(np.arange(first, last), inputs)
            group, inside = np.divmod(place, 2 * size)
            both = data[expert, :, group, inside // 2]
            values = E2M1[np.where((inside % 2 == 0)[:, None], both & 15, both >> 4)]
            return np.asarray(values * _power(powers[expert, :, group]))

        return rows

    return Unpacked(stem, (experts, inputs, outputs), outputs, opened, (f"{stem}_scales",))


FORMS: Mapping[str, Sequence[QuantizedForm]] = {
    "scaled": (
        QuantizedForm(
            "float8",
            frozenset({"fp8", "fbgemm_fp8", "compressed-tensors", "deepseek"}),
            partial(unpack_scaled, dtypes=FLOAT8),
        ),
    ),
    "whole_numbers": (
        QuantizedForm("bitsandbytes int8", frozenset({"bitsandbytes"}), unpack_bitsandbytes_int8),
        QuantizedForm("int8", frozenset({"compressed-tensors"}), partial(unpack_scaled, dtypes=WHOLE)),
    ),
    "gptq_awq": (
        QuantizedForm("GPTQ", frozenset({"gptq"}), unpack_gptq),
        QuantizedForm("AWQ", frozenset({"awq"}), unpack_awq),
    ),
    "bitsandbytes": (QuantizedForm("bitsandbytes 4-bit", frozenset({"bitsandbytes"}), unpack_bitsandbytes_4bit),),
    "packed": (
        QuantizedForm("pack-quantized", frozenset({"compressed-tensors"}), unpack_compressed),
        QuantizedForm("FP4", frozenset({"compressed-tensors"}), unpack_fp4),
        QuantizedForm("MXFP4", frozenset({"mxfp4"}), unpack_mxfp4_experts),
    ),
}  # by the ids of mappings/stored_weights.toml


def unpacked_bits(words: Array, bits: int, count: int) -> Array:
    """The first `count` values along the last axis, of `bits` bits each, that lie bit behind bit in 32-bit numbers.

    >>> unpacked_bits(np.array([[0x76543210]], np.int32), 4, 8).tolist()
    [[0, 1, 2, 3, 4, 5, 6, 7]]
    """
    data = np.ascontiguousarray(words).view(np.uint8)
    if 8 % bits == 0:
        split = (data[..., None] >> np.arange(0, 8, bits, dtype=np.uint8)) & ((1 << bits) - 1)
        return np.asarray(split.reshape(*data.shape[:-1], -1)[..., :count])
    single = np.unpackbits(data, axis=-1, bitorder="little")[..., : count * bits]
    return np.asarray(single.reshape(*data.shape[:-1], count, bits) @ (1 << np.arange(bits, dtype=np.uint8)))


def _halves(data: Array) -> Array:
    """Both halves of each byte, the lower one first, along a new last axis."""
    return np.stack([data & 15, data >> 4], -1)


def _awq_columns(words: Array) -> Array:
    values = unpacked_bits(words, 4, 8 * words.shape[1]).reshape(words.shape[0], -1, 8)
    return np.asarray(values[..., AWQ_PLACES].reshape(words.shape[0], -1))


def _power(exponents: Array) -> Array:
    return np.ldexp(np.float32(1), exponents.astype(np.int32) - E8M0_BIAS)


def _scales(scale: StoredTensor, shape: Shape) -> Array:
    """A scale in float32, with as many axes as the weight."""
    value = scale.load()
    value = _power(value) if scale.dtype == "uint8" else value.astype(np.float32)
    return (
        value.reshape(*scale.shape, *[1] * (len(shape) - value.ndim))
        if value.size > 1
        else value.reshape([1] * len(shape))
    )


def _spread(
    scales: Array, shape: Shape, blocks: Sequence[int], first: int, last: int, columns: Array | None = None
) -> Array:
    """The scales of rows first to last, one for each element, or one column where they are equal in each row."""
    if not shape:
        return scales.reshape(1, 1)
    rows = np.unravel_index(np.arange(first, last), shape[:-1]) if len(shape) > 1 else ()
    chosen = scales[tuple(row // block for row, block in zip(rows, blocks, strict=False))]
    chosen = chosen.reshape(last - first, -1)
    if chosen.shape[1] == 1:
        return np.asarray(chosen)
    return np.asarray(chosen[:, np.arange(shape[-1]) // blocks[-1] if columns is None else columns])


def _axis_blocks(packed: Packed, name: str, shape: Shape, *, exact: bool = False) -> list[int]:
    """How many elements of each axis a scale covers; `exact` where the scale's name says 128.

    Raises ValueError where none fits, or several would and nothing beside the file decides.
    """
    scale = packed.beside[name]
    sizes = (*scale.shape, *[1] * (len(shape) - len(scale.shape))) if prod(scale.shape) > 1 else (1,) * len(shape)
    if len(sizes) > len(shape):
        raise ValueError(_misfit(packed, name, shape))
    sizes_of_blocks = []
    for axis, (length, number) in enumerate(zip(shape, sizes, strict=True)):
        said = packed.config.blocks(axis - len(shape)) if axis >= len(shape) - 2 else set()
        fitting = _fitting_blocks(length, number, said, usual={USUAL_BLOCK} if exact else set())
        if len(fitting) != 1:
            fault = "dequantize_fault.several_blocks" if fitting else "dequantize_fault.no_block"
            facts = {"scale": name, "scale_shape": str(scale.shape), "shape": str(shape), "blocks": sorted(fitting)}
            raise ValueError(say(fault, **facts))
        sizes_of_blocks.append(fitting.pop())
    return sizes_of_blocks


def _fitting_blocks(length: int, number: int, said: set[int], usual: set[int]) -> set[int]:
    if number in (1, length):
        return {max(length // max(number, 1), 1)}
    for known in (said, usual):
        if fitting := {size for size in known if ceil(length / size) == number}:
            return fitting
    divided = {length // number} if length % number == 0 else set()
    return divided | ({USUAL_BLOCK} if ceil(length / USUAL_BLOCK) == number else set())


def _bits_of(packed: Packed, columns: int) -> int:
    said = {bits for scheme in packed.config.schemes() if type(bits := scheme.get("num_bits")) is int}
    fitting = [bits for bits in range(1, 9) if ceil(columns * bits / 32) == packed.tensor.shape[-1]]
    chosen = [bits for bits in fitting if bits in said] or (fitting if not said else [])
    if len(chosen) != 1:
        raise ValueError(say("dequantize_fault.bits", shape=str(packed.tensor.shape), zeros=f"{columns} columns"))
    return chosen[0]


def _group_index(packed: Packed, name: str, inputs: int, groups: int) -> Callable[[], Array]:
    """What returns the group of each input: as `g_idx` says, else one group after the other."""
    given = packed.beside.get(name)
    if given is None:
        size = _quotient(inputs, groups) or packed.config.table.get("group_size", 0)
        if type(size) is not int or size < 1 or ceil(inputs / size) != groups:
            raise ValueError(say("dequantize_fault.groups", inputs=inputs, groups=groups))
        return lambda: np.arange(inputs) // size
    _require_dtype(packed, name, INDICES)
    index = given.load()
    if index.shape != (inputs,) or index.min() < 0 or index.max() >= groups:
        raise ValueError(say("dequantize_fault.group_index", name=name, inputs=inputs, groups=groups))
    return lambda: index


@dataclass(frozen=True, slots=True)
class _QuantState:
    """What bitsandbytes writes as JSON beside a weight of 4 bits."""

    shape: Shape
    block: int
    nested_block: int
    offset: float

    @classmethod
    def read(cls, stored: StoredTensor) -> _QuantState:
        """Raises ValueError for what is no such text."""
        if stored.nbytes > LONGEST_QUANT_STATE or stored.dtype != "uint8":
            raise ValueError(say("dequantize_fault.no_state"))
        table = parse_json(stored.load().tobytes())
        table = table if isinstance(table, dict) else {}
        shape, offset = table.get("shape"), table.get("nested_offset", 0.0)
        block, nested = (_size(table.get(key, 0)) for key in ("blocksize", "nested_blocksize"))
        sizes = tuple(_size(one) for one in shape) if isinstance(shape, list) else ()
        if not sizes or min(sizes) < 1 or not block or block % 2 or type(offset) not in (int, float):
            raise ValueError(say("dequantize_fault.no_state"))
        return cls(sizes, block, nested, float(offset))


def _size(found: object) -> int:
    """A whole number above 0, or 0 for what is none."""
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0


def _first(packed: Packed, *names: str) -> str | None:
    return next((name for name in names if name in packed.beside), None)


def _quotient(number: int, divisor: int) -> int:
    """The quotient of whole numbers, 0 where there is none."""
    return number // divisor if divisor and number % divisor == 0 else 0


def _require_dtype(packed: Packed, name: str, dtypes: Iterable[str]) -> None:
    found = packed.beside[name].dtype
    if found not in dtypes:
        raise ValueError(say("dequantize_fault.dtype", name=name, dtype=found, known=sorted(dtypes)))


def _require_int32(packed: Packed, name: str) -> None:
    for found in (packed.tensor, packed.beside[name]):
        if found.dtype != "int32" or len(found.shape) != 2:
            raise ValueError(say("dequantize_fault.dtype", name=found.name, dtype=found.dtype, known=["int32"]))


def _misfit(packed: Packed, name: str, wanted: Shape) -> str:
    facts = {"shape": str(packed.beside[name].shape), "wanted": str(wanted)}
    return say("dequantize_fault.misfit", name=name, **facts)
