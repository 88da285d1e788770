"""Two data pipelines, batch by batch: the same samples, in the same order, with the same values; and if not, why.

Each side is read once; its beginning is read a second time to see whether a side repeats itself. Order is judged on
fingerprints of all samples that were read, values on those of the first samples, which are kept.
"""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.name_map import SIDES
from align.core.protocols import silent
from align.core.verdicts import Coverage, Finding, Outcome, Verdict
from align.data.explain_tokens import (
    explain_boxes,
    explain_labels,
    explain_tokens,
    find_outside_labels,
    find_padding,
    first_unlike_tokens,
    follows_padding,
)
from align.data.explain_values import explain_values
from align.data.read_pipeline import Pipeline
from align.data.resized_pictures import (
    DataCause,
    DataComparison,
    DataSide,
    FieldComparison,
    SampleOrder,
    channel_axis,
    confirmed,
    dtype_name,
    same_sample,
    spatial_axes,
)
from align.data.show_samples import at_same_place, is_repeated, pair_fields, pair_samples, shown_samples
from align.data.thresholds import (
    DRAWS_LEVEL,
    LEAST_TESTED_SAMPLES,
    LEAST_TIMES_OVER,
    MOST_BATCHES,
    MOST_MAP_LABELS,
    SAMPLES_READ_AGAIN,
)
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.core.parameters import Array
    from align.core.protocols import Progress
    from align.core.training import LabelClasses
    from align.core.verdicts import Severity
    from align.data.explain_tokens import Padding
    from align.data.read_pipeline import Reading
    from align.data.show_samples import PairedSamples

    ClassesOfSides = tuple[Sequence[LabelClasses], Sequence[LabelClasses]]


RANDOM = ("random-flip", "random-crop")
OF_ROWS = ("special-tokens", "truncation", "padding-side", "padded-length", "merged-tokens", "id-map", "id-offset")
HARMLESS = ("note", "warning")
WIDE = {"float32", "float64"}


def compare_data(  # noqa: PLR0913 - one parameter an option
    reference: Any,
    candidate: Any,
    *,
    batches: int | None = MOST_BATCHES,
    raw: Any = None,
    any_order: bool = False,
    classes: int | ClassesOfSides | None = None,
    progress: Progress = silent,
) -> DataComparison:
    """Compare two data pipelines: loaders, datasets, iterables of batches, functions that return one, or their names.

    At most `batches` of each side are read; None reads a whole epoch. `raw` gives the samples of the reference before
    any change, in its order: it tells methods of resizing apart. With `any_order` another order is no difference.
    Labels from `classes` on are named: losses end the process, or the device, on them. In place of the number, what
    `read_label_classes` read from the losses of the reference's training and of the candidate's.
    Raises InputsError, UsageError or UserCodeError for what cannot be read.

    >>> import numpy as np
    >>> batches = [(np.arange(12.0).reshape(4, 3), np.arange(4))]
    >>> result = compare_data(batches, [(values / 255, labels) for values, labels in batches])
    >>> result.verdict.outcome.value, result.causes[0].id, result.causes[0].confirmed
    ('not aligned', 'normalization', True)
    """
    sides = Pipeline(reference), Pipeline(candidate)
    readings = []
    for number, side in enumerate(sides):
        progress(sentence("data_stage.read"), number, len(sides))
        readings.append(side.read(batches))
        if not readings[-1].samples:
            side.refuse_empty()
    progress(sentence("data_stage.read"), len(sides), len(sides))
    return _Comparison(sides, (readings[0], readings[1]), raw, any_order=any_order).result(classes)


