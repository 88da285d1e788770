"""`align loss REFERENCE [CANDIDATE]`: two loss logs on one axis, judged; or what is understood of one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from align.cli.output import print_json, tell
from align.cli.shared import JsonOption, ProjectOption, RunOption
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.curves.compare_losses import LogReading
    from align.curves.presets import Preset


KNOWN = "What a log does not say by itself"
LogArgument = Annotated[Path, typer.Argument(help="Loss log of the reference, in any known format, or a folder.")]
CandidateArgument = Annotated[
    Path | None, typer.Argument(help="Loss log of the candidate. Without it, what is understood of REFERENCE is shown.")
]
MetricOption = Annotated[str, typer.Option("--metric", help="Metric to compare; `loss` is each log's training loss.")]
PresetOption = Annotated[
    str | None,
    typer.Option(
        "--preset", metavar="NAME", help="Criteria by name: guide (if none is named), exact ..., or of align.toml."
    ),
]
ReferenceRunsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--reference-runs", metavar="LOG...", help="Further runs of the reference: how much they differ is allowed."
    ),
]
StepsPerOption = Annotated[
    str | None, typer.Option("--steps-per", metavar="R:C", help="Steps of both sides that see as many samples, as 2:1.")
]
LastOption = Annotated[
    int | None, typer.Option("--last-step", metavar="N", help="Compare only up to this global step.")
]
PlotOption = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE.png", help="Draw the curves and their difference.")
]


def _of_a_side(name: str, metavar: str, text: str, side: str) -> typer.models.OptionInfo:
    """Make `--reference-NAME` or `--candidate-NAME`; `--NAME` alone is the reference's, which may be the only log."""
    names = [f"--{side}-{name}", *([f"--{name}"] if side == "reference" else [])]
    option: typer.models.OptionInfo = typer.Option(*names, metavar=metavar, help=text, rich_help_panel=KNOWN)
    return option


_FORMAT = ("format", "NAME", "Its format, see `align plugins`; `lines` for any that repeat.")
_PATTERN = ("pattern", "REGEX", "Its lines, with groups (?P<step>...), (?P<loss>...).")
_RANK = ("rank", "N", "The process whose lines are read.")
_JOB = ("job", "N", "The run to take of several in it, from 1.")
_LENGTH = ("steps-per-epoch", "N", "If the log lacks it; 125.125 where the log counts shares of epochs.")
_BASE = ("base", "0|1", "What it calls its first step.")
_WINDOW = ("window", "TEXT", "What its losses are: 'mean of last 10', 'since last print', 'epoch so far' ...")
FormatR = Annotated[str | None, _of_a_side(*_FORMAT, "reference")]
FormatC = Annotated[str | None, _of_a_side(*_FORMAT, "candidate")]
PatternR = Annotated[str | None, _of_a_side(*_PATTERN, "reference")]
PatternC = Annotated[str | None, _of_a_side(*_PATTERN, "candidate")]
RankR = Annotated[int | None, _of_a_side(*_RANK, "reference")]
RankC = Annotated[int | None, _of_a_side(*_RANK, "candidate")]
JobR = Annotated[int | None, _of_a_side(*_JOB, "reference")]
JobC = Annotated[int | None, _of_a_side(*_JOB, "candidate")]
LengthR = Annotated[float | None, _of_a_side(*_LENGTH, "reference")]
LengthC = Annotated[float | None, _of_a_side(*_LENGTH, "candidate")]
BaseR = Annotated[int | None, _of_a_side(*_BASE, "reference")]
BaseC = Annotated[int | None, _of_a_side(*_BASE, "candidate")]
WindowR = Annotated[str | None, _of_a_side(*_WINDOW, "reference")]
WindowC = Annotated[str | None, _of_a_side(*_WINDOW, "candidate")]


