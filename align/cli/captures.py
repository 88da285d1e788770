"""Commands before any comparison, from `align capture` to `explain`; `advise`, `plugins` and `schema`."""

from __future__ import annotations

import dataclasses
import enum
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from align.cli.given import OF_ONE_SIDE, own_hints, print_json, tell, tell_in_place
from align.cli.shared import (
    TRAINING_SIDE,
    BatchesOfStepsOption,
    BatchesOption,
    CandidateArgument,
    CheckpointOption,
    DataBatchesOption,
    DeviceOption,
    DtypeOption,
    InputSpecsOption,
    JsonOption,
    MapOption,
    ModeOption,
    ProjectOption,
    ReferenceArgument,
    RunOption,
    SeedOption,
    TorchModelArgument,
    finish,
    hand_over,
    progress_bar,
)
from align.core.about import PACKAGE
from align.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


def capture_command(  # noqa: PLR0913 - one parameter an option
    folder: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Trace folder to write.")],
    side: Annotated[
        str | None, typer.Argument(help="A model: `package.module:function` or `file.py:function`.")
    ] = None,
    inputs: BatchesOption = None,
    input_specs: InputSpecsOption = None,
    seed: SeedOption = 0,
    checkpoint: CheckpointOption = None,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    mode: ModeOption = None,
    tensors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHAT", help="Values to keep: all, none, first:N, sample:N, or a glob over paths; repeat."
        ),
    ] = None,
    functions: Annotated[bool, typer.Option("--functions", help="Capture functional calls too.")] = False,
    layer_inputs: Annotated[bool, typer.Option("--layer-inputs", help="Keep the inputs of every call too.")] = False,
    backward: Annotated[bool, typer.Option("--backward", help="Capture gradients too, in DIR/backward.")] = False,
    noise: Annotated[bool, typer.Option(help="Measure rounding noise by a second run in float64.")] = True,
    values: Annotated[bool, typer.Option(help="Keep the values of the parameters.")] = True,
    step: Annotated[
        str | None, typer.Option(metavar="FACTORY", help=f"Capture training steps instead. {TRAINING_SIDE}")
    ] = None,
    steps: Annotated[int, typer.Option(metavar="N", help="Number of training steps.")] = 3,
    batch: BatchesOfStepsOption = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="FUNCTION",
            help="Returns the loader or dataset of the training: its lengths are kept, without MODEL its batches.",
        ),
    ] = None,
    batches: DataBatchesOption = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace training steps in DIR; a trace there is always replaced.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Run a model on fixed inputs and write the outputs of every module into a folder; only its framework is needed.

    `align forward DIR DIR` compares two such folders where neither framework is installed. `align step DIR DIR`
    compares two folders of training steps.
    """
    from align.runs.read_settings import file_or_function, given_batches

    if step is not None:
        others: dict[str, object] = {
            "SIDE": side,
            "--inputs": inputs,
            "--input": input_specs,
            "--checkpoint": checkpoint,
            "--device": device,
        }
        others |= {"--dtype": dtype, "--mode": mode, "--tensors": tensors, "--functions": functions}
        others |= {"--layer-inputs": layer_inputs, "--backward": backward}
        others |= {"--no-noise": not noise, "--no-values": not values}
        if strange := [name for name, given in others.items() if given]:
            raise UsageError.of("cli_usage.of_a_forward_run", name=strange[0])
        with own_hints(lambda option: "" if OF_ONE_SIDE.get(option, option) in others else option):
            return _capture_steps(step, folder, batch, steps, json, overwrite=overwrite, data=data)
    if batch:
        raise UsageError.of("cli_usage.of_training_steps")
    if side is None and data is not None:
        return _capture_data(data, folder, batches)
    if side is None:
        raise UsageError.of("cli_usage.no_model_to_capture")
    from align.models.open_side import open_side
    from align.traces.capture_trace import capture_trace

    source = given_batches([file_or_function(one) for one in inputs or ()], input_specs or (), seed)
    with progress_bar() as progress:
        result = capture_trace(
            open_side(side, checkpoint, device=device, dtype=dtype, mode=mode),
            folder,
            inputs=source,
            tensors=tensors or ("all",),
            functions=functions,
            layer_inputs=layer_inputs,
            backward=backward,
            noise=noise,
            values=values,
            data=_loaded(data),
            progress=progress,
        )
    result = result if json else result.with_upper_calls()
    hand_over(result, {"model": side, "checkpoint": checkpoint}, None, json)
    return 0


def _capture_data(data: str, folder: Path, batches: int | None) -> int:
    """Write the batches of a data pipeline, for `align data DIR ...` elsewhere."""
    from align.data.read_pipeline import Pipeline
    from align.data.thresholds import MOST_BATCHES
    from align.words.catalogue import say

    with progress_bar() as progress:
        count = Pipeline(data).capture(folder, batches or MOST_BATCHES, progress)
    tell(say("pipelines.captured", count=count, folder=folder))
    return 0


def _loaded(data: str | None) -> Any:
    """What the function of `--data` returns."""
    from align.models.user_code import load_function

    return None if data is None else load_function(data, "data file")()


def _capture_steps(  # noqa: PLR0913 - the options of one command
    factory: str, folder: Path, batch: list[str] | None, steps: int, json: bool, *, overwrite: bool, data: str | None
) -> int:
    """Capture training steps; raises UsageError where no batch is given."""
    from align.runs.read_settings import numbered_sources
    from align.training.compare_training_step import capture_training_step

    if not batch:
        raise UsageError.of("training_error.no_batch")
    with progress_bar() as progress:
        result = capture_training_step(
            factory, folder, batch=batch, steps=steps, overwrite=overwrite, data=_loaded(data), progress=progress
        )
    hand_over(result, {"step": factory, **numbered_sources("batch", batch)}, None, json)
    return 0


# `align trace show`: a trace folder as a tree; `changes`: two iterations of a training; `export`: for another tool.


class Action(str, enum.Enum):
    """What to do with a trace folder."""

    SHOW = "show"
    CHANGES = "changes"
    EXPORT = "export"


class Form(str, enum.Enum):
    """What to write."""

    NPY = "npy"
    MSPROBE = "msprobe"
    POLYGRAPHY = "polygraphy"


def trace_command(  # noqa: PLR0913 - one parameter an option
    action: Annotated[
        Action,
        typer.Argument(
            help="What to do: show the trace, export it, or say what changed since.", metavar="show|changes|export"
        ),
    ],
    folder: Annotated[
        Path, typer.Argument(help="A folder that `align capture` wrote, or a dump of another tool.", metavar="DIR")
    ],
    later: Annotated[
        Path | None, typer.Argument(help="changes: a later iteration of the same run.", metavar="LATER")
    ] = None,
    depth: Annotated[int | None, typer.Option(min=0, help="Show calls down to this depth; 0 is the model.")] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Show dtypes and the lines that called, too.")] = False,
    to: Annotated[Form | None, typer.Option(help="export: the tool that is to read it.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="PATH", help="export: where to write; must not exist.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Print a trace as the tree of its calls, show what changed between two, or write it in the format of another tool.

    The tree shows classes, shapes, figures, and where it ends if it was cut short.
    """
    from align.traces.dumped_side import is_trace_folder, show_dump
    from align.traces.open_trace import show_trace

    if action is Action.EXPORT:
        return _export(folder, to, out)
    if action is Action.CHANGES:
        return _changes(folder, later, json=json, show_all=show_all)
    known = is_trace_folder(folder) or not folder.exists()
    result = show_trace(folder) if known else show_dump(folder)
    if depth is not None:
        result = dataclasses.replace(result, calls=tuple(call for call in result.calls if call.depth <= depth))
    hand_over(result, {"trace": folder}, None, json, show_all=show_all)
    return 0