class _Comparison:
    """What is known of two readings: which sample is which, and why fields differ."""

    def __init__(
        self, sides: tuple[Pipeline, Pipeline], readings: tuple[Reading, Reading], raw: Any, *, any_order: bool
    ) -> None:
        self._sides, self._whole, self._any_order, self._raw = sides, readings, any_order, raw
        self._fields, self._by_name = pair_fields(*([*reading.prints] for reading in readings))
        self._repeats = [_repeats(side, reading) for side, reading in zip(sides, readings, strict=True)]
        self._repeated = next((side for side in (0, 1) if self._is_repeated(side)), None)
        self._readings = readings
        if self._repeated is not None:
            first = readings[self._repeated].part(0, readings[1 - self._repeated].samples)
            self._readings = (first, readings[1]) if self._repeated == 0 else (readings[0], first)
        self._paired = pair_samples(*self._readings, self._fields)
        kept = [reading.kept_samples for reading in self._readings]
        every = np.zeros((0, 2), np.int64) if self._paired is None else self._paired.pairs
        self._kept = np.flatnonzero((every < kept).all(1))
        self._pairs = [(int(reference), int(candidate)) for reference, candidate in every[self._kept]]
        self._rows = tuple(self._field_rows())

    def result(self, classes: int | ClassesOfSides | None) -> DataComparison:
        """Judge and word it."""
        reference, candidate = (_described(*row) for row in zip(self._sides, self._whole, self._repeats, strict=True))
        order = self._order()
        causes = tuple(map(_worded, (*self._repeat_cause(), *self._causes())))
        findings = (
            *self._label_findings(classes),
            *self._field_findings(),
            *_length_findings(reference, candidate, order.duplicates, is_repeated=self._repeated is not None),
            *self._order_findings(order, reference, candidate),
        )
        samples = shown_samples(self._sides, self._readings, self._fields, self._pairs)
        verdict = self._verdict(causes, findings, order)
        rows = self._by_name, self._rows
        return DataComparison(reference, candidate, *rows, order, causes, samples, findings, verdict)

    def _values(self, name: str) -> tuple[list[Array], list[Array]]:
        reference, candidate = self._readings[0].kept[name], self._readings[1].kept[self._fields[name]]
        return [reference[a] for a, _ in self._pairs], [candidate[b] for _, b in self._pairs]

    # Causes.

    def _is_repeated(self, side: int) -> bool:
        """Whether this side's epoch is the other side's, more than once over."""
        whole, epoch = self._whole[side], self._whole[1 - side]
        if not epoch.ended or whole.samples < LEAST_TIMES_OVER * epoch.samples:
            return False
        draws = self._repeats[side] == "other values"
        steady = [name for name, prints in whole.prints.items() if not (draws and prints.has_floats)]
        return is_repeated(whole, epoch.samples, steady)

    def _repeat_cause(self) -> Iterator[DataCause]:
        """The side that repeats itself, confirmed if its first time holds all samples of the other side."""
        if self._repeated is None or self._paired is None:
            return
        whole, epoch = self._whole[self._repeated], self._whole[1 - self._repeated]
        times = whole.samples / epoch.samples
        facts = {"side": SIDES[self._repeated], "times": round(times, 2), "samples": whole.samples,
                 "epoch": epoch.samples, "is_open": int(not whole.ended)}  # fmt: skip
        yield DataCause("repeat", facts, confirmed=len(self._paired.pairs) == epoch.samples)

    def _causes(self) -> Iterator[DataCause]:
        if not self._pairs:
            return
        padding = self._padding()
        raw: list[Array | None] | None = None
        named: list[tuple[str, str]] = []
        for name in self._fields:
            reference, candidate = self._values(name)
            if all(a.dtype == b.dtype and same_sample(a, b) for a, b in zip(reference, candidate, strict=True)):
                continue
            if raw is None and reference[0].ndim > 1:
                raw = self._raw_samples()
            is_row = _is_row_of_integers(reference, candidate)
            if padding is not None and named and is_row and follows_padding(reference, candidate, padding):
                continue
            boxes = explain_boxes(reference, candidate, self._picture_sizes(), is_named="box" in name.lower())
            for cause in self._as_drawn(boxes or _field_causes(reference, candidate, raw, padding), name):
                # What is done to the tokens is done to the labels beside them: it is said once.
                if cause.id not in OF_ROWS or (cause.id, str(cause.facts)) not in named:
                    yield replace(cause, field=name)
                named.append((cause.id, str(cause.facts)))

    def _as_drawn(self, causes: Sequence[DataCause], name: str) -> list[DataCause]:
        """Sides that do not repeat themselves draw their values: what is not confirmed is judged as draws."""
        drawing = [side for side, repeats in zip(SIDES, self._repeats, strict=True) if repeats == "other values"]
        if not drawing or all(cause.confirmed and cause.id not in RANDOM for cause in causes):
            return [*causes]
        fixed = [cause for cause in causes if cause.confirmed and cause.id not in RANDOM]
        if len(drawing) == 1:
            how = next((f"-{cause.id.removeprefix('random-')}" for cause in causes if cause.id in RANDOM), "")
            return [*fixed, confirmed(f"augmentation{how}", side=drawing[0])]
        return [*fixed, compare_draws(*self._values(name))]

    def _raw_samples(self) -> list[Array | None] | None:
        """The pictures before any change: as they are given, else of a dataset that has a `transform` to leave out."""
        source = self._raw if self._raw is not None else _untransformed(self._sides[0].made())
        if source is None:
            return None
        reading = Pipeline(source).read(max(self._readings[0].samples, 1))
        values = max(reading.kept.values(), key=lambda column: column[0].size)
        return [values[a] if a < len(values) else None for a, _ in self._pairs]

    def _picture_sizes(self) -> list[tuple[int, int]]:
        """Width and height of the reference's first field of pictures; [] if there is none."""
        for name in self._fields:
            pictures, _ = self._values(name)
            if all(channel_axis(picture.shape) is not None for picture in pictures):
                axes = [spatial_axes(picture.shape) for picture in pictures]
                return [(picture.shape[columns], picture.shape[rows])
                        for picture, (rows, columns) in zip(pictures, axes, strict=True)]  # fmt: skip
        return []

    def _padding(self) -> tuple[Padding, Padding] | None:
        """The padding of the first field of tokens: masks and labels are padded where it is."""
        for name in self._fields:
            rows, others = self._values(name)
            if _is_row_of_integers(rows, others):
                paddings = find_padding(rows), find_padding(others)
                if any(side.side for side in paddings):
                    return paddings
        return None

    # Fields, order, lengths.

    def _field_rows(self) -> Iterator[FieldComparison]:
        for name, other in self._fields.items():
            first = self._readings[0].kept[name][0], self._readings[1].kept[other][0]
            equal = np.zeros(0, bool) if self._paired is None else self._paired.equal[name].copy()
            if len(self._kept):
                reference, candidate = self._values(name)
                equal[self._kept] = [*map(same_sample, reference, candidate)]
            dtypes = dtype_name(first[0]), dtype_name(first[1])
            shapes = str([*first[0].shape]), str([*first[1].shape])
            yield FieldComparison(name, other, dtypes, shapes, len(equal), int((~equal).sum()))

    def _field_findings(self) -> Iterator[Finding]:
        for side, reading, used in zip(SIDES, self._readings, (self._fields, self._fields.values()), strict=True):
            if left := [name for name in reading.prints if name not in used]:
                message = sentence("data_finding.lone_fields", side=side, names=left)
                yield Finding("lone-fields", "warning", side, message)
        for row in self._rows:
            if row.different:
                continue
            kinds = ["integer" if dtype.startswith(("int", "uint", "bool")) else dtype for dtype in row.dtypes]
            if row.dtypes[0] != row.dtypes[1] and (kinds[0] == kinds[1] or set(row.dtypes) <= WIDE):
                message = sentence("data_finding.dtypes", reference=row.dtypes[0], candidate=row.dtypes[1])
                yield Finding("dtypes-differ", "note", row.reference, message)

    def _label_findings(self, classes: int | ClassesOfSides | None) -> Iterator[Finding]:
        for place, (side, reading) in enumerate(zip(SIDES, self._whole, strict=True)):
            names = [pair[place] for pair in self._fields.items()]
            if classes is not None:
                limits = classes if isinstance(classes, int) else classes[place]
                yield from find_outside_labels(side, reading, names, limits)

    def _order(self) -> SampleOrder:
        paired = self._paired
        reference, candidate = self._readings
        copies = tuple(_copies(reading) for reading in self._readings)
        if paired is None:
            return SampleOrder("unknown", "nothing", 0, 0, 0, (copies[0], copies[1]))
        order = "same" if paired.keeps_order else "other"
        missing = extra = 0
        if (reference.ended and candidate.ended) or paired.keeps_order:
            reached = paired.pairs[-1] + 1  # behind these, one that is not read yet may stand
            missing = int(reference.samples if candidate.ended else reached[0]) - len(paired.pairs)
            extra = int(candidate.samples if reference.ended else reached[1]) - len(paired.pairs)
        return SampleOrder(order, paired.by, len(paired.pairs), missing, extra, (copies[0], copies[1]))

    def _order_findings(self, order: SampleOrder, reference: DataSide, candidate: DataSide) -> Iterator[Finding]:
        if self._paired is None:
            return
        copies = order.duplicates[1] - order.duplicates[0]
        are_copies = copies != 0 and copies in (order.extra, -order.missing)
        if not are_copies and (shard := _stride(self._paired, (reference, candidate))) is not None:
            key = "data_finding.sharded_block" if shard.pop("block") else "data_finding.sharded"
            yield Finding("sharded", "error", shard["side"], sentence(key, **shard))
            return
        if order.order == "other":
            yield self._other_order(order, reference, candidate)
        elif {reference.repeats, candidate.repeats} == {"same", "other order"}:
            side = "reference" if reference.repeats == "other order" else "candidate"
            message = sentence("data_finding.later_epochs", side=side)
            yield Finding("later-epochs-differ", "error", side, message)
        yield from _count_findings(order, reference, candidate)

    def _other_order(self, order: SampleOrder, reference: DataSide, candidate: DataSide) -> Finding:
        severity: Severity = "note" if self._any_order else "error"
        pairs = np.zeros((0, 2), np.int64) if self._paired is None else self._paired.pairs
        facts = {"moved": int((pairs[:, 0] != pairs[:, 1]).sum()), "count": order.paired}
        shufflers = {(True, True): "both_shuffle", (True, False): "reference_shuffles",
                     (False, True): "candidate_shuffles"}  # fmt: skip
        word = shufflers.get((reference.repeats == "other order", candidate.repeats == "other order"), "order")
        return Finding("order-differs", severity, candidate.label, sentence(f"data_finding.{word}", **facts))

    def _verdict(self, causes: Sequence[DataCause], findings: Sequence[Finding], order: SampleOrder) -> Verdict:
        reference, candidate = self._readings
        coverage = Coverage(
            "samples", order.paired, 0, reference.samples - order.paired, candidate.samples - order.paired
        )
        caveats = []
        if not all(reading.ended for reading in self._whole):
            samples = {side: reading.samples for side, reading in zip(SIDES, self._whole, strict=True)}
            caveats.append(sentence("data_caveat.not_all", **samples))
        if self._pairs and len(self._pairs) < order.paired:
            caveats.append(sentence("data_caveat.by_print", count=len(self._pairs), total=order.paired))
        if self._paired is None:
            return Verdict(Outcome.NOT_COMPARED, sentence("data_verdict.no_common"), coverage, tuple(caveats))
        faults = [finding for finding in findings if finding.severity not in HARMLESS]
        different = sum(row.different > 0 for row in self._rows)
        untold = [cause for cause in causes if cause.id == "draws-untold"]
        told = [cause for cause in causes if cause.id != "draws-untold"]
        if told or faults or (different and not untold):
            parts = [cause.message for cause in told] + [finding.message for finding in faults]
            reason = sentence("data_verdict.differ", count=len(parts), first=parts[0] if parts else
                              sentence("data_verdict.values_differ"))  # fmt: skip
            return Verdict(Outcome.NOT_ALIGNED, reason, coverage, tuple(caveats))
        if untold:
            return Verdict(Outcome.NOT_COMPARED, untold[0].message, coverage, tuple(caveats))
        key = "data_verdict.agree" if order.order == "same" else "data_verdict.agree_in_other_order"
        reason = sentence(key, count=order.paired, fields=len(self._fields))
        return Verdict(Outcome.ALIGNED, reason, coverage, tuple(caveats))


