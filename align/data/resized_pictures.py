"""What a comparison of data measures and says; pictures that were resized or normalised in unlike ways.

A method is a matrix for each axis (all of them are separable): its kernel at the centres of the target's pixels,
widened by the scale where it is antialiased, as Pillow and torchvision do, or not, as OpenCV and `interpolate` do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field as of_field
from functools import cache
from itertools import permutations, product
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.parameters import EPSILON, Array, is_float, is_numeric
from align.core.verdicts import ShownResult
from align.data.thresholds import (
    KNOWN_CONSTANT_TOLERANCE,
    MOST_CHANNELS,
    MOST_GREY_LEVELS,
    RESIZED_LIKENESS,
    SAME_VALUE_ROUNDING,
)
from align.rules.layer_rules import mappings_folder, read_rules
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.verdicts import Finding, Verdict

Kernel = Callable[[Array], Array]
MOST_EQUAL_SHARE = 0.5  # format: who resizes otherwise does so to most pictures
NEARLY_ALL = 0.99  # format: a share of the pixels
SAMPLES = 4  # format: pictures that each method is tried on


def _cubic(a: float) -> Kernel:
    """Keys, Cubic convolution interpolation for digital image processing, 1981."""

    def kernel(x: Array) -> Array:
        x = np.abs(x)
        near = (a + 2) * x**3 - (a + 3) * x**2 + 1
        far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
        return np.where(x < 1, near, np.where(x < 2, far, 0))

    return kernel


def _lanczos(x: Array) -> Array:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


KERNELS: dict[str, tuple[Kernel, float]] = {
    "bilinear": (lambda x: np.maximum(1 - np.abs(x), 0), 1.0),
    "bicubic": (_cubic(-0.5), 2.0),
    "bicubic (a = -0.75)": (_cubic(-0.75), 2.0),
    "lanczos": (_lanczos, 3.0),
    "box": (lambda x: ((x > -0.5) & (x <= 0.5)).astype(float), 0.5),
}


@dataclass(frozen=True, slots=True)
class Method:
    """A way to resize: a kernel with or without antialiasing, or the nearest pixel.

    With `shorter` the shorter side gets that length first, and the centre is cut out.
    """

    kernel: str
    antialias: bool = False
    aligned: bool = False
    shorter: int = 0

    @property
    def label(self) -> str:
        """The method in words."""
        parts = [self.kernel, "antialias" if self.antialias else "", "aligned corners" if self.aligned else ""]
        method = ", ".join(filter(None, parts))
        return sentence("resize_method.cut", method=method, length=self.shorter) if self.shorter else method


def methods(height: int) -> Iterator[Method]:
    """All that are tried, for pictures of this height: straight to the size, or larger with the centre cut out."""
    for shorter in (0, height, round(height * 256 / 224)):
        yield Method("nearest", shorter=shorter)
        yield Method("nearest (centre)", shorter=shorter)
        for kernel, antialias in product(KERNELS, (True, False)):
            yield Method(kernel, antialias, shorter=shorter)
        yield Method("bilinear", aligned=True, shorter=shorter)


def resize(picture: Array, size: tuple[int, int], method: Method) -> Array:
    """A picture (height, width, channels) in another size, as float64."""
    if method.shorter:
        scale = method.shorter / min(picture.shape[:2])
        whole = tuple(max(round(length * scale), 1) for length in picture.shape[:2])
        resized = resize(picture, (whole[0], whole[1]), Method(method.kernel, method.antialias, method.aligned))
        top, left = ((length - wanted) // 2 for length, wanted in zip(whole, size, strict=True))
        return resized[max(top, 0) : max(top, 0) + size[0], max(left, 0) : max(left, 0) + size[1]]
    rows, columns = (_weights(*lengths, method) for lengths in zip(picture.shape[:2], size, strict=True))
    resized = np.tensordot(rows, picture.astype(np.float64), (1, 0))
    wide: Array = np.tensordot(columns, resized, (1, 1)).swapaxes(0, 1)
    return wide


@cache
def _weights(given: int, wanted: int, method: Method) -> Array:
    """The matrix (wanted, given) of one axis; its rows sum up to 1."""
    scale = given / wanted
    places = np.arange(wanted)
    if method.kernel.startswith("nearest"):
        chosen = np.floor((places + 0.5) * scale) if "centre" in method.kernel else np.floor(places * scale)
        picked: Array = np.eye(given)[np.minimum(chosen.astype(int), given - 1)]
        return picked
    kernel, _ = KERNELS[method.kernel]
    centres = places * ((given - 1) / max(wanted - 1, 1)) if method.aligned else (places + 0.5) * scale - 0.5
    width = max(scale, 1.0) if method.antialias else 1.0
    if not method.antialias:  # what lies outside is the pixel at the rim
        reach = np.arange(-4, given + 4)
        folded = np.zeros((wanted, given))
        np.add.at(folded.T, np.clip(reach, 0, given - 1), kernel(reach[None] - centres[:, None]).T)
    else:
        folded = kernel((np.arange(given)[None] - centres[:, None]) / width)
    total = folded.sum(1, keepdims=True)
    weights: Array = folded / np.where(total == 0, 1, total)
    return weights


def explain_resizing(reference: Array, candidate: Array, raw: Sequence[Array | None] | None) -> tuple[DataCause, ...]:
    """The methods of both sides where `raw` shows them; else a suspicion, by how alike the pictures are; else ().

    `one` and `two` are (samples, ...) in any layout, `raw` the pictures (height, width, channels) before any change.
    """
    pictures = [_as_pictures(part) for part in (reference, candidate)]
    shown = [place for place, picture in enumerate(raw or ()) if picture is not None and picture.ndim in (2, 3)][
        :SAMPLES
    ]
    if shown and raw is not None and pictures[0] is not None and pictures[1] is not None:
        sources = [picture for place in shown if (picture := raw[place]) is not None]
        found_methods = [_method_of(part[shown], sources) for part in pictures if part is not None]
        if None not in found_methods and found_methods[0] != found_methods[1]:
            labels = [method.label for method in found_methods if method is not None]
            return (confirmed("resize", reference=labels[0], candidate=labels[1]),)
    if (
        reference.shape == candidate.shape
        and reference.ndim > 2
        and np.mean([*map(agree, reference, candidate)]) < MOST_EQUAL_SHARE
        and (score := likeness(reference, candidate)) > RESIZED_LIKENESS
    ):
        return (DataCause("resize-suspected", {"likeness": score}, confirmed=False),)
    if pictures[0] is None or pictures[1] is None or pictures[0].shape[1] == pictures[0].shape[2]:
        return ()
    if pictures[0].shape[1:3] == pictures[1].shape[2:0:-1]:
        sizes = ["x".join(map(str, part.shape[1:3])) for part in pictures if part is not None]
        return (DataCause("size-order", {"reference": sizes[0], "candidate": sizes[1]}, confirmed=False),)
    return ()


def _as_pictures(values: Array) -> Array | None:
    """(samples, height, width, channels) from any layout; None for what is no picture."""
    if values.ndim == 3:
        return values[..., None].astype(np.float64)
    if values.ndim != 4:
        return None
    channel = channel_axis(values.shape[1:])
    return None if channel is None else np.moveaxis(values.astype(np.float64), channel + 1, -1)


def _method_of(pictures: Array, raw: Sequence[Array]) -> Method | None:
    """The method that makes these pictures out of the raw ones, up to scale and offset, the nearest if several do."""
    sources = [part[..., None] if part.ndim == 2 else part[..., :MOST_CHANNELS] for part in raw]
    if any(part.shape[-1] != pictures.shape[-1] for part in sources):
        return None
    unit = 1.0 if any(part.dtype == np.uint8 or part.max() > 1.5 for part in sources) else 1 / 255
    least = min(0.0, *(float(part.min()) for part in sources))
    most = max(unit * 255, *(float(part.max()) for part in sources))
    size = pictures.shape[1], pictures.shape[2]
    best: tuple[float, Method] | None = None
    for method in methods(size[0]):
        resized = [resize(part, size, method) for part in sources]
        if any(part.shape != pictures.shape[1:] for part in resized):
            continue
        # A kernel that overshoots is cut where the picture ends.
        apart = _distance(pictures, np.clip(np.stack(resized), least, most))
        if np.isfinite(apart) and (best is None or apart < best[0]):
            best = apart, method
    return best[1] if best is not None and best[0] <= MOST_GREY_LEVELS * unit else None


def _distance(pictures: Array, resized: Array) -> float:
    """How far nearly all pixels are from a line through `made`, on its scale, each channel for itself.

    Pillow cuts what overshoots after each axis, which parts a few pixels at edges by more.
    """
    scales, offsets = fitted_lines(pictures, resized, np.ones(pictures.shape, bool), 3)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.quantile(np.abs((pictures - resized * scales - offsets) / scales), NEARLY_ALL))


# A fitted scale and offset by its usual name: 1/255, -1 to 1, the mean and std of a known data set.
#
# With pixels u of 0 to 1, the reference is (f1 u - m1) / s1 and the candidate (f2 u - m2) / s2, where f is 1 or 255;
# a fit gives reference = a candidate + b with a = f1 s2 / (f2 s1) and b = (f1 m2 / f2 - m1) / s1. All pairs of the
# published constants in `mappings/normalizations.toml` are held against a and b; a pair is named if no other fits.


BYTES = 255.0  # format: the largest value of a byte


@dataclass(frozen=True, slots=True)
class Normalization:
    """What a pipeline does with pixels u of 0 to 1: (factor * u - mean) / std, by the channel.

    `order` is that of the channels where the constants do not stand in the order RGB.
    """

    label: str
    factor: float
    mean: Array
    std: Array
    constants: bool
    order: str = ""

    @property
    def words(self) -> str:
        """The rule in figures."""
        if not self.constants:
            return self.label
        facts = {"mean": _listed(self.mean), "std": _listed(self.std), "label": self.label}
        key = "of_bytes" if self.factor == BYTES else "in_order" if self.order else "of_shares"
        return sentence(f"normalization.{key}", **facts, **({"order": self.order} if key == "in_order" else {}))


def name_scaling(scales: Array, offsets: Array, candidate: Array, *, per: str) -> DataCause:
    """The cause behind reference = scale * candidate + offset, of all values, or by the channel or column."""
    facts: dict[str, Any] = {"scale": _listed(scales), "offset": _listed(offsets), "per": per}
    if per == "column":
        unlike = np.flatnonzero(~np.isclose(scales, 1, atol=1e-6) | ~np.isclose(offsets, 0, atol=1e-6))
        return confirmed("column-scale", **facts, columns=str([int(n) for n in unlike[:8]]), count=len(unlike))
    known = [pair for pair in _known_pairs(scales, offsets) if _in_range(pair[1], candidate)]
    known = _simplest(known)
    if len(known) == 1:
        reference, two = known[0]
        return confirmed("normalization", **facts, reference=reference.words, candidate=two.words)
    if per == "channel":
        unlike = np.flatnonzero(~np.isclose(scales, scales[0]) | ~np.isclose(offsets, offsets[0]))
        return confirmed("channel-scale", **facts, count=len(unlike))
    return confirmed("scale" if np.allclose(offsets, 0, atol=1e-6) else "scale-and-offset", **facts)


def _known_pairs(scales: Array, offsets: Array) -> Iterator[tuple[Normalization, Normalization]]:
    for reference, candidate in product(_normalizations(), repeat=2):
        if reference is candidate or not {len(reference.mean), len(candidate.mean)} <= {1, max(len(scales), 1), 3}:
            continue
        if reference.label != candidate.label and not {reference.order, candidate.order} <= {"", "BGR"}:
            continue  # nobody exchanges the data set and turns the channels in a rare way
        scale = reference.factor * candidate.std / (candidate.factor * reference.std)
        offset = (reference.factor * candidate.mean / candidate.factor - reference.mean) / reference.std
        room = KNOWN_CONSTANT_TOLERANCE * np.maximum(np.abs(scale), 1e-9)
        try:
            near = (np.abs(scales - scale) <= room) & (
                np.abs(offsets - offset) <= KNOWN_CONSTANT_TOLERANCE * np.maximum(np.abs(offset), 1 / reference.std)
            )
        except ValueError:  # one channel against three
            continue
        if near.all():
            yield reference, candidate


def _in_range(rule: Normalization, candidate: Array) -> bool:
    """Whether the candidate's values can come from pixels by this rule: none is below 0 or above 1."""
    values = candidate.astype(np.float64)
    axis = next(
        (place for place in (1, values.ndim - 1) if values.ndim > 2 and values.shape[place] == len(rule.mean)), 1
    )
    shape = [-1 if place == axis and len(rule.mean) > 1 else 1 for place in range(values.ndim)]
    pixels = (values * rule.std.reshape(shape) + rule.mean.reshape(shape)) / rule.factor
    least, most = float(np.nanmin(pixels)), float(np.nanmax(pixels))
    return (
        least > -KNOWN_CONSTANT_TOLERANCE * 4 and KNOWN_CONSTANT_TOLERANCE * 4 < most < 1 + 4 * KNOWN_CONSTANT_TOLERANCE
    )


