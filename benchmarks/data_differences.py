"""Planted differences between two data pipelines: which are found, named and confirmed, and no alarm on equal ones.

    python benchmarks/data_differences.py [--only NAME]
    python benchmarks/data_differences.py --large    # a million samples: time and peak memory, against reading alone

Pictures go through Pillow and torch on one side and `mindspore.dataset.vision` on the other where a row says so, tokens
through a small tokenizer made here, tables through NumPy. Each row says which cause, or finding, is right; `or` stands
between several right ones. Ends with 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

import align
from align.core.verdicts import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SAMPLES, SIDE, CLASSES, BATCH = 96, 40, 10, 12
BARS = {"found": 1.0, "named": 0.9, "confirmed": 0.95, "both of two": 0.7, "alarms": 0.0}
IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
CIFAR = ([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616])


@dataclass(frozen=True)
class Row:
    """A pair of pipelines: `right` are the ids of causes and findings that must be named; () for an equal pair.

    `wrong` are ids that would be false: naming one makes the row a missed one.
    """

    name: str
    reference: Callable[[], Any]
    candidate: Callable[[], Any]
    right: tuple[str, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    wrong: tuple[str, ...] = ()


def pictures(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Smooth coloured pictures with edges and grain, (samples, side, side, 3) bytes, and their labels."""
    generator = np.random.default_rng(seed)
    rows, columns = np.mgrid[0:SIDE, 0:SIDE] / SIDE
    made = []
    for _ in range(SAMPLES):
        waves = generator.normal(size=(3, 4))
        ground = np.stack([np.sin(6 * (a * rows + b * columns) + c) * 50 + 110 + 20 * d for a, b, c, d in waves], -1)
        top, left = generator.integers(0, SIDE - 12, 2)
        ground[top : top + 12, left : left + 9] += generator.normal(0, 60, 3)
        made.append(ground + generator.normal(0, 4, ground.shape))
    return np.clip(np.stack(made), 0, 255).astype(np.uint8), generator.integers(0, CLASSES, SAMPLES)


RAW, LABELS = pictures()


def batches(*columns: Any, size: int = BATCH, names: tuple[str, ...] = ()) -> list[Any]:
    """Columns as batches: tuples, or mappings where there are names."""
    made = [tuple(column[start : start + size] for column in columns) for start in range(0, len(columns[0]), size)]
    return [dict(zip(names, batch, strict=True)) for batch in made] if names else made


def normalized(
    raw: np.ndarray = RAW, mean: Any = IMAGENET[0], std: Any = IMAGENET[1], scale: float = 255.0
) -> np.ndarray:
    """Pictures as floats, normalised, channels first."""
    values = (raw / np.float32(scale) - np.float32(mean)) / np.float32(std)
    return values.transpose(0, 3, 1, 2).astype(np.float32)


def of_pictures(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[], Any]:
    """A pipeline of the normalised pictures after a change."""
    return lambda: batches(change(normalized()), LABELS)


def of_raw(change: Callable[[np.ndarray], np.ndarray], **constants: Any) -> Callable[[], Any]:
    """A pipeline of pictures that are changed before they are normalised."""
    return lambda: batches(normalized(change(RAW), **constants), LABELS)


def of_labels(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[], Any]:
    """A pipeline with other labels."""
    return lambda: batches(normalized(), change(LABELS))


def resized(method: Any, size: tuple[int, int] = (24, 24), box: Any = None) -> Callable[[], Any]:
    """A pipeline of pictures that Pillow resizes."""

    def make() -> Any:
        made = [np.asarray(Image.fromarray(one).resize(size, method, box)) for one in RAW]
        return batches(np.stack(made).transpose(0, 3, 1, 2).astype(np.float32) / 255, LABELS)

    return make


def without_antialias() -> Any:
    """A pipeline of pictures that torch resizes."""
    import torch

    values = torch.tensor(RAW.transpose(0, 3, 1, 2).astype(np.float32))
    made = torch.nn.functional.interpolate(values, (24, 24), mode="bilinear").round() / 255
    return batches(made.numpy(), LABELS)


def vision(*operations: str, shuffle: bool = False, seed: int | None = None, repeat: int = 1) -> Callable[[], Any]:
    """A pipeline of MindSpore; operations are written as in `mindspore.dataset.vision`."""

    def make() -> Any:
        import mindspore.dataset as ds
        from mindspore.dataset import vision as v

        if seed is not None:
            ds.config.set_seed(seed)
        dataset = ds.NumpySlicesDataset({"image": RAW, "label": LABELS}, shuffle=shuffle)
        steps = [eval(text, {"v": v, "np": np}) for text in operations]
        dataset = (dataset.map(steps, "image") if steps else dataset).batch(BATCH)
        return dataset.repeat(repeat) if repeat > 1 else dataset

    return make


