"""Which tensors of two sides hold one value, and what that tells of a map that names made.

A value pairs two names only if it stands once on each side among tensors of its shape, either way round, and is no
constant: zeros and ones are what every fresh layer holds. A few elements of each tensor are read; whole ones only where
these say something new. Pairs that are sure and hold one value are not looked at further. What is open, or not sure, is
settled; a sure pair of unequal values is parted where another of its shape alone has the equal one; and pairs of the
user's that values contradict stand, and a warning says so.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from align.checkpoints.extents import byte_blocks
from align.core.dtypes import INTEGERS, numpy_dtype
from align.core.name_map import Pairing
from align.core.progress import collector_paused
from align.core.transforms import Permute, Reshape, chained, turned_and_reshaped
from align.names.thresholds import CONFIDENCE_AGAINST_VALUES, SAMPLED_POINTS
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

    from align.core.checkpoints import StoredTensor
    from align.core.dtypes import Array
    from align.core.name_map import NameMap
    from align.core.parameters import ParameterSet, Shape
    from align.core.transforms import Transform
    from align.names.read_layers import LayeredSides
    from align.words.catalogue import Note

    Values = Mapping[str, StoredTensor]


Sides = tuple["ParameterSet", "ParameterSet"]


@collector_paused()
def pairs_by_values(name_map: NameMap, layered: LayeredSides, values: tuple[Values, Values]) -> dict[str, Pairing]:
    """Return the pairs, by source, that values settle beside or against the map, and those that they confirm.

    What the user said stands.
    """
    sides = layered.parameters
    said = (
        {p.source for p in name_map.pairings if p.evidence == "user"},
        {p.target for p in name_map.pairings if p.evidence == "user"},
    )
    free = [
        {n: tensor for n, tensor in own.items() if n not in names and side.by_name[n].tied_to is None}
        for own, names, side in zip(values, said, sides, strict=True)
    ]
    before = {p.source: p for p in name_map.pairings}
    by_source: dict[str, Pairing] = {}
    known = _known(name_map, sides)
    for equal in pair_equal_values(free[0], free[1], known):
        mine = before.get(equal.source)
        if equal in known:
            by_source |= {equal.source: mine} if mine and mine.target == equal.target else {}
        elif layered.roles[0][equal.source][0].aside == layered.roles[1][equal.target][0].aside:
            by_source[equal.source] = _pairing(equal, sides, mine)
    return by_source


def _known(name_map: NameMap, sides: Sides) -> set[EqualValue]:
    """Pairs that values need not confirm, by the first name of each tensor."""
    found = set()
    for pairing in name_map.pairings:
        if pairing.confidence == 1:
            one, other = (side.by_name[n] for side, n in zip(sides, (pairing.source, pairing.target), strict=True))
            names = one.tied_to or one.name, other.tied_to or other.name
            found |= {
                EqualValue(*names, turned)
                for turned in (False, True)
                if _transform(one.shape, other.shape, turned) == pairing.transform
            }
    return found


def _pairing(equal: EqualValue, sides: Sides, before: Pairing | None) -> Pairing:
    one, other = sides[0].by_name[equal.source], sides[1].by_name[equal.target]
    transform = _transform(one.shape, other.shape, equal.turned)
    note = ""
    if before is not None and before.target != equal.target:
        note = sentence("pair_note.names_hold_another", name=before.target)
    elif before is not None and before.transform != transform:
        note = sentence("pair_note.values_transposed")
    return Pairing(equal.source, equal.target, "values", 1.0, transform, note)


def _transform(before: Shape, wanted: Shape, turned: bool) -> Transform:
    """The transform between two shapes of one value, which may be a matrix and its transpose."""
    plain = tuple(length for length in before if length != 1)
    if not turned or len(plain) != 2:
        return turned_and_reshaped(before, wanted, turned=False)
    return chained(turned_and_reshaped(before, plain, turned=False), turned_and_reshaped(plain, wanted, turned=True))


@dataclass(frozen=True, slots=True)
class EqualValue:
    """Two names of one value; `turned` says that the target holds the matrix transposed."""

    source: str
    target: str
    turned: bool = False


def pair_equal_values(source: Values, target: Values, known: Set[EqualValue] = frozenset()) -> list[EqualValue]:
    """Return the pairs of one value; those that are `known` are not read whole where no other has their sample.

    Floats of two dtypes are compared in the narrower one.
    """
    found = []
    for mine, theirs in _alike(source, target):
        found += [EqualValue(a.tensor.name, b.tensor.name, a.turned) for a, b in _equal(mine, theirs, known)]
    return found


@dataclass(frozen=True, slots=True)
class _Reading:
    """A tensor as it stands, or turned; axes of length 1 count for nothing."""

    tensor: StoredTensor
    dtype: str
    turned: bool = False

    def sample(self, value: Array) -> object:
        """The shape and some elements of the tensor's value, None if these are all equal."""
        value = value.T if self.turned else value
        most = SAMPLED_POINTS if value.ndim == 2 else SAMPLED_POINTS**2
        table = value if value.ndim == 2 else value.reshape(-1)
        some = self._narrow(table[np.ix_(*(_spread(length, most) for length in table.shape))])
        return None if (some == some.reshape(-1)[0]).all() else (value.shape, some.tobytes())

    def digest(self) -> bytes:
        """A sum over all bytes."""
        digest = hashlib.blake2b()
        if self.turned or self.tensor.dtype != self.dtype:
            digest.update(self._narrow(self._value()).tobytes())
        else:
            for block in byte_blocks(self.tensor):
                digest.update(block)
        return digest.digest()

    def _value(self) -> Array:
        value = _loaded(self.tensor)
        return value.T if self.turned else value

    def _narrow(self, value: Array) -> Array:
        with np.errstate(all="ignore"):
            return value.astype(numpy_dtype(self.dtype))


