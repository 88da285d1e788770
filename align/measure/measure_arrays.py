"""All figures of two arrays, with NumPy alone: one pass, in blocks that stay in the cache.

Values are widened before they are subtracted; integers are subtracted without wrap-around; NaN and Inf are counted
first and kept out of the sums. All temporaries live in the kernel and are used again: a kernel belongs to one thread.
Blocks are large for the sake of threads, which hand the interpreter lock on at every operation. What was found so far
are sums that merge: whoever adds, and in whatever order, the figures are the same but for the rounding of float64
additions; of equal largest differences the first in C order counts.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib
import importlib.util
import json
import math
import os
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread, local
from typing import TYPE_CHECKING, Any, no_type_check

import numpy as np

from align.core.atomic_files import write_text
from align.core.operating_system import user_number
from align.core.traces import Measurement
from align.errors import DestinationError
from align.measure.thresholds import LONGEST_DOT, MEASURED_BLOCK, PEEKED_ELEMENTS, SHARED_BLOCK, TILE, WORTH_LOADING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from align.core.parameters import Array

DECADES = 32  # format: the field `decades` of documents
LOWEST_DECADE = -16  # format: the field `decades` of documents


def measure(reference: Array, candidate: Array) -> Measurement:
    """Compare two arrays of one shape and any dtypes, element by element.

    Raises ValueError if the shapes differ: nothing is ever broadcast. Temporary memory is about a megabyte unless an
    array is not contiguous, which is then copied.
    """
    if reference.shape != candidate.shape:
        msg = f"shapes differ: {reference.shape} and {candidate.shape}"
        raise ValueError(msg)
    sums = RunningSums()
    make = _make_kernel.get()
    kernel = _threads.kernel if make is None or reference.size < MEASURED_BLOCK else make()
    kernel.add(sums, reference.ravel(), candidate.ravel())
    return sums.result(reference.shape)


_make_kernel: ContextVar[Callable[[], NumpyKernel] | None] = ContextVar("make_kernel", default=None)


@contextmanager
def measured_by(make: Callable[[], NumpyKernel]) -> Iterator[None]:
    """Have `measure` take larger arrays with the kernels that `make` gives, for as long as the block runs."""
    token = _make_kernel.set(make)
    try:
        yield
    finally:
        _make_kernel.reset(token)


class NumpyKernel:
    """Adds pairs of flat, contiguous arrays of any dtypes to sums; memory for `block` elements, some 25 bytes each."""

    def __init__(self, block: int = MEASURED_BLOCK) -> None:
        self.block = block
        self._x, self._y, self._difference, self._scratch = np.empty((4, block))
        self._flags = np.empty(block, np.bool_)

    def add(self, sums: RunningSums, left: Array, right: Array, start: int = 0) -> None:
        """Add all pairs of `left` (the reference) and `right`; `start` is the flat index of their first element."""
        step = self.block // 2 if "c" in (left.dtype.kind, right.dtype.kind) else self.block
        with np.errstate(all="ignore"):
            for begin in range(0, left.size, step):
                ours, theirs = left[begin : begin + step], right[begin : begin + step]
                same = same_bits(ours, theirs)
                sums.identical &= same
                if not (same and self._add_equal(sums, ours)):
                    self._add_block(sums, ours, theirs, start + begin)

    def _add_equal(self, sums: RunningSums, values: Array) -> bool:
        """Add a block that is the same on both sides; False, and nothing added, if it holds NaN or Inf."""
        x = _widened(values, self._x)
        square = _dot(x, x)
        if not math.isfinite(square):
            return False
        sums.count += x.size
        sums.finite += x.size
        sums.reference_square += square
        sums.candidate_square += square
        sums.product += square
        if largest := self._largest(x):
            sums.reference_max = max(sums.reference_max, largest)
            sums.add_relative(0.0)
        return True

    def _add_block(self, sums: RunningSums, left: Array, right: Array, start: int) -> None:
        x, y = _widened(left, self._x), _widened(right, self._y)
        difference = self._absolute_difference(left, right, x, y)
        total = float(difference.sum())
        finite = x.size
        if not math.isfinite(total):  # so if either side has NaN or Inf anywhere
            finite = _take_out_non_finite(sums, x, y, difference)
            total = float(difference.sum())
        sums.count += x.size
        sums.finite += finite
        self._add_differences(sums, difference, total, start)
        self._add_magnitudes(sums, x, y, difference)

    def _absolute_difference(self, left: Array, right: Array, x: Array, y: Array) -> NDArray[np.float64]:
        """|left - right| as float64, where x and y are both widened; integers are subtracted exactly first."""
        out: NDArray[np.float64] = self._difference[: x.size]
        if left.dtype.kind in "iu" and right.dtype.kind in "iu":
            out[:] = _integer_difference(left, right)
        elif "c" in x.dtype.kind + y.dtype.kind:
            np.abs(y - x, out=out)
        else:
            np.subtract(y, x, out=out)
            np.abs(out, out=out)
        return out

    def _add_differences(self, sums: RunningSums, difference: NDArray[np.float64], total: float, start: int) -> None:
        worst = int(difference.argmax())
        largest = float(difference[worst])
        if largest == 0.0:
            return
        sums.add_largest(largest, start + worst)
        sums.absolute += total
        sums.square += _dot(difference, difference)
        self._add_decades(sums, difference, largest)

    def _add_decades(self, sums: RunningSums, difference: NDArray[np.float64], largest: float) -> None:
        """Count from the largest down: a few comparisons of all elements cost less than one logarithm of each."""
        flags = self._flags[: difference.size]
        moved, counted = int(np.count_nonzero(np.greater(difference, 0.0, out=flags))), 0
        sums.mismatched += moved
        for power in range(decade(largest), 0, -1):
            above = int(np.count_nonzero(np.greater_equal(difference, 10.0 ** (power + LOWEST_DECADE), out=flags)))
            sums.decades[power] += above - counted
            counted = above
            if counted == moved:
                return
        sums.decades[0] += moved - counted

    def _add_magnitudes(self, sums: RunningSums, x: Array, y: Array, difference: NDArray[np.float64]) -> None:
        sums.reference_square += _dot(x, x)
        sums.candidate_square += _dot(y, y)
        sums.product += _dot(x, y)
        largest = self._largest(x)
        if largest == 0.0:
            return
        sums.reference_max = max(sums.reference_max, largest)
        size = self._scratch[: x.size]  # where `_largest` has left |x|
        relative = np.divide(difference, size, out=self._y[: x.size])
        worst = float(relative[relative.argmax()])
        if not math.isfinite(worst):  # a reference of zero somewhere
            some = size > 0.0
            worst = float((difference[some] / size[some]).max())
        sums.add_relative(worst)

    def _largest(self, x: Array) -> float:
        """The largest |x|; leaves them all in the scratch memory."""
        size = np.abs(x, out=self._scratch[: x.size])
        return float(size[size.argmax()])


class _Threads(local):  # a kernel for each thread: to get the memory of one for every array takes long
    def __init__(self) -> None:
        self.kernel = NumpyKernel()


_threads = _Threads()


def same_bits(left: Array, right: Array) -> bool:
    """Tell whether all bits of two flat arrays are equal; most unlike ones show it in their first elements."""
    if left.dtype != right.dtype or left[:PEEKED_ELEMENTS].tobytes() != right[:PEEKED_ELEMENTS].tobytes():
        return False
    raw = f"u{min(left.itemsize, 8)}"
    return bool(np.array_equal(left.view(raw), right.view(raw)))


def _widened(values: Array, memory: NDArray[np.float64]) -> Array:
    """The values as float64 or complex128 in the given memory."""
    out: Array = memory.view(np.complex128) if values.dtype.kind == "c" else memory
    out = out[: values.size]
    out[:] = values
    return out


def _dot(x: Array, y: Array) -> float:
    """Real part of the sum of x times conjugate y, in pieces that wake no threads."""
    if x.dtype != y.dtype:
        x, y = x.real, y.real  # a real number times a complex one
    elif x.dtype.kind == "c":
        x, y = x.view(np.float64), y.view(np.float64)
    whole = x.size - x.size % LONGEST_DOT
    total = float(np.dot(x[whole:], y[whole:]))
    if whole:
        total += float(np.matmul(x[:whole].reshape(-1, 1, LONGEST_DOT), y[:whole].reshape(-1, LONGEST_DOT, 1)).sum())
    return total


def _take_out_non_finite(sums: RunningSums, x: Array, y: Array, difference: NDArray[np.float64]) -> int:
    """Count NaN and Inf, set such pairs to 0 in place, and return how many pairs are left."""
    both = np.isfinite(x) & np.isfinite(y)
    for side, values in enumerate((x, y)):
        nan = np.isnan(values)
        sums.nan[side] += int(nan.sum())
        sums.inf[side] += int((np.isinf(values) & ~nan).sum())
    alike = (np.isnan(x) & np.isnan(y)) | (x == y)
    unlike = int((~both & ~alike).sum())
    sums.non_finite_mismatch += unlike
    sums.mismatched += unlike
    for values in (x, y, difference):
        values[~both] = 0.0
    return int(both.sum())


def _integer_difference(left: Array, right: Array) -> NDArray[np.float64]:
    """Larger minus smaller modulo 2^64, which is exact."""
    if left.dtype != right.dtype:
        common = np.promote_types(left.dtype, right.dtype)
        if common.kind == "f":  # uint64 and a signed dtype: no integer dtype holds both
            signed, unsigned = (left, right) if left.dtype.kind == "i" else (right, left)
            below_zero = -np.minimum(signed, 0).astype(np.float64)
            return _integer_difference(np.maximum(signed, 0).astype(np.uint64), unsigned) + below_zero
        left, right = left.astype(common), right.astype(common)
    high, low = np.maximum(left, right), np.minimum(left, right)
    exact: NDArray[np.float64] = (high.astype(np.uint64) - low.astype(np.uint64)).astype(np.float64)
    return exact


@dataclass(slots=True)
class RunningSums:
    """Sums over the elements seen; those of differences and magnitudes are over finite pairs only.

    `worst` is the flat index of `max_abs`. `identical` says whether all that was seen is equal bit for bit.
    """

    count: int = 0
    finite: int = 0
    max_abs: float = 0.0
    worst: int = 0
    max_rel: float | None = None
    absolute: float = 0.0
    square: float = 0.0
    reference_square: float = 0.0
    candidate_square: float = 0.0
    product: float = 0.0
    reference_max: float = 0.0
    nan: list[int] = field(default_factory=lambda: [0, 0])
    inf: list[int] = field(default_factory=lambda: [0, 0])
    non_finite_mismatch: int = 0
    mismatched: int = 0
    decades: NDArray[np.int64] = field(default_factory=lambda: np.zeros(DECADES, dtype=np.int64))
    identical: bool = True

    def merge(self, other: RunningSums) -> None:
        """Take in what another pass has found in other elements."""
        if other.max_abs > 0.0:
            self.add_largest(other.max_abs, other.worst)
        if other.max_rel is not None:
            self.add_relative(other.max_rel)
        self.reference_max = max(self.reference_max, other.reference_max)
        self.nan = [ours + theirs for ours, theirs in zip(self.nan, other.nan, strict=True)]
        self.inf = [ours + theirs for ours, theirs in zip(self.inf, other.inf, strict=True)]
        self.decades += other.decades
        self.identical &= other.identical
        for name in _ADDED:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def add_largest(self, difference: float, index: int) -> None:
        """Note a block's largest difference and its flat index."""
        if (difference, -index) > (self.max_abs, -self.worst):
            self.max_abs, self.worst = difference, index

    def add_relative(self, largest: float) -> None:
        """Note a block's largest relative difference."""
        self.max_rel = max(self.max_rel or 0.0, largest)

    def result(self, shape: tuple[int, ...]) -> Measurement:
        """Return the figures of arrays of this shape."""
        reference_norm, norm = math.sqrt(self.reference_square), math.sqrt(self.candidate_square)
        cosine = _quotient(self.product, reference_norm * norm)
        number = max(self.finite, 1)
        return Measurement(
            count=self.count,
            max_abs=self.max_abs,
            max_rel=self.max_rel,
            mean_abs=self.absolute / number,
            rmse=math.sqrt(self.square / number),
            relative_l2=_quotient(math.sqrt(self.square), reference_norm),
            cosine=None if cosine is None else max(-1.0, min(1.0, cosine)),
            reference_max=self.reference_max,
            reference_rms=math.sqrt(self.reference_square / number),
            nan_reference=self.nan[0],
            nan_candidate=self.nan[1],
            inf_reference=self.inf[0],
            inf_candidate=self.inf[1],
            non_finite_mismatch=self.non_finite_mismatch,
            mismatched=self.mismatched,
            worst=tuple(int(i) for i in np.unravel_index(self.worst, shape)) if self.max_abs > 0 else (),
            decades=tuple(int(n) for n in self.decades),
        )