@np.errstate(all="ignore")
def _field_causes(
    reference: list[Array],
    candidate: list[Array],
    raw: list[Array | None] | None,
    padding: tuple[Padding, Padding] | None,
) -> tuple[DataCause, ...]:
    """The causes of one field's differences, by what its values are: labels, tokens, anything else."""
    if not all(map(same_sample, reference, candidate)) and (
        causes := _label_causes(reference, candidate) or _token_causes(reference, candidate, padding)
    ):
        return causes
    causes = explain_values(reference, candidate, raw)
    dtypes = {part[0].dtype.name for part in (reference, candidate)}
    harmless = dtypes <= WIDE or all(part[0].dtype.kind in "iub" for part in (reference, candidate))
    return tuple(cause for cause in causes if cause.id != "dtype" or not harmless)


def _label_causes(reference: Sequence[Array], candidate: Sequence[Array]) -> tuple[DataCause, ...]:
    """Of a whole number a sample, one-hot rows, and pictures of few whole numbers; () for anything else."""
    whole = [part[0].dtype.kind in "iub" for part in (reference, candidate)]
    ranks = {value.ndim for value in (*reference, *candidate)}
    if any(part[0].dtype.kind == "U" for part in (reference, candidate)):
        return ()
    if ranks == {2} and all(whole):
        values = np.unique(np.concatenate([value.reshape(-1) for value in (*reference, *candidate)]))
        return explain_labels(reference, candidate) if len(values) <= MOST_MAP_LABELS else ()
    if not any(whole) or not ranks <= {0, 1} or (ranks == {1} and all(whole)):
        return ()
    if causes := explain_labels(reference, candidate):
        return causes
    if ranks == {0} and sorted(map(float, reference)) == sorted(map(float, candidate)):
        count = sum(a != b for a, b in zip(reference, candidate, strict=True))
        return (confirmed("label-order", count=count),)
    return ()