def _simplest(pairs: list[tuple[Normalization, Normalization]]) -> list[tuple[Normalization, Normalization]]:
    """Those pairs that use the fewest constants; twins of one figure count once."""
    weights = [sum(side.constants for side in pair) for pair in pairs]
    least = [pair for pair, weight in zip(pairs, weights, strict=True) if weight == min(weights)]
    distinct: dict[tuple[str, ...], tuple[Normalization, Normalization]] = {}
    for pair in least:
        distinct.setdefault(tuple(_listed(np.r_[side.mean, side.std, side.factor]) for side in pair), pair)
    return [*distinct.values()]


@cache
def _normalizations() -> tuple[Normalization, ...]:
    rows = read_rules(mappings_folder() / "normalizations.toml", _read)
    ones, zeros = np.ones(1), np.zeros(1)
    plain = (
        Normalization("0 to 1", 1.0, zeros, ones, constants=False),
        Normalization("0 to 255", BYTES, zeros, ones, constants=False),
        Normalization("-1 to 1", 1.0, ones / 2, ones / 2, constants=False),
    )
    return (*plain, *rows)


def _read(tables: Mapping[str, Any]) -> tuple[Normalization, ...]:
    rows = []
    for table in tables.values():
        mean, std = np.array(table["mean"], float), np.array(table["std"], float)
        if len(set(mean)) == len(set(std)) == 1 and mean[0] == std[0] == 0.5:
            continue
        rows.append(Normalization(str(table["used_by"]), 1.0, mean, std, constants=True))
    # The same constants for values of 0 to 255 that nobody divided, and for channels in another order.
    coloured = [row for row in rows if len(row.mean) == 3 and not np.array_equal(row.mean, row.mean[::-1])]
    rows += [Normalization(row.label, BYTES, row.mean, row.std, constants=True) for row in rows]
    for row, order in product(coloured, [*permutations(range(3))][1:]):
        letters = "".join("RGB"[place] for place in order)
        turned = Normalization(row.label, 1.0, row.mean[[*order]], row.std[[*order]], constants=True, order=letters)
        rows.append(turned)
    return tuple(rows)


