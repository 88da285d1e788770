"""Code that is loaded by name: plugins out of the folders of their kind, and the user's modules.

A port and its original are often two folders with a `model.py` each. Python would give the first one twice, so modules
that an earlier file brought along make way for those of the later one's folder. A file that imports relatively is a
module of the package around it: of all folders up to the last one that its imports reach, or that is a package.
No option names the weights that a factory loads itself: an audit hook notes which files are opened while the user's
code runs, and how the file of each module was when it was run. There is one, which cannot be taken away again; what
compiled code opens by itself, it does not see.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import logging
import os
import pkgutil
import re
import sys
import sysconfig
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from align.core.about import CHECKOUT, PACKAGE
from align.core.atomic_files import existing_file
from align.core.operating_system import ACCESS
from align.core.protocols import (
    CheckpointFormat,
    DumpReader,
    FileModels,
    FolderFormat,
    ModelReader,
    NestedFile,
    Plugin,
    ResultViews,
    TensorFile,
    TrustedLoader,
)
from align.errors import AlignError, FrameworkMissingError, MissingFileError
from align.words.catalogue import say, texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from importlib import metadata
    from types import ModuleType

_FOLDERS: list[Path] = []
_FORGOTTEN: set[str] = set()  # files of modules that made way for others of their names
_PACKAGE = "__init__"
INSTALLED = frozenset({"site-packages", "dist-packages"})


def import_user_code(place: str, what: str = "model file") -> Any:
    """Import `package.module` (also from the current folder) or `path/to/file.py`; a file is run once.

    Raises MissingFileError, which says `what` it is, for a file that is not there.
    """
    if not place.endswith(".py"):
        put_first(Path.cwd())
        return importlib.import_module(place)
    path = existing_file(Path(place), what).resolve()
    package = _package_of(path)
    _find_here(path.parent)
    if package:
        _find_here(path.parents[len(package)], package[0])
    if package and path.stem != _PACKAGE:
        importlib.import_module(".".join(package))  # first, as Python does: it may import this very file
    return _loaded(path) or _load(path, package)


def require_file(side: str, what: str = "model file") -> None:
    """Raise MissingFileError, which says `what` it is, if the file of `file.py:function` is not there."""
    place, separator, _ = side.rpartition(":")
    if separator and place.endswith(".py"):
        existing_file(Path(place), what)


def user_files() -> list[Path]:
    """The Python files that this process has loaded from outside of Python, its installed packages and this one."""
    loaded = _FORGOTTEN.union(map(_file, list(sys.modules.values())))
    own = {file for name in loaded if name.endswith(".py") and (file := outside_of_packages(name))}
    return sorted(file for file in own if file.is_file())


@cache  # thousands of modules are asked for again after each rung
def outside_of_packages(name: str) -> Path | None:
    """A file without links; None where it belongs to Python, to an installed package or to this one."""
    file = Path(name).resolve()
    return file if _installed().isdisjoint(file.parents) and INSTALLED.isdisjoint(file.parts) else None


@cache
def _installed() -> frozenset[Path]:
    places = {Path(place).resolve() for place in sysconfig.get_paths().values()}
    return frozenset({*places, Path(__file__).resolve().parents[1]})


def put_first(folder: Path) -> None:
    """Let modules be found in this folder before all others."""
    if str(folder) in sys.path:
        sys.path.remove(str(folder))
    sys.path.insert(0, str(folder))


def _find_here(folder: Path, package: str = "") -> None:
    """Let modules be found in a folder, and those of the same names that other folders brought along make way."""
    _make_way(folder, package)
    put_first(folder)
    if folder not in _FOLDERS:
        _FOLDERS.append(folder)


def _package_of(path: Path) -> tuple[str, ...]:
    """The names of the packages around a file that imports relatively, outermost first; () for any other."""
    levels = _relative_levels(path)
    while 0 < levels < len(path.parents) and (path.parents[levels] / f"{_PACKAGE}.py").is_file():
        levels += 1
    names = tuple(folder.name for folder in reversed(path.parents[:levels]))
    usable = levels < len(path.parents) and all(name and "." not in name for name in names)
    return names if usable else ()


def _relative_levels(path: Path) -> int:
    """How many folders the relative imports of a file go up, at most; 0 if there are none."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # Python says it better when it runs the file
        return 0
    return max((node.level for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)), default=0)


