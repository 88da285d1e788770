"""Configurations that are made from files of an installed package, with mmengine's rule."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from align.errors import UnreadableSettingsError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package as mmengine's are installed, which may not be imported."""
    folder = tmp_path / "site" / "mmtried"
    (folder / ".mim" / "configs" / "_base_").mkdir(parents=True)
    (folder / "configs").mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (folder / ".mim" / "configs" / "_base_" / "schedule.py").write_text("optim = dict(lr=0.1, momentum=0.9)\n")
    (folder / "configs" / "schedule.py").write_text("optim = dict(lr=0.3)\nmax_epochs = 12\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    return folder


@pytest.mark.parametrize("base", ["mmtried::_base_/schedule.py", "mmtried::_base_/schedule"])
def test_a_base_in_an_installed_package_is_read(settings: Any, package: Path, base: str) -> None:
    text = f"_base_ = ['{base}']\noptim = dict(lr=0.2)\n"
    assert settings.read("a.py", text) == {"optim.lr": 0.2, "optim.momentum": 0.9}
    assert settings.places("a.py", text)["optim.momentum"].endswith("mmtried/.mim/configs/_base_/schedule.py:1")


def test_a_base_that_python_imports_from_a_package_is_read(settings: Any, package: Path) -> None:
    text = "with read_base():\n    from mmtried.configs.schedule import *\noptim.update(lr=0.2)\n"
    assert settings.read("a.py", text) == {"optim.lr": 0.2, "max_epochs": 12}


def test_yaml_may_name_such_a_base(settings: Any, package: Path) -> None:
    (package / ".mim" / "configs" / "_base_" / "data.yaml").write_text("batch: 4\nseed: 1\n")
    assert settings.read("a.yaml", "_base_: mmtried::_base_/data.yaml\nseed: 2\n") == {"batch": 4, "seed": 2}


@pytest.mark.parametrize(
    "text",
    ["_base_ = 'mmabsent::a/b.py'\nlr = 1\n", "with read_base():\n    from mmabsent.configs.a import *\nlr = 1\n"],
)
def test_a_package_that_is_not_installed_is_said(settings: Any, text: str) -> None:
    with pytest.raises(UnreadableSettingsError, match="the package mmabsent, which is not installed here") as caught:
        settings.read("a.py", text)
    assert "install mmabsent here" in caught.value.hint


@pytest.mark.parametrize("base", ["mmtried::_base_/none.py", "mmtried::../../none.py", "mmtried::"])
def test_a_base_that_the_package_lacks_is_said(settings: Any, package: Path, base: str) -> None:
    with pytest.raises(UnreadableSettingsError, match="does not exist"):
        settings.read("a.py", f"_base_ = '{base}'\nlr = 1\n")


@pytest.mark.parametrize("base", ["::a.py", "a b::c.py", "../mmtried::c.py", "__main__::c.py"])
def test_what_is_no_name_of_a_package_is_not_installed(settings: Any, base: str) -> None:
    with pytest.raises(UnreadableSettingsError, match="not installed here"):
        settings.read("a.py", f"_base_ = '{base}'\nlr = 1\n")


@pytest.mark.parametrize("base", ["5", "[1]", "[['a.py']]", "{'a': 1}"])
def test_a_base_that_is_no_path_is_said(settings: Any, base: str) -> None:
    with pytest.raises(UnreadableSettingsError, match="`_base_` does not name a path"):
        settings.read("a.py", f"_base_ = {base}\nlr = 1\n")


def test_a_base_that_is_missing_says_how_bases_are_named(settings: Any) -> None:
    with pytest.raises(UnreadableSettingsError, match="does not exist") as caught:
        settings.read("a.py", "_base_ = 'none.py'\nlr = 1\n")
    assert "relative to the file" in caught.value.hint