def loader(transform: Callable[[np.ndarray], Any], **options: Any) -> Callable[[], Any]:
    """A loader of torch over a dataset with a transform, seeded when it is made."""

    def make() -> Any:
        import torch
        from torch.utils.data import DataLoader, Dataset

        class Pictures(Dataset):
            def __init__(self) -> None:
                self.transform = transform

            def __len__(self) -> int:
                return SAMPLES

            def __getitem__(self, index: int) -> Any:
                return (self.transform(RAW[index]) if self.transform else RAW[index]), int(LABELS[index])

        torch.manual_seed(3)
        return DataLoader(Pictures(), batch_size=BATCH, **options)

    return make


def as_tensor(raw: np.ndarray) -> np.ndarray:
    """What `ToTensor` does."""
    return raw.transpose(2, 0, 1).astype(np.float32) / 255


def flipped_at_random(raw: np.ndarray) -> np.ndarray:
    """`ToTensor` behind a random flip."""
    import torch

    return as_tensor(raw[:, ::-1] if torch.rand(()) < 0.5 else raw).copy()


def brighter_at_random(width: float) -> Callable[[np.ndarray], np.ndarray]:
    """`ToTensor` before a random brightness."""

    def change(raw: np.ndarray) -> np.ndarray:
        import torch

        return np.clip(as_tensor(raw) * (1 + width * (2 * float(torch.rand(())) - 1)), 0, 1)

    return change


def window(top: int, left: int, size: int = 32) -> Callable[[np.ndarray], np.ndarray]:
    """A crop at one place."""
    return lambda raw: raw[:, top : top + size, left : left + size]


def padded(before: int, value: float = 0.0, total: int = 8) -> Callable[[np.ndarray], np.ndarray]:
    """Padding around each picture."""

    def change(values: np.ndarray) -> np.ndarray:
        width = ((0, 0), (0, 0), (before, total - before), (before, total - before))
        return np.pad(values, width, constant_values=value)

    return change


# Rows of tokens: words of a made-up language, split into pieces by a small tokenizer.

WORDS = [
    f"{a}{b}{c}" for a in ("Ka", "ka", "Mi", "mi", "te", "No") for b in ("na", "si", "", "vo") for c in ("x", "m", "")
]
VOCABULARY = {word: number for number, word in enumerate(WORDS, 5)}
PAD, START, END, UNKNOWN = 0, 1, 2, 3


def sentences(seed: int = 1) -> list[list[str]]:
    """Samples of words."""
    generator = np.random.default_rng(seed)
    return [[WORDS[n] for n in generator.integers(0, len(WORDS), generator.integers(6, 18))] for _ in range(SAMPLES)]


TEXTS = sentences()


def tokens(  # noqa: PLR0913 - one parameter a habit of tokenizers
    *,
    length: int = 20,
    first: tuple[int, ...] = (),
    last: tuple[int, ...] = (),
    side: str = "right",
    pad: int = PAD,
    cut: str = "right",
    lower: bool = False,
    ids: Callable[[int], int] = lambda number: number,
    ignored: int = -100,
    shift: int = 0,
    mask: Callable[[np.ndarray], np.ndarray] = lambda mask: mask,
    positions: Callable[[np.ndarray], np.ndarray] = lambda mask: np.broadcast_to(np.arange(mask.shape[1]), mask.shape),
) -> Callable[[], Any]:
    """A pipeline of rows of tokens with masks, labels and positions."""

    def make() -> Any:
        rows, masks, wanted = (np.full((SAMPLES, length), value) for value in (pad, 0, ignored))
        lowered = {word.lower(): VOCABULARY.get(word.lower(), VOCABULARY[word]) for word in WORDS}
        for number, words in enumerate(TEXTS):
            row = [ids(lowered[word.lower()] if lower else VOCABULARY[word]) for word in words]
            room = length - len(first) - len(last)
            row = [*first, *(row[:room] if cut == "right" else row[-room:]), *last]
            place = slice(0, len(row)) if side == "right" else slice(length - len(row), length)
            rows[number, place], masks[number, place] = row, 1
            moved = [*row[shift:], *[ignored] * shift]
            wanted[number, place] = moved
        names = ("input_ids", "attention_mask", "labels", "position_ids")
        return batches(rows, mask(masks), wanted, positions(masks), names=names)

    return make


# Tables of 12 columns of unlike scales.

GENERATOR = np.random.default_rng(5)
TABLE = (GENERATOR.normal(size=(SAMPLES, 12)) * GENERATOR.uniform(0.5, 20, 12) + GENERATOR.normal(size=12)).astype(
    np.float32
)
Z = ((TABLE - TABLE.mean(0)) / TABLE.std(0)).astype(np.float32)
HOLES = np.where(GENERATOR.random(TABLE.shape) < 0.06, np.float32(np.nan), TABLE)
ORDER = np.random.default_rng(9).permutation(SAMPLES)


