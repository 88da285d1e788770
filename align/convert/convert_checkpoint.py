"""One checkpoint turned into another, in either direction, verified before it takes its place.

Everything that can stand against a conversion is looked at before the first byte is written: the names, the shapes,
what the destination's format can hold, the space on its disk. `write_checkpoint` then does the writing. A checkpoint
cut into several files is named as Hugging Face's loaders and MindSpore Transformers expect it: tensors keep their
order and are put into a shard until the next would not fit; what is larger than the limit has a shard of its own.
"""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from align.checkpoints.choose_weights import PREFERENCES, WeightsRequest, open_weights
from align.checkpoints.extents import byte_blocks, require_unchanged
from align.checkpoints.inspect_checkpoint import (
    dequantized,
    packed_error,
    packed_note,
    packed_weights,
    refuse_unfinished,
    refuse_unscaled,
)
from align.checkpoints.names_in_file import declared_framework, naming_direction, source_framework
from align.convert.adapters import adapted, adapter_file
from align.convert.choose_names import ChosenNames, NameRequest, choose_names, in_known_layout
from align.convert.optimizer_state import StateOptions, weights_path
from align.convert.plan_conversion import (
    ConversionPlan,
    number_warnings,
    plan_conversion,
    transformed_tensor,
    with_dtype,
)
from align.convert.state_for_torch import find_state
from align.convert.thresholds import CAST_BLOCK_ELEMENTS, MOST_KEPT_ELEMENTS
from align.convert.write_checkpoint import (
    HashKind,
    Output,
    OutputFile,
    TensorHashes,
    files_to_replace,
    index_bytes,
    index_name,
    shard_names,
    write_output,
)
from align.convert.write_ranks import RankOutput, check_rank_output, rank_output, rank_request, write_ranks
from align.core.about import __version__
from align.core.align_sequences import grouped
from align.core.atomic_files import check_space
from align.core.load_code import checkpoint_formats
from align.core.parameters import dtype_name, is_complex, is_float, numpy_dtype
from align.core.piece_transforms import Part, Sum
from align.core.protocols import Progress, silent
from align.core.transforms import Cast
from align.core.verdicts import Coverage, Outcome, ShownResult, Verdict
from align.errors import DestinationError, MapError, UnsupportedCheckpointError, UsageError, VerificationError
from align.words.catalogue import say, sentence, texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from align.checkpoints.choose_weights import Preference
    from align.checkpoints.inspect_checkpoint import PackedWeight
    from align.convert.plan_state import CarriedState, StatePlan
    from align.core.name_map import NameMap
    from align.core.parameters import Array, Checkpoint, Shape, StoredTensor
    from align.core.protocols import CheckpointFormat


Precision = Literal["fp32", "fp16", "bf16"]
TARGETS = ("nn", "mint", "torch")
DEQUANTIZED = ("bf16", "fp32")
PRECISIONS: dict[str, str] = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
FLAVOURS = {"torch": {"format": "pt"}, "mindspore": {"format": "ms"}}
INDEXED = ".safetensors"  # the one kind of file for which loaders of both sides know shards


