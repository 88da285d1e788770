"""`align convert`: a checkpoint of one framework becomes one that the other loads."""

from __future__ import annotations

import enum
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from align.cli.parts.batch_jobs import BatchOption, run_folders
from align.cli.parts.output import tell
from align.cli.parts.shared import (
    JsonOption,
    RunOption,
    TrustPickleOption,
    hand_over,
    import_report_meanwhile,
    progress_bar,
)

if TYPE_CHECKING:
    from align.convert.conversion_result import ConversionRecord


class Family(str, enum.Enum):
    """Whose parameter names the target has."""

    nn = "nn"
    mint = "mint"
    torch = "torch"


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
        Family | None,
        typer.Option(help="Whose names to write, where no map is given; by default nn, or torch for .pth."),
    ] = None,
    layer: Annotated[
        Texts,
        typer.Option(metavar="PATTERN=KIND", help="Say what a layer is that the file leaves open; may be repeated."),
    ] = None,
    strip: Annotated[
        Texts, typer.Option(metavar="PREFIX", help="Take a prefix such as module. off every name; may be repeated.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Entry of a nested file that holds the weights; see align inspect."),
    ] = None,
    dtype: Annotated[Precision | None, typer.Option(help="Cast floating tensors.")] = None,
    max_shard_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Cut .safetensors into shards of at most 5GB, 500MB, 2GiB ...")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Read back and compare what was written.")
    ] = True,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the destination if it exists.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done; write nothing.")] = False,
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
    of_file |= {"dtype": dtype and dtype.value, "max_shard_size": max_shard_size}
    of_models: dict[str, object] = {"source_model": source_model, "target_model": target_model}
    of_run: dict[str, object] = {"dry_run": dry_run, "trust_pickle": trust_pickle}
    if as_batch:
        given = {"map": map_file, **of_file, "overwrite": overwrite, **({} if verify else {"verify": verify})}
        unfit = _as_options({**of_models, "dry_run": dry_run, "into": into, "out": out, "trust_pickle": trust_pickle})
        return run_folders("convert", (source, destination), given, unfit, run, json=json, show_all=show_all)
    if into or out:
        needless = _as_options({"target_model": target_model, **of_file, **of_run, "run": run, "json": json})
        _check_into(destination, out, [name for name, value in needless.items() if value], into=into)
        return _into(source, destination, out or destination, source_model, map_file, overwrite=overwrite)
    if not json:
        import_report_meanwhile()
    how = {**of_file, **of_models, **of_run, "verify": verify, "overwrite": overwrite}
    record = _converted(source, destination, map_file, how)
    hand_over(record, {"source": source, **({"map": Path(map_file)} if map_file else {})}, run, json, show_all=show_all)
    return record.verdict.exit_code if verify and not dry_run else 0  # nothing was to be compared


def _converted(source: Path, destination: Path, map_file: str | None, how: dict[str, Any]) -> ConversionRecord:
    from align.convert.convert_checkpoint import convert_checkpoint

    layers, strip = how.pop("layer") or (), how.pop("strip") or ()
    with progress_bar() as progress:
        return convert_checkpoint(
            source, destination, name_map=map_file, layers=layers, strip=strip, progress=progress, **how
        )


def _as_options(named: dict[str, object]) -> dict[str, object]:
    """The same by what is typed: `--dry-run`."""
    return {f"--{name.replace('_', '-')}": value for name, value in named.items()}


def _check_into(model: Path, out: Path | None, used: list[str], *, into: bool) -> None:
    """Refuse what makes no sense beside --into, before any work is done."""
    from align.core.registry import file_models
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
    from align.words.catalogue import say
    from align.words.message_words import first_few

    done = convert_into_onnx(source, model, out, source_model=source_model, name_map=map_file, overwrite=overwrite)
    facts = {"parameters": done.parameters, "initializers": done.initializers, "unchanged": done.unchanged}
    tell(say("convert.into", out=out, **facts))
    if done.constants:
        tell(say("convert.into_constants", names=first_few(done.constants)))
    words = {"model": source_model or "MODEL", "out": out, "source": source}
    tell(say("convert.into_compare", **{key: shlex.quote(str(value)) for key, value in words.items()}))
    return 0
