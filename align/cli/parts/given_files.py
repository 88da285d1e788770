"""Files that a command line names, looked for before anything is imported: a framework takes seconds to come up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_FILES = {
    "project": "project file",
    "map_file": "map file",
    "check": "map file",
    "rules": "map file",
    "points": "points file",
}
_CHECKPOINTS = ("reference_checkpoint", "candidate_checkpoint", "checkpoint", "source")
# Parameters of commands that may be `file.py:function`, and what a file is that one of them names.
_MODEL, _INPUTS = "model file", "inputs file"
_FUNCTIONS = {
    **dict.fromkeys(("reference", "candidate", "side", "step", "source_model", "target_model"), _MODEL),
    **dict.fromkeys(("data", "candidate_data"), "data file"),
    **dict.fromkeys(("metric", "candidate_metric"), "metric file"),
    **dict.fromkeys(("reference_step", "candidate_step"), "step file"),
    "loss": "loss file",
}


def require_given_files(given: Mapping[str, object]) -> None:
    """Raise MissingFileError for the first file that the options of a command name and that is not there."""
    for name, what in _FILES.items():
        for path in _texts(given.get(name)):
            _require_file(path, what)
    for name in _CHECKPOINTS:
        for path in _texts(given.get(name)):
            _require_checkpoint(path)
    for name, what in _FUNCTIONS.items():
        for side in _texts(given.get(name)):
            _require_module(side, what)
    for name in ("inputs", "candidate_inputs", "batch"):
        for source in _texts(given.get(name)):
            require_source(source)


def require_source(source: Path | str) -> None:
    """Raise MissingFileError if inputs, of a file or a function, name a file that is not there."""
    if isinstance(source, Path) or ":" not in source:
        _require_file(source, _INPUTS)
    else:
        _require_module(source, _INPUTS)


def _require_file(path: Path | str, what: str) -> None:
    from align.core.atomic_files import existing_file

    existing_file(Path(path), what)


def _require_checkpoint(path: str) -> None:
    from align.checkpoints.open_checkpoint import require_checkpoint

    require_checkpoint(path)


def _require_module(side: str, what: str) -> None:
    from align.core.import_user_code import require_file

    require_file(side, what)


def _texts(given: object) -> Iterator[str]:
    """What an option was given, once or several times; the number of some command's option of that name is none."""
    several = given if isinstance(given, (list, tuple)) else [given]
    return (str(one) for one in several if isinstance(one, (str, Path)))
