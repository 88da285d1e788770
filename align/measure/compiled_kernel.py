"""The figures of a comparison in one compiled loop: by definition those of `NumpyKernel`, four times as fast.

The loop comes as code of LLVM and is loaded by llvmlite alone: a twentieth of a second and 60 MB, where numba takes
a third of a second and 115 MB. What is not finite, and all dtypes but floats, are left to NumPy.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

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
