"""Plugins are found by looking into the folder of their kind: every public module holds one `PLUGIN`.

A module may hold the `PLUGINS` that it makes from data instead. There is no list to keep: a new file is a new plugin.
Plugins import without their packages; what is missing is distinguished from what is installed but broken.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, cast

from align.core.protocols import (
    CheckpointFormat,
    DumpReader,
    FileModels,
    ModelReader,
    Plugin,
    ResultViews,
    TensorFile,
    TrustedLoader,
)
from align.errors import AlignError, FrameworkMissingError
from align.words.catalogue import texts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

PluginKind = Literal["frameworks", "formats", "losslogs", "foreign", "settings"]
PACKAGES: dict[PluginKind, str] = {
    "frameworks": "align.models.frameworks",
    "formats": "align.checkpoints.formats",
    "losslogs": "align.curves.losslogs",
    "foreign": "align.traces.foreign",
    "settings": "align.hyperparameters.readers",
}
RESULT_VIEWS = "align.report.open_run"
INSTALL_HINT = {
    "yaml": "pip install PyYAML",
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
    found: dict[str, Plugin] = {}
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
        if info.name.startswith("_"):
            continue
        for plugin in _plugins_of(importlib.import_module(f"{folder}.{info.name}")):
            if plugin.name in found:
                raise AlignError(*texts("plugin_fault.name_twice", folder=folder, name=plugin.name))
            found[plugin.name] = plugin
    return dict(sorted(found.items()))


def _plugins_of(module: ModuleType) -> tuple[Plugin, ...]:
    return cast("tuple[Plugin, ...]", module.PLUGINS if hasattr(module, "PLUGINS") else (module.PLUGIN,))


def checkpoint_formats() -> dict[str, CheckpointFormat]:
    """All checkpoint formats by name."""
    return {name: cast("CheckpointFormat", plugin) for name, plugin in plugins("formats").items()}


def tensor_files() -> tuple[TensorFile, ...]:
    """The checkpoint formats in which a file may hold one tensor without a name."""
    return tuple(plugin for plugin in plugins("formats").values() if isinstance(plugin, TensorFile))


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
    for kind in PACKAGES:
        for plugin in plugins(kind).values():
            missing = tuple(p for p in plugin.requires if importlib.util.find_spec(p) is None)
            present = [p for p in plugin.requires if p not in missing] if try_import else []
            broken = {p: reason for p in present if (reason := _import_failure(p))}
            states.append(PluginState(kind, plugin, missing, broken))
    return states


def _import_failure(package: str) -> str:
    try:
        importlib.import_module(package)
    except (ImportError, OSError, AttributeError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return ""