def table(values: np.ndarray = Z, labels: np.ndarray = LABELS, size: int = BATCH) -> Callable[[], Any]:
    """A pipeline of rows of a table."""
    return lambda: batches(values, labels, size=size)


# Boxes of a detector beside pictures of one size or of several, and short videos.

NUMBERS_OF_BOXES = GENERATOR.integers(0, 6, SAMPLES)
CORNERS = [np.sort(GENERATOR.uniform(0, SIDE - 5, (count, 2, 2)), 1).reshape(count, 4) for count in NUMBERS_OF_BOXES]
TWO_EACH = [np.sort(GENERATOR.uniform(0, SIDE - 5, (2, 2, 2)), 1).reshape(2, 4) for _ in range(SAMPLES)]
SIZES = [(SIDE - number % 3, SIDE - number % 5) for number in range(SAMPLES)]  # of unlike pictures, (height, width)
ALPHA = np.broadcast_to(np.linspace(0, 255, SIDE), (SAMPLES, SIDE, SIDE)).astype(np.uint8)[..., None]
VIDEOS = np.stack([np.roll(RAW[:24, ::2, ::2], step, axis=1) for step in range(6)], 1)  # (24, T, H, W, C)


def as_xywh(box: np.ndarray) -> np.ndarray:
    """A corner and the lengths."""
    return np.concatenate([box[:, :2], box[:, 2:] - box[:, :2]], 1)


def as_cxcywh(box: np.ndarray) -> np.ndarray:
    """The centre and the lengths."""
    return np.concatenate([(box[:, :2] + box[:, 2:]) / 2, box[:, 2:] - box[:, :2]], 1)


def as_yxyx(box: np.ndarray) -> np.ndarray:
    """The corners, rows before columns."""
    return box[:, [1, 0, 3, 2]]


def detector(
    form: Callable[[np.ndarray], np.ndarray] = lambda box: box,
    corners: list[np.ndarray] = CORNERS,
    *,
    share: bool = False,
    unlike: bool = False,
    dtype: Any = np.float32,
) -> Callable[[], Any]:
    """A pipeline of pictures and boxes, in pixels or as a share of the picture; of one size or of unlike ones."""

    def make() -> Any:
        sizes = SIZES if unlike else [(SIDE, SIDE)] * SAMPLES
        cut = [raw[:height, :width] for raw, (height, width) in zip(RAW, sizes, strict=True)]
        scales = [np.array([width, height] * 2) if share else 1 for height, width in sizes]
        boxes = [form(box / scale).astype(dtype) for box, scale in zip(corners, scales, strict=True)]
        return batches(cut if unlike else RAW, boxes, names=("image", "boxes"))

    return make


def videos(*axes: int) -> Callable[[], Any]:
    """A pipeline of videos whose axes (T, H, W, C) stand in this order."""
    values = VIDEOS.astype(np.float32) / 255
    return lambda: batches(values.transpose(0, *(axis + 1 for axis in axes)), LABELS[:24])


class Endless:
    """Batches without an end."""

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from batches(Z, LABELS)