_ADDED = (
    "count", "finite", "absolute", "square", "reference_square", "candidate_square", "product", "non_finite_mismatch",
    "mismatched",
)  # fmt: skip


def decade(value: float) -> int:
    """Bin of a positive difference; of infinity, the last one."""
    bin_number = math.floor(math.log10(value)) - LOWEST_DECADE if math.isfinite(value) else DECADES
    return min(max(bin_number, 0), DECADES - 1)


def _quotient(dividend: float, divisor: float) -> float | None:
    """None where it is undefined: by zero, or of sums that float64 values beyond 1e154 have made infinite."""
    quotient = dividend / divisor if divisor > 0 else math.nan
    return quotient if math.isfinite(quotient) else None


# Which kernel measures: NumPy's, which is there at once, or the compiled one, which has to be loaded.
#
# It is loaded in a thread while NumPy begins, and takes over when it is ready. numba compiles it once for each user
# and processor, which takes a second or two; the code is kept in the user's cache folder. Where there is no numba, or
# no such folder, NumPy does it all. `ALIGN_KERNEL=numpy` or `fused` decides for tests and benchmarks.


Code = dict[str, list[str]]
VARIABLE = "ALIGN_KERNEL"
UNFIT = (ImportError, AttributeError, RuntimeError, OSError, TypeError, ValueError, LookupError, DestinationError)


