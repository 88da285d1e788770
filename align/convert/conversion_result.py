"""The record of a conversion: what became of every tensor, in enough detail to go back."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Literal

import numpy as np

from align.checkpoints.names_in_file import declared_framework
from align.convert.planning.conversion_warnings import cast_warnings
from align.convert.thresholds import MOST_KEPT_ELEMENTS
from align.core.about import __version__
from align.core.verdicts import Coverage, Outcome, ShownResult, Verdict
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from align.convert.planning.choose_names import ChosenNames
    from align.convert.planning.conversion_warnings import Losses
    from align.convert.planning.plan_conversion import ConversionPlan
    from align.convert.writing.write_checkpoint import Output
    from align.core.checkpoints import Checkpoint
    from align.core.parameters import Shape


@dataclass(frozen=True, slots=True)
class ConvertedTensor:
    """One tensor as written: its source, what was done, and the SHA-256 of its bytes where it was read back.

    `source` is "" for a tensor that the source lacks and the target needs.
    """

    source: str
    target: str
    shape: Shape
    dtype: str
    transform: dict[str, object]
    sha256: str | None
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
    where the map comes from, `framework` whose names the target has. `content_sha256` covers names, dtypes, shapes and
    values of all tensors, not how a file holds them; it is None without verification. `left_out` names what
    the source holds beside its tensors, and what it is. `source_framework` is whose names the source has, None where
    nothing says so. `dropped_target` are those of `dropped` that only the target has.
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
    content_sha256: str | None
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


@dataclass(frozen=True, slots=True)
class Conversion:
    """A conversion against which nothing stands."""

    checkpoint: Checkpoint
    names: ChosenNames
    plan: ConversionPlan
    output: Output
    losses: Losses


def conversion_record(job: Conversion, hashes: Mapping[str, str] | None, *, written: bool = True) -> ConversionRecord:
    """Make the record; `hashes` is None where nothing was read back."""
    tensors = tuple(_tensors(job, hashes or {}))
    own = {drop.name for drop in job.names.name_map.dropped if drop.side == "source"}
    return ConversionRecord(
        source=str(job.checkpoint.path),
        destination=str(job.output.paths[0]),
        files=tuple(str(path) for path in job.output.paths) if written else (),
        source_format=job.checkpoint.format,
        destination_format=job.output.plugin.name,
        key=job.checkpoint.key,
        names=job.names.origin,
        framework=job.names.framework,
        content_sha256=_content_hash(tensors) if hashes is not None else None,
        tensors=tensors,
        dropped=job.plan.dropped,
        dropped_values=_dropped_values(job),
        ties=job.plan.ties,
        warnings=(*job.plan.warnings, *cast_warnings(job.losses)),
        verified=hashes is not None,
        versions={"mindalign": __version__, "numpy": np.__version__, "python": platform.python_version()},
        verdict=_verdict(job, hashes is not None, written),
        left_out=job.checkpoint.other,
        source_framework=declared_framework(job.checkpoint.metadata) or job.names.name_map.frameworks[0],
        dropped_target=tuple(name for name in job.plan.dropped if name not in own),
    )


def _tensors(job: Conversion, hashes: Mapping[str, str]) -> Iterable[ConvertedTensor]:
    for planned in job.plan.tensors:
        source = job.checkpoint.tensors.get(planned.source)
        target = planned.target
        yield ConvertedTensor(
            source=planned.source,
            target=target.name,
            shape=target.shape,
            dtype=target.dtype,
            transform=planned.transform.as_table(),
            sha256=hashes.get(target.name),
            source_shape=source.shape if source else target.shape,
            source_dtype=source.dtype if source else target.dtype,
        )


def _content_hash(tensors: Iterable[ConvertedTensor]) -> str:
    """SHA-256 over a line for each tensor, sorted by name: equal for equal tensors, whatever file holds them."""
    lines = sorted({f"{t.target}\t{t.dtype}\t{list(t.shape)}\t{t.sha256}\n" for t in tensors})
    return hashlib.sha256("".join(lines).encode()).hexdigest()


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
    if job.losses:
        changed = sum(loss.lost + loss.rounded for loss in job.losses.values())
        parts.append(sentence("convert_verdict.by_casts", count=changed))
    if excluded:
        parts.append(sentence("convert_verdict.dropped", count=excluded))
    if hidden := sum(job.checkpoint.other_tensors.values()):
        parts.append(sentence("convert_verdict.not_converted", count=hidden))
    outcome = Outcome.ALIGNED if verified else Outcome.NOT_COMPARED
    return Verdict(outcome, joined(", ", [*parts]), Coverage("tensors", number if verified else 0, excluded))
