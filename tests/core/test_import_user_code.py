"""Files of packages, which import relatively, are modules of the packages around them; other files stand alone."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from align.core.load_code import import_user_code
from align.errors import UserCodeError
from align.models.user_code import load_function

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("marked", [True, False])
def test_relative_imports_lead_through_the_packages_around_a_file(folder: Path, marked: bool) -> None:
    name = f"pkg_{'marked' if marked else 'plain'}"
    write(
        folder,
        **{f"{name}__sub__m": "from . import near\nfrom ..far import FAR\ndef build(): return near.NEAR + FAR\n"},
    )
    write(folder, **{f"{name}__sub__near": "NEAR = 1\n", f"{name}__far": "from .deep import FAR\n"})
    write(folder, **{f"{name}__deep": "FAR = 2\n"})
    if marked:
        for part in ("", "sub/"):
            (folder / name / part / "__init__.py").write_text("", encoding="utf-8")
    assert load_function(f"{name}/sub/m.py:build")() == 3
    assert import_user_code(f"{name}/sub/m.py").__name__ == f"{name}.sub.m"


def test_two_packages_of_one_name_keep_their_own_parts(folder: Path) -> None:
    for side in ("original", "port"):
        write(folder / side, net__model="from .parts import NAME\ndef build(): return NAME\n")
        write(folder / side, net__parts=f"NAME = '{side}'\n", net____init__="")
        (folder / side / "net" / "__init__.py").write_text("", encoding="utf-8")
    made = [load_function(f"{side}/net/model.py:build")() for side in ("original", "port", "original")]
    assert made == ["original", "port", "original"]


def test_the_file_of_a_package_itself_imports_from_inside(folder: Path) -> None:
    write(folder, whole__inner="NAME = 'inner'\n")
    (folder / "whole" / "__init__.py").write_text("from .inner import NAME\ndef build(): return NAME\n", "utf-8")
    assert load_function("whole/__init__.py:build")() == "inner"


def test_a_file_without_relative_imports_runs_no_package_around_it(folder: Path) -> None:
    write(folder, heavy__alone="import beside\ndef build(): return beside.NAME\n", heavy__beside="NAME = 4\n")
    (folder / "heavy" / "__init__.py").write_text("raise RuntimeError('not to be run')\n", encoding="utf-8")
    assert load_function("heavy/alone.py:build")() == 4


def test_a_relative_import_that_leads_nowhere_says_how_to_name_the_side(folder: Path) -> None:
    write(folder, **{"a__v1.2__m": "from .gone import NAME\ndef build(): return NAME\n"})
    with pytest.raises(UserCodeError, match="relative import") as caught:
        load_function("a/v1.2/m.py:build")
    assert "dot in its name" in caught.value.hint
    write(folder, b__m="from .gone import NAME\ndef build(): return NAME\n")
    with pytest.raises(UserCodeError, match=r"No module named 'b\.gone'"):
        load_function("b/m.py:build")


def test_a_module_that_is_named_without_its_package_is_told_its_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, outer__lonely_port="from .near import NAME\ndef build(): return NAME\n", outer__near="NAME = 5\n")
    monkeypatch.chdir(folder / "outer")
    with pytest.raises(UserCodeError, match="relative import") as caught:
        load_function("lonely_port:build")
    assert "lonely_port.py:build" in caught.value.hint
    assert load_function("lonely_port.py:build")() == 5
