"""One checkpoint turned into another, in either direction, verified before it takes its place.

Everything that can stand against a conversion is looked at before the first byte is written: the names, the shapes,
what the destination's format can hold, the space on its disk. `write_checkpoint` then does the writing. A checkpoint
cut into several files is named as Hugging Face's loaders and MindSpore Transformers expect it: tensors keep their
order and are put into a shard until the next would not fit; what is larger than the limit has a shard of its own.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Literal

from align.checkpoints.extents import require_unchanged
from align.checkpoints.names_in_file import naming_direction, source_framework
from align.checkpoints.open_checkpoint import open_checkpoint
from align.checkpoints.unfinished_weights import packed_error, packed_note, packed_weights, refuse_unfinished
from align.convert.conversion_result import Conversion, cast_losses, conversion_record, left_out_warnings
from align.convert.planning.choose_names import ChosenNames, NameRequest, choose_names
from align.convert.planning.plan_conversion import ConversionPlan, plan_conversion, with_dtype
from align.convert.writing.write_checkpoint import Output, OutputFile, write_output
from align.core.atomic_files import check_space
from align.core.progress import Progress, silent
from align.core.registry import checkpoint_formats
from align.errors import DestinationError, MapError, UnsupportedCheckpointError, UsageError, VerificationError
from align.words.catalogue import say, texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from align.checkpoints.unfinished_weights import PackedWeight
    from align.convert.conversion_result import ConversionRecord
    from align.core.checkpoints import Checkpoint, StoredTensor
    from align.core.name_map import NameMap
    from align.core.protocols import CheckpointFormat

Precision = Literal["fp32", "fp16", "bf16"]
TARGETS = ("nn", "mint", "torch")
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
    dtype: Precision | None = None,
    max_shard_size: str | int | None = None,
    verify: bool = True,
    overwrite: bool = False,
    dry_run: bool = False,
    trust_pickle: bool = False,
    progress: Progress = silent,
) -> ConversionRecord:
    """Convert a checkpoint; the source's format is known by content, the destination's by suffix.

    Names: `name_map` is a map, a map file or the record of an earlier conversion, applied in the direction that fits;
    `source_model` and `target_model` are models as `module:function`; `family` is a ready map of `mappings/models`.
    Without any of these the file alone decides, for the layers of `target`; `layers` decides what it leaves open, each
    as "PATTERN=KIND". `strip` names prefixes to take off, `key` the entry of a nested file. Values: `dtype` casts
    floating tensors. `verify=False` writes without reading back, `dry_run` writes nothing; the record says so.
    `trust_pickle` lets torch run what a file pickles.

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
    _check_choices(target, dtype)
    plugin = _format_for(destination)
    limit = _shard_limit(max_shard_size, destination)
    checkpoint = _opened(Path(source), key, trust_pickle)
    request = NameRequest(name_map, source_model, target_model, family, target, _texts(layers), _texts(strip))
    packed = packed_weights(checkpoint)
    if packed and not _reads_packed(checkpoint, request, plugin):
        raise packed_error(checkpoint, packed)
    names = choose_names(checkpoint, request, plugin.framework)
    plan = _sound_plan(checkpoint, names, dtype)
    if packed and not _stay_together(packed, checkpoint, plan, plugin):
        raise packed_error(checkpoint, packed)
    output = _output(plan, names, plugin, destination, limit)
    _check_output(output, checkpoint, overwrite=overwrite)
    kept = [packed_note(packed)] if packed else []
    warnings = (*checkpoint.notes, *left_out_warnings(checkpoint), *kept, *names.warnings, *plan.warnings)
    job = Conversion(checkpoint, names, replace(plan, warnings=warnings), output, cast_losses(plan))
    if dry_run:
        return conversion_record(job, None, written=False)
    if checkpoint.check is not None:
        checkpoint.check()
    require_source = partial(require_unchanged, checkpoint)
    try:
        hashes = write_output(output, require_source, verify=verify, progress=progress)
    except VerificationError:
        require_source()  # its values may differ because it is another file by now
        raise
    return conversion_record(job, hashes if verify else None)


