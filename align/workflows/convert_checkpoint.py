"""One checkpoint turned into another, verified before it takes its place.

The file is written under a temporary name, read back through the format's own reader, and every tensor compared bit
for bit with the transformed source; only then is it renamed. So the destination is absent, old or complete, never half.
"""

from __future__ import annotations

import io
import platform
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import align
from align.core.comparisons import ConversionRecord, ConvertedTensor
from align.core.files import atomic_path, sha256_beside
from align.core.names import NameMap
from align.core.progress import Progress, silent
from align.core.registry import checkpoint_formats
from align.core.verdicts import Coverage, Outcome, Verdict
from align.core.words import counted
from align.errors import DestinationError, MapError, UnsupportedCheckpointError, UsageError
from align.runs.mapfile import read_map
from align.steps.convert import ConversionPlan, plan_conversion
from align.workflows.conversion_warnings import cast_losses, cast_warnings, left_out_warnings
from align.workflows.map_from_file import map_from_file
from align.workflows.open_checkpoint import open_checkpoint
from align.workflows.verify_checkpoint import verify_written

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from _typeshed import ReadableBuffer

    from align.core.checkpoints import Checkpoint, StoredTensor
    from align.core.protocols import CheckpointFormat
    from align.steps.infer_names import TargetFamily
    from align.workflows.conversion_warnings import Losses

MINDSPORE = {"format": "ms"}


def convert_checkpoint(  # noqa: PLR0913 - the options of one command
    source: Path | str,
    destination: Path | str,
    *,
    name_map: NameMap | Path | str | None = None,
    target_family: TargetFamily | None = None,
    layers: Iterable[str] = (),
    overwrite: bool = False,
    progress: Progress = silent,
) -> ConversionRecord:
    """Convert a torch checkpoint for MindSpore; the source's format is told by content, the destination's by suffix.

    `name_map` is a map or a map file. Without it the source alone decides the names, for layers of `mindspore.nn` or
    `mint.nn` (`target_family`, "nn" by default); `layers` settles what it leaves open, each as "PATTERN=KIND". Raises
    UsageError, OpenNamesError, MapError, DestinationError, VerificationError and what reading the source raises; after
    any of them the destination is as it was.

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
    source, destination = Path(source), Path(destination)
    plugin = _format_for(destination)
    checkpoint = open_checkpoint(source)
    _check_destination(source, destination, overwrite)
    if not checkpoint.tensors:
        hint = "save a state_dict, or name the file that holds the weights"
        raise UnsupportedCheckpointError(source, "it holds no tensors", hint)
    names, warnings = _names(checkpoint, name_map, target_family, tuple(layers))
    plan = _sound_plan(checkpoint, names, plugin, destination)
    plan = replace(plan, warnings=(*left_out_warnings(checkpoint), *warnings, *plan.warnings))
    return _write(_Job(checkpoint, plan, plugin, destination, cast_losses(checkpoint, plan)), progress)


@dataclass(frozen=True, slots=True)
class _Job:
    """A conversion against which nothing stands."""

    checkpoint: Checkpoint
    plan: ConversionPlan
    plugin: CheckpointFormat
    destination: Path
    losses: Losses


def _names(
    checkpoint: Checkpoint,
    name_map: NameMap | Path | str | None,
    family: TargetFamily | None,
    layers: tuple[str, ...],
) -> tuple[NameMap, tuple[str, ...]]:
    """The map that was given, or the one that the file decides, with warnings."""
    if name_map is None:
        return map_from_file(checkpoint, family, layers)
    if family is not None or layers:
        given = "--target" if family is not None else "--layer"
        raise UsageError(
            f"{given} does not go with a map", "the map names every target: change it there, or drop --map"
        )
    if isinstance(name_map, NameMap):
        return name_map, ()
    return read_map(Path(name_map), list(checkpoint.tensors), None), ()


def _format_for(destination: Path) -> CheckpointFormat:
    if destination.is_dir():
        raise DestinationError(f"{destination} is a folder", "name a file in it")
    formats = checkpoint_formats().values()
    for plugin in formats:
        if destination.suffix.lower() in plugin.suffixes:
            return plugin
    written = [plugin for plugin in formats if not plugin.problems([], MINDSPORE)]
    known = ", ".join(suffix for plugin in written for suffix in plugin.suffixes)
    raise DestinationError(
        f"cannot tell the format of {destination} by its suffix {destination.suffix!r}", f"use one of: {known}"
    )


def _check_destination(source: Path, destination: Path, overwrite: bool) -> None:
    if not destination.parent.is_dir():
        raise DestinationError(f"the folder {destination.parent} does not exist", "make it first")
    if not destination.exists():
        return
    if destination.samefile(source):
        raise DestinationError(f"{destination} is the source itself", "name another destination")
    if not overwrite:
        raise DestinationError(f"{destination} exists", "add --overwrite to replace it")


def _sound_plan(
    checkpoint: Checkpoint, name_map: NameMap, plugin: CheckpointFormat, destination: Path
) -> ConversionPlan:
    plan = plan_conversion(checkpoint.tensors, name_map)
    if plan.problems:
        raise MapError(f"the map for {checkpoint.path}", plan.problems)
    if not plan.tensors:
        raise MapError(f"the map for {checkpoint.path}", ["it drops every tensor, nothing is left to write"])
    if problems := plugin.problems([planned.target for planned in plan.tensors], MINDSPORE):
        listed = "\n".join(f"  {line}" for line in problems)
        hint = "choose another destination format, or drop or cast these tensors in a map (--map)"
        raise DestinationError(f"{destination} cannot hold what is to be written:\n{listed}", hint)
    return plan


def _write(job: _Job, progress: Progress) -> ConversionRecord:
    """Write, read back, compare, rename; both files are hashed beside it, in threads."""
    targets = [planned.target for planned in job.plan.tensors]
    source_hash = sha256_beside(job.checkpoint.path)
    with atomic_path(job.destination) as temporary:
        with _CountingWriter(temporary.open("xb", buffering=0), progress, targets) as stream:
            job.plugin.write(stream, targets, MINDSPORE)
        destination_hash = sha256_beside(temporary)
        hashes = verify_written(targets, job.plugin, temporary, job.destination, progress)
        return _record(job, (source_hash(), destination_hash()), hashes)


class _CountingWriter(io.BufferedWriter):
    """A file that tells how much has been written."""

    def __init__(self, raw: io.RawIOBase, progress: Progress, tensors: Sequence[StoredTensor]) -> None:
        super().__init__(raw)
        self._progress = progress
        self._done = 0
        self._total = sum(tensor.nbytes for tensor in tensors)

    def write(self, data: ReadableBuffer, /) -> int:
        """Write and tell; headers may count beyond the tensors' total."""
        written = super().write(data)
        self._done = min(self._done + written, self._total)
        self._progress("writing", self._done, self._total)
        return written


