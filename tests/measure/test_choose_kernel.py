"""The compiled kernel is used where it can be had and is worth it; where not, nothing changes but the time."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from align.measure.measure_arrays import CompiledKernel, Kernels, NumpyKernel, load_loops
from align.measure.thresholds import WORTH_LOADING

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the compiled code, empty; no kernel is asked for."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("ALIGN_KERNEL", raising=False)
    return tmp_path / "mindalign"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the cache with the compiled code, made once: to compile takes seconds."""
    folder = tmp_path_factory.mktemp("compiled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        load_loops()
    return folder / "mindalign"


@pytest.fixture
def kept(cache: Path, compiled: Path) -> Path:
    """The file of the compiled code in the cache of this test."""
    shutil.copytree(compiled, cache)
    (kept,) = cache.iterdir()
    return kept


def wait_for_threads() -> None:
    for thread in threading.enumerate():
        if thread.name == "align-kernel":
            thread.join()


def test_little_work_is_numpys_and_nothing_is_compiled_for_it(cache: Path) -> None:
    chosen = Kernels(WORTH_LOADING - 1)
    wait_for_threads()
    assert type(chosen.make()) is NumpyKernel
    assert not cache.exists()


def test_without_numba_numpy_does_it_all(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    chosen = Kernels(1 << 40)
    wait_for_threads()
    assert type(chosen.make()) is NumpyKernel


def test_a_numba_that_is_broken_is_like_none(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    with pytest.raises(ImportError):
        load_loops()
    chosen = Kernels(1 << 40)
    wait_for_threads()
    assert type(chosen.make()) is NumpyKernel


def test_numpy_can_be_demanded(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALIGN_KERNEL", "numpy")
    chosen = Kernels(1 << 40)
    wait_for_threads()
    assert type(chosen.make()) is NumpyKernel


@pytest.mark.frameworks
def test_much_work_begins_with_numpy_and_goes_on_with_the_compiled_kernel(kept: Path) -> None:
    chosen = Kernels(WORTH_LOADING)
    wait_for_threads()
    assert chosen.fused
    assert type(chosen.make()) is CompiledKernel


@pytest.mark.frameworks
def test_code_is_compiled_once_and_kept_for_this_user_alone(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kept.stat().st_mode & 0o777 == 0o600
    monkeypatch.setitem(sys.modules, "numba", None)  # so that compiling would fail
    assert set(load_loops().by_dtype) == {"float32", "float64"}


@pytest.mark.frameworks
@pytest.mark.parametrize("damage", ["", "{", "[1]"])
def test_code_that_is_damaged_is_compiled_anew(kept: Path, damage: str) -> None:
    kept.write_text(damage)
    load_loops()
    assert len(kept.read_text()) > 1000


@pytest.mark.frameworks
def test_code_that_others_could_have_written_is_not_run(kept: Path) -> None:
    kept.write_text(kept.read_text().replace("ret i32", "RET"))
    kept.chmod(0o666)
    load_loops()
    assert "ret i32" in kept.read_text()


@pytest.mark.frameworks
def test_a_cache_that_cannot_be_written_leaves_it_to_numpy_and_nothing_is_compiled(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(PermissionError):
        load_loops()
    cache.rmdir()
    cache.write_text("a file where the folder should be")
    chosen = Kernels(1 << 40)
    wait_for_threads()
    assert type(chosen.make()) is NumpyKernel


def test_the_modules_of_the_kernel_that_is_always_there_import_no_compiler() -> None:
    code = "import sys, align.convert.diff_checkpoints; print('numba' in sys.modules, 'llvmlite' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