def rows() -> Iterator[Row]:  # noqa: PLR0915 - a row a difference
    """One difference a row."""
    plain, text, numbers = of_pictures(lambda x: x), tokens(), table()
    to_tensor = ("v.Rescale(1 / 255, 0)", "v.HWC2CHW()")
    unit = lambda: batches(RAW.transpose(0, 3, 1, 2).astype(np.float32) / 255, LABELS)  # noqa: E731

    def picture(name: str, change: Callable[[], Any], *right: str, **options: Any) -> Row:
        return Row(name, plain, change, right, tuple(options.items()))

    yield picture("values of 0 to 255", of_raw(lambda x: x, mean=0, std=1, scale=1), "normalization")
    yield picture("no normalisation", of_raw(lambda x: x, mean=0, std=1), "normalization")
    yield picture("-1 to 1", of_raw(lambda x: x, mean=0.5, std=0.5), "normalization")
    yield picture("mean and std of CIFAR", of_raw(lambda x: x, mean=CIFAR[0], std=CIFAR[1]), "normalization")
    yield picture("std of one channel", of_raw(lambda x: x, std=[0.229, 0.224, 0.25]), "channel-scale")
    yield picture("mean of one channel", of_raw(lambda x: x, mean=[0.485, 0.5, 0.406]), "channel-scale")
    yield picture("mean without std", of_raw(lambda x: x, std=1), "channel-scale or normalization")
    yield picture(
        "normalised twice", lambda: batches((normalized() - 0.5) / 0.5, LABELS), "scale-and-offset or normalization"
    )
    yield picture("divided twice", of_raw(lambda x: x / 255), "channel-scale or normalization")
    yield picture("BGR", of_pictures(lambda x: x[:, ::-1]), "channel-order")
    for letters in ("RBG", "GRB", "GBR", "BRG"):
        order = ["RGB".index(letter) for letter in letters]
        yield picture(letters, of_pictures(lambda x, order=order: x[:, order]), "channel-order")
    alpha = lambda order: lambda: batches(np.concatenate([RAW, ALPHA], 3)[..., order], LABELS)  # noqa: E731
    yield Row("alpha in front", alpha([0, 1, 2, 3]), alpha([3, 0, 1, 2]), ("channel-order",))
    yield Row("BGRA", alpha([0, 1, 2, 3]), alpha([2, 1, 0, 3]), ("channel-order",))
    yield Row("ABGR", alpha([0, 1, 2, 3]), alpha([3, 2, 1, 0]), ("channel-order",))
    yield Row("videos, channels before time", videos(0, 3, 1, 2), videos(3, 0, 1, 2), ("layout",))
    yield Row("videos, channels last", videos(0, 3, 1, 2), videos(0, 1, 2, 3), ("layout",))
    yield Row("videos, channels first against last", videos(3, 0, 1, 2), videos(0, 1, 2, 3), ("layout",))
    yield Row("boxes as corner and lengths", detector(), detector(as_xywh), ("box-form",))
    yield Row("boxes as centre and lengths", detector(), detector(as_cxcywh), ("box-form",))
    yield Row("centres against corners and lengths", detector(as_cxcywh), detector(as_xywh), ("box-form",))
    yield Row("boxes with rows first", detector(), detector(as_yxyx), ("box-form",))
    yield Row("boxes as shares", detector(), detector(share=True), ("box-scale",))
    yield Row(
        "boxes as shares, unlike pictures", detector(unlike=True), detector(share=True, unlike=True), ("box-scale",)
    )
    yield Row("two boxes each, as centres", detector(corners=TWO_EACH), detector(as_cxcywh, TWO_EACH), ("box-form",))
    yield picture("channels last", of_pictures(lambda x: x.transpose(0, 2, 3, 1)), "layout")
    yield picture("rows and columns exchanged", of_pictures(lambda x: x.transpose(0, 1, 3, 2)), "layout")
    yield picture("flipped sideways", of_pictures(lambda x: x[..., ::-1]), "flip")
    yield picture("flipped upside down", of_pictures(lambda x: x[:, :, ::-1]), "flip")
    yield picture("turned by 180 degrees", of_pictures(lambda x: x[:, :, ::-1, ::-1]), "flip")
    yield picture("float16 values", of_pictures(lambda x: x.astype(np.float16).astype(np.float32)), "rounding")
    yield picture("float16 dtype", of_pictures(lambda x: x.astype(np.float16)), "dtype")
    yield picture("cut at -1 and 1", of_pictures(lambda x: np.clip(x, -1, 1)), "clip")
    yield Row(
        "grey",
        unit,
        lambda: batches(np.repeat((RAW @ np.float32([0.299, 0.587, 0.114]))[:, None], 3, 1) / 255, LABELS),
        ("grayscale",),
    )
    yield Row(
        "gamma",
        unit,
        lambda: batches((RAW.transpose(0, 3, 1, 2).astype(np.float32) / 255) ** 2.2, LABELS),
        ("function",),
    )
    yield Row(
        "another decoder",
        lambda: batches(RAW, LABELS),
        lambda: batches(
            np.clip(RAW.astype(int) + GENERATOR.integers(-1, 2, RAW.shape), 0, 255).astype(np.uint8), LABELS
        ),
        ("grey-levels",),
    )
    centre = of_raw(window(4, 4))
    yield Row("crop from the corner", centre, of_raw(window(0, 0)), ("crop",))
    yield Row("crop off by one", centre, of_raw(window(4, 5)), ("crop",))
    yield Row("crop of another size", centre, of_raw(window(2, 2, 36)), ("crop",))
    yield Row(
        "crop for each sample",
        centre,
        lambda: batches(
            normalized(np.stack([window(*GENERATOR.integers(0, 9, 2))(one[None])[0] for one in RAW])), LABELS
        ),
        ("random-crop",),
    )
    yield Row("padded elsewhere", of_pictures(padded(4)), of_pictures(padded(0)), ("crop or padding-size",))
    yield Row(
        "padded before the mean",
        of_pictures(padded(4)),
        of_raw(lambda x: np.pad(x, ((0, 0), (4, 4), (4, 4), (0, 0)))),
        ("padding-value",),
    )
    yield Row("padding in one side only", plain, of_pictures(padded(4)), ("padding-size",))
    raw = (("raw", [tuple(pair) for pair in zip(RAW[:, None], LABELS[:, None], strict=True)]),)
    yield Row("resized to the nearest", resized(Image.BILINEAR), resized(Image.NEAREST), ("resize",), raw)
    yield Row("resized by cubic", resized(Image.BILINEAR), resized(Image.BICUBIC), ("resize",), raw)
    yield Row("resized without antialias", resized(Image.BILINEAR), without_antialias, ("resize",), raw)
    yield Row(
        "resized by MindSpore",
        resized(Image.BILINEAR),
        vision("v.Resize((24, 24), v.Inter.BILINEAR)", *to_tensor),
        ("resize",),
        raw,
    )
    yield Row(
        "crop after resize",
        resized(Image.BILINEAR),
        resized(Image.BILINEAR, box=(4, 4, 36, 36)),
        ("resize or resize-suspected",),
        raw,
    )
    yield Row("MindSpore, channels last", unit, vision("v.Rescale(1 / 255, 0)"), ("layout",))
    yield Row(
        "MindSpore flips at random",
        unit,
        vision("v.RandomHorizontalFlip()", *to_tensor),
        ("augmentation-flip or augmentation",),
    )
    yield Row("torch flips at random", loader(flipped_at_random), unit, ("augmentation-flip or augmentation",))
    yield Row("torch is brighter at random", loader(brighter_at_random(0.4)), unit, ("augmentation",))
    yield Row(
        "other widths of brightness",
        loader(brighter_at_random(0.5)),
        loader(brighter_at_random(0.05)),
        ("draws-differ",),
    )
    yield Row("labels from 1", plain, of_labels(lambda y: y + 1), ("label-offset",))
    yield Row("labels numbered otherwise", plain, of_labels(lambda y: (y * 3 + 1) % CLASSES), ("label-map",))
    yield Row("one-hot labels", plain, of_labels(lambda y: np.eye(CLASSES, dtype=np.float32)[y]), ("one-hot",))
    yield Row(
        "smoothed labels",
        plain,
        of_labels(lambda y: np.eye(CLASSES, dtype=np.float32)[y] * 0.9 + 0.01),
        ("one-hot", "label-smoothing"),
    )
    yield Row("labels of other samples", plain, of_labels(lambda y: np.roll(y, 5)), ("label-order",))
    yield Row("two classes are one", plain, of_labels(lambda y: np.where(y == 3, 5, y)), ("merged-labels",))
    yield Row("start token", text, tokens(first=(START,)), ("special-tokens",))
    yield Row("end token", text, tokens(last=(END,)), ("special-tokens",))
    yield Row("start and end token", text, tokens(first=(START,), last=(END,)), ("special-tokens",))
    yield Row("cut at 10 tokens", text, tokens(length=10), ("truncation",))
    yield Row("cut at the left", tokens(length=10), tokens(length=10, cut="left"), ("truncated-end",))
    yield Row("padded on the left", text, tokens(side="left"), ("padding-side",))
    yield Row("padded with another id", text, tokens(pad=4), ("padding-id",))
    yield Row("padded to 24", text, tokens(length=24), ("padded-length",))
    yield Row("small letters", text, tokens(lower=True), ("merged-tokens or id-map or tokens",))
    yield Row("another vocabulary", text, tokens(ids=lambda n: (n * 7) % 79 + 5), ("id-map",))
    yield Row("ids from 1 on", text, tokens(ids=lambda n: n + 1), ("id-offset or id-map",))
    yield Row("mask turned round", text, tokens(mask=lambda m: 1 - m), ("inverted-mask",))
    yield Row(
        "mask to be added",
        text,
        tokens(mask=lambda m: np.where(m == 1, 0.0, -1e9).astype(np.float32)),
        ("mask-values",),
    )
    yield Row("labels shifted", text, tokens(shift=1), ("token-shift",))
    yield Row("padding counts in the loss", text, tokens(ignored=0), ("ignored-id",))
    yield Row(
        "positions from 1",
        text,
        tokens(positions=lambda m: np.broadcast_to(np.arange(m.shape[1]) + 1, m.shape)),
        ("position-start",),
    )
    yield Row(
        "positions past the padding",
        tokens(side="left"),
        tokens(side="left", positions=lambda m: np.maximum(np.cumsum(m, 1) - 1, 0)),
        ("position-start",),
    )
    yield Row(
        "statistics of a half",
        numbers,
        table(((TABLE - TABLE[:48].mean(0)) / TABLE[:48].std(0)).astype(np.float32)),
        ("column-scale",),
    )
    yield Row("columns not standardised", numbers, table(TABLE), ("column-scale",))
    yield Row(
        "divided by n - 1",
        numbers,
        table(((TABLE - TABLE.mean(0)) / TABLE.std(0, ddof=1)).astype(np.float32)),
        ("scale",),
    )
    yield Row("columns in another order", numbers, table(Z[:, [1, 0, *range(2, 10), 11, 10]]), ("column-order",))
    yield Row("one column of other units", numbers, table(Z * np.float32([1] * 7 + [100] + [1] * 4)), ("column-scale",))
    yield Row("logarithm", table(np.abs(TABLE)), table(np.log1p(np.abs(TABLE))), ("function",))
    yield Row("gaps are 0", table(HOLES), table(np.nan_to_num(HOLES)), ("missing-values",))
    yield Row("whole numbers", table(TABLE), table(np.round(TABLE)), ("rounding",))
    yield Row("another order", numbers, table(Z[ORDER], LABELS[ORDER]), ("order-differs",))
    yield Row("shuffled by MindSpore", unit, vision(*to_tensor, shuffle=True), ("order-differs",))
    yield Row("every second sample", numbers, table(Z[1::2], LABELS[1::2]), ("sharded",))
    yield Row("the second half", numbers, table(Z[48:], LABELS[48:]), ("sharded",))
    yield Row("samples are missing", numbers, table(Z[:91], LABELS[:91]), ("missing-samples",))
    yield Row(
        "samples are repeated",
        numbers,
        table(np.concatenate([Z, Z[:5]]), np.concatenate([LABELS, LABELS[:5]])),
        ("extra-samples",),
    )
    thrice, draws = np.tile(np.arange(SAMPLES), 3), np.random.default_rng(6).integers(0, SAMPLES, 2 * SAMPLES)
    anew = np.concatenate([np.random.default_rng(seed).permutation(SAMPLES) for seed in range(3)])
    in_a_row = np.repeat(np.arange(SAMPLES), 3)
    yield Row("three times over", numbers, table(Z[thrice], LABELS[thrice]), ("repeat",))
    yield Row("MindSpore repeats", unit, vision(*to_tensor, repeat=2), ("repeat",))
    yield Row("the original repeats", table(Z[thrice], LABELS[thrice]), numbers, ("repeat",))
    cut = thrice[:280]
    yield Row("repeated, the last batch dropped", table(size=40), table(Z[cut], LABELS[cut], size=40), ("repeat",))
    yield Row("repeated without an end", numbers, Endless, ("repeat",))
    yield Row("repeated, shuffled anew", numbers, table(Z[anew], LABELS[anew]), ("repeat", "order-differs"))
    yield Row("drawn with copies", numbers, table(Z[draws], LABELS[draws]), ("order-differs",), wrong=("repeat",))
    yield Row(
        "each sample three times in a row",
        numbers,
        table(Z[in_a_row], LABELS[in_a_row]),
        ("extra-samples",),
        wrong=("repeat",),
    )
    yield Row("batches of 24", numbers, table(size=24), ("batch-size",))
    yield Row("last batch dropped", table(Z[:90], LABELS[:90]), table(Z[:84], LABELS[:84]), ("last-batch",))


