"""A model exported as an ONNX file: written whole, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from align.core.atomic_files import atomic_path
from align.core.protocols import ModelExporter
from align.errors import CannotRunError, DestinationError, UsageError
from align.models.inputs import read_inputs
from align.models.open_side import open_side

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.dtypes import Array
    from align.core.protocols import Model
    from align.models.open_side import Side, SideRequest

Exporter = Literal["torchscript", "dynamo"]
EXPORTERS: tuple[Exporter, ...] = ("torchscript", "dynamo")


def export_model(
    side: str | Model | Side | SideRequest,
    destination: Path | str,
    *,
    inputs: Path | str | Mapping[str, Array],
    exporter: str = "dynamo",
    opset: int | None = None,
    overwrite: bool = False,
) -> Side:
    """Export a model as it computes on these inputs, in evaluation mode, and return the side that was exported.

    `exporter` is one of EXPORTERS, `opset` the version that it is to write. Raises DestinationError for a file that is
    there, unless it may `overwrite` it, CannotRunError for a framework without exporters, and UserCodeError naming the
    layer where the exporter fails.
    """
    path = Path(destination)
    if exporter not in EXPORTERS:
        raise UsageError.of("forward_error.no_exporter", exporter=exporter, known=EXPORTERS)
    if path.exists() and not overwrite:
        raise DestinationError.of("forward_error.export_exists", path=path)
    given, opened = read_inputs(inputs), open_side(side)
    if not isinstance(opened.reader, ModelExporter):
        raise CannotRunError.of("forward_error.not_exported", framework=opened.reader.name)
    with atomic_path(path) as temporary:
        opened.reader.export_onnx(opened.model, given, temporary, {"exporter": exporter, "opset": opset})
        for beside in temporary.parent.iterdir():
            if beside != temporary:
                beside.replace(path.parent / beside.name)  # large weights, which the graph names by this name
    return opened
