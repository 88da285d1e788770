"""`align convert`: a checkpoint of one framework becomes one that the other loads."""

from __future__ import annotations

import dataclasses
import enum
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from align.cli.comparisons import BatchOption, run_folders
from align.cli.given import tell
from align.cli.shared import (
    AllTensorsOption,
    CandidateCheckpointOption,
    InputSpecsOption,
    JsonOption,
    ProjectOption,
    RunOption,
    SeedOption,
    TrustPickleOption,
    finish,
    hand_over,
    import_report_meanwhile,
    progress_bar,
)
from align.errors import UsageError
from align.words.catalogue import few, say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.convert.convert_checkpoint import ConversionRecord
    from align.core.verdicts import Verdict
    from align.models.open_side import SideRequest
    from align.names.map_file import KeptLines
    from align.names.map_result import MapCheck, MapResult
    from align.runs.run_folder import Result

    Requests = tuple[str | SideRequest, str | SideRequest]


class Family(str, enum.Enum):
    """Whose parameter names the target has."""

    nn = "nn"
    mint = "mint"
    torch = "torch"


class Preference(str, enum.Enum):
    """Which weights are meant where a file has them twice."""

    live = "live"
    ema = "ema"


class Dequantized(str, enum.Enum):
    """In what dtype the values of quantized weights are written."""

    bf16 = "bf16"
    fp32 = "fp32"


class RankLayout(str, enum.Enum):
    """In what form the parts of ranks are written."""

    megatron = "megatron"
    mindspore = "mindspore"
    safetensors = "safetensors"


class Precision(str, enum.Enum):
    """To what floating tensors are cast."""

    bf16 = "bf16"
    fp16 = "fp16"
    fp32 = "fp32"


Texts = list[str] | None