def _listed(values: Array) -> str:
    return ", ".join(f"{value:.4g}" for value in np.atleast_1d(values)[: 2 * MOST_CHANNELS])


# What is measured of paired samples: whether they agree, how alike they are, the line between them, a grey level.


def same_sample(sample: Array, other: Array) -> bool:
    """Whether two samples have one shape and agree; of lists without an entry no more is known than that."""
    return (sample.size == other.size == 0) or (sample.shape == other.shape and agree(sample, other))


def agree(values: Array, others: Array, rounding: float = SAME_VALUE_ROUNDING) -> bool:
    """Whether two arrays of one shape agree up to rounding of the coarser dtype; whole numbers must be equal."""
    if not (is_numeric(values.dtype.name) and is_numeric(others.dtype.name)):
        return bool(np.array_equal(values, others))
    if values.dtype.kind in "iub" and others.dtype.kind in "iub":  # float64 lacks the last digits of large ones
        return bool(np.array_equal(values.astype(np.int64), others.astype(np.int64)))
    return bool(_near(values, others, rounding).all())


def _near(values: Array, others: Array, rounding: float = SAME_VALUE_ROUNDING) -> Array:
    a, b = values.astype(np.float64), others.astype(np.float64)
    floats = [EPSILON[part.dtype.name] for part in (values, others) if is_float(part.dtype.name)]
    finite = np.isfinite(a) & np.isfinite(b)
    scale = max(np.abs(a[finite]).max(initial=0), np.abs(b[finite]).max(initial=0))
    with np.errstate(invalid="ignore"):
        near: Array = np.abs(a - b) <= max(floats, default=0) * rounding * scale
    near |= (a == b) | (np.isnan(a) & np.isnan(b))
    return near


