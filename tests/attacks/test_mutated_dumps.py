"""Sound dumps of other tools, changed at random, byte by byte and value by value: refused, or read as what they are."""

from __future__ import annotations

import copy
import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import hypothesis.strategies as st
import pytest

if TYPE_CHECKING:
    from types import ModuleType


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


FUZZER, MUTATED = load("fuzz_readers"), load("test_mutated_files")
TARGETS = FUZZER.dump_targets()
OF_JSON = {name: target for name, target in TARGETS.items() if target.name.endswith(".json")}
ODD = st.sampled_from([
    None, True, -1, 0, 10**30, 1e308, float("nan"), [], [[]], [None], {}, [2**62, 2**62],
    "", "x", "层", "../../etc/passwd", "/etc/passwd", "\0", "t.npy", "tensor(nan)",
    {"type": "torch.Tensor"}, {"shape": [1], "dtype": "torch.float32", "type": "x"},
])  # fmt: skip
SETTINGS = {"deadline": None, "derandomize": True, "database": None}


@st.composite
def changed_documents(draw: Any, document: Any) -> Any:
    """The document with some of its values, at any depth, in another's place."""
    changed = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        holder = changed
        while True:
            keys = list(holder) if isinstance(holder, dict) else range(len(holder))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(holder[key], (dict, list)) and holder[key] and draw(st.booleans()):
                holder = holder[key]
                continue
            holder[key] = copy.deepcopy(draw(ODD))
            break
    return changed


@pytest.mark.parametrize("name", TARGETS)
def test_changed_bytes_are_refused_or_read(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]

    @hypothesis.settings(max_examples=40, **SETTINGS)
    @hypothesis.given(MUTATED.mutations(target.seeds))
    def check(data: bytes) -> None:
        target.check(target.place(tmp_path, data))

    check()


@pytest.mark.parametrize("name", OF_JSON)
def test_changed_values_are_refused_or_read(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]

    @hypothesis.settings(max_examples=60, **SETTINGS)
    @hypothesis.given(changed_documents(json.loads(target.seeds[0])))
    def check(document: Any) -> None:
        target.check(target.place(tmp_path, json.dumps(document).encode()))

    check()


@pytest.mark.parametrize("name", TARGETS)
def test_the_seeds_are_sound_dumps(name: str, tmp_path: Path) -> None:
    from align.traces.dumped_side import read_dump

    path = TARGETS[name].place(tmp_path, TARGETS[name].seeds[0])
    assert read_dump(path if path.suffix not in (".npy", ".csv") else tmp_path).tensors
