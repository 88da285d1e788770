from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from align.core import load_code
from align.core.protocols import CheckpointFormat, ModelReader, ModelRunner
from align.curves.log_sources import LogFormat, log_formats
from align.errors import AlignError, FrameworkMissingError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PLUGIN = """
class Reader:
    name = {name!r}
    summary = "made up for a test"
    requires = {requires!r}

PLUGIN = Reader()
"""


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose modules are plugins of align.traces.foreign, beside those that are there."""
    import align.traces.foreign

    before = set(sys.modules)
    folder = tmp_path / "room"
    folder.mkdir()
    monkeypatch.setattr(align.traces.foreign, "__path__", [*align.traces.foreign.__path__, str(folder)])
    load_code.plugins.cache_clear()
    yield folder
    load_code.plugins.cache_clear()
    for name in set(sys.modules) - before:
        if name.startswith("align.traces.foreign."):
            del sys.modules[name]


@pytest.fixture
def broken_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package that is installed but fails at import."""
    (tmp_path / "package_that_breaks.py").write_text("raise ImportError('libcard.so not found')", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return "package_that_breaks"


def add_plugin(room: Path, module: str, name: str, requires: tuple[str, ...] = ()) -> None:
    (room / f"{module}.py").write_text(PLUGIN.format(name=name, requires=requires), encoding="utf-8")


def test_a_new_file_is_a_new_plugin_and_an_underscore_hides_it(room: Path) -> None:
    before = set(load_code.plugins("foreign"))
    add_plugin(room, "made_up", "made-up")
    (room / "_helper.py").write_text("raise SystemExit('imported')", encoding="utf-8")
    load_code.plugins.cache_clear()
    assert set(load_code.plugins("foreign")) - before == {"made-up"}


def test_two_plugins_of_one_name_are_refused(room: Path) -> None:
    add_plugin(room, "one_of_two", "twin")
    add_plugin(room, "two_of_two", "twin")
    with pytest.raises(AlignError, match=r"two plugins of align\.traces\.foreign are called 'twin'"):
        load_code.plugins("foreign")


def test_a_package_that_is_absent_is_told_from_one_that_is_broken(room: Path, broken_package: str) -> None:
    add_plugin(room, "wants_absent", "wants-absent", ("package_that_nobody_has",))
    add_plugin(room, "wants_broken", "wants-broken", (broken_package,))
    states = {state.plugin.name: state for state in load_code.plugin_states(try_import=True)}
    absent, broken = states["wants-absent"], states["wants-broken"]
    assert (absent.missing, absent.broken) == (("package_that_nobody_has",), {})
    assert (broken.missing, broken.broken) == ((), {broken_package: "ImportError: libcard.so not found"})
    assert not absent.usable
    assert not broken.usable


def test_needing_an_absent_package_says_how_to_install_it(room: Path) -> None:
    add_plugin(room, "wants", "wants", ("package_that_nobody_has",))
    with pytest.raises(FrameworkMissingError, match="package_that_nobody_has is not installed") as caught:
        load_code.check_packages(load_code.plugins("foreign")["wants"])
    assert "pip install package_that_nobody_has" in caught.value.hint


def test_needing_a_broken_package_says_why_it_fails(room: Path, broken_package: str) -> None:
    add_plugin(room, "wants", "wants", (broken_package,))
    with pytest.raises(FrameworkMissingError, match=r"is installed but cannot be imported \(ImportError: libcard"):
        load_code.check_packages(load_code.plugins("foreign")["wants"])


def test_every_plugin_offers_what_its_room_is_for() -> None:
    assert all(isinstance(plugin, CheckpointFormat) for plugin in load_code.checkpoint_formats().values())
    assert all(isinstance(plugin, LogFormat) for plugin in log_formats().values())
    readers = load_code.model_readers()
    assert all(isinstance(plugin, ModelReader) for plugin in readers.values())
    assert {"torch", "mindspore", "arrays"} <= readers.keys()
    assert isinstance(readers["arrays"], ModelRunner)


def test_every_plugin_says_in_one_line_what_it_is() -> None:
    for state in load_code.plugin_states():
        assert state.plugin.summary.strip()
        assert "\n" not in state.plugin.summary