def _load(path: Path, package: tuple[str, ...]) -> ModuleType:
    is_package = bool(package) and path.stem == _PACKAGE
    name = ".".join(package if is_package else (*package, path.stem))
    name = name if name not in sys.modules else f"{name}_of_{path.parent.name}"
    inside = [str(path.parent)] if is_package else None
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=inside)
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


def _make_way(folder: Path, package: str) -> None:
    """Forget modules that lie directly in other models' folders and that this folder has under the same names."""
    names = {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
    names.add(package)
    for name, module in list(sys.modules.items()):
        top = name.partition(".")[0]
        if top in names and _lies_in_another(_file(module), top, folder):
            _FORGOTTEN.add(_file(module))
            del sys.modules[name]


def _lies_in_another(file: str, top: str, folder: Path) -> bool:
    others = [other for other in _FOLDERS if other != folder]
    return any(file == str(other / f"{top}.py") or file.startswith(f"{other / top}{os.sep}") for other in others)


def _file(module: ModuleType) -> str:
    """Return the file of a module, "" if it has none; modules that import on demand are not stirred."""
    return str(getattr(module, "__dict__", {}).get("__file__", ""))


CODE = (".py", ".pyc", ".so")  # known as modules, or by the version of their package
OF_THE_SYSTEM = ("/proc/", "/sys/", "/dev/")
State = tuple[int, int]


@dataclass
class _Noted:
    """What this process has opened: files read with their first `(size, mtime_ns)`, files written, and who runs now.

    `run` are the files of modules, as they were when the module was run.
    """

    is_listening: bool = False
    running: int = 0
    read: dict[str, State] = field(default_factory=dict)
    run: dict[str, State] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)


_NOTED = _Noted()


def note_opened_files() -> None:
    """Note from now on which files the user's code opens; of those noted before, the ones that are as they were stay.

    A module that is loaded once may have read them, and is not loaded again.
    """
    _NOTED.read = {name: state for name, state in _NOTED.read.items() if name not in _NOTED.written}
    _NOTED.read = {name: state for name, state in _NOTED.read.items() if _state(name) == state}
    _NOTED.written.clear()
    if not _NOTED.is_listening:
        _NOTED.is_listening = True
        sys.addaudithook(_hear)


@contextlib.contextmanager
def users_code() -> Iterator[None]:
    """What is opened in this block is opened by the user's code, in whatever thread."""
    _NOTED.running += 1
    try:
        yield
    finally:
        _NOTED.running -= 1


def opened_files() -> dict[Path, State]:
    """The files that the user's code has read in this process, with the size and the time that each had at first.

    What it wrote itself, code, and what belongs to installed packages or to the system is left out.
    """
    noted = [(name, state) for name, state in list(_NOTED.read.items()) if name not in _NOTED.written]
    return {Path(name): state for name, state in noted if outside_of_packages(name)}


def state_when_run(path: Path) -> State | None:
    """Size and time of a module's file when it was run; None for one that was run before anybody listened."""
    return _NOTED.run.get(str(path))


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    """Note one file; whatever is wrong with its name, the caller's own call says it."""
    if event == "exec":
        _note_module(arguments[0])
    if not _NOTED.running or event not in ("open", "os.rename"):
        return
    with contextlib.suppress(OSError, TypeError, ValueError):
        if event == "os.rename":  # how a file is replaced by one that was just written
            _NOTED.written.add(_name(arguments[1]))
        elif not isinstance(arguments[0], int):
            _note(_name(arguments[0]), arguments[2])