def pairs_of_causes() -> Iterator[Row]:
    """Two differences a row."""
    plain, text, numbers = of_pictures(lambda x: x), tokens(), table()
    yield Row("BGR before the mean", plain, of_raw(lambda x: x[..., ::-1]), ("channel-order", "normalization"))
    yield Row("RBG before the mean", plain, of_raw(lambda x: x[..., [0, 2, 1]]), ("channel-order", "normalization"))
    yield Row(
        "GBR and channels last",
        plain,
        of_pictures(lambda x: x[:, [1, 2, 0]].transpose(0, 2, 3, 1)),
        ("layout", "channel-order"),
    )
    yield Row("centres as shares", detector(), detector(as_cxcywh, share=True), ("box-form", "box-scale"))
    yield Row(
        "rows first as shares, unlike pictures",
        detector(as_xywh, unlike=True),
        detector(as_yxyx, share=True, unlike=True),
        ("box-form", "box-scale"),
    )
    twice = np.tile(np.arange(SAMPLES), 2)
    yield Row(
        "repeat and CIFAR",
        plain,
        lambda: batches(normalized(mean=CIFAR[0], std=CIFAR[1])[twice], LABELS[twice]),
        ("repeat", "normalization"),
    )
    yield Row(
        "videos turned round and 0 to 255",
        videos(3, 0, 1, 2),
        lambda: batches(VIDEOS.astype(np.float32), LABELS[:24]),
        ("layout", "normalization"),
    )
    yield Row(
        "bytes instead of floats",
        lambda: batches(RAW.transpose(0, 3, 1, 2).astype(np.float32) / 255, LABELS),
        lambda: batches(RAW, LABELS),
        ("layout", "normalization", "dtype"),
    )
    yield Row(
        "BGR and CIFAR",
        plain,
        lambda: batches(normalized(mean=CIFAR[0], std=CIFAR[1])[:, ::-1], LABELS),
        ("channel-order", "normalization"),
    )
    yield Row(
        "MindSpore, not rescaled",
        lambda: batches(RAW.transpose(0, 3, 1, 2).astype(np.float32) / 255, LABELS),
        vision("v.HWC2CHW()"),
        ("normalization", "dtype"),
    )
    yield Row("flip and -1 to 1", plain, of_raw(lambda x: x[:, :, ::-1], mean=0.5, std=0.5), ("flip", "normalization"))
    yield Row(
        "layout and 0 to 255", plain, lambda: batches(RAW.astype(np.float32), LABELS), ("layout", "normalization")
    )
    yield Row(
        "crop and CIFAR",
        of_raw(window(4, 4)),
        of_raw(window(4, 6), mean=CIFAR[0], std=CIFAR[1]),
        ("crop", "normalization"),
    )
    yield Row(
        "order and CIFAR",
        plain,
        lambda: batches(normalized(mean=CIFAR[0], std=CIFAR[1])[ORDER], LABELS[ORDER]),
        ("order-differs", "normalization"),
    )
    yield Row("labels and flip", plain, lambda: batches(normalized()[..., ::-1], LABELS + 1), ("flip", "label-offset"))
    yield Row(
        "order and labels",
        plain,
        lambda: batches(normalized()[ORDER], LABELS[ORDER] + 1),
        ("order-differs", "label-offset"),
    )
    yield Row(
        "start token and left padding", text, tokens(first=(START,), side="left"), ("special-tokens", "padding-side")
    )
    yield Row("end token and another padding", text, tokens(last=(END,), pad=4), ("special-tokens", "padding-id"))
    yield Row("mask and shift", text, tokens(mask=lambda m: 1 - m, shift=1), ("inverted-mask", "token-shift"))
    yield Row("truncation and start token", text, tokens(length=10, first=(START,)), ("truncation", "special-tokens"))
    yield Row(
        "columns and order",
        numbers,
        table((TABLE / 3)[ORDER].astype(np.float32), LABELS[ORDER]),
        ("order-differs", "column-scale"),
    )
    yield Row("batches and statistics", numbers, table(TABLE, size=24), ("batch-size", "column-scale"))
    yield Row("column order and scale", numbers, table((Z * 2)[:, [1, 0, *range(2, 12)]]), ("column-order", "scale"))