def convert_checkpoint(  # noqa: PLR0913 - the options of one command
    source: Path | str,
    destination: Path | str,
    *,
    name_map: NameMap | Path | str | None = None,
    source_model: str | None = None,
    target_model: str | None = None,
    family: str | None = None,
    target: Literal["nn", "mint", "torch"] | None = None,
    layers: Iterable[str] = (),
    strip: Iterable[str] = (),
    key: str | None = None,
    parts: Iterable[str] = (),
    prefer: Preference | None = None,
    dtype: Precision | None = None,
    dequantize: Literal["bf16", "fp32"] | None = None,
    merge_adapter: Path | str | None = None,
    max_shard_size: str | int | None = None,
    shards: str | None = None,
    layout: Literal["megatron", "mindspore", "safetensors"] | None = None,
    verify: bool = True,
    sha256: bool = False,
    overwrite: bool = False,
    dry_run: bool = False,
    trust_pickle: bool = False,
    with_state: bool = False,
    state_for: str | None = None,
    state_file: Path | str | None = None,
    progress: Progress = silent,
) -> ConversionRecord:
    """Convert a checkpoint; the source's format is known by content, the destination's by suffix.

    Names: `name_map` is a map, a map file or the record of an earlier conversion, applied in the direction that fits;
    `source_model` and `target_model` are models as `module:function`; `family` is a ready map of `mappings/models`.
    Without any of these the file alone decides, for the layers of `target`; `layers` decides what it leaves open, each
    as "PATTERN=KIND". `strip` names prefixes to take off, `key` the entry of a nested file, `parts` several of them
    ("all" for every one), whose names then begin with theirs; `prefer` says which of live and averaged weights (EMA)
    are meant where a file has both. Values: `dtype` casts floating tensors, `dequantize` makes the values of quantized
    weights, `merge_adapter` adds the updates of an adapter, a folder or a file, to them. `shards` ("tp=4,pp=2")
    and `layout` write a folder of ranks. `verify=False` writes without reading back, `dry_run` writes nothing; the
    record says so. With `sha256` the record has the SHA-256 of each tensor, not XXH3.
    `trust_pickle` lets torch run what a file pickles.
    `with_state` carries the state of the optimizer too, `state_for` names MindSpore's (`nn.Adam`), `state_file` is
    torch's file of it; beside a map a model tells the order of its parameters.

    Raises UsageError, OpenNamesError, MapError, DestinationError, VerificationError and what reading the source raises;
    after any of them the destination is as it was.

    >>> import numpy, tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> numpy.savez(folder / "torch.npz", **{"bn.weight": numpy.ones(3), "bn.bias": numpy.zeros(3)})
    >>> record = convert_checkpoint(folder / "torch.npz", folder / "mindspore.ckpt")
    >>> [(tensor.source, tensor.target) for tensor in record.tensors]
    [('bn.weight', 'bn.gamma'), ('bn.bias', 'bn.beta')]
    >>> record.verdict.outcome.value, record.verified
    ('aligned', True)
    """
    destination = Path(destination)
    _check_choices(target, dtype, dequantize, prefer)
    if sha256 and not verify:
        raise UsageError.of("convert_usage.no_sha256")
    carries_state = with_state or state_for or state_file
    ranks = rank_request(shards, layout, with_state=bool(carries_state)) if shards or layout else None
    plugin = _format_for(destination) if ranks is None else ranks.plugin
    limit = _shard_limit(max_shard_size, destination)
    options = StateOptions(state_for, Path(state_file) if state_file else None) if carries_state else None
    path = weights_path(source, options) if options else Path(source)
    checkpoint = _opened(path, WeightsRequest(key, _texts(parts), prefer), trust_pickle)
    checkpoint = _with_values(checkpoint, dtype, dequantize)
    request = NameRequest(name_map, source_model, target_model, family, target, _texts(layers), _texts(strip), prefer)
    if merge_adapter is not None or any("lora_" in name for name in checkpoint.tensors):
        checkpoint, request = adapted(checkpoint, request, merge_adapter, plugin.framework)
    checkpoint, request = in_known_layout(checkpoint, request, plugin.framework)
    task = find_state(checkpoint, request, options) if options else None
    if task is not None:
        checkpoint, request = task.checkpoint, task.request
    packed = packed_weights(checkpoint)
    if packed and not _reads_packed(checkpoint, request, plugin):
        raise packed_error(checkpoint, packed)
    names = choose_names(checkpoint, request, plugin.framework)
    plan = _sound_plan(checkpoint, names, dtype)
    if packed and not _stay_together(packed, checkpoint, plan, plugin):
        raise packed_error(checkpoint, packed)
    state = task.plan(names, plugin) if task else None
    flavour = FLAVOURS[names.framework]
    output = rank_output(plan.targets, flavour, destination, ranks, checkpoint) if ranks else None
    output = output or _output(plan, state, names, plugin, destination, limit)
    (check_rank_output if ranks else _check_output)(output, checkpoint, overwrite=overwrite)
    kept = [packed_note(packed)] if packed else []
    warnings = (*checkpoint.notes, *left_out_warnings(checkpoint), *kept, *names.warnings, *plan.warnings)
    job = Conversion(checkpoint, names, replace(plan, warnings=warnings), output, cast_losses(plan), state)
    if dry_run:
        return conversion_record(job, None, written=False)
    if checkpoint.check is not None:
        checkpoint.check()
    require_source = partial(require_unchanged, checkpoint)
    hashes = TensorHashes("sha256" if sha256 else "xxh3") if verify else None
    try:
        if isinstance(output, RankOutput):
            read_back = write_ranks(output, require_source, hashes, progress)
        else:
            read_back = write_output(output, require_source, hashes, progress)
    except VerificationError:
        require_source()  # its values may differ because it is another file by now
        raise
    return conversion_record(job, read_back if verify else None)