class Kernels:
    """The fastest kernel that is ready, for a comparison of so many bytes of both sides together."""

    def __init__(self, nbytes: int) -> None:
        self._loops: CompiledLoops | None = None
        chosen = os.environ.get(VARIABLE, "")
        if chosen == "numpy" or importlib.util.find_spec("numba") is None:
            return
        if chosen == "fused":
            self._loops = load_loops()
        elif nbytes >= WORTH_LOADING:
            Thread(target=self._load, name="align-kernel").start()

    @property
    def fused(self) -> bool:
        """Whether the compiled kernel is ready."""
        return self._loops is not None

    def make(self) -> NumpyKernel:
        """Return a kernel of one's own, for blocks that several threads share."""
        return NumpyKernel(SHARED_BLOCK) if self._loops is None else CompiledKernel(self._loops, SHARED_BLOCK)

    def _load(self) -> None:
        with contextlib.suppress(*UNFIT):
            self._loops = load_loops()


def load_loops() -> CompiledLoops:
    """Load the compiled loops from the user's cache, after compiling them if need be.

    Raises one of UNFIT where numba or llvmlite is absent or of an unfit version, or the cache cannot be written.
    """
    path = _cache_file()
    if path not in _loaded:
        _loaded[path] = CompiledLoops(_kept(path) or _compiled(path))
    return _loaded[path]