def convert_command(  # noqa: PLR0913 - one parameter an option
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="Checkpoint, index or folder; its content shows its format.")
    ],
    destination: Annotated[
        Path, typer.Argument(metavar="DESTINATION", help="File to write; its suffix sets the format: .ckpt .pth ...")
    ],
    map_file: Annotated[
        str | None, typer.Option("--map", metavar="FILE", help="Name map of `align map`, or an earlier convert.json.")
    ] = None,
    source_model: Annotated[
        str | None, typer.Option(metavar="SIDE", help="Model that the source fits, as `module:function`.")
    ] = None,
    target_model: Annotated[
        str | None, typer.Option(metavar="SIDE", help="Model that the target must fit; needs --source-model.")
    ] = None,
    family: Annotated[str | None, typer.Option(metavar="NAME", help="Ready map of a model family.")] = None,
    target: Annotated[
        Family | None, typer.Option(help="Kind of names to write if no map is given; by default nn, or torch for .pth.")
    ] = None,
    layer: Annotated[
        Texts,
        typer.Option(
            metavar="PATTERN=KIND", help="Give the kind of a layer that the file leaves open; may be repeated."
        ),
    ] = None,
    strip: Annotated[
        Texts, typer.Option(metavar="PREFIX", help="Remove a prefix such as module. from every name; may be repeated.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Entry of a nested file that holds the weights; see align inspect."),
    ] = None,
    parts: Annotated[
        Texts,
        typer.Option(
            metavar="KEY", help="Entry that is a part of the model, its name in front of all of its names; or: all."
        ),
    ] = None,
    prefer: Annotated[
        Preference | None, typer.Option(help="Weights to take where the file has an average (EMA) of them as well.")
    ] = None,
    dtype: Annotated[Precision | None, typer.Option(help="Cast floating tensors.")] = None,
    dequantize: Annotated[
        Dequantized | None, typer.Option(help="Write the values of quantized weights: bf16 as most models, or fp32.")
    ] = None,
    merge_adapter: Annotated[
        Path | None, typer.Option(metavar="ADAPTER", help="Add the updates of a LoRA adapter, a folder or a file.")
    ] = None,
    max_shard_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Cut .safetensors into shards of at most 5GB, 500MB, 2GiB ...")
    ] = None,
    shards: Annotated[
        str | None,
        typer.Option(metavar="COUNTS", help="Write a folder of ranks: tp=4,pp=2 (ep=, groups=); needs --layout."),
    ] = None,
    layout: Annotated[RankLayout | None, typer.Option(help="Whose ranks --shards writes.")] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Read back and compare what was written.")
    ] = True,
    sha256: Annotated[
        bool, typer.Option("--sha256", help="Keep the SHA-256 of each tensor in the record, in place of XXH3.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the destination if it exists.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done; write nothing.")] = False,
    with_state: Annotated[
        bool, typer.Option("--with-state", help="Carry the state of the optimizer too, so that training can go on.")
    ] = False,
    state_for: Annotated[
        str | None,
        typer.Option(metavar="OPTIMIZER", help="MindSpore's optimizer of the state: nn.Adam, mint.AdamW ..."),
    ] = None,
    state_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File of torch's optimizer state, where SOURCE does not hold it."),
    ] = None,
    into: Annotated[
        bool, typer.Option("--into", help="Put the weights into DESTINATION, an ONNX file; -o names the new file.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="With --into: file to write.")] = None,
    as_batch: BatchOption = False,
    trust_pickle: TrustPickleOption = False,
    show_all: Annotated[bool, typer.Option("--all", help="List every tensor with its old and new name.")] = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Convert a checkpoint, read the result back and compare it bit for bit; neither framework is needed."""
    of_file = {"family": family, "target": target and target.value, "layer": layer, "strip": strip, "key": key}
    of_file |= {"parts": parts, "prefer": prefer and prefer.value}
    of_file |= {"dtype": dtype and dtype.value, "max_shard_size": max_shard_size}
    of_file |= {"dequantize": dequantize and dequantize.value}
    of_models: dict[str, object] = {"source_model": source_model, "target_model": target_model}
    of_state = {"with_state": with_state, "state_for": state_for, "state_file": state_file}
    of_run: dict[str, object] = {"dry_run": dry_run, "trust_pickle": trust_pickle, "merge_adapter": merge_adapter}
    of_run |= of_state | {"sha256": sha256}
    of_ranks: dict[str, object] = {"shards": shards, "layout": layout and layout.value}
    if as_batch:
        given = {"map": map_file, **of_file, "overwrite": overwrite, **({} if verify else {"verify": verify})}
        unfit = _as_options(
            {
                **of_models,
                **of_ranks,
                "dry_run": dry_run,
                "into": into,
                "out": out,
                "trust_pickle": trust_pickle,
                "merge_adapter": merge_adapter,
                "sha256": sha256,
                **of_state,
            }
        )
        return run_folders("convert", (source, destination), given, unfit, run, json=json, show_all=show_all)
    if into or out:
        needless = _as_options(
            {"target_model": target_model, **of_file, **of_run, **of_ranks, "run": run, "json": json}
        )
        _check_into(destination, out, [name for name, value in needless.items() if value], into=into)
        return _into(source, destination, out or destination, source_model, map_file, overwrite=overwrite)
    if not json:
        import_report_meanwhile()
    how = {**of_file, **of_models, **of_run, **of_ranks, "verify": verify, "overwrite": overwrite}
    record = _converted(source, destination, map_file, how)
    sources = {"source": source, "map": Path(map_file) if map_file else None}
    hand_over(record, sources, run, json, show_all=show_all)
    return record.verdict.exit_code if verify and not dry_run else 0  # nothing was to be compared


def _converted(source: Path, destination: Path, map_file: str | None, how: dict[str, Any]) -> ConversionRecord:
    from align.convert.convert_checkpoint import convert_checkpoint

    several = {"layers": how.pop("layer"), "strip": how.pop("strip"), "parts": how.pop("parts")}
    how |= {name: given or () for name, given in several.items()}
    with progress_bar() as progress:
        return convert_checkpoint(source, destination, name_map=map_file, progress=progress, **how)


def _as_options(named: dict[str, object]) -> dict[str, object]:
    """The same by what is typed: `--dry-run`."""
    return {f"--{name.replace('_', '-')}": value for name, value in named.items()}


def _check_into(model: Path, out: Path | None, used: list[str], *, into: bool) -> None:
    """Refuse what makes no sense beside --into, before any work is done."""
    from align.core.load_code import file_models
    from align.errors import UsageError

    if out is None or not into:
        raise UsageError.of("into_onnx.no_out")
    if used:
        raise UsageError.of("into_onnx.not_with_into", used=used)
    if file_models(model) is None:
        raise UsageError.of("into_onnx.no_model", model=model)


def _into(
    source: Path, model: Path, out: Path, source_model: str | None, map_file: str | None, *, overwrite: bool
) -> int:
    from align.convert.into_onnx import convert_into_onnx

    done = convert_into_onnx(source, model, out, source_model=source_model, name_map=map_file, overwrite=overwrite)
    facts = {"parameters": done.parameters, "initializers": done.initializers, "unchanged": done.unchanged}
    tell(say("convert.into", out=out, **facts))
    if done.constants:
        tell(say("convert.into_constants", names=few(done.constants)))
    words = {"model": source_model or "MODEL", "out": out, "source": source}
    tell(say("convert.into_compare", **{key: shlex.quote(str(value)) for key, value in words.items()}))
    return 0


# `align diff`: what two checkpoints differ by, or what training moved on two sides.

_UPDATES = ("A0", "A1", "B0", "B1")


def diff_command(  # noqa: PLR0913 - one parameter an option
    reference: Annotated[
        Path | None, typer.Argument(metavar="A", help="Checkpoint, index or folder: the reference.")
    ] = None,
    candidate: Annotated[
        Path | None, typer.Argument(metavar="B", help="Checkpoint, index or folder: the candidate.")
    ] = None,
    map_file: Annotated[
        Path | None,
        typer.Option("--map", metavar="FILE", help="Name map between A and B, or the convert.json of a conversion."),
    ] = None,
    updates: Annotated[
        tuple[Path, Path, Path, Path] | None,
        typer.Option(
            metavar=" ".join(_UPDATES), help="Compare what training changed: A before and after, B before and after."
        ),
    ] = None,
    strip: Annotated[
        list[str] | None,
        typer.Option(metavar="PREFIX", help="Remove a prefix such as module. from the names; may be repeated."),
    ] = None,
    unchanged: Annotated[
        bool, typer.Option("--unchanged", help="List what is equal bit for bit: what a training step did not change.")
    ] = False,
    key_a: Annotated[
        str | None, typer.Option(metavar="KEY", help="Entry of A that holds the weights, if A is a nested file.")
    ] = None,
    key_b: Annotated[
        str | None, typer.Option(metavar="KEY", help="Entry of B that holds the weights, if B is a nested file.")
    ] = None,
    dequantize: Annotated[
        Dequantized | None, typer.Option(help="Compare the values of quantized weights, made in bf16 or fp32.")
    ] = None,
    trust_pickle: Annotated[
        bool, typer.Option("--trust-pickle", help="Let torch run the code in A or B: only for files you trust.")
    ] = False,
    as_batch: BatchOption = False,
    show_all: AllTensorsOption = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Compare two checkpoints of any formats, worst first, or with --updates what training changed on two sides.

    Exit code 0: all values, or updates, are alike; 1: something differs or is missing; 2: nothing could be compared.
    """
    if as_batch:
        given = {"map": map_file and str(map_file), "strip": strip, "key_a": key_a, "key_b": key_b}
        needless: dict[str, object] = {"--updates": updates, "--unchanged": unchanged, "--trust-pickle": trust_pickle}
        needless["--dequantize"] = dequantize
        return run_folders("diff", (reference, candidate), given, needless, run, json=json, show_all=show_all)
    files = _chosen((reference, candidate), updates, unchanged=unchanged, dequantize=dequantize is not None)
    options: dict[str, Any] = {"name_map": map_file, "strip": strip or (), "trust_pickle": trust_pickle}
    result, verdict = (
        _updates(files, (key_a, key_b), options)
        if updates
        else _values(
            files, (key_a, key_b), options | {"unchanged": unchanged, "dequantize": dequantize and dequantize.value}
        )
    )
    roles = ("reference before", "reference after", "candidate before", "candidate after")
    sides = dict(zip(roles if updates else ("reference", "candidate"), files, strict=True))
    sides |= {"map": map_file} if map_file else {}
    # Hashes of whole files would cost more time than the comparison: only a result that is kept has them.
    made_from: dict[str, Path | str] = {role: path if run else str(path) for role, path in sides.items()}
    hand_over(result, made_from, run, json, show_all=show_all)
    return verdict.exit_code


def _chosen(
    sides: tuple[Path | None, Path | None], updates: tuple[Path, ...] | None, *, unchanged: bool, dequantize: bool
) -> list[Path]:
    """The files that are to be compared, all of which are there; raises UsageError if it is unclear which."""
    from align.checkpoints.open_checkpoint import require_checkpoint

    given = [side for side in sides if side is not None]
    if updates and given:
        raise UsageError.of("cli_usage.five_checkpoints", given=given[0], wanted=_UPDATES)
    if updates and unchanged:
        raise UsageError.of("cli_usage.unchanged_updates")
    if updates and dequantize:
        raise UsageError.of("cli_usage.dequantized_updates")
    if not updates and len(given) < len(sides):
        raise UsageError.of("cli_usage.one_checkpoint", wanted=_UPDATES)
    files = [*(updates or given)]
    for path in files:
        require_checkpoint(path)
    return files


def _values(files: list[Path], keys: tuple[str | None, str | None], options: dict[str, Any]) -> tuple[Result, Verdict]:
    from align.convert.diff_checkpoints import diff_checkpoints

    with progress_bar() as progress:
        result = diff_checkpoints(*files, reference_key=keys[0], candidate_key=keys[1], progress=progress, **options)
    return result, result.verdict


def _updates(files: list[Path], keys: tuple[str | None, str | None], options: dict[str, Any]) -> tuple[Result, Verdict]:
    from align.convert.diff_checkpoints import diff_updates

    with progress_bar() as progress:
        result = diff_updates((files[0], files[1]), (files[2], files[3]), keys=keys, progress=progress, **options)
    return result, result.verdict


# `align inspect`: what is in a checkpoint.


def inspect_command(  # noqa: PLR0913 - one parameter an option
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Checkpoint, sharded index or folder of any format.")],
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Entry of a nested file, as the table of entries names it.")
    ] = None,
    trust_pickle: TrustPickleOption = False,
    check: Annotated[
        bool, typer.Option("--check", help="Read everything that has a CRC in the file, and check it against the CRC.")
    ] = False,
    show_all: AllTensorsOption = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Show what is in a checkpoint: tensors, dtypes, sizes, ties, metadata; only headers are read.

    Exit code 0 if it can be read and, with --check, is not damaged; else 2.
    """
    from align.checkpoints.inspect_checkpoint import inspect_checkpoint

    # The file is named by its path alone: its hash would need all of it.
    found = inspect_checkpoint(file, key, trust_pickle=trust_pickle, check=check)
    hand_over(found, {"file": str(file)}, run, json, show_all=show_all)
    return 0


# `align map`: which parameter of the one side is which of the other.

_WHY = {
    "--target": "cli_usage.beside_target",
    "--check": "cli_usage.beside_check",
    "CANDIDATE": "cli_usage.beside_candidate",
}
_MODEL_OR_CHECKPOINT = (
    "A model (`package.module:function` or `file.py:function`) or a checkpoint (file, index or folder); "
    "by default the model of the project file."
)


def map_command(  # noqa: PLR0913 - one parameter an option
    reference: Annotated[str | None, typer.Argument(help=_MODEL_OR_CHECKPOINT, metavar="REFERENCE")] = None,
    candidate: Annotated[str | None, typer.Argument(help=_MODEL_OR_CHECKPOINT, metavar="CANDIDATE")] = None,
    rules: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Map file with names and patterns that are never overruled.")
    ] = None,
    inputs: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Run both models on these inputs: the order of execution becomes evidence."),
    ] = None,
    input_specs: InputSpecsOption = None,
    seed: SeedOption = 0,
    trial: Annotated[
        bool, typer.Option("--trial", help="Decide ambiguous pairs by the effect of values on --inputs; takes longer.")
    ] = False,
    trial_if_open: Annotated[
        bool,
        typer.Option(
            "--trial-if-open",
            help="Like --trial, but only where names leave something open, and if both models can run.",
        ),
    ] = False,
    explain: Annotated[
        str | None, typer.Option(metavar="NAME", help="Explain why this parameter, of either side, is paired.")
    ] = None,
    reference_checkpoint: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Weights of the reference: equal values decide ambiguous pairs.")
    ] = None,
    candidate_checkpoint: CandidateCheckpointOption = None,
    family: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Ready map of a model family; auto: the one that knows all names."),
    ] = None,
    target: Annotated[
        Family | None, typer.Option(help="Map REFERENCE alone, to the names that such layers give its parameters.")
    ] = None,
    layer: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN=KIND", help="With --target: the kind of a layer that a checkpoint leaves open."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Map to write (.toml, .csv, .json); your lines in a .toml file are kept."),
    ] = None,
    expand: Annotated[
        bool, typer.Option("--expand", help="Write one line per pair, no ranges such as {0..11}.")
    ] = False,
    strict_rules: Annotated[bool, typer.Option("--strict-rules", help="Refuse rules that match nothing.")] = False,
    check: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Make no map, but check this one against both sides.")
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Show all pairs, and the parameters of both sides, in ranges.")
    ] = False,
    project: ProjectOption = None,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Map the parameters of two models or checkpoints, or with --target of one, and write the map as a file to edit.

    Exit code 0: every parameter has a certain pair, or is dropped with a reason; 1: some are open. With --check, 1: the
    map has faults.
    """
    from align.names.map_export import is_editable, read_map_rules, require_used
    from align.names.map_one_side import map_one_side
    from align.names.map_parameters import map_parameters
    from align.runs.read_settings import given_inputs

    checkpoints = {"reference_checkpoint": reference_checkpoint, "candidate_checkpoint": candidate_checkpoint}
    _check_options(
        {"CANDIDATE": candidate, "--rules": rules, "--inputs": inputs, "--trial": trial, "--family": family}
        | {"--trial-if-open": trial_if_open, "--explain": explain}
        | {"--input": input_specs}
        | {"--target": target, "--layer": layer, "--out": out, "--check": check}
        | {f"--{name.replace('_', '-')}": path for name, path in checkpoints.items()}
    )
    names = _sides(project, reference, candidate, reference_only=target is not None)
    sources = {"rules": rules, "inputs": Path(inputs) if inputs and ":" not in inputs else inputs, "map": check}
    made_from = _made_from(names, {**sources, **checkpoints})
    if check is not None:
        return finish(_judge(_requested(names, checkpoints), check), made_from, run, json, show_all=show_all)
    files = _files(out, run)
    map_rules = read_map_rules(rules, next(filter(is_editable, files), None))
    with progress_bar() as progress:
        if target is not None:
            result = map_one_side(names[0], target.value, family=family, layers=layer or (), rules=map_rules.rules)
        else:
            sides = _requested(names, checkpoints)
            given = given_inputs(inputs, input_specs or (), seed) if inputs or input_specs else None
            how: bool | Literal["open"] = trial or ("open" if trial_if_open else False)
            result = map_parameters(*sides, rules=map_rules, inputs=given, trial=how, family=family, progress=progress)
    if rules is not None and not map_rules.rules.all_rules:
        warning = f"{rules} holds no rule of yours: what align found is found again (docs/map.md)"
        result = dataclasses.replace(result, warnings=(*result.warnings, warning))
    if strict_rules:
        require_used(result.name_map.unused_rules, map_rules.rules)
    if target is not None and not result.name_map.complete:
        files = []
    _write(files, result, map_rules.kept, run, expand)
    if explain is None or json:
        hand_over(result, made_from, run, json, show_all=show_all)
    else:
        _explain(result, made_from, run, explain)
    if not json:
        for path in files:
            tell(say("told.map_file", path=path))
    return result.verdict.exit_code


def _explain(result: MapResult, made_from: Mapping[str, Path | str], run: Path | None, name: str) -> None:
    """Print what is known of one parameter, in the place of the whole map."""
    from align.report.show_result import explained_name
    from align.runs.run_folder import RunFolder, as_document

    for line in explained_name(as_document(result, made_from, hashed=False), name):
        tell(line)
    if run is not None:
        RunFolder.create(run).write(result, made_from)


def _sides(
    project: Path | None, reference: str | None, candidate: str | None, *, reference_only: bool
) -> tuple[str, ...]:
    """What names the sides; with `reference_only` the reference alone."""
    from align.errors import UsageError
    from align.runs.read_settings import read_settings

    if reference_only:
        return (str(read_settings(project, reference, "").reference.model),)
    try:
        settings = read_settings(project, reference, candidate)
    except UsageError as error:
        error.hint = say("names_usage.or_one_side", hint=error.hint)
        raise
    return str(settings.reference.model), str(settings.candidate.model)


def _made_from(sides: Sequence[str], given: Mapping[str, Path | str | None]) -> dict[str, Path | str]:
    from align.runs.read_settings import path_if_there

    named = zip(("reference", "candidate"), sides, strict=False)
    paths = {role: path_if_there(side) for role, side in named}
    return paths | {role: source for role, source in given.items() if source is not None}


def _check_options(given: Mapping[str, object]) -> None:
    """Refuse options that do not go together, and a map that cannot be written, before any work is done."""
    from align.errors import UsageError
    from align.names.map_export import check_suffix

    alone = "--inputs", "--input", "--trial", "--trial-if-open", "--check"
    runs = "--rules", "--inputs", "--input", "--trial", "--trial-if-open", "--family", "--out", "--explain"
    filled = "--reference-checkpoint", "--candidate-checkpoint"
    for beside, refused in (
        ("--target", ("CANDIDATE", *alone, *filled)),
        ("--check", runs),
        ("CANDIDATE", ("--layer",)),
    ):
        if given[beside] and (used := [name for name in refused if given[name]]):
            raise UsageError.of(_WHY[beside], used=used)
    if isinstance(out := given["--out"], Path):
        check_suffix(out)


def _files(out: Path | None, run: Path | None) -> list[Path]:
    """Where the map goes; what the user wrote into the first of them is kept."""
    return [*([out] if out is not None else []), *([run / "map.toml"] if run is not None else [])]


def _requested(sides: Sequence[str], checkpoints: Mapping[str, Path | None]) -> Requests:
    """What is asked of both sides: to be filled where there is a checkpoint for one."""
    from align.models.open_side import SideRequest

    left, right = (
        side if checkpoint is None else SideRequest(side, checkpoint)
        for side, checkpoint in zip(sides, checkpoints.values(), strict=True)
    )
    return left, right


def _judge(sides: Requests, name_map: Path) -> MapCheck:
    from align.names.map_parameters import check_name_map

    return check_name_map(*sides, name_map)


def _write(files: Sequence[Path], result: MapResult, kept: KeptLines | None, run: Path | None, expand: bool) -> None:
    from align.names.map_export import write_map_file
    from align.runs.run_folder import RunFolder

    for path in files:
        if run is not None and path.parent == run:
            RunFolder.create(run)
        write_map_file(path, result, kept, expand=expand)