def equal_pairs() -> Iterator[Row]:
    """Pipelines that are equal, some of them shuffled, or drawn, alike."""
    unit = lambda: batches(RAW.transpose(0, 3, 1, 2).astype(np.float32) / 255, LABELS)  # noqa: E731
    to_tensor = ("v.Rescale(1 / 255, 0)", "v.HWC2CHW()")
    yield Row("NumPy and MindSpore", unit, vision(*to_tensor))
    yield Row("NumPy and torch", unit, loader(as_tensor))
    yield Row(
        "torch and MindSpore, normalised",
        of_pictures(lambda x: x),
        vision(f"v.Normalize({[255 * m for m in IMAGENET[0]]}, {[255 * s for s in IMAGENET[1]]})", "v.HWC2CHW()"),
    )
    yield Row("ToTensor", unit, vision("v.ToPIL()", "v.ToTensor()"))
    yield Row(
        "Pillow's and MindSpore's Pillow resize",
        resized(Image.BILINEAR),
        vision("v.ToPIL()", "v.Resize((24, 24), v.Inter.BILINEAR)", "v.ToTensor()"),
    )
    yield Row("workers", unit, loader(as_tensor, num_workers=2))
    yield Row("names and places", tokens(), lambda: [tuple(batch.values()) for batch in tokens()()])
    yield Row(
        "int64 and int32",
        tokens(),
        lambda: [{name: value.astype(np.int32) for name, value in batch.items()} for batch in tokens()()],
    )
    yield Row("float64 and float32", table(Z), table(Z.astype(np.float64)))
    yield Row("endless", Endless, Endless)
    yield Row("gaps", table(HOLES), table(HOLES.copy()))
    yield Row(
        "another formula",
        table(Z),
        table((TABLE.astype(np.float64) - TABLE.mean(0, dtype=np.float64)) / TABLE.std(0, dtype=np.float64)),
    )
    yield Row(
        "another formula in float32",
        table((Z * 0.3 + 0.1).astype(np.float32)),
        table(((Z * 3 + 1) / np.float32(10)).astype(np.float32)),
    )
    yield Row("one sample a batch", table(Z, size=1), table(Z.copy(), size=1))
    grey = np.repeat(RAW[..., :1], 3, 3)
    yield Row("grey in three channels", lambda: batches(grey, LABELS), lambda: batches(grey[..., [0, 2, 1]], LABELS))
    yield Row("boxes", detector(), detector(dtype=np.float64))
    yield Row("boxes as shares", detector(as_cxcywh, share=True), detector(as_cxcywh, share=True))
    yield Row("videos", videos(0, 3, 1, 2), videos(0, 3, 1, 2))
    both = np.tile(np.arange(SAMPLES), 2)
    yield Row("both repeat", table(Z[both], LABELS[both]), table(Z[both].copy(), LABELS[both]))
    yield Row("MindSpore repeats on both sides", vision(*to_tensor, repeat=2), vision(*to_tensor, repeat=2))
    yield Row("tables", table(TABLE), table(TABLE.copy()))
    for seed in range(10):  # shuffled alike
        order = np.random.default_rng(seed).permutation(SAMPLES)
        for_torch = lambda order=order: loader(as_tensor, sampler=[int(n) for n in order])()  # noqa: E731
        yield Row(
            f"shuffled alike {seed}",
            for_torch,
            lambda order=order: batches(RAW[order].transpose(0, 3, 1, 2).astype(np.float32) / 255, LABELS[order]),
        )
    for width in (0.1, 0.2, 0.3, 0.4, 0.5):  # with the same draws
        yield Row(f"equal draws {width}", loader(brighter_at_random(width)), loader(brighter_at_random(width)))


