"""Documents of users and of align's own, and logs, changed at random: the short form of `make fuzz`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
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
TARGETS = FUZZER.document_targets()


@pytest.mark.parametrize("name", TARGETS)
def test_a_changed_document_is_refused_or_read(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]

    @hypothesis.settings(max_examples=25, deadline=None, derandomize=True, database=None)
    @hypothesis.given(MUTATED.mutations(target.seeds))
    def check(data: bytes) -> None:
        target.check(target.place(tmp_path, data))

    check()


@pytest.mark.parametrize("name", [name for name in TARGETS if name != "log"])
def test_the_seeds_are_sound_documents(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from align.errors import AlignError

    target = TARGETS[name]
    monkeypatch.setattr(AlignError, "__init__", lambda *_: pytest.fail("a sound document is refused"))
    if name not in ("document, job.toml", "document, manifest"):  # whose files are not there
        target.check(target.place(tmp_path, target.seeds[0]))
