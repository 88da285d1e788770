"""A trace folder as one side of a comparison: what was captured, and what was noted of the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.checkpoints.open_checkpoint import open_checkpoint
from align.errors import MissingFileError, RunFolderError
from align.traces.stored.checksums import AGAIN_HINT, check_files
from align.traces.stored.manifest import INPUTS, MANIFEST, NOISE
from align.traces.stored_model import MODEL, VALUES, read_model
from align.traces.trace_folder import TraceFolder
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from align.core.dtypes import Array
    from align.core.layer_settings import LayerSettings
    from align.core.parameters import ParameterSet
    from align.core.trace_metadata import TraceHead


@dataclass(frozen=True, slots=True)
class TracedSide:
    """One trace with the names, module tree and settings of its model; `values` are mapped, None if not kept."""

    trace: TraceFolder
    head: TraceHead
    parameters: ParameterSet
    settings: dict[str, LayerSettings]
    values: dict[str, Array] | None

    @property
    def ending(self) -> str:
        """Where a trace that was cut short ends, "" for a complete one."""
        if self.trace.complete:
            return ""
        if awaited := self.trace.manifest.awaited:
            return sentence("trace_finding.cut_before_line", file=awaited[0])
        running = self.trace.manifest.running
        if not running:
            return sentence("trace_finding.cut_before_end")
        return sentence("trace_finding.cut_in_module", module=running[-1].module or sentence("model_part.model_itself"))


def check_beside(trace: TraceFolder, contents: Collection[str]) -> None:
    """Raise RunFolderError for a file of a sealed trace that is gone, or of another size, or was not written with it.

    Of those in `contents` the bytes count too, which takes reading them.
    """
    manifest = trace.manifest
    if untold := [name for name in manifest.awaited if (trace.folder / name).exists()]:
        path = trace.folder / MANIFEST
        raise RunFolderError(f"{path} is damaged: its last line, which names {untold[0]}, is missing", AGAIN_HINT)
    if manifest.sealed and manifest.files is not None:
        check_files(trace.folder, manifest.files, (MODEL, VALUES, NOISE), contents)


def open_trace(folder: Path) -> TracedSide:
    """Open a folder that `align capture` wrote; raises MissingFileError or RunFolderError for anything else.

    That of gradients stands inside of the one that describes the model.
    """
    if not folder.is_dir():
        raise MissingFileError(folder, "trace folder")
    trace = TraceFolder(folder)
    check_beside(trace, contents=(MODEL, VALUES, NOISE, INPUTS))
    head = trace.manifest.head
    home = folder.absolute().parent if head is not None and head.direction == "backward" else folder
    model = read_model(home)
    if model is None or head is None:
        error = f"{folder} says nothing of the model that it is a trace of"
        raise RunFolderError(error, "write it with `align capture SIDE -o DIR`; one of gradients stays inside of DIR")
    path = home / VALUES
    tensors = open_checkpoint(path).tensors if path.is_file() else None
    values = None if tensors is None else {name: tensor.load() for name, tensor in tensors.items()}
    parameters, settings = model
    return TracedSide(trace, head, parameters, {one.path: one for one in settings}, values)
