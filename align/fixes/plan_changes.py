"""The planned edits of a port as changes of files: where each is written, what is refused, and the patches."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import shutil
import stat
import sys
import sysconfig
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.metadata import packages_distributions
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from align.core.align_sequences import grouped
from align.core.atomic_files import sha256_of, write_text
from align.core.documents import TEXT_BY_NAME, Form, json_text, listed, read_json, table
from align.core.load_code import INSTALLED
from align.core.operating_system import flush_to_disk
from align.errors import CannotRunError
from align.fixes.fix_result import FixedPlace, RefusedChange, SourcePatch
from align.fixes.plan_edits import as_in_file, encoded, whole_text
from align.models.function_source import compiled
from align.words.catalogue import Sentence, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.fixes.fix_result import FixJob
    from align.fixes.plan_edits import PlannedEdits, SourceEdit

OVERLAY_BYTES: Final = 256 * 1024**2
"""A package that is larger is not copied: it holds weights or compiled code, and a copy of it would surprise.
Measured: transformers, the largest package of models here, has 59 MiB, mindone 48 MiB;
mindspore with its compiled code 2.5 GiB."""
OVERLAY_FILES: Final = 10_000
"""A package with more files is not copied: each is read, hashed and written.
Measured: transformers has 2,900 files; mindspore and torch, which nobody is to copy, 12,000 and more."""


@dataclass(frozen=True, slots=True)
class PlannedChanges:
    """The files that change, the places in them, and what is refused."""

    changes: tuple[FileChange, ...]
    places: tuple[FixedPlace, ...]
    refused: tuple[RefusedChange, ...]

    @property
    def patches(self) -> tuple[SourcePatch, ...]:
        """A patch for each folder that names in it start at: the project, and each package."""
        groups = grouped(((str(one.place.root), one.place.package), one) for one in _in_order(self.changes))
        return tuple(SourcePatch(*key, "".join(map(diff_of, own))) for key, own in groups.items())


def plan_changes(planned: PlannedEdits, job: FixJob) -> PlannedChanges:
    """Say of each edit where it is written; those of a file that may not be changed are refused, with the reason."""
    places = {path: _place(path, job) for path in planned.texts}
    refused = [RefusedChange(one.layers, one.cause, sentence(one.reason, **one.facts)) for one in planned.refused]
    fixed_places = []
    for edit in planned.edits:
        place = places[_path(edit, planned.texts)]
        if isinstance(place, Sentence):
            refused.append(RefusedChange(edit.layers, edit.cause, place))
        else:
            fixed_places.append(_fixed(edit, place))
    usable = {path: place for path, place in places.items() if not isinstance(place, Sentence)}
    changes = [_change(place, planned.texts[path]) for path, place in usable.items()]
    return PlannedChanges(tuple(changes), tuple(fixed_places), tuple(refused))


def diff_of(change: FileChange) -> str:
    """The change of a file as a diff."""
    return unified_diff(change.place.name, whole_text(change.before), whole_text(change.after))


def patch_files(planned: PlannedChanges, file: Path) -> dict[Path, bytes]:
    """The content of a patch file, each line in the encoding of the file that it is of.

    Each further folder that names start at has a file of its own, with the package in its name.
    """
    patches: dict[Path, bytes] = {}
    for number, patch in enumerate(planned.patches):
        changes = [
            one for one in planned.changes if (str(one.place.root), one.place.package) == (patch.root, patch.package)
        ]
        path = file if number == 0 else file.with_name(f"{file.stem}.{patch.package or number}{file.suffix}")
        patches[path] = b"".join(as_in_file(diff_of(one), one.before) for one in _in_order(changes))
    return patches or {file: b""}


def _in_order(changes: Iterable[FileChange]) -> list[FileChange]:
    return sorted(changes, key=lambda one: (one.place.package, one.place.name))


def _place(path: Path, job: FixJob) -> FilePlace | Sentence:
    place = place_of(path, job.root, job.overlay)
    if isinstance(place, Sentence) or place.copied is None:
        return place
    return too_large(place.copied) or place


def _path(edit: SourceEdit, texts: Mapping[Path, str]) -> Path:
    """The changed file that an edit is of: named from the current folder, or whole."""
    for path in texts:
        if str(path) == edit.file or path.resolve() == type(path)(edit.file).resolve():
            return path
    return next(path for path in texts if path.as_posix().endswith(edit.file))


def _fixed(edit: SourceEdit, place: FilePlace) -> FixedPlace:
    own = {name: getattr(edit, name) for name in ("line", "before", "after", "layers", "cause", "arguments")}
    return FixedPlace(place.name, str(place.root), place.package, **own)


def _change(place: FilePlace, text: str) -> FileChange:
    try:
        before = place.file.read_bytes()
        return FileChange(place, before, encoded(text, before))
    except (OSError, SyntaxError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error  # which names the file no second time
        raise CannotRunError.of("fix_usage.unreadable", name=place.file, reason=reason) from error


# The changes of a fix made: all files or none, with what was there before kept first.

PART = ".copying"  # the folder in the overlay in which a copy is made


@dataclass(frozen=True, slots=True)
class FileChange:
    """The old and new content of a file, and where it stands."""

    place: FilePlace
    before: bytes
    after: bytes


def apply_changes(changes: Sequence[FileChange], run: Path, overlay: Path) -> Backup:
    """Change all files, those of packages in a copy; put everything back if any step fails.

    Raises CannotRunError, and changes nothing, for a file that was edited since it was read, that is read-only, or
    whose new content Python would not compile. What is edited while others are written is left as it is then.
    """
    _check(changes)
    units = {change.place.copy: change.place.copied for change in changes if change.place.copy and change.place.copied}
    in_place = [
        (change.place.destination, change.before, change.after) for change in changes if change.place.copy is None
    ]
    backup = begin_backup(run, overlay, in_place, [*units])
    begun = 0
    try:
        for place, unit in units.items():
            _copy_changed(unit, place, [change for change in changes if change.place.copy == place], overlay)
        for path, before, after in in_place:
            if path.read_bytes() != before:
                raise CannotRunError.of("fix_usage.edited_meanwhile", names=[str(path)])
            begun += 1
            replace_file(path, after)
        copies = tuple(CopiedUnit(str(place), digest_of(place)) for place in units)
        backup = replace(backup, copies=copies)
        backup.write()
    except BaseException as error:
        put_back(replace(backup, files=backup.files[:begun]))
        if isinstance(error, (OSError, shutil.Error)):
            raise CannotRunError.of("fix_usage.not_written", reason=error) from error
        raise
    return backup


def _check(changes: Sequence[FileChange]) -> None:
    edited = [str(change.place.file) for change in changes if change.place.file.read_bytes() != change.before]
    if edited:
        raise CannotRunError.of("fix_usage.edited_meanwhile", names=edited)
    locked = [
        str(change.place.destination)
        for change in changes
        if change.place.copy is None and _is_locked(change.place.file)
    ]
    if locked:
        raise CannotRunError.of("fix_usage.read_only", names=locked)
    there = [
        str(change.place.copy) for change in changes if change.place.copy is not None and change.place.copy.exists()
    ]
    if there:
        raise CannotRunError.of("fix_usage.copy_is_there", names=sorted(set(there)), overlay=Path(there[0]).parent)
    for change in changes:
        _require_syntax(change)


def _is_locked(file: Path) -> bool:
    """Tell whether somebody took the right to write from a file: to replace it would be against that."""
    return not file.stat().st_mode & stat.S_IWUSR or not os.access(file, os.W_OK | os.R_OK)


def _require_syntax(change: FileChange) -> None:
    """Raise CannotRunError for Python that would not compile; other files are taken as they are."""
    if change.place.file.suffix != ".py":
        return
    try:
        compiled(change.after, str(change.place.file))
    except (SyntaxError, ValueError) as error:
        raise CannotRunError.of("fix_usage.no_python", name=change.place.file, reason=error) from error


def _copy_changed(unit: Path, place: Path, changes: Sequence[FileChange], overlay: Path) -> None:
    """Copy a package beside its place, change the copy, and move it there whole."""
    part = overlay / PART
    shutil.rmtree(part, ignore_errors=True)
    try:
        copy_place = part / place.relative_to(overlay)
        copy_unit(unit, copy_place)
        for one in changes:
            replace_file(part / one.place.destination.relative_to(overlay), one.after)
        place.parent.mkdir(parents=True, exist_ok=True)
        for path in sorted(copy_place.parent.iterdir()):
            path.rename(place.parent / path.name)
    finally:
        shutil.rmtree(part, ignore_errors=True)


# What was there before a fix, kept in the run folder: `fix/N/backup.json`, and the old content of each changed file.
#
# It is written before anything is changed, so that whatever ends a fix in its middle, `align fix --undo` puts all
# back.

FOLDER, MANIFEST = "fix", "backup.json"
BEGUN, DONE = ".begun", ".done"  # what is being kept, and what is being removed: neither is a backup
_FORM = Form(table(dict.fromkeys(("files", "copies"), listed(TEXT_BY_NAME))))
ABSENT = ""  # in the place of a hash: there was no such file


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A changed file: hashes of its old and new content, and the name under which the old one is kept."""

    path: str
    before: str
    after: str
    kept: str