def _check_choices(target: str | None, dtype: str | None, dequantize: str | None, prefer: str | None) -> None:
    choices = (
        ("target", target, TARGETS),
        ("dtype", dtype, tuple(PRECISIONS)),
        ("dequantize", dequantize, DEQUANTIZED),
        ("prefer", prefer, PREFERENCES),
    )
    for option, given, known in choices:
        if given is not None and given not in known:
            raise UsageError.of("convert_usage.unknown_option", option=option, given=given, known=known)


def _texts(given: Iterable[str]) -> tuple[str, ...]:
    """A text alone is one, not its letters."""
    return (given,) if isinstance(given, str) else tuple(given)


def _format_for(destination: Path) -> CheckpointFormat:
    if not _letters(destination.name).isprintable():
        raise DestinationError.of("destination_fault.not_printable", destination=str(destination))
    if destination.is_dir():
        raise DestinationError.of("destination_fault.folder", destination=destination)
    written = {plugin.name: plugin for plugin in checkpoint_formats().values() if not plugin.problems([], {})}
    for plugin in written.values():
        if destination.suffix in plugin.suffixes:  # in small letters: MindSpore loads no others
            return plugin
    known = ", ".join(suffix for plugin in written.values() for suffix in plugin.suffixes)
    raise DestinationError.of(
        "destination_fault.unknown_suffix", suffix=destination.suffix, destination=destination, known=known
    )


def _letters(name: str) -> str:
    """A name in the letters that it has on the disk, whatever the locale takes for letters."""
    return os.fsencode(name).decode("utf-8", "surrogateescape")


def _shard_limit(size: str | int | None, destination: Path) -> int | None:
    if size is None:
        return None
    if destination.suffix != INDEXED:
        raise UsageError.of("convert_usage.no_shards", name=destination.name, indexed=INDEXED)
    return parse_size(size)


def _opened(source: Path, wanted: WeightsRequest, trust_pickle: bool) -> Checkpoint:
    """The source with its tensors; what only its own code can open goes through torch if that is trusted."""
    path = adapter_file(source) if source.is_dir() else source
    checkpoint = open_weights(path, wanted, trust_pickle=trust_pickle)
    if not checkpoint.tensors:
        raise UnsupportedCheckpointError(source, *texts("convert_fault.no_tensors"))
    refuse_unfinished(checkpoint)
    return checkpoint


def _with_values(checkpoint: Checkpoint, dtype: str | None, dequantize: str | None) -> Checkpoint:
    """The checkpoint with quantized weights as their values, if that is asked for; no cast leaves a scale out."""
    if dequantize is not None:
        return dequantized(checkpoint, PRECISIONS[dequantize])
    if dtype is not None:
        refuse_unscaled(checkpoint)
    return checkpoint


def _reads_packed(checkpoint: Checkpoint, request: NameRequest, plugin: CheckpointFormat) -> bool:
    """Whether who gets quantized weights may know them: the names stay, or the user says what becomes of each."""
    if request.name_map is not None or request.target_model is not None:
        return True
    source, _ = source_framework(checkpoint.metadata, checkpoint.tensors)
    return naming_direction(source, request.target, plugin.framework).family is None


