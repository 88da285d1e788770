"""The record of a conversion: what became of every tensor, in enough detail to go back, and what was not kept."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Literal

import numpy as np

from align.checkpoints.extents import byte_blocks
from align.checkpoints.names_in_file import declared_framework
from align.convert.planning.plan_conversion import transformed_tensor
from align.convert.thresholds import CAST_BLOCK_ELEMENTS, MOST_KEPT_ELEMENTS
from align.core.about import __version__
from align.core.dtypes import dtype_name, is_complex, is_float, numpy_dtype
from align.core.piece_transforms import Part
from align.core.transforms import Cast
from align.core.verdicts import Coverage, Outcome, ShownResult, Verdict
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from align.convert.planning.choose_names import ChosenNames
    from align.convert.planning.plan_conversion import ConversionPlan
    from align.convert.writing.write_checkpoint import Output
    from align.core.checkpoints import Checkpoint, StoredTensor
    from align.core.dtypes import Array
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
    rounded: dict[str, list[str]] = {}
    for (name, dtypes), loss in losses.items():
        if loss.lost:
            counts = {"lost": loss.lost, "total": loss.total, "rounded": loss.rounded}
            yield sentence("convert_warning.cannot_hold", name=name, dtypes=dtypes, **counts)
        else:
            rounded.setdefault(dtypes, []).append(name)
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
