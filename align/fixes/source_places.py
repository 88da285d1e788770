"""Where a file of a port may be changed: in the project, or in a copy of the installed package that it belongs to."""

from __future__ import annotations

import sys
import sysconfig
from dataclasses import dataclass
from functools import cache
from importlib.metadata import packages_distributions
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.words.message_words import Sentence

INSTALLED = {"site-packages", "dist-packages"}
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
