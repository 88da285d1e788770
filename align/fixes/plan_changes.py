"""The planned edits of a port as changes of files: where each is written, what is refused, and the patches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.errors import CannotRunError
from align.fixes.apply_changes import FileChange
from align.fixes.fix_result import FixedPlace, RefusedChange, SourcePatch
from align.fixes.overlay import too_large
from align.fixes.source_bytes import as_in_file, encoded, whole_text
from align.fixes.source_diff import unified_diff
from align.fixes.source_places import place_of
from align.words.catalogue import sentence
from align.words.message_words import Sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from align.fixes.fix_job import FixJob
    from align.fixes.planned_edits import PlannedEdits, SourceEdit
    from align.fixes.source_places import FilePlace


@dataclass(frozen=True, slots=True)
class PlannedChanges:
    """The files that change, the places in them, and what is refused."""

    changes: tuple[FileChange, ...]
    places: tuple[FixedPlace, ...]
    refused: tuple[RefusedChange, ...]

    @property
    def patches(self) -> tuple[SourcePatch, ...]:
        """A patch for each folder that names in it start at: the project, and each package."""
        groups: dict[tuple[str, str], list[FileChange]] = {}
        for change in _in_order(self.changes):
            groups.setdefault((str(change.place.root), change.place.package), []).append(change)
        return tuple(SourcePatch(*key, "".join(map(diff_of, own))) for key, own in groups.items())


def plan_changes(planned: PlannedEdits, job: FixJob) -> PlannedChanges:
    """Say of each edit where it is written; those of a file that may not be changed are refused, with the reason."""
    places = {path: _place(path, job) for path in planned.texts}
    refused = [RefusedChange(one.layers, one.cause, sentence(one.reason, **one.facts)) for one in planned.refused]
    found = []
    for edit in planned.edits:
        place = places[_path(edit, planned.texts)]
        if isinstance(place, Sentence):
            refused.append(RefusedChange(edit.layers, edit.cause, place))
        else:
            found.append(_fixed(edit, place))
    usable = {path: place for path, place in places.items() if not isinstance(place, Sentence)}
    changes = [_change(place, planned.texts[path]) for path, place in usable.items()]
    return PlannedChanges(tuple(changes), tuple(found), tuple(refused))


def diff_of(change: FileChange) -> str:
    """The change of a file as a diff."""
    return unified_diff(change.place.name, whole_text(change.before), whole_text(change.after))


def patch_files(planned: PlannedChanges, file: Path) -> dict[Path, bytes]:
    """The content of a patch file, each line in the encoding of the file that it is of.

    Each further folder that names start at has a file of its own, with the package in its name.
    """
    found: dict[Path, bytes] = {}
    for number, patch in enumerate(planned.patches):
        own = [
            one for one in planned.changes if (str(one.place.root), one.place.package) == (patch.root, patch.package)
        ]
        path = file if number == 0 else file.with_name(f"{file.stem}.{patch.package or number}{file.suffix}")
        found[path] = b"".join(as_in_file(diff_of(one), one.before) for one in _in_order(own))
    return found or {file: b""}


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