def _token_causes(
    reference: Sequence[Array], candidate: Sequence[Array], padding: tuple[Padding, Padding] | None
) -> tuple[DataCause, ...]:
    """Of rows of whole numbers; () for anything else."""
    if not _is_row_of_integers(reference, candidate, "iub"):
        return ()
    if causes := explain_tokens(reference, candidate, padding):
        return causes
    if max(len(np.unique(part[0])) for part in (reference, candidate)) == 1:
        return ()
    return (DataCause("tokens", first_unlike_tokens(reference, candidate), confirmed=False),)


def _is_row_of_integers(reference: Sequence[Array], candidate: Sequence[Array], kinds: str = "iu") -> bool:
    return all(value.ndim == 1 and value.dtype.kind in kinds for value in (*reference, *candidate))


def _worded(cause: DataCause) -> DataCause:
    """The cause with its sentence; its facts become plain figures and words."""
    message = sentence(f"data_cause.{cause.id.replace('-', '_')}", field=cause.field, **cause.facts)
    facts = {name: str(fact) if isinstance(fact, str) else fact for name, fact in cause.facts.items()}
    return replace(cause, facts=facts, message=message)


def _described(side: Pipeline, reading: Reading, repeats: str) -> DataSide:
    sizes = None
    if side.batched:
        sizes = Counter(reading.sizes[:-1] or reading.sizes).most_common(1)[0][0], reading.sizes[-1]
    counts = len(reading.sizes), reading.samples
    return DataSide(side.label, side.kind, side.length, *counts, sizes, reading.ended, repeats)


