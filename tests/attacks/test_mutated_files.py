"""Sound files of every format, changed at random: the short form of `make fuzz`, the same at every run."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import hypothesis.strategies as st
import pytest

from align.checkpoints.open_checkpoint import open_checkpoint
from align.core.load_code import checkpoint_formats

if TYPE_CHECKING:
    from types import ModuleType


def load_fuzzer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz_readers", Path(__file__).with_name("fuzz_readers.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz_readers"] = module
    spec.loader.exec_module(module)
    return module


FUZZER = load_fuzzer()
WRITTEN, FOLDERS = FUZZER.written_targets(), FUZZER.folder_targets()
INTERESTING = st.sampled_from([b"\0", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\xff", b"\xff" * 8, b"\0" * 8, b"9" * 5])


@st.composite
def mutations(draw, seeds):
    """A seed with a few places replaced, repeated, removed or cut off."""
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, max(len(data) - 1, 0)))
        length = draw(st.integers(0, 8))
        what = draw(st.sampled_from(["replace", "insert", "remove", "repeat", "cut"]))
        new = draw(st.one_of(INTERESTING, st.binary(max_size=8)))
        if what == "replace":
            data[start : start + len(new)] = new
        elif what == "insert":
            data[start:start] = new
        elif what == "remove":
            del data[start : start + length]
        elif what == "repeat":
            data[start:start] = data[start : start + 4 * length]
        else:
            del data[start:]
    return bytes(data)


def check_attacked(target, folder) -> None:
    @hypothesis.settings(max_examples=50, deadline=None, derandomize=True, database=None)
    @hypothesis.given(mutations(target.seeds))
    def check(data) -> None:
        target.check(target.place(folder, data))

    check()


@pytest.mark.parametrize("name", WRITTEN)
def test_a_changed_file_is_refused_or_stays_inside_itself(name, tmp_path) -> None:
    check_attacked(WRITTEN[name], tmp_path)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_changed_file_of_a_folder_is_refused_or_stays_inside_itself(name, tmp_path) -> None:
    check_attacked(FOLDERS[name], tmp_path)


@pytest.mark.parametrize("name", WRITTEN)
def test_the_seeds_are_sound_files(name, tmp_path) -> None:
    for seed in WRITTEN[name].seeds[:1]:
        assert open_checkpoint(WRITTEN[name].place(tmp_path, seed)).tensors


@pytest.mark.frameworks
def test_a_changed_file_of_a_framework_is_refused_or_stays_inside_itself(tmp_path) -> None:
    targets = FUZZER.framework_targets()
    assert checkpoint_formats().keys() <= WRITTEN.keys() | targets.keys()
    for target in targets.values():
        check_attacked(target, tmp_path)


def test_the_check_finds_a_tensor_outside_its_file(tmp_path) -> None:
    from align.checkpoints.extents import mapped
    from align.core.parameters import Extent, StoredTensor

    (tmp_path / "file").write_bytes(bytes(100))
    extent = Extent(tmp_path / "file", 96, 8)
    with pytest.raises(AssertionError):
        FUZZER.check_tensor(StoredTensor("w", (2,), "float32", mapped(extent, (2,), "float32"), extent))
