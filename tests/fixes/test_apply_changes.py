"""Changes are made whole or not at all, and undone byte for byte."""

from __future__ import annotations

import contextlib
import itertools
import os
import py_compile
import shutil
import stat
from pathlib import Path

import pytest

from align.errors import CannotRunError
from align.fixes import plan_changes as apply_changes_module
from align.fixes.plan_changes import (
    FileChange,
    FilePlace,
    apply_changes,
    begin_backup,
    last_backup,
    put_back,
    refuse_edited,
    replace_file,
)

OLD = {"port.py": b"eps = 1e-3\r\n", "layers/norm.py": b"# coding: latin-1\nname = '\xe9'\n"}
NEW = {"port.py": b"eps = 1e-5\r\n", "layers/norm.py": b"# coding: latin-1\nname = '\xe8'\n"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with two files of source, one of which is executable."""
    for name, content in OLD.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (tmp_path / "project" / "port.py").chmod(0o750)
    return tmp_path / "project"


def changes_of(project: Path, contents: dict[str, bytes] = NEW) -> list[FileChange]:
    return [
        FileChange(FilePlace(project / name, project / name, project), OLD[name], content)
        for name, content in contents.items()
    ]


def of_package(project: Path) -> FileChange:
    """A change of a module in an installed package, which is to be copied."""
    unit, copy = project.parent / "site-packages" / "norms", project / "run" / "overlay" / "norms"
    unit.mkdir(parents=True)
    (unit / "__init__.py").write_bytes(b"eps = 1\n")
    (unit / "data.bin").write_bytes(b"\0\1")
    place = FilePlace(unit / "__init__.py", copy / "__init__.py", copy.parent, "norms", unit, copy)
    return FileChange(place, b"eps = 1\n", b"eps = 2\n")


def contents(project: Path) -> dict[str, bytes]:
    return {name: (project / name).read_bytes() for name in OLD}


def strays(project: Path) -> list[str]:
    return [path.name for path in project.rglob("*") if path.name.endswith(".part") or path.name == ".copying"]


def test_all_files_change_with_their_modes_and_are_put_back_byte_for_byte(project: Path) -> None:
    run = project / "run"
    apply_changes([*changes_of(project), of_package(project)], run, run / "overlay")
    assert contents(project) == NEW
    assert stat.S_IMODE((project / "port.py").stat().st_mode) == 0o750
    assert (run / "overlay" / "norms" / "__init__.py").read_bytes() == b"eps = 2\n"
    assert (run / "overlay" / "norms" / "data.bin").read_bytes() == b"\0\1"
    assert (project.parent / "site-packages" / "norms" / "__init__.py").read_bytes() == b"eps = 1\n"
    backup = last_backup(run, run / "overlay")
    refuse_edited(backup)
    put_back(backup)
    assert contents(project) == OLD
    assert stat.S_IMODE((project / "port.py").stat().st_mode) == 0o750
    assert [path.name for path in run.iterdir()] == []
    assert strays(project) == []


def test_nothing_changes_if_a_later_step_fails(project: Path) -> None:
    change = of_package(project)
    (project / "run").mkdir()
    (project / "run" / "overlay").write_text("a file where the folder should be")
    with pytest.raises(CannotRunError, match="could not be written"):
        apply_changes([*changes_of(project), change], project / "run", project / "run" / "overlay")
    assert contents(project) == OLD
    assert not (project / "run" / "fix").exists()
    assert strays(project) == []


def test_a_run_folder_that_cannot_be_written_keeps_all_and_leaves_nothing(project: Path) -> None:
    (project / "run").write_bytes(b"a file")
    with pytest.raises(CannotRunError, match="run"):
        apply_changes(changes_of(project), project / "run", project / "overlay")
    assert contents(project) == OLD
    assert (project / "run").read_bytes() == b"a file"


def test_a_file_that_cannot_be_changed_keeps_all_others_as_they_are(project: Path) -> None:
    locked, edited = project / "port.py", project / "layers" / "norm.py"
    locked.chmod(0o440)
    with pytest.raises(CannotRunError, match=r"may not be written: \S*port.py"):
        apply_changes(changes_of(project), project / "run", project / "overlay")
    locked.chmod(0o640)
    edited.write_bytes(b"mine\n")
    with pytest.raises(CannotRunError, match=r"changed while the fix was planned: \S*norm.py"):
        apply_changes(changes_of(project), project / "run", project / "overlay")
    edited.write_bytes(OLD["layers/norm.py"])
    with pytest.raises(CannotRunError, match="would not compile"):
        apply_changes(changes_of(project, {**NEW, "port.py": b"eps = (\n"}), project / "run", project / "overlay")
    assert contents(project) == OLD
    assert not (project / "run").exists()


def test_a_file_that_was_edited_since_stops_the_undo_before_anything_is_put_back(project: Path) -> None:
    run = project / "run"
    apply_changes(changes_of(project), run, run / "overlay")
    (project / "port.py").write_bytes(b"eps = 7\n")
    with pytest.raises(CannotRunError) as raised:
        refuse_edited(last_backup(run, run / "overlay"))
    assert str(project / "port.py") in raised.value.message
    assert str(project / "layers") not in raised.value.message
    assert "fix/1" in raised.value.hint
    assert contents(project) == {**NEW, "port.py": b"eps = 7\n"}


def test_a_copy_that_was_edited_since_stops_the_undo_and_what_python_compiled_does_not(project: Path) -> None:
    run = project / "run"
    apply_changes([of_package(project)], run, run / "overlay")
    module = run / "overlay" / "norms" / "__init__.py"
    py_compile.compile(str(module))
    refuse_edited(last_backup(run, run / "overlay"))
    module.write_bytes(b"eps = 3\n")
    with pytest.raises(CannotRunError, match="norms"):
        refuse_edited(last_backup(run, run / "overlay"))


def test_a_fix_that_was_killed_in_its_middle_is_undone(project: Path) -> None:
    run, files = project / "run", changes_of(project)
    begin_backup(
        run, run / "overlay", [(one.place.file, one.before, one.after) for one in files], [run / "overlay/norms"]
    )
    (project / "port.py").write_bytes(NEW["port.py"])
    (run / "overlay" / "norms").mkdir(parents=True)
    backup = last_backup(run, run / "overlay")
    refuse_edited(backup)
    put_back(backup)
    assert contents(project) == OLD
    assert not (run / "overlay").exists()


def test_fixes_are_undone_from_the_last_to_the_first(project: Path) -> None:
    run, file = project / "run", project / "port.py"
    steps = [OLD["port.py"], NEW["port.py"], b"eps = 1e-6\r\n"]
    for before, after in itertools.pairwise(steps):
        apply_changes([FileChange(FilePlace(file, file, project), before, after)], run, run / "overlay")
    for before in (steps[1], steps[0]):
        put_back(last_backup(run, run / "overlay"))
        assert file.read_bytes() == before
    with pytest.raises(CannotRunError, match="keeps nothing of an earlier fix"):
        last_backup(run, run / "overlay")


def test_a_link_stays_one_and_its_file_is_changed(project: Path) -> None:
    link = project / "link.py"
    link.symlink_to("port.py")
    place = FilePlace(link.resolve(), link.resolve(), project)
    apply_changes([FileChange(place, OLD["port.py"], NEW["port.py"])], project / "run", project / "overlay")
    assert link.is_symlink()
    assert (project / "port.py").read_bytes() == NEW["port.py"]


def test_python_runs_the_new_content_even_if_size_and_second_are_those_of_the_old(project: Path) -> None:
    file = project / "port.py"
    compiled = Path(py_compile.compile(str(file)) or "")
    assert compiled.is_file()
    os.utime(file, (1, 1))
    apply_changes(changes_of(project), project / "run", project / "overlay")
    assert not compiled.exists()


def test_a_copy_that_is_there_already_is_never_overwritten(project: Path) -> None:
    change, run = of_package(project), project / "run"
    apply_changes([change], run, run / "overlay")
    with pytest.raises(CannotRunError, match="a changed copy exists") as raised:
        apply_changes([change], run, run / "overlay")
    assert "PYTHONPATH" in raised.value.hint


class Killed(BaseException):
    """In the place of a signal that nothing catches."""


STEPS = ("mkdir", "write_bytes", "rename", "replace", "unlink")  # of pathlib, which change something


def killed_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the step of this number, and all behind it, raise Killed."""
    count = itertools.count()

    def dying(does):
        def wrapped(*arguments, **options):
            if next(count) >= step:
                raise Killed
            return does(*arguments, **options)

        return wrapped

    for name in STEPS:
        monkeypatch.setattr(Path, name, dying(getattr(Path, name)))
    monkeypatch.setattr(shutil, "rmtree", dying(shutil.rmtree))


def undone(run: Path) -> str:
    """Undo until there is nothing more to undo; what was said at last."""
    try:
        backup = last_backup(run, run / "overlay")
    except CannotRunError as error:
        return undone(run) if "before it changed anything" in str(error) else str(error)
    refuse_edited(backup)
    put_back(backup)
    return undone(run)


@pytest.mark.parametrize("step", range(0, 40, 2))
def test_whatever_step_a_fix_or_its_undoing_is_killed_at_all_is_put_back(
    step: int, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = project / "run"
    for work in (lambda: apply_changes(changes_of(project), run, run / "overlay"), lambda: undone(run)):
        with monkeypatch.context() as patch, contextlib.suppress(Killed):
            killed_at(step, patch)
            work()
    assert "keeps nothing of an earlier fix" in undone(run)
    assert contents(project) == OLD
    assert not [path for path in run.rglob("*") if path.is_file()]
    assert strays(project) == []


def test_a_file_that_is_edited_while_another_is_written_keeps_what_was_written_there(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replace_and_edit(path: Path, content: bytes) -> None:
        replace_file(path, content)
        (project / "layers" / "norm.py").write_bytes(b"mine\n")

    monkeypatch.setattr(apply_changes_module, "replace_file", replace_and_edit)
    with pytest.raises(CannotRunError, match=r"changed while the fix was planned: \S*norm.py"):
        apply_changes(changes_of(project), project / "run", project / "run" / "overlay")
    assert contents(project) == {**OLD, "layers/norm.py": b"mine\n"}
    assert not (project / "run" / "fix").exists()


def test_what_is_edited_since_is_never_overwritten_and_its_old_content_stays(project: Path) -> None:
    run = project / "run"
    backup = apply_changes(changes_of(project), run, run / "overlay")
    (project / "port.py").write_bytes(b"mine\n")
    assert put_back(backup) == [str(project / "port.py")]
    assert contents(project) == {**OLD, "port.py": b"mine\n"}
    assert (backup.folder / "1_port.py").read_bytes() == OLD["port.py"]
