"""`align loss REFERENCE [CANDIDATE]`: two loss logs on one axis, judged; or what is understood of one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from align.cli._shared import JsonOption, RunOption  # noqa: TC001 - typer reads them at run time

LogArgument = Annotated[Path, typer.Argument(help="Loss log of the reference, in any known format.")]
CandidateArgument = Annotated[
    Path | None, typer.Argument(help="Loss log of the candidate. Without it, what is understood of REFERENCE is shown.")
]
MetricOption = Annotated[str, typer.Option("--metric", help="Metric to compare; `loss` is each log's training loss.")]
LengthR = Annotated[int | None, typer.Option("--reference-steps-per-epoch", metavar="N", help="If the log lacks it.")]
LengthC = Annotated[int | None, typer.Option("--candidate-steps-per-epoch", metavar="N", help="If the log lacks it.")]
BaseR = Annotated[int | None, typer.Option("--reference-base", metavar="0|1", help="What it calls its first step.")]
BaseC = Annotated[int | None, typer.Option("--candidate-base", metavar="0|1", help="What it calls its first step.")]
LastOption = Annotated[
    int | None, typer.Option("--last-step", metavar="N", help="Compare only up to this global step.")
]


def loss_command(  # noqa: PLR0913 - one argument for each option of the command
    reference: LogArgument,
    candidate: CandidateArgument = None,
    metric: MetricOption = "loss",
    reference_steps_per_epoch: LengthR = None,
    candidate_steps_per_epoch: LengthC = None,
    reference_base: BaseR = None,
    candidate_base: BaseC = None,
    last_step: LastOption = None,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Compare two loss logs on the true global step, or show what is understood of one."""
    if candidate is None:
        return _describe(reference, metric, (reference_steps_per_epoch, reference_base), run, json)
    from align.cli._shared import finish
    from align.workflows.compare_losses import compare_losses

    comparison = compare_losses(
        reference,
        candidate,
        metric=metric,
        steps_per_epoch=(reference_steps_per_epoch, candidate_steps_per_epoch),
        base=(reference_base, candidate_base),
        last_step=last_step,
    )
    return finish(comparison, comparison.verdict, {"reference": reference, "candidate": candidate}, run, json)


def _describe(log: Path, metric: str, known: tuple[int | None, int | None], run: Path | None, json: bool) -> int:
    """Show one log; nothing is judged, so the exit code is 0 unless it cannot be read."""
    import json as json_module

    from align.report.log_text import print_log
    from align.runs.folder import RunFolder, as_document
    from align.workflows.compare_losses import describe_log

    summary = describe_log(log, metric=metric, steps_per_epoch=known[0], base=known[1])
    document = as_document(summary, {"log": log})
    written = RunFolder.create(run).write(summary, {"log": log}) if run is not None else None
    if json:
        typer.echo(json_module.dumps(document, indent=1, ensure_ascii=False))
        return 0
    print_log(document)
    if written is not None:
        typer.echo(f"Written: {written}")
    return 0
