"""Which files may be changed, where a copy of a package goes, and what is refused with which reason."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

from align.fixes.plan_changes import OVERLAY_BYTES, FilePlace, copy_unit, place_of, remove_unit, too_large
from align.words.catalogue import Sentence


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Installed packages on the import path: a package, a module, a namespace package, and one with compiled code."""
    folder = tmp_path / "project" / "env" / "lib" / "site-packages"
    for name in ("fx_pack/__init__.py", "fx_pack/models/net.py", "fx_module.py", "fx_space/part/__init__.py"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(folder))
    for name in [name for name in sys.modules if name.startswith("fx_")]:
        monkeypatch.delitem(sys.modules, name)
    importlib.invalidate_caches()
    return folder


def place(path: Path, project: Path) -> FilePlace | Sentence:
    return place_of(path, project, project / "run" / "overlay")


@pytest.mark.parametrize(
    ("module", "file", "unit", "copy"),
    [
        ("fx_pack.models.net", "fx_pack/models/net.py", "fx_pack", "fx_pack"),
        ("fx_module", "fx_module.py", "fx_module.py", "fx_module.py"),
        ("fx_space.part", "fx_space/part/__init__.py", "fx_space/part", "fx_space/part"),
    ],
)
def test_an_installed_package_is_copied_even_if_its_environment_lies_in_the_project(
    installed: Path, tmp_path: Path, module: str, file: str, unit: str, copy: str
) -> None:
    importlib.import_module(module)
    found = place(installed / file, tmp_path / "project")
    overlay = tmp_path / "project" / "run" / "overlay"
    assert isinstance(found, FilePlace)
    assert (found.copied, found.copy) == (installed / unit, overlay / copy)
    assert found.name == file
    assert found.package


def test_a_file_of_the_project_is_changed_itself_and_one_behind_a_link_only_if_it_is_the_projects(
    tmp_path: Path,
) -> None:
    project, outside = tmp_path / "project", tmp_path / "elsewhere.py"
    (project / "src").mkdir(parents=True)
    outside.write_text("a = 1\n")
    (project / "src" / "net.py").write_text("a = 1\n")
    (project / "inside.py").symlink_to("src/net.py")
    (project / "away.py").symlink_to(outside)
    found = place(project / "inside.py", project)
    assert isinstance(found, FilePlace)
    assert (found.name, found.package, found.copied) == ("src/net.py", "", None)
    refused = place(project / "away.py", project)
    assert isinstance(refused, Sentence)
    assert refused.key == "fix_refused.outside"


def test_what_is_pythons_own_or_was_not_imported_by_name_is_refused(installed: Path, tmp_path: Path) -> None:
    own = place(Path(json.__file__), tmp_path / "project")
    assert isinstance(own, Sentence)
    assert own.key == "fix_refused.of_python"
    (installed / "loose.py").write_text("a = 1\n")
    loose = place(installed / "loose.py", tmp_path / "project")
    assert isinstance(loose, Sentence)
    assert loose.key == "fix_refused.no_package"


def test_a_file_of_a_copy_is_changed_in_the_copy(tmp_path: Path) -> None:
    project = tmp_path / "project"
    file = project / "run" / "overlay" / "fx_pack" / "net.py"
    file.parent.mkdir(parents=True)
    file.write_text("a = 1\n")
    found = place(file, project)
    assert isinstance(found, FilePlace)
    assert (found.destination, found.package, found.copied, found.name) == (file, "fx_pack", None, "fx_pack/net.py")


def test_a_copy_has_data_and_libraries_and_is_removed_with_them(installed: Path, tmp_path: Path) -> None:
    (installed / "fx_pack" / "config.json").write_text("{}")
    (installed / "fx_pack" / "__pycache__").mkdir()
    (installed / "fx_pack.libs").mkdir()
    (installed / "fx_pack.libs" / "libfx.so").write_bytes(b"\x7fELF")
    overlay = tmp_path / "overlay"
    copy_unit(installed / "fx_pack", overlay / "fx_pack")
    copied = {str(path.relative_to(overlay)) for path in overlay.rglob("*") if path.is_file()}
    assert copied == {"fx_pack/__init__.py", "fx_pack/models/net.py", "fx_pack/config.json", "fx_pack.libs/libfx.so"}
    remove_unit(overlay / "fx_pack", overlay)
    assert not overlay.exists()


def test_a_package_above_the_limit_is_refused_with_its_size(installed: Path) -> None:
    assert too_large(installed / "fx_pack") is None
    with (installed / "fx_pack" / "weights.bin").open("wb") as stream:
        stream.truncate(OVERLAY_BYTES + 1)
    refused = too_large(installed / "fx_pack")
    assert refused is not None
    assert "fx_pack has 256 MiB in 3 files" in refused
