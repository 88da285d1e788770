"""Which kernel measures: NumPy's, which is there at once, or the compiled one, which has to be loaded.

It is loaded in a thread while NumPy begins, and takes over when it is ready. numba compiles it once for each user and
processor, which takes a second or two; the code is kept in the user's cache folder. Where there is no numba, or no
such folder, NumPy does it all. `ALIGN_KERNEL=numpy` or `fused` decides for tests and benchmarks.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import json
import os
import threading
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from align.core.atomic_files import write_text
from align.errors import DestinationError
from align.measure.measure_arrays import NumpyKernel
from align.measure.thresholds import SHARED_BLOCK, WORTH_LOADING

if TYPE_CHECKING:
    from align.measure.compiled_kernel import CompiledLoops

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
            threading.Thread(target=self._load, name="align-kernel").start()

    @property
    def fused(self) -> bool:
        """Whether the compiled kernel is ready."""
        return self._loops is not None

    def make(self) -> NumpyKernel:
        """Return a kernel of one's own, for blocks that several threads share."""
        if self._loops is None:
            return NumpyKernel(SHARED_BLOCK)
        from align.measure.compiled_kernel import CompiledKernel

        return CompiledKernel(self._loops, SHARED_BLOCK)

    def _load(self) -> None:
        with contextlib.suppress(*UNFIT):
            self._loops = load_loops()


def load_loops() -> CompiledLoops:
    """Load the compiled loops from the user's cache, after compiling them if need be.

    Raises one of UNFIT where numba or llvmlite is absent or of an unfit version, or the cache cannot be written.
    """
    from align.measure.compiled_kernel import CompiledLoops

    path = _cache_file()
    if path not in _loaded:
        _loaded[path] = CompiledLoops(_kept(path) or _compiled(path))
    return _loaded[path]


_loaded: dict[Path, CompiledLoops] = {}  # by the file that they come from: a process that compares again has them


def _kept(path: Path) -> Code | None:
    """The code that an earlier run compiled; None if there is none that only this user can have written."""
    try:
        state = path.stat()
        if state.st_uid != os.getuid() or state.st_mode & 0o022:
            return None
        code = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return code if isinstance(code, dict) else None


def _compiled(path: Path) -> Code:
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(path.parent)  # a second for each run would be too much
    from align.measure.compiled_loop import compile_loop

    code = compile_loop()
    write_text(path, json.dumps(code))
    path.chmod(0o600)
    return code


def _cache_file() -> Path:
    """The file for this loop, this compiler and this processor; its folder is made."""
    llvm = importlib.import_module("llvmlite.binding")
    source = resources.files("align.measure").joinpath("compiled_loop.py").read_bytes()
    host = f"{llvm.llvm_version_info} {llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"
    key = hashlib.sha256(source + host.encode()).hexdigest()[:16]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mindalign"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / f"fused-{key}.json"
