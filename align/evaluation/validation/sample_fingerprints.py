"""A few numbers a sample, by which it is known again without being kept.

Two pipelines for one dataset round differently, so floats are known by their norm, their sum and their product with a
fixed wave, which no exchange of pixels or channels leaves alone; integers and labels by a checksum.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.dtypes import is_float
from align.evaluation.thresholds import SAME_SAMPLE_TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from align.core.dtypes import Array

    Facts = NDArray[np.float64]

NORM, SUM, WAVE, EXACT, LABEL = range(5)


def sample_fingerprints(inputs: Iterable[Array], labels: Any, size: int) -> Facts:
    """The facts of each sample of a batch, (size, 5); labels are an array, or anything that has a repr."""
    facts = np.zeros((size, 5))
    for place, value in enumerate(inputs):
        rows = value.reshape(size, -1)
        if is_float(value.dtype.name) and rows.shape[1]:
            wide = rows.astype(np.float64)
            facts[:, NORM] = np.hypot(facts[:, NORM], np.sqrt(np.einsum("ij,ij->i", wide, wide)))
            facts[:, SUM] += wide.sum(1) / np.sqrt(rows.shape[1])
            facts[:, WAVE] += wide @ np.cos(np.arange(1.0, rows.shape[1] + 1) + place)
        else:
            facts[:, EXACT] = [_checksum(row, int(known)) for row, known in zip(rows, facts[:, EXACT], strict=True)]
    if isinstance(labels, np.ndarray) and labels.ndim and labels.dtype.kind != "O":
        facts[:, LABEL] = [_checksum(label) for label in labels]
    else:
        facts[:, LABEL] = zlib.crc32(repr(labels).encode())
    return facts


def count_differing_samples(reference: Facts, candidate: Facts) -> tuple[int, int]:
    """In how many of the common samples of two datasets the inputs, and the labels, differ."""
    common = min(len(reference), len(candidate))
    a, b = reference[:common], candidate[:common]
    room = SAME_SAMPLE_TOLERANCE * np.maximum(a[:, NORM], b[:, NORM])
    apart = [~(np.abs(a[:, column] - b[:, column]) <= room) for column in (NORM, SUM, WAVE)]
    inputs = apart[0] | apart[1] | apart[2] | (a[:, EXACT] != b[:, EXACT])
    return int(inputs.sum()), int((a[:, LABEL] != b[:, LABEL]).sum())


def _checksum(value: Array, start: int = 0) -> int:
    """Equal for equal numbers, whatever the width of their dtype."""
    wide = {**dict.fromkeys("iub", np.int64), **dict.fromkeys("fV", np.float32)}
    return zlib.crc32(np.ascontiguousarray(value, wide.get(value.dtype.kind)).tobytes(), start)