def _stay_together(
    packed: Iterable[PackedWeight], checkpoint: Checkpoint, plan: ConversionPlan, plugin: CheckpointFormat
) -> bool:
    """Whether quantized weights and all that makes their values are written as they are, as far as this file has it."""
    written = {one.source: one.target for one in plan.tensors if one.target.dtype == one.before.dtype}
    wanted = [name for one in packed for name in (one.name, *one.companions) if name in checkpoint.tensors]
    return written.keys() >= {*wanted} and not plugin.problems([written[name] for name in wanted], {})


def _sound_plan(checkpoint: Checkpoint, names: ChosenNames, dtype: Precision | None) -> ConversionPlan:
    name_map, fills = names.name_map, names.fills
    if dtype is not None:
        name_map, fills = with_dtype(name_map, fills, checkpoint.tensors, PRECISIONS[dtype])
    plan = plan_conversion(checkpoint.tensors, name_map, fills, names.ties)
    if plan.problems:
        raise MapError(say("convert_fault.map_for", path=checkpoint.path), plan.problems)
    if not plan.tensors:
        raise MapError(say("convert_fault.map_for", path=checkpoint.path), [say("convert_fault.drops_all")])
    return plan


def _output(
    plan: ConversionPlan,
    state: StatePlan | None,
    names: ChosenNames,
    plugin: CheckpointFormat,
    destination: Path,
    limit: int | None,
) -> Output:
    """What goes into which file; raises DestinationError naming every tensor that the format cannot hold."""
    tensors = [*plan.targets, *(state.plan.targets if state else ())]
    plugin = state.nested if state is not None and state.nested is not None else plugin
    flavour = FLAVOURS[names.framework]
    if problems := plugin.problems(tensors, flavour):
        raise DestinationError.of("destination_fault.cannot_hold", destination=destination, problems=problems)
    shards = plan_shards(tensors, limit) if limit else [list(tensors)]
    files = shard_names(destination.name, len(shards))
    index = None
    if len(shards) > 1:
        index = destination.with_name(index_name(destination.name)), index_bytes(shards, files)
    outputs = (OutputFile(destination.with_name(name), tuple(s)) for name, s in zip(files, shards, strict=True))
    return Output(plugin, flavour, destination, tuple(outputs), index, tuple(files_to_replace(destination)))


def _check_output(output: Output, checkpoint: Checkpoint, *, overwrite: bool) -> None:
    folder = output.destination.parent
    if not folder.is_dir():
        fault = "destination_fault.no_folder" if folder.exists() else "destination_fault.folder_missing"
        raise DestinationError.of(fault, folder=folder)
    present = list(dict.fromkeys([*output.old, *(path for path in output.paths if path.exists())]))
    there = [path for path in present if path.exists()]
    if own := [path for path in there if any(path.samefile(file) for file in checkpoint.all_files)]:
        raise DestinationError.of("destination_fault.source_itself", destination=own[0])
    if present and not overwrite:
        raise DestinationError.of("destination_fault.exists", destination=present[0])
    files = [Path(os.path.realpath(file.path)) for file in output.files]
    if len(set(files)) < len(files):
        raise DestinationError.of("destination_fault.two_links", destination=output.destination)
    check_space(files[0].parent, output.nbytes)


SIZE = re.compile(r"\s*(\d{1,18})(\.\d{1,9})?\s*((?:[KMGT]i?)?B)?\s*", re.ASCII | re.IGNORECASE)
POWERS = "kmgt"


def parse_size(text: str | int) -> int:
    """Bytes of a size such as "5GB" (5 * 10^9, as Hugging Face counts), "2GiB" (2 * 2^30) or a plain number of bytes.

    Raises UsageError for anything else, and for a size below one byte.

    >>> parse_size("5GB"), parse_size("2GiB"), parse_size("1.5kB"), parse_size(1000)
    (5000000000, 2147483648, 1500, 1000)
    """
    found = SIZE.fullmatch(str(text))
    size = Fraction(found[1] + (found[2] or "")) * _factor((found[3] or "B").lower()) if found else 0
    if size < 1:
        raise UsageError.of("convert_usage.no_size", text=text)
    return int(size)