def loss_command(  # noqa: PLR0913 - one argument for each option of the command
    reference: LogArgument,
    candidate: CandidateArgument = None,
    metric: MetricOption = "loss",
    preset: PresetOption = None,
    reference_runs: ReferenceRunsOption = None,
    steps_per: StepsPerOption = None,
    last_step: LastOption = None,
    plot: PlotOption = None,
    reference_format: FormatR = None,
    candidate_format: FormatC = None,
    reference_pattern: PatternR = None,
    candidate_pattern: PatternC = None,
    reference_rank: RankR = None,
    candidate_rank: RankC = None,
    reference_job: JobR = None,
    candidate_job: JobC = None,
    reference_steps_per_epoch: LengthR = None,
    candidate_steps_per_epoch: LengthC = None,
    reference_base: BaseR = None,
    candidate_base: BaseC = None,
    reference_window: WindowR = None,
    candidate_window: WindowC = None,
    project: ProjectOption = None,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Compare two loss logs on the true global step, or show what is understood of one."""
    from align.cli.shared import find_settings
    from align.curves.compare_losses import LogReading

    settings = find_settings(project)
    of_reference = (reference_format, reference_pattern, reference_rank, reference_job)
    of_candidate = (candidate_format, candidate_pattern, candidate_rank, candidate_job)
    own = (
        LogReading(*of_reference, reference_steps_per_epoch, reference_base, reference_window),
        LogReading(*of_candidate, candidate_steps_per_epoch, candidate_base, candidate_window),
    )
    readings = _or_pattern(own[0], settings.loss_patterns[0]), _or_pattern(own[1], settings.loss_patterns[1])
    if candidate is None:
        of_two = {"--preset": preset, "--last-step": last_step, "--plot": plot, "--reference-runs": reference_runs}
        of_other = None if own[1] == LogReading() else own[1]
        _refuse_lone({**of_two, "--steps-per": steps_per, "--candidate-...": of_other})
        return _describe(reference, metric, readings[0], run, json)
    if run is not None:
        _refuse_one_log(reference, candidate, own)
    if preset and reference_runs:
        _refuse_two_judges()
    ratio = _ratio(steps_per or "1:1")
    asked = _Asked(metric, preset or "guide", settings.loss_presets, reference_runs or [], ratio, last_step)
    return _compare((reference, candidate), readings, asked, plot, run, json)


def _or_pattern(reading: LogReading, of_project: str) -> LogReading:
    """The project file's pattern is for a log whose format nobody names."""
    return reading if reading.format or reading.pattern else replace(reading, pattern=of_project or None)


class _Asked(NamedTuple):
    """How two logs are to be compared."""

    metric: str
    preset: str
    presets: dict[str, Preset]
    reference_runs: list[Path]
    steps_per: tuple[int, int]
    last_step: int | None


def _compare(
    logs: tuple[Path, Path],
    readings: tuple[LogReading, LogReading],
    asked: _Asked,
    plot: Path | None,
    run: Path | None,
    json: bool,
) -> int:
    from align.cli.shared import finish
    from align.core.atomic_files import hash_meanwhile
    from align.curves.compare_losses import compare_readings

    if json or run is not None:
        hash_meanwhile([log for log in (*logs, *asked.reference_runs) if log.is_file()])
    comparison = compare_readings(logs, readings, **asked._asdict())
    if plot is not None:
        from align.report.draw_plot import save_plot

        save_plot("loss_curves", comparison, plot)
    runs = {f"reference run {number}": log for number, log in enumerate(asked.reference_runs, start=2)}
    made_from = {"reference": logs[0], "candidate": logs[1], **runs}
    return finish(comparison, comparison.verdict, made_from, run, json)


def _refuse_lone(given: Mapping[str, object]) -> None:
    """Refuse options that make no sense with one log."""
    from align.errors import UsageError

    names = [name for name, value in given.items() if value not in (None, [])]
    if names:
        raise UsageError.of("cli_usage.of_two_logs", name=names[0])


def _refuse_one_log(reference: Path, candidate: Path, readings: tuple[LogReading, LogReading]) -> None:
    """Refuse to keep the comparison of a log with itself as that of two trainings; two jobs or ranks are two logs."""
    from align.errors import UsageError

    if reference.exists() and candidate.exists() and reference.samefile(candidate) and readings[0] == readings[1]:
        raise UsageError.of("cli_usage.one_log", path=candidate)


def _refuse_two_judges() -> None:
    from align.errors import UsageError

    raise UsageError.of("cli_usage.two_judges")


def _ratio(text: str) -> tuple[int, int]:
    from align.errors import UsageError

    left, _, right = text.partition(":")
    if not (left.isdecimal() and right.isdecimal()):
        raise UsageError.of("cli_usage.no_ratio", text=text)
    return int(left), int(right)


def _describe(log: Path, metric: str, reading: LogReading, run: Path | None, json: bool) -> int:
    """Show one log; nothing is judged, so the exit code is 0 unless it cannot be read."""
    from align.core.json_data import json_text
    from align.curves.compare_losses import describe_log
    from align.report.show_result import print_result
    from align.runs.run_folder import RunFolder, as_document

    summary = describe_log(log, metric=metric, reading=reading)
    document = as_document(summary, {"log": log})
    written = RunFolder.create(run).write(summary, {"log": log}) if run is not None else None
    if json:
        print_json(json_text(document))
        return 0
    print_result(document)
    if written is not None:
        tell(say("told.written", names=[written]))
    return 0