@dataclass(frozen=True, slots=True)
class CopiedUnit:
    """A copy of a package at `path` in the overlay; `digest` is "" until it is whole."""

    path: str
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Backup:
    """One fix that may be undone: its folder, the files that it changed, the packages that it copied."""

    folder: Path
    overlay: Path
    files: tuple[KeptFile, ...]
    copies: tuple[CopiedUnit, ...]

    def write(self) -> None:
        """Write the list of what is kept."""
        document = {"files": list(map(asdict, self.files)), "copies": list(map(asdict, self.copies))}
        write_text(self.folder / MANIFEST, json_text(document) + "\n")


def begin_backup(
    run: Path, overlay: Path, changes: Sequence[tuple[Path, bytes, bytes]], copies: Sequence[Path]
) -> Backup:
    """Keep the old content of files (path, old, new) that are to change, and name the copies that are to be made.

    Raises CannotRunError, and leaves nothing, where that cannot be written.
    """
    folder = run / FOLDER / str(1 + max((int(backup_folder.name) for backup_folder in _folders(run)), default=0))
    begun = folder.with_name(BEGUN)
    kept = [
        KeptFile(str(path), hash_of(before), hash_of(after), f"{number}_{path.name}")
        for number, (path, before, after) in enumerate(changes, 1)
    ]
    backup = Backup(folder, overlay, tuple(kept), tuple(CopiedUnit(str(path)) for path in copies))
    try:
        shutil.rmtree(begun, ignore_errors=True)  # of one that was killed
        begun.mkdir(parents=True)
        for kept_file, (_, before, _) in zip(kept, changes, strict=True):
            (begun / kept_file.kept).write_bytes(before)
        replace(backup, folder=begun).write()
        begun.rename(folder)
    except OSError as error:
        shutil.rmtree(begun, ignore_errors=True)
        raise CannotRunError.of("fix_usage.not_written", reason=error) from error
    return backup