def plan_shards(tensors: Iterable[StoredTensor], most_bytes: int) -> list[list[StoredTensor]]:
    """Cut the tensors into shards of at most `most_bytes` bytes of values; tied tensors come into one shard.

    A tensor, or a group of tied ones, that is larger is alone in its shard. A group stands where its first name does.
    """
    shards: list[list[StoredTensor]] = []
    room = 0
    for group in grouped((tensor.identity, tensor) for tensor in tensors).values():
        size = sum(tensor.nbytes for tensor in group)
        if not shards or size > room:
            shards.append([])
            room = most_bytes
        shards[-1] += group
        room -= size
    return shards


def _factor(unit: str) -> int:
    base = 1024 if "i" in unit else 1000
    return int(base ** (POWERS.find(unit[0]) + 1))


# The record of a conversion: what became of every tensor, in enough detail to go back, and what was not kept.


@dataclass(frozen=True, slots=True)
class ConvertedTensor:
    """One tensor as written: its source, what was done, and the hash of its bytes where it was read back.

    `source` is "" for a tensor that the source lacks and the target needs.
    """

    source: str
    target: str
    shape: Shape
    dtype: str
    transform: dict[str, object]
    hash: str | None
    source_shape: Shape
    source_dtype: str


@dataclass(frozen=True, slots=True)
class DroppedValue:
    """The value of a small tensor that was left out: its bytes (little-endian, C order) as hexadecimal digits."""

    dtype: str
    shape: Shape
    data: str


@dataclass(frozen=True, slots=True)
class ConversionRecord(ShownResult):
    """What a conversion did. `verified` says whether what was written was read back and compared bit for bit.

    `files` are the files written, none in a dry run; `key` is the entry that was taken of a nested file. `names` says
    where the map comes from, `framework` whose names the target has. `content_hash` covers names, dtypes, shapes and
    values of all tensors, not how a file holds them; it is None without verification. `left_out` names what
    the source holds beside its tensors, and what it is. `source_framework` is whose names the source has, None where
    nothing says so. `dropped_target` are those of `dropped` that only the target has. `state` says what became of the
    optimizer's state, None where that was not asked for, and `state_tensors` are its tensors as written.
    """

    result_kind = "convert"
    source: str
    destination: str
    files: tuple[str, ...]
    source_format: str
    destination_format: str
    key: str
    names: str
    framework: Literal["torch", "mindspore"]
    content_hash: str | None
    tensors: tuple[ConvertedTensor, ...]
    dropped: dict[str, str]
    dropped_values: dict[str, DroppedValue]
    ties: tuple[tuple[str, ...], ...]
    warnings: tuple[str, ...]
    verified: bool
    versions: dict[str, str]
    verdict: Verdict
    left_out: dict[str, str] = field(default_factory=dict)
    source_framework: Literal["torch", "mindspore"] | None = None
    dropped_target: tuple[str, ...] = ()
    state: CarriedState | None = None
    state_tensors: tuple[ConvertedTensor, ...] = ()


@dataclass(frozen=True, slots=True)
class Conversion:
    """A conversion against which nothing stands."""

    checkpoint: Checkpoint
    names: ChosenNames
    plan: ConversionPlan
    output: Output
    losses: Losses
    state: StatePlan | None = None


def conversion_record(job: Conversion, hashes: Mapping[str, str] | None, *, written: bool = True) -> ConversionRecord:
    """Make the record; `hashes` is None where nothing was read back."""
    tensors = tuple(_tensors(job.plan, job.checkpoint.tensors, hashes or {}))
    state = tuple(_tensors(job.state.plan, job.state.sources, hashes or {})) if job.state else ()
    of_source = {drop.name for drop in job.names.name_map.dropped if drop.side == "source"}
    return ConversionRecord(
        source=str(job.checkpoint.path),
        destination=str(job.output.paths[0]),
        files=tuple(str(path) for path in job.output.paths) if written else (),
        source_format=job.checkpoint.format,
        destination_format=job.output.plugin.name,
        key=job.checkpoint.key,
        names=job.names.origin,
        framework=job.names.framework,
        content_hash=_content_hash((*tensors, *state)) if hashes is not None else None,
        tensors=tensors,
        dropped=job.plan.dropped,
        dropped_values=_dropped_values(job),
        ties=job.plan.ties,
        warnings=(*job.plan.warnings, *cast_warnings(job.losses), *number_warnings(job.plan)),
        verified=hashes is not None,
        versions={"mindalign": __version__, "numpy": np.__version__, "python": platform.python_version()},
        verdict=_verdict(job, hashes is not None, written),
        left_out=job.checkpoint.other,
        source_framework=declared_framework(job.checkpoint.metadata) or job.names.name_map.frameworks[0],
        dropped_target=tuple(name for name in job.plan.dropped if name not in of_source),
        state=job.state.carried if job.state else None,
        state_tensors=state,
    )