_loaded: dict[Path, CompiledLoops] = {}  # by the file that they come from: a process that compares again has them


def _kept(path: Path) -> Code | None:
    """The code that an earlier run compiled; None if there is none that only this user can have written."""
    try:
        state = path.stat()
        if state.st_uid != user_number() or state.st_mode & 0o022:
            return None
        code = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return code if isinstance(code, dict) else None


def _compiled(path: Path) -> Code:
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(path.parent)  # a second for each run would be too much
    code = compile_loop()
    write_text(path, json.dumps(code))
    path.chmod(0o600)
    return code


def _cache_file() -> Path:
    """The file for this loop, this compiler and this processor; its folder is made."""
    llvm = importlib.import_module("llvmlite.binding")
    source = Path(__file__).read_bytes()
    host = f"{llvm.llvm_version_info} {llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"
    key = hashlib.sha256(source + host.encode()).hexdigest()[:16]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mindalign"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / f"fused-{key}.json"


# The figures of a comparison in one compiled loop: by definition those of `NumpyKernel`, four times as fast.


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
    """Adds floats by the compiled loops, the narrower of two dtypes widened; all else as NumpyKernel does."""

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
        if not names <= AS_FLOAT32 | {"float64"}:
            return None
        dtype = np.float64 if "float64" in names else np.float32
        return _as_floats_of(dtype, left, self._x), _as_floats_of(dtype, right, self._y)

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


def _as_floats_of(dtype: type[np.floating[Any]], values: Array, memory: Array) -> Array:
    """The values themselves, or copied and widened into the given memory."""
    if values.dtype == dtype and values.flags.aligned:
        return values
    memory.view(dtype)[: values.size] = values
    return memory.view(dtype)[: values.size]


# The loop that computes all figures of two float arrays at once, compiled by numba to LLVM's language.
#
# What made it six times faster: tiles that fit the cache, no more freedom for the compiler than to reorder and contract
# sums (NaN and Inf keep their meaning), the largest values found as integers of the same order, and a division only
# where it could give the largest quotient so far. A tile whose sum is not finite ends the loop. It works on pointers,
# without numba's own memory, so that the code needs nothing of numba when it is loaded again.


def compile_loop() -> dict[str, list[str]]:
    """Return the name and the code of the loop for this processor, by dtype; takes one to two seconds.

    The function takes two pointers of numba's own, which it does not use, then the arguments of `_add_tiles`. Raises
    RuntimeError if this numba cannot compile it.
    """
    import numba
    from numba import types
    from numba.extending import register_jitable

    for part in (_add_sums, _place_of, _largest_quotient, _count_decades):
        register_jitable(part)
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


@no_type_check
def _place_of(top, memory, tile):
    """The first place of a value that is there."""
    place = 0
    while place < tile - 1 and memory[place] != top:
        place += 1
    return place


@no_type_check
def _largest_quotient(reference, start, tile, memory):
    """The largest |d|/|x| of a tile, where x is not 0."""
    largest = 0.0
    for i in range(tile):
        m = abs(np.float64(reference[start + i]))
        if m > 0.0:
            largest = max(largest, memory[i] / m)
    return largest


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