def judge(row: Row) -> tuple[Any, set[str], set[str]]:
    """The result, all that it names, and of its causes those that are not confirmed."""
    result = align.compare_data(row.reference, row.candidate, **dict(row.options))
    named = {cause.id for cause in result.causes} | {
        finding.code for finding in result.findings if finding.severity == "error"
    }
    return result, named, {cause.id for cause in result.causes if not cause.confirmed}


def is_named(wanted: str, named: set[str]) -> bool:
    """Whether one of several right ids is named."""
    return bool(set(wanted.split(" or ")) & named)


LARGE = """
import numpy as np

class Rows:
    def __iter__(self):
        draw = np.random.default_rng(0)
        return ((draw.random((1000, 20), dtype=np.float32), np.arange(1000)) for _ in range(1000))
"""
READ = "for _ in range(2):\n    for batch in Rows():\n        pass\n"
COMPARE = "import align\nprint(align.compare_data(Rows(), Rows(), batches=None).verdict.outcome.value)\n"
MOST_SECONDS, MOST_MEGABYTES = 20.0, 500.0


def measure_large() -> int:
    """Compare a million samples of 20 numbers in a process of its own; print ratios to reading both sides."""
    figures = []
    for code in (READ, COMPARE):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        subprocess.run([sys.executable, "-c", LARGE + code + PEAK], check=True, text=True, capture_output=True)
        made = subprocess.run([sys.executable, "-c", LARGE + code + PEAK], check=True, text=True, capture_output=True)
        seconds = (resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before) / 2
        figures.append((seconds, float(made.stdout.split()[-1]) / 1024))
    (read, least), (compared, peak) = figures
    print(
        f"1,000,000 samples: {compared:.1f} s of processor time, {compared / read:.1f} x reading both sides (bar 20 s)"
    )
    print(f"peak memory {peak:.0f} MB, {peak / least:.1f} x reading alone (bar 500 MB)")
    return int(compared > MOST_SECONDS or peak > MOST_MEGABYTES)