def _tensors(
    plan: ConversionPlan, sources: Mapping[str, StoredTensor], hashes: Mapping[str, str]
) -> Iterable[ConvertedTensor]:
    for planned in plan.tensors:
        source = sources.get(planned.source)
        target = planned.target
        yield ConvertedTensor(
            source=planned.source,
            target=target.name,
            shape=target.shape,
            dtype=target.dtype,
            transform=planned.transform.as_table(),
            hash=hashes.get(target.name),
            source_shape=source.shape if source else target.shape,
            source_dtype=source.dtype if source else target.dtype,
        )


def _content_hash(tensors: Iterable[ConvertedTensor]) -> str:
    """The hash of a line for each tensor, sorted by name: equal for equal tensors, whatever file holds them."""
    tensors = tuple(tensors)
    lines = sorted({f"{t.target}\t{t.dtype}\t{list(t.shape)}\t{t.hash}\n" for t in tensors})
    kind: HashKind = "sha256" if str(tensors[0].hash).startswith("sha256:") else "xxh3"
    return TensorHashes(kind).of_bytes(["".join(lines).encode()])


def _dropped_values(job: Conversion) -> dict[str, DroppedValue]:
    tensors = job.checkpoint.tensors
    small = [
        tensors[name]
        for name in job.plan.dropped
        if name in tensors and prod(tensors[name].shape) <= MOST_KEPT_ELEMENTS
    ]
    return {t.name: DroppedValue(t.dtype, t.shape, t.load().tobytes().hex()) for t in small}


def _verdict(job: Conversion, verified: bool, written: bool) -> Verdict:
    number, excluded = len(job.plan.targets), len(job.plan.dropped)
    done = "convert_verdict.verified" if verified else "convert_verdict.written"
    parts = [sentence(done if written else "convert_verdict.not_written", count=number)]
    if job.state is not None:
        count = len(job.state.plan.targets)
        parts.append(sentence("convert_verdict.state", count=count, optimizer=job.state.carried.optimizer))
    if job.losses:
        changed = sum(loss.lost + loss.rounded for loss in job.losses.values())
        parts.append(sentence("convert_verdict.by_casts", count=changed))
    if excluded:
        parts.append(sentence("convert_verdict.dropped", count=excluded))
    if hidden := sum(job.checkpoint.other_tensors.values()):
        parts.append(sentence("convert_verdict.not_converted", count=hidden))
    outcome = Outcome.ALIGNED if verified else Outcome.NOT_COMPARED
    reason = parts[0] if len(parts) == 1 else sentence("convert_verdict.parts", parts=parts)
    return Verdict(outcome, reason, Coverage("tensors", number if verified else 0, excluded))


@dataclass(frozen=True, slots=True)
class CastLoss:
    """Of `total` values, `lost` became something else (NaN or 300 as int8, 1e30 as float16), `rounded` a near one."""

    total: int = 0
    lost: int = 0
    rounded: int = 0

    def __add__(self, other: CastLoss) -> CastLoss:
        """The loss of both together."""
        return CastLoss(self.total + other.total, self.lost + other.lost, self.rounded + other.rounded)


Losses = dict[tuple[str, str], CastLoss]  # by the target's name and the dtypes