def _note_module(code: Any) -> None:
    name = str(getattr(code, "co_filename", ""))
    if getattr(code, "co_name", "") == "<module>" and name.endswith(".py"):
        state = _state(name)
        if state is not None:
            _NOTED.run[os.path.realpath(name)] = state


def _note(name: str, flags: int) -> None:
    if name.endswith(CODE) or name.startswith(OF_THE_SYSTEM):
        return
    if flags & ACCESS != os.O_RDONLY:
        _NOTED.written.add(name)
    elif name not in _NOTED.read:
        state = _state(name)
        if state is not None:
            _NOTED.read[name] = state


def _state(name: str) -> State | None:
    try:
        found = os.stat(name)  # noqa: PTH116 - the hook is called for every file of the process
    except OSError:
        return None
    return (found.st_size, found.st_mtime_ns)


def _name(given: Any) -> str:
    return os.path.abspath(os.fsdecode(given))  # noqa: PTH100 - as above


# Plugins are found by looking into the folder of their kind: every public module holds one `PLUGIN`.
#
# A module may hold the `PLUGINS` that it makes from data instead. There is no list to keep: a new file is a new
# plugin. Plugins import without their packages; what is missing is distinguished from what is installed but broken.


PluginKind = Literal["frameworks", "formats", "losslogs", "foreign", "settings", "rungs"]
RUNGS = "align.runs.rungs"
PACKAGES: dict[PluginKind, str] = {
    "frameworks": "align.models.frameworks",
    "formats": "align.checkpoints.formats",
    "losslogs": "align.curves.losslogs",
    "foreign": "align.traces.foreign",
    "settings": "align.hyperparameters.readers",
    "rungs": RUNGS,
}
RESULT_VIEWS = "align.report.open_run"
# Groups of entry points by which installed packages bring plugins, and what these must offer.
GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "align.checkpoints.formats": (
        "mindalign.formats",
        ("align.core.protocols.CheckpointFormat", "align.core.protocols.FolderFormat"),
    ),
    "align.curves.losslogs": ("mindalign.losslogs", ("align.curves.log_sources.LogFormat",)),
    "align.traces.foreign": ("mindalign.dumps", ("align.core.protocols.DumpReader",)),
    RUNGS: ("mindalign.rungs", ("align.runs.rung.Rung",)),
}
# What importing a package of somebody else's may raise.
UNFIT_PLUGIN = (
    ImportError, SyntaxError, NameError, AttributeError, TypeError, ValueError, LookupError, OSError, RuntimeError,
    ArithmeticError, AssertionError,
)  # fmt: skip
INSTALL_HINT = {
    "yaml": "pip install PyYAML",
    "tensorboard": "pip install tensorboard",
    "matplotlib": 'pip install "mindalign[report]"',
    "pandas": 'pip install "mindalign[report]"',
    "pyarrow": 'pip install "mindalign[watch]"',
    "torch": 'pip install "mindalign[torch]"',
    "onnx": 'pip install "mindalign[onnx]"',
    "onnxscript": 'pip install "mindalign[onnx-export]"',
    "onnxruntime": 'pip install "mindalign[onnx]"',
    "mindspore": 'pip install "mindalign[mindspore]" (Python 3.10-3.12; needs numpy<2)',
}

P = TypeVar("P", bound=Plugin)


@dataclass(frozen=True, slots=True)
class PluginState:
    """One plugin and whether it works here: `missing` packages are not installed, `broken` ones map to the reason."""

    kind: PluginKind
    plugin: Plugin
    missing: tuple[str, ...]
    broken: dict[str, str]
    package: str = ""  # the installed package that brought it, "" for align itself

    @property
    def usable(self) -> bool:
        """True if all packages it needs can be imported."""
        return not self.missing and not self.broken


@cache
def plugins(kind: PluginKind) -> Mapping[str, Plugin]:
    """All plugins of a kind by name, sorted; raises AlignError for two of one name."""
    return load_plugins(PACKAGES[kind])


