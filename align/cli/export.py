"""`align export`: a torch model as an ONNX file, compared with it at once."""

from __future__ import annotations

import enum
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from align.cli.parts.output import tell
from align.cli.parts.shared import (
    AllLayersOption,
    CheckpointOption,
    InputsOption,
    InputSpecsOption,
    JsonOption,
    RunOption,
    SeedOption,
    file_or_function,
    finish,
    given_inputs,
)


class ExporterName(str, enum.Enum):
    """Which of torch's exporters writes the file."""

    torchscript = "torchscript"
    dynamo = "dynamo"


def export_command(  # noqa: PLR0913 - one parameter an option
    side: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model: `package.module:function` or `file.py:function`.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="ONNX file to write.")],
    inputs: InputsOption = None,
    made: InputSpecsOption = None,
    seed: SeedOption = 0,
    checkpoint: CheckpointOption = None,
    exporter: Annotated[ExporterName, typer.Option(help="Which of torch's exporters.")] = ExporterName.dynamo,
    opset: Annotated[
        int | None, typer.Option(metavar="N", help="Opset to write; by default the exporter's own.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Compare the file with the model, layer by layer.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")] = False,
    show_all: AllLayersOption = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Export a torch model as an ONNX file, whole or not at all; with --check, compare both as `align forward` does."""
    from align.errors import UsageError
    from align.forward.compare_forward import compare_forward
    from align.forward.export_model import export_model
    from align.models.open_side import SideRequest

    if (json or run or show_all) and not check:
        raise UsageError.of("cli_usage.needs_check")
    source = file_or_function(inputs) if inputs else None
    given = given_inputs(source, made or (), seed)
    exported = export_model(
        SideRequest(side, checkpoint), out, inputs=given, exporter=exporter.value, opset=opset, overwrite=overwrite
    )
    if not json:
        tell(f"Written: {out}")
    if not check:
        return 0
    result = compare_forward(exported, str(out), inputs=given)
    made_from: dict[str, Path | str] = {"reference": side, "candidate": out}
    if checkpoint:
        made_from["reference checkpoint"] = checkpoint
    return finish(result, result.verdict, made_from, run, json, show_all=show_all)