def _check_choices(target: str | None, dtype: str | None) -> None:
    """Refuse words that the command line would not let through."""
    for option, given, known in (("target", target, TARGETS), ("dtype", dtype, tuple(PRECISIONS))):
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


def _opened(source: Path, key: str | None, trust_pickle: bool) -> Checkpoint:
    """The source with its tensors; what only its own code can open goes through torch if that is trusted."""
    if trust_pickle:
        from align.checkpoints.open_trusted import open_trusted

        checkpoint = open_trusted(source, key)
    else:
        checkpoint = open_checkpoint(source, key)
    if not checkpoint.tensors:
        raise UnsupportedCheckpointError(source, *texts("convert_fault.no_tensors"))
    refuse_unfinished(checkpoint)
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
    plan: ConversionPlan, names: ChosenNames, plugin: CheckpointFormat, destination: Path, limit: int | None
) -> Output:
    """What goes into which file; raises DestinationError naming every tensor that the format cannot hold."""
    tensors = plan.targets
    flavour = FLAVOURS[names.framework]
    if problems := plugin.problems(tensors, flavour):
        raise DestinationError.of("destination_fault.cannot_hold", destination=destination, problems=problems)
    shards = plan_shards(tensors, limit) if limit else [list(tensors)]
    files = shard_names(destination.name, len(shards))
    index = None
    if len(shards) > 1:
        index = destination.with_name(index_name(destination.name)), index_bytes(shards, files)
    outputs = (OutputFile(destination.with_name(name), tuple(s)) for name, s in zip(files, shards, strict=True))
    return Output(plugin, flavour, destination, tuple(outputs), index, tuple(_old_files(destination)))


def _old_files(destination: Path) -> list[Path]:
    """What is there of a checkpoint of that name: the index first, the file itself, and the shards of an index."""
    index = destination.with_name(index_name(destination.name))
    # `Path.exists` raises where only the name of the index is too long.
    found = [path for path in (index, destination) if os.path.lexists(path)]
    if index in found:
        shard = re.compile(rf"{re.escape(destination.stem)}-\d{{5}}-of-\d{{5}}{re.escape(destination.suffix)}")
        found += sorted(path for path in destination.parent.iterdir() if shard.fullmatch(path.name))
    return found


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
    for group in _groups(tensors):
        size = sum(tensor.nbytes for tensor in group)
        if not shards or size > room:
            shards.append([])
            room = most_bytes
        shards[-1] += group
        room -= size
    return shards


def shard_names(name: str, count: int) -> list[str]:
    """File names of `count` shards of a checkpoint called `name`; a single one keeps the name and needs no index.

    >>> shard_names("model.safetensors", 2)
    ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors']
    """
    if count == 1:
        return [name]
    path = PurePath(name)
    return [f"{path.stem}-{number:05d}-of-{count:05d}{path.suffix}" for number in range(1, count + 1)]


def index_name(name: str) -> str:
    """File name of the index of a checkpoint called `name`."""
    return f"{name}.index.json"


def index_bytes(shards: Sequence[Iterable[StoredTensor]], names: Sequence[str]) -> bytes:
    """The index: the bytes of all values together, and which of the files `names` holds each tensor."""
    total = sum(tensor.nbytes for shard in shards for tensor in shard)
    weight_map = {tensor.name: name for shard, name in zip(shards, names, strict=True) for tensor in shard}
    document = {"metadata": {"total_size": total}, "weight_map": weight_map}
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode("utf-8")


def _factor(unit: str) -> int:
    base = 1024 if "i" in unit else 1000
    return int(base ** (POWERS.find(unit[0]) + 1))


def _groups(tensors: Iterable[StoredTensor]) -> Iterable[list[StoredTensor]]:
    """Tied tensors together, every other tensor alone, in the order of the first of each."""
    groups: dict[object, list[StoredTensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.identity, []).append(tensor)
    return groups.values()