def load_plugins(folder: str) -> dict[str, Plugin]:
    """The plugins of a package (`align.models.frameworks`) by name, sorted; raises AlignError for two of one name."""
    package = importlib.import_module(folder)
    by_name: dict[str, Plugin] = {}
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
        if info.name.startswith("_"):
            continue
        for plugin in _plugins_of(importlib.import_module(f"{folder}.{info.name}")):
            if plugin.name in by_name:
                raise AlignError(*texts("plugin_fault.name_twice", folder=folder, name=plugin.name))
            by_name[plugin.name] = plugin
    for entry in installed_plugins(folder):
        if entry.plugin is not None and entry.plugin.name in by_name:
            _refuse(entry, say("plugin_fault.name_taken", name=entry.plugin.name))
        elif entry.plugin is not None:
            by_name[entry.plugin.name] = entry.plugin
    return dict(sorted(by_name.items()))


@dataclass(frozen=True, slots=True)
class InstalledPlugin:
    """What an installed package announces by an entry point; `plugin` is None where it is unfit: `fault` says why."""

    group: str
    entry: str
    package: str
    plugin: Plugin | None
    fault: str = ""


_REFUSED: dict[tuple[str, str], InstalledPlugin] = {}


def refused_plugins() -> list[InstalledPlugin]:
    """Those of installed packages that cannot be used, of the kinds that were asked for so far."""
    return [_REFUSED[key] for key in sorted(_REFUSED)]


@cache
def installed_plugins(folder: str) -> tuple[InstalledPlugin, ...]:
    """Plugins that installed packages add to those of a folder (`align.checkpoints.formats`), by entry points.

    One that cannot be imported, or does not offer what its kind must, is left out, and said so by a warning.
    """
    if folder not in GROUPS or GROUPS[folder][0] not in _announced_groups():
        return ()
    from importlib import metadata

    entries = sorted(metadata.entry_points(group=GROUPS[folder][0]), key=lambda entry: (entry.name, entry.value))
    return tuple(_load_entry(folder, entry) for entry in entries)


@cache
def _announced_groups() -> frozenset[str]:
    """The groups of mindalign that installed packages name: importlib.metadata takes ten times as long to say none."""
    groups: set[str] = set()
    for folder in dict.fromkeys(sys.path):
        with contextlib.suppress(OSError):
            for name in os.listdir(folder or "."):  # noqa: PTH208 - a start has no time for thousands of paths
                if name.endswith((".dist-info", ".egg-info")):
                    with contextlib.suppress(OSError):
                        text = Path(folder, name, "entry_points.txt").read_bytes()
                        groups.update(map(bytes.decode, re.findall(rb"\[(mindalign\.[a-z]+)\]", text)))
    return frozenset(groups)


def _load_entry(folder: str, entry: metadata.EntryPoint) -> InstalledPlugin:
    group, offers = GROUPS[folder]
    package = entry.dist.name if entry.dist is not None else ""
    try:
        plugin: Any = entry.load()
    except UNFIT_PLUGIN as error:
        return _refuse(InstalledPlugin(group, entry.name, package, None), f"{type(error).__name__}: {error}")
    kinds = [resolve_name(place) for place in offers]
    if not any(isinstance(plugin, kind) for kind in kinds):
        lacks = sorted(name for name in dir(kinds[0]) if name[0] != "_" and not hasattr(plugin, name))
        return _refuse(InstalledPlugin(group, entry.name, package, None), say("plugin_fault.lacks", names=lacks))
    return InstalledPlugin(group, entry.name, package, plugin)


def _refuse(entry: InstalledPlugin, fault: str) -> InstalledPlugin:
    """Note a plugin that is left out, and warn of it once."""
    refused = replace(entry, plugin=None, fault=fault)
    if (entry.group, entry.entry) not in _REFUSED:
        _REFUSED[entry.group, entry.entry] = refused
        text = say("plugin_fault.left_out", package=entry.package, group=entry.group, name=entry.entry, fault=fault)
        logging.getLogger(__name__).warning("%s", text)
    return refused