def last_backup(run: Path, overlay: Path) -> Backup:
    """Return what the last fix in a run folder kept; raises CannotRunError where there is nothing to undo.

    So it does, once, where the last one was ended before it had kept all and so before it changed anything.
    """
    if (begun := run / FOLDER / BEGUN).is_dir():
        shutil.rmtree(begun, ignore_errors=True)
        raise CannotRunError.of("fix_usage.nothing_changed")
    folders = sorted(_folders(run), key=lambda folder: int(folder.name))
    if not folders:
        raise CannotRunError.of("fix_usage.nothing_to_undo", folder=run)
    try:
        document = _FORM.require(read_json(folders[-1] / MANIFEST))
        files = tuple(KeptFile(**entry) for entry in document["files"])
        copies = tuple(CopiedUnit(**entry) for entry in document["copies"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CannotRunError.of("fix_usage.damaged_backup", folder=folders[-1]) from error
    return Backup(folders[-1], overlay, files, copies)


def refuse_edited(backup: Backup) -> None:
    """Raise CannotRunError naming every file and copy that is neither as it was before nor as the fix left it."""
    edited = [one.path for one in backup.files if _hash_at(one.path) not in (one.before, one.after)]
    edited += [one.path for one in backup.copies if one.digest and _digest_at(one.path) not in (ABSENT, one.digest)]
    if edited:
        raise CannotRunError.of("fix_usage.edited_since", names=edited, folder=backup.folder)


def put_back(backup: Backup) -> list[str]:
    """Put every file back byte for byte, remove the copies, then the backup itself.

    Files that were edited since the fix stay as they are, and the backup with them; returns their paths.
    """
    edited = [
        kept_file.path
        for kept_file in backup.files
        if _hash_at(kept_file.path) not in (kept_file.before, kept_file.after)
    ]
    for kept_file in backup.files:
        _part_of(Path(kept_file.path)).unlink(missing_ok=True)
        if kept_file.path not in edited and _hash_at(kept_file.path) != kept_file.before:
            replace_file(Path(kept_file.path), (backup.folder / kept_file.kept).read_bytes())
    for copy in backup.copies:
        remove_unit(Path(copy.path), backup.overlay)
    if edited:
        return edited
    done = backup.folder.with_name(DONE)
    shutil.rmtree(done, ignore_errors=True)
    backup.folder.rename(done)  # whatever ends the removal, all is put back and none of it is a backup any more
    shutil.rmtree(done)
    if not any(backup.folder.parent.iterdir()):
        backup.folder.parent.rmdir()
    return []


def _part_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.align.part")


def replace_file(path: Path, content: bytes) -> None:
    """Give a file another content in one step, with its mode; what Python compiled of the old one goes.

    A compiled file is known by the size and second of its source, and a fix may change neither.
    """
    part = _part_of(path)
    try:
        part.write_bytes(content)
        part.chmod(stat.S_IMODE(path.stat().st_mode))
        flush_to_disk(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    compiled = path.with_name("__pycache__")
    for file in compiled.glob(f"{path.stem}.*.pyc"):
        file.unlink(missing_ok=True)


def hash_of(content: bytes) -> str:
    """SHA-256 as hex."""
    return hashlib.sha256(content).hexdigest()


def _folders(run: Path) -> list[Path]:
    place = run / FOLDER
    return [one for one in place.iterdir() if one.name.isdigit() and one.is_dir()] if place.is_dir() else []


def _hash_at(path: str) -> str:
    try:
        return hash_of(Path(path).read_bytes())
    except FileNotFoundError:
        return ABSENT


def _digest_at(path: str) -> str:
    return digest_of(Path(path)) if Path(path).exists() else ABSENT


# Where a file of a port may be changed: in the project, or in a copy of the installed package that it belongs to.

ENVIRONMENT = "pyvenv.cfg"  # stands at the top of a virtual environment


@dataclass(frozen=True, slots=True)
class FilePlace:
    """A file that may be changed.

    `file` is the one that is read, without links, `destination` the one that is written. Names in the patch start at
    `root`. `copied` is the folder or file that is copied into the overlay first, None where nothing is, and `package`
    its name, "" in the project.
    """

    file: Path
    destination: Path
    root: Path
    package: str = ""
    copied: Path | None = None
    copy: Path | None = None

    @property
    def name(self) -> str:
        """Its name in the patch."""
        return self.destination.relative_to(self.root).as_posix()


def place_of(path: Path, project: Path, overlay: Path) -> FilePlace | Sentence:
    """Return the place of a loaded file, or why it is not to be changed; `project` and `overlay` are folders."""
    file, project, overlay = path.resolve(), project.resolve(), overlay.resolve()
    if overlay in file.parents:
        return FilePlace(file, file, overlay, file.relative_to(overlay).parts[0].removesuffix(".py"))
    if is_installed(file):
        return _in_overlay(file, overlay)
    if project in file.parents:
        return FilePlace(file, file, project)
    if any(folder in file.parents for folder in _python()):
        return sentence("fix_refused.of_python", file=file)
    if _module_name(file).partition(".")[0] in packages_distributions():  # an editable install
        return _in_overlay(file, overlay)
    return sentence("fix_refused.outside", file=file, project=project)


def is_installed(file: Path) -> bool:
    """Tell whether a file belongs to an installed package or to a virtual environment."""
    return not INSTALLED.isdisjoint(file.parts) or any((folder / ENVIRONMENT).is_file() for folder in file.parents)


@cache
def _python() -> tuple[Path, ...]:
    return tuple({Path(place).resolve() for place in sysconfig.get_paths().values()} - {Path(sys.prefix).resolve()})


def _in_overlay(file: Path, overlay: Path) -> FilePlace | Sentence:
    """The outermost package around a file that is one folder; of a namespace package its part."""
    name = _module_name(file)
    for prefix in accumulate(name.split("."), "{}.{}".format) if name else ():
        unit = _unit(sys.modules.get(prefix))
        if unit is None:
            continue
        own = Path(*prefix.split(".")).with_suffix(".py" if unit.is_file() else "")
        if unit.name != own.name:
            break
        place = overlay / own
        inside = place if unit == file else place / file.relative_to(unit)
        return FilePlace(file, inside, overlay, prefix, unit, place)
    return sentence("fix_refused.no_package", file=file)


def _module_name(file: Path) -> str:
    """The name that a file was imported by, the shortest of several; "" if it was not."""
    names = (name for name, module in list(sys.modules.items()) if _file(module) and Path(_file(module)) == file)
    links = (name for name, module in list(sys.modules.items()) if _is_same(_file(module), file))
    return min(names, key=len, default="") or min(links, key=len, default="")


def _is_same(name: str, file: Path) -> bool:
    return Path(name).name == file.name and Path(name).resolve() == file


def _unit(module: Any) -> Path | None:
    """The folder of a package or the file of a module; None for a namespace package, which has no file."""
    file = _file(module)
    if not file:
        return None
    path = Path(file).resolve()
    return path.parent if hasattr(module, "__path__") else path


def _file(module: Any) -> str:
    return str(getattr(module, "__dict__", {}).get("__file__") or "")


# Copies of installed packages in a folder that stands first on the import path; the packages stay as they are.
#
# The whole outermost package is copied: its modules import each other, and read files that lie beside them. Compiled
# parts find the libraries that a wheel keeps in `PACKAGE.libs`, which is copied too.

LEFT_OUT = ("__pycache__", ".git")


def too_large(unit: Path) -> Sentence | None:
    """Why a package is not copied; None if it may be."""
    files = list(files_below(unit))
    nbytes = sum(path.stat().st_size for path in files if path.is_file())
    if nbytes <= OVERLAY_BYTES and len(files) <= OVERLAY_FILES:
        return None
    most = {"most": OVERLAY_BYTES // 1024**2, "most_files": OVERLAY_FILES}
    return sentence("fix_refused.too_large", unit=unit.name, size=nbytes // 1024**2, files=len(files), **most)


def copy_unit(unit: Path, place: Path) -> None:
    """Copy a package or module, and what its compiled parts need; nothing may be at `place`."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if unit.is_file():
        shutil.copy2(unit, place)
        return
    shutil.copytree(unit, place, ignore=shutil.ignore_patterns(*LEFT_OUT), ignore_dangling_symlinks=True)
    libraries = libraries_of(unit)
    if libraries.is_dir():
        shutil.copytree(libraries, libraries_of(place), dirs_exist_ok=True)


def libraries_of(unit: Path) -> Path:
    """The folder in which a wheel keeps the libraries of a package."""
    return unit.with_name(f"{unit.name}.libs")


def remove_unit(place: Path, overlay: Path) -> None:
    """Remove a copy, and the folders around it that are empty then, up to the overlay itself."""
    for path in (place, libraries_of(place)):
        if path.is_dir():
            shutil.rmtree(path)
        elif path.exists():
            path.unlink()
    folder = place.parent
    while folder.is_dir() and folder.is_relative_to(overlay) and _is_empty(folder):
        shutil.rmtree(folder)
        folder = folder.parent


def digest_of(place: Path) -> str:
    """One hash of all names and contents of a copy, but for what Python compiles there."""
    digest = hashlib.sha256()
    for path in sorted(files_below(place)):
        digest.update(f"{path.relative_to(place.parent)}\0{sha256_of(path)}\n".encode())
    return digest.hexdigest()


def files_below(unit: Path) -> Iterator[Path]:
    """All files that are copied of a package or module."""
    if unit.is_file():
        yield unit
    for folder, folders, names in os.walk(unit, followlinks=True):
        folders[:] = [name for name in folders if name not in LEFT_OUT]
        yield from (unit / os.path.join(folder, name) for name in names)  # noqa: PTH118 - thousands of files


def _is_empty(folder: Path) -> bool:
    return all(path.name in LEFT_OUT for path in folder.iterdir())


# A unified diff of one file, byte for byte what `git apply` and `patch -p1` read, whatever its line ends are.

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_UNENDED_AS_PRINTED = "\n\\ No newline at end of file\n"


def unified_diff(name: str, before: str, after: str) -> str:
    r"""Return the diff of a file whose name in the patch is `name`; "" if both are equal.

    >>> print(unified_diff("port.py", "a = 1\n", "a = 2\n"), end="")
    --- a/port.py
    +++ b/port.py
    @@ -1 +1 @@
    -a = 1
    +a = 2
    """
    end = "\t" if " " in name else ""  # else both programs take what is in front of the space for the name
    return "".join(_lines(f"a/{name}{end}", f"b/{name}{end}", before, after))


def _lines(first: str, second: str, before: str, after: str) -> Iterator[str]:
    lines = difflib.unified_diff(_LINE.findall(before), _LINE.findall(after), first, second)
    for number, line in enumerate(lines):
        if number < len(("---", "+++")):
            yield line.rstrip("\n").removesuffix("\t") + ("\t\n" if first.endswith("\t") else "\n")
        else:
            yield line if line.endswith("\n") else line + _UNENDED_AS_PRINTED