def dtype_name(value: Array) -> str:
    """The name of a dtype; that of words leaves out the width, which is that of the longest."""
    return "str" if value.dtype.kind == "U" else value.dtype.name


def channel_axis(shape: Sequence[int]) -> int | None:
    """The axis of a sample that holds its channels, where it is short enough: of pictures the first or the last.

    Of videos it is one of four axes, and known only where no other is as short.
    """
    if len(shape) == 3:
        return next((axis for axis in (0, 2) if shape[axis] <= MOST_CHANNELS), None)
    short = [axis for axis, length in enumerate(shape) if length <= MOST_CHANNELS]
    return short[0] if len(shape) == 4 and len(short) == 1 else None


def spatial_axes(shape: Sequence[int]) -> list[int]:
    """The axes of a sample along which a picture extends: the last two, or the only one, that hold no channels."""
    channel = channel_axis(shape)
    return [axis for axis in range(len(shape)) if axis != channel][-2:]


def likeness(reference: Array, candidate: Array) -> float:
    """Mean correlation of samples, each channel (of tables: each column over the samples) about its mean."""
    a, b = (part[:16].astype(np.float64) for part in (reference, candidate))
    if a.ndim <= 2:
        axes: tuple[int, ...] = (0,)
    else:
        channel = channel_axis(a.shape[1:])
        axes = tuple(axis for axis in range(1, a.ndim) if channel is None or axis != channel + 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        a, b = (np.where(np.isfinite(part), part, 0) for part in (a, b))
        a, b = (part - part.mean(axes, keepdims=True) for part in (a, b))
        norms = np.sqrt((a * a).sum(axes) * (b * b).sum(axes))
        products = (a * b).sum(axes)
    moving = norms > 0
    return float(np.abs(products[moving] / norms[moving]).mean()) if moving.any() else 0.0


def channel_likeness(reference: Array, candidate: Array, channel: int) -> Array:
    """The mean correlation of each of the reference's channels (rows) with each of the candidate's; 0 of what is flat.

    `channel` is their axis among those of a sample.
    """
    rows = [np.moveaxis(part[:16].astype(np.float64), channel + 1, 1) for part in (reference, candidate)]
    rows = [np.where(np.isfinite(part), part, 0).reshape(*part.shape[:2], -1) for part in rows]
    with np.errstate(invalid="ignore"):
        rows = [part - part.mean(2, keepdims=True) for part in rows]
        norms = [np.linalg.norm(part, axis=2) for part in rows]
        products = np.abs(rows[0] @ rows[1].swapaxes(1, 2))
    norm = norms[0][:, :, None] * norms[1][:, None]
    alike: Array = (products / np.where(norm > 0, norm, np.inf)).sum(0) / np.maximum((norm > 0).sum(0), 1)
    return alike


def fitted_lines(reference: Array, candidate: Array, mask: Array, axis: int | None) -> tuple[Array, Array]:
    """Least squares of one = scale * two + offset over all values that `mask` chooses, for each entry of `axis`."""
    x, y = candidate.astype(np.float64), reference.astype(np.float64)
    use = mask & np.isfinite(x) & np.isfinite(y)
    axes = tuple(place for place in range(reference.ndim) if place != axis)
    x, y = np.where(use, x, 0), np.where(use, y, 0)
    count = np.maximum(use.sum(axes, keepdims=True), 1)
    mean_x, mean_y = x.sum(axes, keepdims=True) / count, y.sum(axes, keepdims=True) / count
    dx, dy = np.where(use, x - mean_x, 0), np.where(use, y - mean_y, 0)
    square, mixed = (dx * dx).sum(axes), (dx * dy).sum(axes)
    scale = np.where(square > 0, mixed / np.where(square > 0, square, 1), 1.0)
    offset = mean_y.reshape(scale.shape) - scale * mean_x.reshape(scale.shape)
    return np.atleast_1d(scale), np.atleast_1d(offset)


def grey_levels(values: Array) -> Array:
    """The step between neighbouring values of pictures, by the channel: 1 for bytes, 1/255 for 0 to 1, 0 if unknown.

    The axes are those of `values`.
    """
    channel = channel_axis(values.shape[1:])
    parts = [values] if channel is None else np.moveaxis(values, channel + 1, 0)
    steps = np.zeros(len(parts))
    for place, part in enumerate(parts):
        distinct = np.unique(np.round(part[:8].astype(np.float64), 9))
        gaps = np.diff(distinct)
        gaps = gaps[gaps > np.abs(distinct).max(initial=0) * 1e-5]
        if 2 <= len(distinct) <= 257 and len(gaps):
            steps[place] = gaps.min()
    return steps.reshape([-1 if channel is not None and axis == channel + 1 else 1 for axis in range(values.ndim)])


# What the comparison of two data pipelines says: sides, order, fields, causes and the first samples.


@dataclass(frozen=True, slots=True)
class DataCause:
    """Why samples differ; `id` is stable (`channel-order`), `facts` are its figures.

    It is `confirmed` if, with it undone on one side, all samples that were looked at agree within rounding. `field` is
    the reference's name of the field.
    """

    id: str
    facts: dict[str, Any] = of_field(default_factory=dict)
    confirmed: bool = False
    field: str = ""
    message: str = ""


def confirmed(cause: str, **facts: Any) -> DataCause:
    """A cause that was undone on one side, after which the samples agreed."""
    return DataCause(cause, facts, confirmed=True)


@dataclass(frozen=True, slots=True)
class DataSide:
    """One pipeline as it was read: `kind` names its class, `length` is its own word for an epoch, in batches.

    `batch_sizes` are that of most batches and of the last one, None where it gives single samples. `ended` tells
    whether the first epoch was read to its end; `repeats` whether a second reading begins as the first did, None if
    that is not known.
    """

    label: str
    kind: str
    length: int | None
    batches: int
    samples: int
    batch_sizes: tuple[int, int] | None
    ended: bool
    repeats: str


@dataclass(frozen=True, slots=True)
class FieldComparison:
    """One field: its name, dtype and shape of a sample on each side, and how many of the pairs differ."""

    reference: str
    candidate: str
    dtypes: tuple[str, str]
    shapes: tuple[str, str]
    compared: int
    different: int


@dataclass(frozen=True, slots=True)
class SampleOrder:
    """How the samples of both sides were paired: `by` place, values or features; `order` is same, other or unknown.

    `missing` of the reference's samples are not among the candidate's, `extra` the other way round; `duplicates` are
    further copies of a sample on each side.
    """

    order: str
    by: str
    paired: int
    missing: int
    extra: int
    duplicates: tuple[int, int]


@dataclass(frozen=True, slots=True)
class TokenPair:
    """One token of the reference beside one of the candidate: places in their rows, ids, and words if they are known.

    A place and an id are None where the side has no counterpart. `skipped` equal tokens before it are left out; those
    behind the last one are a pair of nothing.
    """

    places: tuple[int | None, int | None]
    ids: tuple[int | None, int | None]
    words: tuple[str, str] = ("", "")
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class ShownSample:
    """A pair of samples to be looked at, by their numbers on each side.

    A picture is (height, width, 3) bytes in base64, with its `size`; else the size is (0, 0) and the first values stand
    there in words. The spans are from the least to the largest value. Long rows of floats are `curves` too, thinned to
    some hundred values; rows of whole numbers that differ are `tokens`, those around the first differences.
    """

    field: str
    index: tuple[int, int]
    size: tuple[int, int]
    reference: str
    candidate: str
    difference: str
    reference_span: str
    candidate_span: str
    curves: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
    tokens: tuple[TokenPair, ...] = ()


@dataclass(frozen=True, slots=True)
class DataComparison(ShownResult):
    """Two data pipelines, compared field by field and sample by sample. `by_name` tells how fields were paired."""

    result_kind = "data"
    reference: DataSide
    candidate: DataSide
    by_name: bool
    fields: tuple[FieldComparison, ...]
    order: SampleOrder
    causes: tuple[DataCause, ...]
    samples: tuple[ShownSample, ...]
    findings: tuple[Finding, ...]
    verdict: Verdict
