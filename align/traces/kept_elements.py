"""Which elements of a captured tensor are kept: the same ones in every trace, so that two traces can be compared."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from align.core.trace_metadata import KeptValues
from align.errors import UsageError
from align.traces.thresholds import LARGEST_SHUFFLED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.core.dtypes import Array
    from align.core.traces import Capture

_PART = re.compile(r"(first|sample):([1-9][0-9]{0,11})")


def read_kept(words: Sequence[str]) -> KeptValues:
    """Read what the user wants kept; `first:N` and `sample:N` go together with globs.

    Raises UsageError for words that cannot go together.

    >>> read_kept(["layers.*", "first:100"])
    Kept(globs=('layers.*',), elements=100, sampled=False)
    """
    parts = [found for word in words if (found := _PART.fullmatch(word))]
    strange = [word for word in words if ":" in word and not _PART.fullmatch(word)]
    globs = tuple(word for word in words if ":" not in word and word not in ("all", "none"))
    alone = [word for word in words if word in ("all", "none")]
    if strange or len(parts) > 1 or len({*alone}) + bool(globs) > 1 or ("none" in alone and parts):
        raise UsageError.of("traces_error.what_to_keep", words=" ".join(words))
    part = parts[0] if parts else None
    return KeptValues(
        () if "none" in alone else globs or ("*",),
        int(part[2]) if part else None,
        part is not None and part[1] == "sample",
    )


def is_kept(kept: KeptValues, capture: Capture) -> bool:
    """Tell whether elements of a tensor are kept at all."""
    return bool(kept.globs) and (not capture.module or any(fnmatchcase(capture.module, glob) for glob in kept.globs))


def keep_part(kept: KeptValues, capture: Capture, value: Array) -> Array | None:
    """Return what is kept of a tensor: itself, some of its elements in C order, or None."""
    if not is_kept(kept, capture):
        return None
    places = kept_places(kept, value.size)
    return value if places is None else value.reshape(-1)[places]


def kept_places(kept: KeptValues, size: int) -> Array | None:
    """Places (in C order) of the elements that are kept of a tensor of `size` elements; None for all."""
    if kept.elements is None or size <= kept.elements:
        return None
    return _drawn(size, kept.elements) if kept.sampled else np.arange(kept.elements)


@lru_cache(maxsize=256)
def _drawn(size: int, count: int) -> Array:
    """Ascending places; a few less where the size is too large to be shuffled, and some are drawn twice."""
    generator = np.random.default_rng(size)
    small = size <= LARGEST_SHUFFLED
    places: Array = generator.choice(size, count, replace=False) if small else generator.integers(0, size, count)
    return np.asarray(np.unique(places))