def _changes(folder: Path, later: Path | None, *, json: bool, show_all: bool) -> int:
    from align.loops.dump import compare_iterations, refuse_one_iteration

    if later is None:
        refuse_one_iteration(folder)
    result = compare_iterations(folder, later)
    hand_over(result, {"before": folder, "after": later}, None, json, show_all=show_all)
    return 0


def _export(folder: Path, to: Form | None, out: Path | None) -> int:
    from align.errors import UsageError
    from align.traces.dumped_side import export_trace
    from align.words.catalogue import say

    if to is None:
        raise UsageError.of("cli_usage.export_to")
    destination = out or folder.with_name(f"{folder.name}-{to.value}{'.json' if to is Form.POLYGRAPHY else ''}")
    done = export_trace(folder, to.value, destination)
    tell(say("trace.exported", count=done.written, path=done.path, left_out=done.left_out))
    return 0


# `align doctor`: what of this machine changes a comparison; what to run after a crash; whether memory grows.


MEGABYTE = 1e6  # format: unit of the running line


def doctor_command(  # noqa: PLR0913 - one parameter an option
    crash: Annotated[
        str | None,
        typer.Option(metavar="DEVICE", help="What to run when a training crashes or hangs: npu, cuda, mlu or cpu."),
    ] = None,
    follow: Annotated[
        int | None, typer.Option(metavar="PID", help="Follow the host memory of a process, and say whether it leaks.")
    ] = None,
    every: Annotated[float, typer.Option(metavar="SECONDS", help="Time between two looks of --follow.")] = 1.0,
    longest: Annotated[
        float | None,
        typer.Option("--for", metavar="SECONDS", help="How long to follow; by default until it ends or Ctrl-C."),
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Show switches that have no effect here, and the sources of --crash, too.")
    ] = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Check versions, devices, switches, memory and missing packages, and say what to set.

    With --crash: print the commands to run after a crash. With --follow: say whether a process leaks memory. Exit code
    0: one or both frameworks can be used, or memory is steady; 1: something installed cannot work, or memory leaks; 2:
    neither framework is installed, or no leak could be judged.
    """
    from align.errors import UsageError

    if crash is None and follow is None:
        from align.lint.examine_environment import examine_environment

        return finish(examine_environment(), {}, run, json, show_all=show_all)
    if crash is not None:
        if follow is not None and json:
            raise UsageError.of("doctor_usage.two_documents", crash=crash, pid=follow)
        from align.lint.examine_environment import advise_on_crash

        hand_over(advise_on_crash(crash), {}, run, json, show_all=show_all)
    return 0 if follow is None else _followed(follow, every, longest, run, json)


def _followed(pid: int, every: float, longest: float | None, run: Path | None, json: bool) -> int:
    from align.lint.examine_environment import follow_memory

    return finish(follow_memory(pid, every, longest, _running_line()), {}, run, json)


def _running_line() -> Callable[[float, int], None]:
    """Show each sample on standard error, on a terminal only."""
    if not sys.stderr.isatty():
        return lambda _seconds, _resident: None
    return lambda seconds, size: tell_in_place(f"{seconds:8.0f} s {size / MEGABYTE:10,.0f} MB")


# `align lint`: the settings of two models, compared before any run.


def lint_command(  # noqa: PLR0913 - one parameter an option
    reference: ReferenceArgument = None,
    candidate: CandidateArgument = None,
    map_file: MapOption = None,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Steps over which learning rates are compared. [default: all, or 1000 and more]"),
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Show every layer in a row of its own.")] = False,
    project: ProjectOption = None,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Compare the settings of all paired layers (or of two optimizers) before any run; say which line to change.

    Exit code 0: nothing above a note; 1: findings; 2: nothing could be compared.
    """
    from align.lint.lint_models import lint_models
    from align.runs.read_settings import read_settings

    settings = read_settings(project, reference, candidate, map_file=map_file)
    sides = {"reference": str(settings.reference.model), "candidate": str(settings.candidate.model)}
    result = lint_models(*sides.values(), name_map=settings.map, steps=steps)
    return finish(result, {**sides, "map": settings.map}, run, json, show_all=show_all)


# `align explain`: what a code means that a result names.


def explain_command(
    code: Annotated[
        str | None, typer.Argument(metavar="CODE", help="A code that a result names; without one, list all.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Say what a code of a finding or a cause means, which settings it is about, and what to write."""
    from itertools import chain
    from json import dumps

    from align.report.show_result import print_explanations
    from align.rules.codes import explain_code, explanations
    from align.words.catalogue import speaking

    with speaking():
        try:
            shown = [*explain_code(code)] if code else [*chain.from_iterable(explanations().values())]
        except KeyError as error:
            raise UsageError.of("cli_usage.no_code", code=code, close=error.args[0]) from None
        if json:
            print_json(dumps([dataclasses.asdict(meaning) for meaning in shown], indent=1, ensure_ascii=False))
        else:
            print_explanations(shown, listed=not code)
    return 0


# `align scan`: what of a torch model MindSpore has, call by call, before a line of the port is written.


def scan_command(  # noqa: PLR0913 - one parameter an option
    model: TorchModelArgument,
    target: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What the port is to run on: cpu, gpu or ascend:CHIP; torch_npu lists the fused operators of a file.",
        ),
    ] = "cpu",
    inputs: BatchesOption = None,
    input_specs: InputSpecsOption = None,
    seed: SeedOption = 0,
    show_all: Annotated[bool, typer.Option("--all", help="Show what is the same in MindSpore too.")] = False,
    skeleton: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the port's layers in MindSpore into a file.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace that file if it exists.")] = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """List what a torch model calls that MindSpore lacks or does differently, and what to write instead.

    Exit code 0: everything has a counterpart; 1: something has none, has no kernel on the target, or is not known; 2:
    it could not be run or read.
    """
    from align.rules.ascend_rules import scan_target
    from align.runs.read_settings import file_or_function, given_batches, numbered_sources
    from align.scan.scan_model import FUSED_TARGET, scan_model
    from align.words.catalogue import say

    if target.lower() != FUSED_TARGET:
        scan_target(target)  # refused before the model is built
    elif inputs or input_specs or skeleton:
        raise UsageError.of("cli_usage.fused_scan")
    if skeleton is not None:
        from align.scan.write_skeleton import write_skeleton

        write_skeleton(model, skeleton, force=force)
        tell(say("skeleton.written", path=skeleton), err=json)
    given = [file_or_function(one) for one in inputs or ()]
    source = given_batches(given, input_specs or (), seed) if given or input_specs else None
    with progress_bar() as progress:
        result = scan_model(model, inputs=source, target=target, progress=progress)
    sources: dict[str, Path | str] = {"model": model, "target": target, **numbered_sources("inputs", given)}
    hand_over(result, sources, run, json, show_all=show_all)
    return result.exit_code


# `align advise`: why a training is slow, from its logs and profiles.


def advise_command(
    candidate: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Logs, profiles, records of align.watch, or folders of these."),
    ],
    baseline: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE...", help="The same of the reference: says what makes a step longer."),
    ] = None,
    at_most: Annotated[
        float | None,
        typer.Option(metavar="RATIO", help="A step may take so many times the reference's. [default: 1.2]"),
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Show notes, and all parts of a step, too.")] = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Say why a training is slow or out of memory: what costs most, where it shows, and the line to write.

    Exit code 0: nothing above a note, and a step within --at-most; 1: advice; 2: no file says anything.
    """
    from align.advice.advise import advise
    from align.runs.read_settings import numbered_sources

    bound = {} if at_most is None else {"at_most": at_most}
    result = advise(candidate, baseline=baseline or (), **bound)
    sources = {**numbered_sources("candidate", candidate), **numbered_sources("reference", baseline or [])}
    return finish(result, sources, run, json, show_all=show_all)


# `align plugins`: what is installed, what is missing, and how to get it.


def plugins_command(
    check: Annotated[
        bool, typer.Option("--check", help="Hold rules and plugins of your own against their examples.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """List frameworks, formats of checkpoints, logs, dumps and settings, rungs and model families; say what is usable.

    Exit code, with --check, 0: every example of your own rules and plugins is as it should be; 1: some are not.
    """
    import json as json_module

    from align.report.show_result import print_plugins

    if check:
        from align.runs.check_plugins import check_plugins

        checks = check_plugins()
        rows = [{**dataclasses.asdict(one), "reasons": list(one.reasons)} for one in checks]
        print_json(json_module.dumps(rows, indent=1)) if json else print_plugins(rows)
        return 1 if any(one.state == "failed" for one in checks) else 0
    rows = _plugin_rows()
    print_json(json_module.dumps(rows, indent=1)) if json else print_plugins(rows)
    return 0


def _plugin_rows() -> list[dict[str, Any]]:
    from align.core.load_code import INSTALL_HINT, plugin_states, refused_plugins
    from align.rules.model_families import model_families

    rows = []
    for state in plugin_states(try_import=False):
        hint = "; ".join(INSTALL_HINT.get(package, f"pip install {package}") for package in state.missing)
        rows.append(
            {
                "room": state.kind,
                "name": state.plugin.name,
                "summary": state.plugin.summary,
                "state": f"missing: {hint}" if state.missing else "ready",
                "package": state.package,
            }
        )
    rows += [
        {
            "room": entry.group.partition(".")[2],
            "name": entry.entry,
            "summary": "",
            "state": f"refused: {entry.fault}",
            "package": entry.package,
        }
        for entry in refused_plugins()
    ]
    rows += [
        {"room": "families", "name": family.name, "summary": family.about, "state": "ready", "package": ""}
        for family in model_families()
    ]
    return rows


def schema_command(
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", help="Kind of document, such as forward; without one, list them.")
    ] = None,
) -> int:
    """Print the JSON schema of what --json prints and run folders hold, of one kind of result or of an error."""
    folder = PACKAGE / "runs" / "schemas"
    kinds = sorted(path.name.partition(".")[0] for path in folder.glob("*.schema.json"))
    if kind is None:
        tell("\n".join(kinds))
        return 0
    if kind not in kinds:
        raise UsageError.of("cli_usage.no_schema", kind=kind, kinds=kinds)
    print_json((folder / f"{kind}.schema.json").read_text(encoding="utf-8").rstrip())
    return 0