def left_out_warnings(checkpoint: Checkpoint) -> Iterable[str]:
    """One line for each entry that holds tensors and is not converted."""
    for name, count in checkpoint.other_tensors.items():
        yield sentence("convert_warning.not_converted", name=name, kind=checkpoint.other[name], count=count)


def cast_losses(plan: ConversionPlan) -> Losses:
    """What each cast of the plan costs, of the values that come to it; casts that cost nothing are left out."""
    losses: Losses = {}
    for planned in plan.tensors:
        before = planned.before
        for step in planned.transform.steps:
            if isinstance(step, Sum):
                if planned.total is None:  # what is done to the sum, its first term tells
                    break
                before = planned.total
            if isinstance(step, Cast):  # in any shape the values are the same
                loss = _loss(before, step.dtype)
                if loss.lost or loss.rounded:
                    key = planned.target.name, f"{before.dtype} -> {step.dtype}"
                    losses[key] = losses.get(key, CastLoss()) + loss
            if not isinstance(step, Part):
                before = transformed_tensor(before, before.name, step)
    return losses


def _loss(source: StoredTensor, dtype: str) -> CastLoss:
    kind = numpy_dtype(source.dtype)
    return sum((cast_loss(np.frombuffer(block, kind), dtype) for block in byte_blocks(source)), CastLoss())


def cast_warnings(losses: Losses) -> Iterable[str]:
    """One line for each tensor with values that its new dtype cannot hold, one for all that are only rounded."""
    for (name, dtypes), loss in losses.items():
        if loss.lost:
            counts = {"lost": loss.lost, "total": loss.total, "rounded": loss.rounded}
            yield sentence("convert_warning.cannot_hold", name=name, dtypes=dtypes, **counts)
    rounded = grouped((dtypes, name) for (name, dtypes), loss in losses.items() if not loss.lost)
    for dtypes, names in rounded.items():
        values = sum(losses[name, dtypes].rounded for name in names)
        yield sentence("convert_warning.rounds", dtypes=dtypes, values=values, count=len(names), names=names)


def cast_loss(value: Array, dtype: str) -> CastLoss:
    """Count, in blocks, what `Cast(dtype)` does to the values; NaN and the infinities among floats are kept."""
    flat = value.reshape(-1)
    blocks = [
        _count(flat[start : start + CAST_BLOCK_ELEMENTS], dtype) for start in range(0, flat.size, CAST_BLOCK_ELEMENTS)
    ]
    return CastLoss(flat.size, sum(lost for lost, _ in blocks), sum(changed - lost for lost, changed in blocks))


def _count(before: Array, dtype: str) -> tuple[int, int]:
    after = Cast(dtype).apply(before)
    with np.errstate(all="ignore"):
        changed = _changed(before, after)
        lost = changed & _beyond(before, after)
    return int(np.count_nonzero(lost)), int(np.count_nonzero(changed))


def _changed(before: Array, after: Array) -> Array:
    if before.dtype.kind in "iub":
        signs = (before < 0) != (after.real < 0)  # -1 as uint8 and back is -1 again
        return np.asarray((after.real.astype(before.dtype) != before) | signs)
    wide = np.complex128 if np.iscomplexobj(before) else np.float64
    one, other = before.astype(wide), after.astype(wide)
    return np.asarray((one != other) & ~(np.isnan(one) & np.isnan(other)))


def _beyond(before: Array, after: Array) -> Array:
    """Where the value lies outside what the dtype of `after` holds; an imaginary part always does in a real one."""
    target = dtype_name(after.dtype)
    if is_complex(target):
        return np.asarray(~np.isfinite(after))
    imaginary = before.imag != 0 if np.iscomplexobj(before) else False
    real = before.real
    if is_float(target):
        return np.asarray(imaginary | ~np.isfinite(after))
    if real.dtype.kind in "iub":
        return np.ones(before.shape, bool)
    wide = real.astype(np.float64)
    limits = np.iinfo(after.dtype) if after.dtype.kind in "iu" else None
    outside = (wide < limits.min) | (wide >= float(limits.max) + 1) if limits else False
    return np.asarray(imaginary | outside | ~np.isfinite(wide))