def _record(job: _Job, file_hashes: tuple[str, str], hashes: Mapping[str, str]) -> ConversionRecord:
    tensors = tuple(
        ConvertedTensor(
            p.source, p.target.name, p.target.shape, p.target.dtype, p.transform.as_table(), hashes[p.target.name]
        )
        for p in job.plan.tensors
    )
    return ConversionRecord(
        source=str(job.checkpoint.path),
        destination=str(job.destination),
        source_format=job.checkpoint.format,
        destination_format=job.plugin.name,
        source_sha256=file_hashes[0],
        destination_sha256=file_hashes[1],
        tensors=tensors,
        dropped=job.plan.dropped,
        ties=job.plan.ties,
        warnings=(*job.plan.warnings, *cast_warnings(job.losses)),
        verified=True,
        versions={"mindalign": align.__version__, "numpy": np.__version__, "python": platform.python_version()},
        verdict=_verdict(job),
        left_out=job.checkpoint.other,
    )


def _verdict(job: _Job) -> Verdict:
    written, excluded = len(job.plan.tensors), len(job.plan.dropped)
    parts = [f"{counted(written, 'tensor')} written and read back bit for bit"]
    if job.losses:
        changed = sum(loss.lost + loss.rounded for _, loss in job.losses.values())
        parts.append(f"{counted(changed, 'value')} lost or rounded by casts")
    if excluded:
        parts.append(f"{excluded} dropped")
    if hidden := sum(job.checkpoint.other_tensors.values()):
        parts.append(f"{counted(hidden, 'tensor')} beside them NOT CONVERTED")
    return Verdict(Outcome.ALIGNED, ", ".join(parts), Coverage("tensors", written, excluded))
