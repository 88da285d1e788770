"""A checkpoint cut into several files, as Hugging Face's loaders and MindSpore Transformers expect to find them.

Tensors keep their order and are put into a shard until the next would not fit; what is larger than the limit has a
shard of its own. Names follow the convention `model-00001-of-00003.safetensors` beside `model.safetensors.index.json`.
"""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import PurePath
from typing import TYPE_CHECKING

from align.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from align.core.checkpoints import StoredTensor

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
        raise UsageError(f"{text!r} is not a size", 'write a number and a unit: "5GB", "500MB", "2GiB", or plain bytes')
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