def _equal(
    mine: Sequence[_Reading], theirs: Sequence[_Reading], known: Set[EqualValue]
) -> Iterator[tuple[_Reading, _Reading]]:
    """Yield those of some readings with one sample that are the only ones of their value on either side."""
    alone = len(mine) == len(theirs) == 1
    if alone and EqualValue(mine[0].tensor.name, theirs[0].tensor.name, mine[0].turned) in known:
        yield mine[0], theirs[0]
        return
    left, right = _by_digest(mine), _by_digest(theirs)
    for digest, a in left.items():
        b = right.get(digest)
        if a is not None and b is not None:
            yield a, b


def _by_digest(readings: Iterable[_Reading]) -> dict[bytes, _Reading | None]:
    """Digest of the value -> its reading, None if several have it."""
    found: dict[bytes, _Reading | None] = {}
    for reading in readings:
        digest = reading.digest()
        found[digest] = None if digest in found else reading
    return found


def _alike(source: Values, target: Values) -> Iterator[tuple[list[_Reading], list[_Reading]]]:
    """Yield the readings of both sides that have one sample."""
    targets = _by_shape(target)
    for shape, lefts in _by_shape(source).items():
        if rights := targets.get(shape):
            dtype = min((tensor.dtype for tensor in (*lefts, *rights)), key=lambda name: numpy_dtype(name).itemsize)
            ways = (False, True) if len(_plain(lefts[0])) == 2 else (False,)
            mine, theirs = _by_sample(lefts, dtype, ways), _by_sample(rights, dtype, (False,))
            yield from ((readings, theirs[sample]) for sample, readings in mine.items() if sample in theirs)


def _by_shape(side: Values) -> dict[object, list[StoredTensor]]:
    """Tensors by what their counterparts have in common with them: a shape either way round, and a kind of number."""
    found: dict[object, list[StoredTensor]] = defaultdict(list)
    for tensor in side.values():
        plain = _plain(tensor)
        whole = tensor.dtype in INTEGERS or tensor.dtype == "bool"
        if prod(plain) > 1:
            key = tuple(sorted(plain)) if len(plain) == 2 else plain
            found[key, tensor.dtype if whole else "float"].append(tensor)
    return found


def _by_sample(tensors: Iterable[StoredTensor], dtype: str, ways: Sequence[bool]) -> dict[object, list[_Reading]]:
    """Readings of tensors, turned or not, by their sample, each once: a symmetric matrix stands as it is."""
    found: dict[object, dict[str, _Reading]] = defaultdict(dict)
    for tensor in tensors:
        value = _loaded(tensor)
        for reading in (_Reading(tensor, dtype, turned) for turned in ways):
            if sample := reading.sample(value):
                found[sample].setdefault(tensor.name, reading)
    return {sample: list(named.values()) for sample, named in found.items()}


def _loaded(tensor: StoredTensor) -> Array:
    return tensor.load().reshape(_plain(tensor))


def _plain(tensor: StoredTensor) -> Shape:
    return tuple(length for length in tensor.shape if length != 1)


@cache
def _spread(length: int, most: int) -> Array:
    """At most so many indices, from the first to the last."""
    return np.linspace(0, length - 1, min(length, most)).astype(np.int64)


def note_value_conflicts(name_map: NameMap, values: tuple[Values, Values]) -> tuple[NameMap, list[Note]]:
    """Return the map with a note at each contradicted pair and at its followers, and what to say of each."""
    users_pairs = {p.source: p for p in name_map.pairings if p.evidence == "user" and _is_whole(p)}
    if not users_pairs or not all(values):
        return name_map, []
    source, target = values
    said = {p.target: p for p in users_pairs.values()}
    there = pair_equal_values({name: source[name] for name in users_pairs if name in source}, target)
    back = pair_equal_values(source, {name: target[name] for name in said if name in target})
    others = {one.source: one.target for one in there if users_pairs[one.source].target != one.target}
    sources = {one.source: one.target for one in back if said[one.target].source != one.source}
    notes = {name: sentence("pair_note.against_values", name=other) for name, other in others.items()}
    for name, to in sources.items():
        notes.setdefault(said[to].source, sentence("pair_note.target_against_values", target=to, name=name))
    taken = set(others.values())
    pairings = tuple(
        replace(p, note=notes[p.source])
        if p.source in notes and p.evidence == "user"
        else _doubted(p)
        if p.evidence not in ("user", "values") and (p.target in taken or p.source in sources)
        else p
        for p in name_map.pairings
    )
    conflicts = [
        ("map_warning.rule_stands", {"source": name, "target": users_pairs[name].target, "note": note})
        for name, note in notes.items()
    ]
    return replace(name_map, pairings=pairings), conflicts


def _is_whole(pairing: Pairing) -> bool:
    """Tell whether the target has the values of the source, and no others."""
    return all(isinstance(step, (Reshape, Permute)) for step in pairing.transform.steps)


def _doubted(pairing: Pairing) -> Pairing:
    note = sentence("pair_note.doubted_rule")
    return replace(pairing, confidence=min(pairing.confidence, CONFIDENCE_AGAINST_VALUES), note=note)