def _plugins_of(module: ModuleType) -> tuple[Plugin, ...]:
    return cast("tuple[Plugin, ...]", module.PLUGINS if hasattr(module, "PLUGINS") else (module.PLUGIN,))


def checkpoint_formats() -> dict[str, CheckpointFormat]:
    """All formats of files by name."""
    known = plugins("formats").items()
    return {name: cast("CheckpointFormat", plugin) for name, plugin in known if not isinstance(plugin, FolderFormat)}


def folder_formats() -> dict[str, FolderFormat]:
    """The formats of folders into which the ranks of a training wrote a checkpoint in parts, by name."""
    return {name: plugin for name, plugin in plugins("formats").items() if isinstance(plugin, FolderFormat)}


def tensor_files() -> tuple[TensorFile, ...]:
    """The checkpoint formats in which a file may hold one tensor without a name."""
    return tuple(plugin for plugin in plugins("formats").values() if isinstance(plugin, TensorFile))


def nested_files() -> tuple[NestedFile, ...]:
    """The checkpoint formats in which a file may hold tensors in dicts and lists."""
    return tuple(plugin for plugin in plugins("formats").values() if isinstance(plugin, NestedFile))


def dump_readers() -> dict[str, DumpReader]:
    """The readers of other tools' dumps by name."""
    return {name: cast("DumpReader", plugin) for name, plugin in plugins("foreign").items()}


def model_readers() -> dict[str, ModelReader]:
    """All framework adapters by name."""
    return {name: cast("ModelReader", plugin) for name, plugin in plugins("frameworks").items()}


def file_models(side: object) -> FileModels | None:
    """The framework adapter whose model a path, or a text, names by its suffix; None for what is no such file."""
    name = str(side) if isinstance(side, (str, Path)) else ""
    readers = (one for one in plugins("frameworks").values() if isinstance(one, FileModels))
    return next((one for one in readers if name.endswith(one.suffixes)), None)


def trusted_loaders() -> dict[str, TrustedLoader]:
    """The framework adapters that load files by running their code, by name."""
    return {name: plugin for name, plugin in plugins("frameworks").items() if isinstance(plugin, TrustedLoader)}


def result_views() -> ResultViews:
    """What shows results, which the rooms that make them stand below."""
    return cast("ResultViews", importlib.import_module(RESULT_VIEWS))


def check_packages(plugin: Plugin) -> None:
    """Raise FrameworkMissingError with the install line if a package that the plugin needs is absent or broken."""
    for package in plugin.requires:
        install = INSTALL_HINT.get(package, f"pip install {package}")
        if importlib.util.find_spec(package) is None:
            raise FrameworkMissingError(package, install)
        if reason := _import_failure(package):
            raise FrameworkMissingError(package, install, reason)


def plugin_states(*, try_import: bool = False) -> list[PluginState]:
    """Every plugin of every kind; with `try_import`, packages are imported to tell "absent" from "broken"."""
    states = []
    for kind, folder in PACKAGES.items():
        packages = {entry.plugin.name: entry.package for entry in installed_plugins(folder) if entry.plugin is not None}
        for plugin in plugins(kind).values():
            missing = tuple(p for p in plugin.requires if importlib.util.find_spec(p) is None)
            present = [p for p in plugin.requires if p not in missing] if try_import else []
            broken = {p: reason for p in present if (reason := _import_failure(p))}
            states.append(PluginState(kind, plugin, missing, broken, packages.get(plugin.name, "")))
    return states


def _import_failure(package: str) -> str:
    try:
        importlib.import_module(package)
    except (ImportError, OSError, AttributeError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def beside_package(folder: str, wanted: str) -> Path | None:
    """The folder of this name that came with the package and holds the file or folder `wanted`, else None.

    A wheel has `mappings/` as `_mappings` inside the package; an editable install and a checkout have it beside.
    """
    for path, sound in (
        (PACKAGE / f"_{folder}", True),
        (CHECKOUT / folder, (CHECKOUT / "pyproject.toml").is_file()),
    ):
        if sound and (path / wanted).exists():
            return path
    return None
