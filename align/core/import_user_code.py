"""The user's modules, imported from a file or by name; two files of one name in two folders are two modules.

A port and its original are often two folders with a `model.py` each. Python would give the first one twice, so modules
that an earlier file brought along make way for those of the later one's folder.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.core.atomic_files import existing_file
from align.errors import MissingFileError

if TYPE_CHECKING:
    from types import ModuleType

_FOLDERS: list[Path] = []


def import_user_code(place: str) -> Any:
    """Import `package.module` (also from the current folder) or `path/to/file.py`; a file is run once."""
    if not place.endswith(".py"):
        put_first(Path.cwd())
        return importlib.import_module(place)
    path = Path(place).resolve()
    if not path.is_file():
        raise MissingFileError(place, "model file")
    _make_way(path.parent)
    put_first(path.parent)
    if path.parent not in _FOLDERS:
        _FOLDERS.append(path.parent)
    return _loaded(path) or _load(path)


def require_file(side: str) -> None:
    """Raise MissingFileError if the file of `file.py:function` is not there; nothing is imported."""
    place, separator, _ = side.rpartition(":")
    if separator and place.endswith(".py"):
        existing_file(Path(place), "model file")


def put_first(folder: Path) -> None:
    """Let modules be found in this folder before all others."""
    if str(folder) in sys.path:
        sys.path.remove(str(folder))
    sys.path.insert(0, str(folder))


def _load(path: Path) -> ModuleType:
    name = path.stem if path.stem not in sys.modules else f"{path.stem}_of_{path.parent.name}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise MissingFileError(path, "model file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up while it runs
    whole = False
    try:
        spec.loader.exec_module(module)
        whole = True
    finally:
        if not whole:
            del sys.modules[name]
    return module


def _loaded(path: Path) -> ModuleType | None:
    return next((module for module in list(sys.modules.values()) if _file(module) == str(path)), None)


def _make_way(folder: Path) -> None:
    """Forget modules that lie directly in other models' folders and that this folder has under the same names."""
    own = {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
    for name, module in list(sys.modules.items()):
        top = name.partition(".")[0]
        if top in own and _lies_in_another(_file(module), top, folder):
            del sys.modules[name]


def _lies_in_another(file: str, top: str, folder: Path) -> bool:
    others = [str(other) for other in _FOLDERS if other != folder]
    return any(file == f"{other}/{top}.py" or file.startswith(f"{other}/{top}/") for other in others)


def _file(module: ModuleType) -> str:
    """Return the file of a module, "" if it has none; modules that import on demand are not stirred."""
    return str(getattr(module, "__dict__", {}).get("__file__", ""))