def _repeats(side: Pipeline, reading: Reading) -> str:
    """What a second reading begins with: the same, other values, another order, or "unknown"."""
    again = side.read(-(-SAMPLES_READ_AGAIN // reading.sizes[0]))
    if not again.samples or set(again.prints) != set(reading.prints):
        return "unknown"
    same, at_place = at_same_place(reading, again)
    return "same" if same else "other values" if at_place else "other order"


def _copies(reading: Reading) -> int:
    """How many samples are copies of an earlier one, in all fields."""
    key = np.zeros(reading.samples, np.uint64)
    for prints in reading.prints.values():
        key = key * np.uint64(0x9E3779B97F4A7C15) + prints.keys()  # format: 2^64 over the golden ratio
    return int(reading.samples - len(np.unique(key)))


def _untransformed(data: Any) -> Any:
    """The dataset of a loader that reads in order, without its `transform`; None where there is none."""
    dataset = getattr(data, "dataset", data)
    if type(getattr(data, "sampler", None)).__name__ not in ("SequentialSampler", "NoneType"):
        return None
    if getattr(dataset, "transform", None) is None or not hasattr(dataset, "__getitem__"):
        return None
    plain = copy.copy(dataset)
    plain.transform = None
    for name in ("transforms",):  # torchvision keeps both in one
        if getattr(plain, name, None) is not None:
            setattr(plain, name, None)
    return plain


def _stride(paired: PairedSamples, sides: tuple[DataSide, DataSide]) -> dict[str, Any] | None:
    """One side that has each k-th sample of the other, or one block of it, as a shard has.

    A block of more than half is no shard: the first samples are missing.
    """
    if paired.in_order or len(paired.pairs) < 3:
        return None
    steps = np.diff(paired.pairs, axis=0)
    for side, mine, other in (("candidate", 1, 0), ("reference", 0, 1)):
        if (steps[:, mine] == 1).all() and len(set(steps[:, other].tolist())) == 1 and steps[0, other] > 1:
            start = int(paired.pairs[0, other])
            return {"side": side, "stride": int(steps[0, other]), "start": start, "block": False}
        if (steps == 1).all() and paired.pairs[0, other] > paired.pairs[0, mine] == 0:
            if sides[other].ended and 2 * len(paired.pairs) > sides[other].samples:
                return None
            return {"side": side, "stride": 1, "start": int(paired.pairs[0, other]), "block": True}
    return None


def _length_findings(
    reference: DataSide, candidate: DataSide, copies: tuple[int, int], *, is_repeated: bool
) -> Iterator[Finding]:
    """Batch size, the last batch, and the length of an epoch; of single samples only the last.

    Where one side is the other one several times over, the rest follows from that.
    """
    if reference.batch_sizes is not None and candidate.batch_sizes is not None:
        if reference.batch_sizes[0] != candidate.batch_sizes[0]:
            message = sentence(
                "data_finding.batch_size", reference=reference.batch_sizes[0], candidate=candidate.batch_sizes[0]
            )
            yield Finding("batch-size", "error", candidate.label, message)
        if not is_repeated:
            yield from _last_batches(reference, candidate, copies)
    if (reference.batch_sizes is None) != (candidate.batch_sizes is None):
        side = "reference" if reference.batch_sizes is None else "candidate"
        yield Finding("single-samples", "note", side, sentence("data_finding.single_samples", side=side))
    elif is_repeated:
        return
    elif (
        None not in (reference.length, candidate.length)
        and reference.length != candidate.length
        and not (reference.ended and candidate.ended)
    ):
        message = sentence("data_finding.epoch_length", reference=reference.length, candidate=candidate.length)
        yield Finding("epoch-length", "error", candidate.label, message)


def _count_findings(order: SampleOrder, reference: DataSide, candidate: DataSide) -> Iterator[Finding]:
    """Samples of one side alone, and copies; what the last batch explains is said there."""
    of_last_batch = (
        abs(reference.samples - candidate.samples) if any(_last_batches(reference, candidate, order.duplicates)) else 0
    )
    copies = order.duplicates
    extra = "extra_copies" if copies[1] - copies[0] == order.extra else "extra"
    for code, key, count in (
        ("missing-samples", "missing", order.missing),
        ("extra-samples", extra, order.extra),
    ):
        if count and count != of_last_batch:
            yield Finding(code, "error", candidate.label, sentence(f"data_finding.{key}", count=count))
    if copies[0] != copies[1] and (order.missing or order.extra or order.order == "other"):
        message = sentence("data_finding.copies", reference=copies[0], candidate=copies[1])
        yield Finding("copies", "warning", candidate.label, message)


def _last_batches(reference: DataSide, candidate: DataSide, copies: tuple[int, int]) -> Iterator[Finding]:
    """A side of full batches only has dropped the rest, or filled it up with copies of samples."""
    sizes = [side.batch_sizes for side in (reference, candidate)]
    if not (reference.ended and candidate.ended) or sizes[0] is None or sizes[1] is None or sizes[0][0] != sizes[1][0]:
        return
    size = sizes[0][0]
    gap = reference.samples - candidate.samples
    fewer, more = ("candidate", "reference") if gap > 0 else ("reference", "candidate")
    samples = {"reference": reference.samples, "candidate": candidate.samples}
    added = (copies[0] - copies[1]) * (1 if gap > 0 else -1)
    if not 0 < abs(gap) < size:
        return
    if samples[more] % size == 0 and added == abs(gap):
        message = sentence("data_finding.last_batch_padded", side=more, count=abs(gap))
        yield Finding("last-batch", "error", candidate.label, message)
    elif samples[fewer] % size == 0 and not added:
        message = sentence("data_finding.last_batch_dropped", side=fewer, count=abs(gap))
        yield Finding("last-batch", "error", candidate.label, message)


# Two random augmentations of the same samples: whether one statistic of what they make differs in distribution.


def compare_draws(reference: Sequence[Array], candidate: Sequence[Array]) -> DataCause:
    """`draws-differ` with the statistic and its probability, else `draws-untold`: the draws are never called equal."""
    from scipy.stats import ks_2samp

    shapes = [{value.shape for value in part} for part in (reference, candidate)]
    if shapes[0] != shapes[1]:
        facts = {"reference": str([*reference[0].shape]), "candidate": str([*candidate[0].shape])}
        return DataCause("shape", facts, confirmed=False)
    statistics, others = (_statistics(part) for part in (reference, candidate))
    if len(reference) < LEAST_TESTED_SAMPLES:
        return DataCause("draws-untold", {"count": len(reference), "least": LEAST_TESTED_SAMPLES, "tests": 0})
    level = DRAWS_LEVEL / len(statistics)
    probabilities = {name: float(ks_2samp(statistics[name], others[name]).pvalue) for name in statistics}
    name = min(probabilities, key=lambda key: probabilities[key])
    if probabilities[name] < level:
        means = {"reference": float(np.mean(statistics[name])), "candidate": float(np.mean(others[name]))}
        return confirmed("draws-differ", statistic=name, probability=probabilities[name], **means)
    return DataCause("draws-untold", {"count": len(reference), "least": LEAST_TESTED_SAMPLES, "tests": len(statistics)})


def _statistics(values: Sequence[Array]) -> dict[str, Array]:
    wide = [value.astype(np.float64).reshape(-1) for value in values]
    steps = [np.abs(np.diff(value.astype(np.float64), axis=-1)).mean() if value.size > 1 else 0.0 for value in values]
    return {
        "mean": np.array([value.mean() for value in wide]),
        "standard deviation": np.array([value.std() for value in wide]),
        "least": np.array([value.min(initial=np.inf) for value in wide]),
        "largest": np.array([value.max(initial=-np.inf) for value in wide]),
        "contrast": np.array(steps),
    }
