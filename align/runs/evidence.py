"""What a rung was made from, and whether that is as it was.

A file whose size and time of change are as they were is not read again: checkpoints are large. The code of a side is
every file that a rung has loaded from outside of installed packages; of those the versions count. What that code opens
for reading, as weights that a factory loads itself, decides as much as the code.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.core.about import __version__
from align.core.atomic_files import sha256_of
from align.core.import_user_code import opened_files, state_when_run, user_files
from align.runs.thresholds import MOST_OPENED_FILES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

PACKAGES = ("torch", "mindspore", "numpy")
Facts = dict[str, Any]
OF_COMPILED_CODE = (".safetensors", ".h5", ".hdf5", ".gguf")  # formats whose readers open files without Python
CONFIGURATION = "config.json"  # what stands beside the weights in a folder of a published model
_NAMED = re.compile(r"""["']([^"'\n]+\.(?:safetensors|h5|hdf5|gguf))["']""")
_HASHES: dict[Path, Facts] = {}  # of files that several rungs of one climb open


def file_facts(path: Path, known: Mapping[str, Any] | None = None) -> Facts:
    """Return `sha256`, `size`, `mtime_ns` and `ctime_ns` of a file; {} where there is none.

    `known` are facts of the same file: its hash is taken from them where size and times are the same. The time at
    which the file itself was last touched (`ctime`) no program can set: a copy with the old time is read again.
    """
    if not path.is_file():
        return {}
    state = path.stat()
    facts = {"size": state.st_size, "mtime_ns": state.st_mtime_ns, "ctime_ns": state.st_ctime_ns}
    if known and facts == {name: known.get(name) for name in facts}:
        return {"sha256": known["sha256"], **facts}
    return {"sha256": sha256_of(path), **facts}


def read_facts(made_from: Mapping[str, Path | str], known: Mapping[str, Any] | None = None) -> dict[str, Facts]:
    """By role, the `path` or `text` of what a rung reads, with the facts of its file where it is one."""
    found = {}
    for role, given in made_from.items():
        file = file_of(given)
        earlier = (known or {}).get(role)
        facts = file_facts(file, earlier) if file else {}
        found[role] = {"path" if isinstance(given, Path) else "text": str(given), **facts}
    return found


def loaded_sources(run: Path) -> dict[str, Facts]:
    """The files of the user's code that this process has loaded or opened, and the versions of packages that compute.

    What lies in the run folder is left out: rungs make it, and know it as theirs.
    """
    own = run.resolve()
    code, opened = user_files(), dict(islice(opened_files().items(), MOST_OPENED_FILES))
    facts = {path: _opened_facts(path, *state) for path, state in opened.items() if path.is_file()}
    facts |= {path: _facts(path) for path in _opened_by_compiled_code(code, opened)}
    read = {str(path): found for path, found in sorted(facts.items()) if own not in path.resolve().parents}
    return {**read, **{str(path): _code_facts(path) for path in code}, **_versions()}


def _opened_by_compiled_code(code: Iterable[Path], opened: Iterable[Path]) -> Iterator[Path]:
    """Files that Python does not tell of: those that the code names, and those beside a configuration that it read."""
    for path in code:
        for name in _names_in(path):
            yield from (file for file in (path.parent / name, Path.cwd() / name) if file.is_file())
    for path in opened:
        if path.name == CONFIGURATION:
            yield from (file for file in path.parent.iterdir() if file.suffix in OF_COMPILED_CODE and file.is_file())


@cache  # a process loads a file once
def _names_in(code: Path) -> tuple[str, ...]:
    return tuple(found[1] for found in _NAMED.finditer(code.read_text(encoding="utf-8", errors="replace")))


def _facts(path: Path) -> Facts:
    """The facts of a file, which is hashed once a climb."""
    facts = _HASHES[path] = file_facts(path, _HASHES.get(path))
    return facts


def _code_facts(path: Path) -> Facts:
    """The facts of a module that was run; without a hash where its file has been edited since: nobody has run that."""
    state = state_when_run(path)
    return _facts(path) if state is None else _opened_facts(path, *state)


def _opened_facts(path: Path, size: int, time_of_change: int) -> Facts:
    """The facts of a file that is as it was when it was opened; without a hash, that of no file, where it is not."""
    at_first = {"size": size, "mtime_ns": time_of_change}
    facts = _facts(path)
    if {name: facts.get(name) for name in at_first} != at_first:
        return {"sha256": "", **at_first}
    return facts


def is_unchanged(known: Mapping[str, Mapping[str, Any]], base: Path | None = None) -> bool:
    """Tell whether all files (below `base`, if their paths are relative) and versions are as in these facts."""
    versions = _versions()
    for name, facts in known.items():
        if "version" in facts:
            if versions.get(name, facts) != facts:
                return False
        elif file_facts((base or Path()) / name, facts).get("sha256") != facts.get("sha256"):
            return False
    return True


def changed_file(known: Mapping[str, Mapping[str, Any]], base: Path | None = None) -> tuple[str, bool] | None:
    """The first file that is not as in these facts, and whether it is gone; versions do not count here.

    Of files below `base` all must be there. Others say nothing where they are not: a run folder may have been copied.
    """
    for name, facts in known.items():
        if "sha256" not in facts or not (base or Path(name).is_absolute()):
            continue
        path = (base or Path()) / name
        is_gone = not path.is_file()
        if is_gone and base is None:
            continue
        if file_facts(path, facts).get("sha256") != facts["sha256"]:
            return name, is_gone
    return None


def same_content(one: Mapping[str, Mapping[str, Any]], other: Mapping[str, Mapping[str, Any]]) -> bool:
    """Tell whether two sets of facts by role are about the same files with the same content."""
    return _content(one) == _content(other)


def read_files_of(made_from: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The facts of what a rung read, by the path of its file."""
    files = {file_of(Path(one["path"]) if "path" in one else one["text"]): one for one in made_from.values()}
    return {str(file): facts for file, facts in files.items() if file}


def evidence_facts(folder: Path, files: Iterable[Path]) -> dict[str, Facts]:
    """The facts of files that a rung wrote, by their paths relative to the run folder."""
    return {str(path.relative_to(folder)): file_facts(path) for path in files if path.is_file()}


def _content(facts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    times = ("mtime_ns", "ctime_ns")
    return {role: {key: one for key, one in each.items() if key not in times} for role, each in facts.items()}


def file_of(given: Path | str) -> Path | None:
    """The file that a rung reads: a path itself, or that of `file.py:function`; None for `package.module:function`."""
    if isinstance(given, Path):
        return given
    place = given.rpartition(":")[0]
    return Path(place) if place.endswith(".py") else None


@cache  # what a process has loaded stays what it is
def _versions() -> dict[str, Facts]:
    installed = {package: version(package) for package in PACKAGES if find_spec(package) is not None}
    return {package: {"version": text} for package, text in {"mindalign": __version__, **installed}.items()}