PEAK = "import resource\nprint(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"


def main() -> int:
    """Print what is missed, and the shares against their bars."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="rows whose name holds this")
    parser.add_argument("--large", action="store_true", help="time and memory of a million samples")
    given = parser.parse_args()
    if given.large:
        return measure_large()
    only = given.only
    counts: dict[str, list[bool]] = {name: [] for name in BARS}
    for row in (*rows(), *pairs_of_causes()):
        if only not in row.name:
            continue
        result, named, unconfirmed = judge(row)
        found = result.verdict.outcome is Outcome.NOT_ALIGNED
        right = [is_named(wanted, named) for wanted in row.right] + [name not in named for name in row.wrong]
        exact = all(right) and not {name for name in named if not any(is_named(w, {name}) for w in row.right)}
        counts["found"].append(found)
        if len(row.right) == 1:
            counts["named"].append(all(right))
            counts["confirmed"].append(all(right) and not unconfirmed)
        else:
            counts["both of two"].append(all(right))
        mark = "ok" if found and exact else "more" if found and all(right) else "MISSED"
        if mark != "ok":
            print(
                f"{mark:7}{row.name:34} wanted {', '.join(row.right)}; named {', '.join(sorted(named)) or 'nothing'}",
                flush=True,
            )
    for row in equal_pairs():
        if only in row.name:
            result, named, _ = judge(row)
            alarm = result.verdict.outcome is not Outcome.ALIGNED
            counts["alarms"].append(alarm)
            if alarm:
                print(f"ALARM  {row.name:34} {result.verdict.outcome.value}: {', '.join(sorted(named))}", flush=True)
    missed = False
    for name, values in counts.items():
        share = sum(values) / len(values) if values else 0.0
        passes = share <= BARS[name] if name == "alarms" else share >= BARS[name]
        missed |= bool(values) and not passes
        print(f"{name:12} {sum(values):3} of {len(values):3}  {share:6.1%}  bar {BARS[name]:.0%}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
