"""`align emulate`: a torch model as an Ascend chip is expected to compute it, before there is a card."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from align.cli.parts.ascend import FrameworkOption, SwitchOption, given_switches, named_driver
from align.cli.parts.shared import (
    BatchesOption,
    CheckpointOption,
    InputSpecsOption,
    JsonOption,
    RunOption,
    SeedOption,
    TorchModelArgument,
    file_or_function,
    given_batches,
    hand_over,
    progress_bar,
)
from align.cli.parts.sides import numbered_sources


def emulate_command(  # noqa: PLR0913 - one parameter an option
    model: TorchModelArgument,
    target: Annotated[
        str, typer.Option(metavar="TARGET", help="The chip: ascend:910a, 310p, 910b, 910c or 950, or gpu.")
    ],
    inputs: BatchesOption = None,
    made: InputSpecsOption = None,
    seed: SeedOption = 0,
    checkpoint: CheckpointOption = None,
    framework: FrameworkOption = "mindspore",
    switch: SwitchOption = None,
    show_all: Annotated[bool, typer.Option("--all", help="Show every layer.")] = False,
    loss: Annotated[
        str | None,
        typer.Option(
            metavar="FUNCTION", help="Look at gradients: `module:function` of the outputs and further inputs, or `sum`."
        ),
    ] = None,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Run a torch model with the roundings of a chip; name the layers most at risk and what overflows.

    Nothing is verified on hardware. Exit code 0: nothing overflows; 1: something is expected to, or no loss scale fits;
    2: it could not be run.
    """
    from align.forward.emulate_model import emulate_model
    from align.models.open_side import open_side
    from align.rules.ascend_rules import ascend_target

    driver, switches = named_driver(framework), given_switches(switch)
    ascend_target(target, driver, switches)  # refused before the model is built
    source = given_batches([file_or_function(one) for one in inputs or ()], made or (), seed)
    with progress_bar() as progress:
        result = emulate_model(
            open_side(model, checkpoint),
            target=target,
            inputs=source,
            framework=driver,
            switches=switches,
            loss=loss,
            progress=progress,
        )
    sources: dict[str, Path | str] = {"model": model, "target": target}
    sources |= {"checkpoint": checkpoint} if checkpoint else {}
    sources |= numbered_sources("inputs", [file_or_function(one) for one in inputs or ()])
    hand_over(result, sources, run, json, show_all=show_all)
    return result.exit_code
