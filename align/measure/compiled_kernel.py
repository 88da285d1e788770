"""The figures of a comparison in one compiled loop: by definition those of `NumpyKernel`, four times as fast.

The loop comes as code of LLVM and is loaded by llvmlite alone: a twentieth of a second and 60 MB, where numba takes
a third of a second and 115 MB. What is not finite, and all dtypes but floats, are left to NumPy.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import math
from typing import TYPE_CHECKING, Any, no_type_check

import numba
import numpy as np
from numba import types
from numba.extending import register_jitable

from align.measure.measure_arrays import DECADES, LOWEST_DECADE, NumpyKernel
from align.measure.thresholds import SHARED_BLOCK, TILE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.core.dtypes import Array
    from align.measure.measure_arrays import RunningSums


AS_FLOAT32 = {"float16", "bfloat16", "float32"}
BOUNDS = 10.0 ** np.arange(LOWEST_DECADE, LOWEST_DECADE + DECADES)
POINTER = ctypes.c_void_p
PROTOTYPE = ctypes.CFUNCTYPE(
    ctypes.c_int32, POINTER, POINTER, POINTER, POINTER, ctypes.c_int64, POINTER, POINTER, POINTER, POINTER
)


class CompiledLoops:
    """The compiled loops by dtype, from what `compile_loop` gives.

    Raises ImportError without llvmlite, and RuntimeError or AttributeError if this llvmlite cannot load them.
    """

    def __init__(self, code: Mapping[str, Sequence[str]]) -> None:
        llvm: Any = importlib.import_module("llvmlite.binding")
        with contextlib.suppress(RuntimeError):  # newer ones do it themselves, and say so
            llvm.initialize()
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        host = {"cpu": llvm.get_host_cpu_name(), "features": llvm.get_host_cpu_features().flatten(), "opt": 3}
        self._engines = []  # the code lives as long as they do
        self.by_dtype = {}
        for dtype, (name, text) in code.items():
            machine = llvm.Target.from_default_triple().create_target_machine(**host)
            engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
            engine.finalize_object()
            self._engines.append(engine)
            self.by_dtype[dtype] = PROTOTYPE(engine.get_function_address(name))


class CompiledKernel(NumpyKernel):
    """Adds floats by the compiled loops, half precision after widening it to float32; all else as NumpyKernel does."""

    def __init__(self, loops: CompiledLoops, block: int = SHARED_BLOCK) -> None:
        super().__init__(block)
        self._loops = loops

    def _add_equal(self, sums: RunningSums, values: Array) -> bool:
        """Leave floats to the loop, which is as fast for equal values."""
        return values.dtype.kind in "iub" and super()._add_equal(sums, values)

    def _add_block(self, sums: RunningSums, left: Array, right: Array, start: int) -> None:
        pair = self._as_floats(left, right)
        done = self._add_floats(sums, *pair, start) if pair else 0
        if done < left.size:
            super()._add_block(sums, left[done:], right[done:], start + done)

    def _as_floats(self, left: Array, right: Array) -> tuple[Array, Array] | None:
        """Both sides in one dtype that there is a loop for; None where NumPy has to do."""
        names = {left.dtype.name, right.dtype.name}
        if names <= AS_FLOAT32:
            return _as_float32(left, self._x), _as_float32(right, self._y)
        return (left, right) if names == {"float64"} and left.flags.aligned and right.flags.aligned else None

    def _add_floats(self, sums: RunningSums, x: Array, y: Array, start: int) -> int:
        """Add the tiles that are finite; return how many elements that were."""
        figures, counts = np.zeros(8), np.zeros(2 + DECADES, np.int64)
        figures[6] = sums.max_rel or 0.0
        memory = self._difference if self.block >= TILE else np.empty(TILE)
        arrays = (figures, counts, BOUNDS, memory)
        unused = self._scratch.ctypes.data
        self._loops.by_dtype[x.dtype.name](
            unused, unused, x.ctypes.data, y.ctypes.data, x.size, *(array.ctypes.data for array in arrays)
        )
        done = int(counts[0])
        sums.count += done
        sums.finite += done
        sums.absolute += float(figures[0])
        sums.square += float(figures[1])
        sums.reference_square += float(figures[2])
        sums.candidate_square += float(figures[3])
        sums.product += float(figures[4])
        if figures[5] > 0.0:
            sums.add_largest(float(figures[5]), start + int(counts[1]))
        if figures[7] > 0.0:
            sums.reference_max = max(sums.reference_max, float(figures[7]))
            sums.add_relative(float(figures[6]))
        sums.decades += counts[2:]
        sums.mismatched += int(counts[2:].sum())
        return done


def _as_float32(values: Array, memory: Array) -> Array:
    """The values themselves, or copied and widened into the given memory."""
    if values.dtype == np.float32 and values.flags.aligned:
        return values
    out: Array = memory.view(np.float32)[: values.size]
    out[:] = values
    return out


# The loop that computes all figures of two float arrays at once, compiled by numba to LLVM's language.
#
# What made it six times faster: tiles that fit the cache, no more freedom for the compiler than to reorder and
# contract sums (NaN and Inf keep their meaning), the largest values found as integers of the same order, and a
# division only where it could give the largest quotient so far. A tile whose sum is not finite ends the loop. It
# works on pointers, without numba's own memory, so that the code needs nothing of numba when it is loaded again.


def compile_loop() -> dict[str, list[str]]:
    """Return the name and the code of the loop for this processor, by dtype; takes one to two seconds.

    The function takes two pointers of numba's own, which it does not use, then the arguments of `_add_tiles`. Raises
    RuntimeError if this numba cannot compile it.
    """
    compiled: dict[str, list[str]] = {}
    for kind in (types.float32, types.float64):
        values, figures, counts = types.CPointer(kind), types.CPointer(types.float64), types.CPointer(types.int64)
        signature = types.void(values, values, types.int64, figures, counts, figures, figures)
        try:
            loop: Any = numba.njit(
                signature,
                error_model="numpy",
                fastmath={"reassoc", "contract"},
                no_cpython_wrapper=True,
                no_cfunc_wrapper=True,
                _nrt=False,
            )(_add_tiles)
        except numba.core.errors.NumbaError as error:
            raise RuntimeError(str(error)) from error
        (result,) = loop.overloads.values()
        compiled[str(kind)] = [result.fndesc.llvm_func_name, loop.inspect_llvm(result.signature.args)]
    return compiled


@no_type_check  # the types are numba's
def _add_tiles(reference, candidate, size, figures, counts, bounds, memory):  # noqa: PLR0913 - a compiled function
    """Add whole tiles until one is not finite.

    `figures`: sums of |d|, d^2, x^2, y^2, xy, then the largest |d|, |d|/|x| and |x| so far. `counts`: how many
    elements were added, the index of the largest |d|, and the 32 decades, whose lower `bounds` are given.
    """
    for start in range(0, size, TILE):
        tile = min(TILE, size - start)
        top, exceeding, moved = _add_sums(reference, candidate, start, tile, figures, memory)
        if moved < 0:
            return
        counts[0] += tile
        if top > figures[5]:
            figures[5] = top
            counts[1] = start + _place_of(top, memory, tile)
        if exceeding:
            figures[6] = max(figures[6], _largest_quotient(reference, start, tile, memory))
        _count_decades(counts, bounds, memory, tile, (top, moved))


@register_jitable
@no_type_check
def _add_sums(reference, candidate, start, tile, figures, memory):
    """Add the sums of a tile, unless it is not finite, and keep its |d| in memory.

    Return the largest |d|, how many |d|/|x| are above the largest so far, and how many d are not 0, -1 for a tile that
    is not finite.
    """
    absolute = square = xx = yy = xy = 0.0
    largest = scale = 0
    exceeding = moved = 0
    bound = figures[6]
    for i in range(tile):
        x, y = np.float64(reference[start + i]), np.float64(candidate[start + i])
        d, m = abs(y - x), abs(x)
        memory[i] = d
        absolute += d
        square += d * d
        xx += x * x
        yy += y * y
        xy += x * y
        largest = max(largest, np.float64(d).view(np.int64))
        scale = max(scale, np.float64(m).view(np.int64))
        exceeding += (d > bound * m) & (m > 0.0)
        moved += d > 0.0
    if not math.isfinite(absolute):
        return 0.0, 0, -1
    figures[0] += absolute
    figures[1] += square
    figures[2] += xx
    figures[3] += yy
    figures[4] += xy
    figures[7] = max(figures[7], np.int64(scale).view(np.float64))
    return np.int64(largest).view(np.float64), exceeding, moved


@register_jitable
@no_type_check
def _place_of(top, memory, tile):
    """The first place of a value that is there."""
    place = 0
    while place < tile - 1 and memory[place] != top:
        place += 1
    return place


@register_jitable
@no_type_check
def _largest_quotient(reference, start, tile, memory):
    """The largest |d|/|x| of a tile, where x is not 0."""
    found = 0.0
    for i in range(tile):
        m = abs(np.float64(reference[start + i]))
        if m > 0.0:
            found = max(found, memory[i] / m)
    return found


@register_jitable
@no_type_check
def _count_decades(counts, bounds, memory, tile, top_and_moved):
    """Count the |d| of each decade, from that of the largest down, until all that are not 0 are counted."""
    top, moved = top_and_moved
    power = 31
    while power > 0 and top < bounds[power]:
        power -= 1
    counted = 0
    while power > 0 and counted < moved:
        above = 0
        for i in range(tile):
            above += memory[i] >= bounds[power]
        counts[2 + power] += above - counted
        counted = above
        power -= 1
    counts[2] += moved - counted
