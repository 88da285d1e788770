"""What the commands share: common options, the progress bar and the way a result leaves the program."""

from __future__ import annotations

import contextlib
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from align.cli.given import print_json, speaks_only_first, tell
from align.errors import UsageError
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.core.protocols import Progress
    from align.core.verdicts import Verdict
    from align.runs.run_folder import Result

    Sources = Mapping[str, Path | str | None]

    class JudgedResult(Result, Protocol):
        """A result with a verdict over it."""

        @property
        def verdict(self) -> Verdict:
            """What it says."""


JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
_SIDE = "A model: `package.module:function` or `file.py:function`, by default that of the project file."
ReferenceArgument = Annotated[str | None, typer.Argument(help=_SIDE, metavar="REFERENCE")]
CandidateArgument = Annotated[str | None, typer.Argument(help=_SIDE, metavar="CANDIDATE")]
ProjectOption = Annotated[
    Path | None,
    typer.Option("--project", help="Project file; by default align.toml of this folder or of one above it."),
]
TorchModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="A torch model: `package.module:function` or `file.py:function`.")
]
PortOfTrainingArgument = Annotated[str, typer.Argument(metavar="CANDIDATE", help="The same for the port.")]
CheckpointOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Weights of the model.")]
ReferenceCheckpointOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Weights of the reference.")]
CandidateCheckpointOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Weights of the candidate.")]
MapOption = Annotated[
    Path | None, typer.Option("--map", metavar="FILE", help="Map file; without one the models are matched.")
]

InputsOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="Arrays by name (.npz), or `module:function` that returns them.")
]
BatchesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--inputs",
        metavar="FILE",
        help="Arrays by name (.npz), or `module:function` that returns them; repeat for batches one after another.",
    ),
]
CandidateInputsOption = Annotated[
    list[str] | None,
    typer.Option(metavar="FILE", help="Inputs of the candidate only, instead of --inputs; one per batch."),
]
InputSpecsOption = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="SPEC", help="Draw an input from the seed: x=float32[2,3,224,224]"),
]
TRAINING_SIDE = (
    "`module:function` or `file.py:function` that returns (model, loss, optimizer), or a dict of these and a step."
)
BatchOption = Annotated[
    str, typer.Option(metavar="FILE", help="Inputs and labels by name (.npz), or `module:function`: one batch.")
]
BatchesOfStepsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--batch",
        metavar="FILE",
        help="Inputs and labels by name (.npz), or `module:function`; repeat for batches one after another.",
    ),
]
DataBatchesOption = Annotated[
    int | None, typer.Option("--batches", metavar="N", min=1, help="How many batches of each side; 100 by default.")
]
LimitsOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="GLOB=VALUE", help="Multiply the limit of layers whose path matches; overrides the project file."
    ),
]
AllLayersOption = Annotated[bool, typer.Option("--all", help="Show every layer, and all parts at fault.")]
AllTensorsOption = Annotated[bool, typer.Option("--all", help="List every tensor on a line of its own.")]
ThoroughOption = Annotated[bool, typer.Option("--thorough", help="Search in wrong code without a limit of runs.")]
SeedOption = Annotated[int, typer.Option(help="Seed of --input.")]
TrustPickleOption = Annotated[
    bool, typer.Option("--trust-pickle", help="Let torch run the code in the file: only for files you trust.")
]


def _usable_run_folder(run: Path | None) -> Path | None:
    """Refuse a run folder that cannot be written before any work is done."""
    if run is not None:
        from align.runs.run_folder import RunFolder

        RunFolder.check(run)
    return run


RunOption = Annotated[
    Path | None,
    typer.Option("--run", help="Run folder to write the result into.", metavar="DIR", callback=_usable_run_folder),
]


LINES = "lines"
FORMS = (LINES, "table")
FormOption = Annotated[
    str,
    typer.Option("--format", metavar="lines|table", help="As tables, or a line for each fault with its place first."),
]


def require_form(form: str) -> None:
    """Raise UsageError for a form of printing that there is not."""
    if form not in FORMS:
        raise UsageError.of("cli_usage.no_form", form=form, known=[*FORMS])


def finish(result: JudgedResult, made_from: Sources, run: Path | None, json: bool, **show: bool) -> int:
    """Hand a result over, shown as `hand_over` does, and return the exit code of its verdict."""
    hand_over(result, made_from, run, json, **show)
    return result.verdict.exit_code


def hand_over(
    result: Result,
    made_from: Sources,
    run: Path | None,
    json: bool,
    *,
    show_all: bool = False,
    as_lines: bool = False,
) -> dict[str, Any]:
    """Write the result into the run folder if one is given, and print it, as a document or for the eye.

    Of what it may be made from, by roles, that counts which was given. Returns the document.
    """
    from align.core.documents import json_text
    from align.runs.run_folder import RunFolder, as_document

    sources = {role: source for role, source in made_from.items() if source}
    hashed = json or run is not None  # for the eye alone, nobody need wait until every file is read once more
    document = as_document(result, sources, hashed=hashed)
    written = RunFolder.create(run).keep(result.result_kind, document) if run is not None else None
    if json:
        print_json(json_text(document))
        return document
    from align.report.show_result import print_lines, print_result

    if as_lines:
        print_lines(document)
        return document
    print_result(document, show_all=show_all, only_first=speaks_only_first())
    if written is not None:
        tell(say("told.written", names=[written]))
    return document


def import_report_meanwhile() -> None:
    """Import what prints results in a thread, for commands whose work leaves the interpreter free most of the time."""

    def load() -> None:
        import align.report.show_result  # noqa: F401 - loaded, to be there when the work is done

    threading.Thread(target=load, daemon=True).start()


@contextlib.contextmanager
def progress_bar() -> Iterator[Progress]:
    """Yield a Progress that draws a bar on standard error, on a terminal only."""
    from align.core.protocols import silent

    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    tasks: dict[str, int] = {}
    with Bar(console=Console(stderr=True), transient=True) as bar:

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = int(bar.add_task(what, total=total))
            bar.update(tasks[what], completed=done, total=total)  # type: ignore[arg-type]

        yield show


# The models of a command: options for where and in which precision they compute, and sides asked for as they say.

_DEVICE = "Device that the {} runs on: cpu, cuda:1, npu; for MindSpore CPU, GPU, Ascend:1."
_DTYPE = "Cast the {}: float16, bfloat16, float32 or float64."
_MODE = "MindSpore's mode for the {}: graph (only the network's outputs are compared) or pynative."


def _option(name: str, metavar: str, text: str) -> Any:
    return typer.Option(f"--{name}", metavar=metavar, help=text.format(name.partition("-")[0]))


ReferenceDeviceOption = Annotated[str | None, _option("reference-device", "DEVICE", _DEVICE)]
CandidateDeviceOption = Annotated[str | None, _option("candidate-device", "DEVICE", _DEVICE)]
ReferenceDtypeOption = Annotated[str | None, _option("reference-dtype", "DTYPE", _DTYPE)]
CandidateDtypeOption = Annotated[str | None, _option("candidate-dtype", "DTYPE", _DTYPE)]
CandidateModeOption = Annotated[str | None, _option("candidate-mode", "MODE", _MODE)]
DeviceOption = Annotated[str | None, typer.Option(metavar="DEVICE", help=_DEVICE.format("model"))]
DtypeOption = Annotated[str | None, typer.Option(metavar="DTYPE", help=_DTYPE.format("model"))]
ModeOption = Annotated[str | None, typer.Option(metavar="MODE", help=_MODE.format("model"))]
