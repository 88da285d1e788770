"""Which tensors of two sides hold one value; and one model under trial, whose calls are sampled.

A value pairs two names only if it stands once on each side among tensors of its shape, either way round, and is no
constant: zeros and ones are what every fresh layer holds. A few elements of each tensor are read; whole ones only where
these say something new. Pairs that are sure and hold one value are not looked at further. What is open, or not sure, is
settled; a sure pair of unequal values is parted where another of its shape alone has the equal one; and pairs of the
user's that values contradict stand, and a warning says so.
"""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, lru_cache
from math import prod, sqrt
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.checkpoints.extents import byte_blocks, read_whole
from align.core.name_map import Pairing
from align.core.parameters import INTEGERS, is_float, numpy_dtype
from align.core.protocols import collector_paused
from align.core.transforms import Permute, Reshape, chained, turned_and_reshaped
from align.measure.tensor_statistics import relative_rms_distance, sample_values
from align.measure.thresholds import MOST_RELATED_TENSORS
from align.measure.weight_relations import relate_weights
from align.models.inputs import batches_of, run_fitted
from align.names.map_text import rule_text
from align.names.read_layers import read_layers
from align.names.thresholds import (
    AGREEING_DISTANCE,
    CONFIDENCE_AGAINST_VALUES,
    LEAST_RANGE,
    LEAST_VARIANCE_SHARE,
    MOST_SORTED_ELEMENTS,
    READ_WHOLE_BYTES,
    SAMPLED_POINTS,
    SEEN_ENDS,
    TRIAL_GAIN,
    TRIAL_SPREAD,
)
from align.names.user_rules import fold_ranges
from align.rules.layer_rules import STATISTICS, rule_for
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

    from numpy.typing import NDArray

    from align.core.name_map import NameMap
    from align.core.parameters import Array, Parameter, ParameterSet, Shape, StoredTensor
    from align.core.traces import Capture, CaptureSink
    from align.core.transforms import Transform
    from align.models.open_side import Side
    from align.names.read_layers import Layer, LayeredSides
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
    known: set[EqualValue] = set()
    for pairing in name_map.pairings:
        if pairing.confidence == 1:
            one, other = (side.by_name[n] for side, n in zip(sides, (pairing.source, pairing.target), strict=True))
            names = one.tied_to or one.name, other.tied_to or other.name
            for turned in (False, True)[: len(_plain(one.shape))]:  # a vector is read one way
                if _transform(one.shape, other.shape, turned) == pairing.transform:
                    known.add(EqualValue(*names, turned))
    return known


def _pairing(equal: EqualValue, sides: Sides, before: Pairing | None) -> Pairing:
    one, other = sides[0].by_name[equal.source], sides[1].by_name[equal.target]
    transform = _transform(one.shape, other.shape, equal.turned)
    note = ""
    if before is not None and before.target != equal.target:
        note = sentence("pair_note.names_hold_another", name=before.target)
    elif before is not None and before.transform != transform:
        note = sentence("pair_note.values_transposed")
    return Pairing(equal.source, equal.target, "values", 1.0, transform, note)


@lru_cache(maxsize=1 << 12)
def _transform(before: Shape, wanted: Shape, turned: bool) -> Transform:
    """The transform between two shapes of one value, which may be a matrix and its transpose."""
    plain = tuple(length for length in before if length != 1)
    if not turned or len(plain) != 2:
        return turned_and_reshaped(before, wanted, turned=False)
    return chained(turned_and_reshaped(before, plain, turned=False), turned_and_reshaped(plain, wanted, turned=True))


class EqualValue(NamedTuple):
    """Two names of one value; `turned` says that the target holds the matrix transposed."""

    source: str
    target: str
    turned: bool = False


def pair_equal_values(source: Values, target: Values, known: Set[EqualValue] = frozenset()) -> list[EqualValue]:
    """Return the pairs of one value; those that are `known` are not read whole where no other has their sample.

    Floats of two dtypes are compared in the narrower one.
    """
    equal_values: list[EqualValue] = []
    targets = _by_shape(target)
    for shape, lefts in _by_shape(source).items():
        if rights := targets.get(shape):
            both = dict.fromkeys(tensor.dtype for tensor in (*lefts, *rights))
            dtype = min(both, key=lambda name: numpy_dtype(name).itemsize)
            ways = (False, True) if len(_plain(lefts[0].shape)) == 2 else (False,)
            mine, theirs = _by_sample(lefts, dtype, ways), _by_sample(rights, dtype, (False,))
            for sample in filter(theirs.__contains__, mine):
                equal_values += _equal(mine[sample], theirs[sample], dtype, known)
    return equal_values


_Reading = tuple["StoredTensor", bool]  # a tensor, and whether it is read transposed


def _equal(
    mine: Sequence[_Reading], theirs: Sequence[_Reading], dtype: str, known: Set[EqualValue]
) -> Iterator[EqualValue]:
    """Yield those of some readings with one sample that are the only ones of their value on either side."""
    if len(mine) == len(theirs) == 1:
        alone = EqualValue(mine[0][0].name, theirs[0][0].name, mine[0][1])
        if alone in known:
            yield alone
            return
    left, right = _by_digest(mine, dtype), _by_digest(theirs, dtype)
    for digest, a in left.items():
        b = right.get(digest)
        if a is not None and b is not None:
            yield EqualValue(a[0].name, b[0].name, a[1])


def _by_digest(readings: Iterable[_Reading], dtype: str) -> dict[bytes, _Reading | None]:
    """Digest of the value -> its reading, None if several have it."""
    by_digest: dict[bytes, _Reading | None] = {}
    for reading in readings:
        digest = _digest(*reading, dtype)
        by_digest[digest] = None if digest in by_digest else reading
    return by_digest


def _digest(tensor: StoredTensor, turned: bool, dtype: str) -> bytes:
    """A sum over all bytes."""
    digest = hashlib.blake2b()
    if turned or tensor.dtype != dtype:
        value = tensor.load().reshape(_plain(tensor.shape))
        digest.update(_narrow(value.T if turned else value, dtype).tobytes())
    else:
        for block in byte_blocks(tensor):
            digest.update(block)
    return digest.digest()


def _narrow(value: Array, dtype: str) -> Array:
    with np.errstate(all="ignore"):
        return value.astype(numpy_dtype(dtype))


def _by_shape(side: Values) -> dict[object, list[StoredTensor]]:
    """Tensors by what their counterparts have in common with them: a shape either way round, and a kind of number."""
    by_shape: dict[object, list[StoredTensor]] = defaultdict(list)
    for tensor in side.values():
        plain = _plain(tensor.shape)
        whole = tensor.dtype in INTEGERS or tensor.dtype == "bool"
        if prod(plain) > 1:
            key = tuple(sorted(plain)) if len(plain) == 2 else plain
            by_shape[key, tensor.dtype if whole else "float"].append(tensor)
    return by_shape


def _by_sample(tensors: Sequence[StoredTensor], dtype: str, ways: Sequence[bool]) -> dict[object, list[_Reading]]:
    """Readings of tensors, turned or not, by their sample, each once: a symmetric matrix stands as it is."""
    forms: dict[tuple[Shape, str], list[int]] = defaultdict(list)
    for place, tensor in enumerate(tensors):
        forms[_plain(tensor.shape), tensor.dtype].append(place)
    samples: list[tuple[int, bool, object]] = []
    for (shape, own), places in forms.items():
        some = _sampled([tensors[place] for place in places], shape, own, dtype)
        flat = some.reshape(len(places), -1)
        is_constant = (flat == flat[:, :1]).all(1).tolist()
        for turned in ways:
            rows = _rows(some.swapaxes(1, 2) if turned else some)
            form = shape[::-1] if turned else shape
            read = zip(places, rows, is_constant, strict=True)
            samples += [(place, turned, (form, row)) for place, row, skipped in read if not skipped]
    by_sample: dict[object, list[_Reading]] = defaultdict(list)
    for place, turned, sample in sorted(samples, key=itemgetter(0, 1)):
        readings = by_sample[sample]
        if not readings or readings[-1][0] is not tensors[place]:
            readings.append((tensors[place], turned))
    return by_sample


def _sampled(tensors: Sequence[StoredTensor], shape: Shape, stored_dtype: str, dtype: str) -> Array:
    """A row of elements for each tensor: those of a matrix as a matrix."""
    table = shape if len(shape) == 2 else (prod(shape),)
    most = SAMPLED_POINTS if len(shape) == 2 else SAMPLED_POINTS**2
    places = np.ix_(*(_spread(length, most) for length in table))
    kind, counts = numpy_dtype(stored_dtype), [len(one.ravel()) for one in places]
    rows: Iterable[bytes]
    if prod(table) * kind.itemsize > READ_WHOLE_BYTES:
        rows = (tensor.load().reshape(table)[places].tobytes() for tensor in tensors)
    elif prod(counts) < prod(table):
        rows = (np.frombuffer(raw, kind).reshape(table)[places].tobytes() for raw in read_whole(tensors))
    else:
        rows = read_whole(tensors)
    return _narrow(np.frombuffer(b"".join(rows), kind).reshape(-1, *counts), dtype)


def _rows(values: Array) -> list[bytes]:
    """The bytes of each row of a table."""
    raw = values.tobytes()
    width = len(raw) // len(values)
    return [raw[start : start + width] for start in range(0, len(raw), width)]


@lru_cache(maxsize=1 << 12)
def _plain(shape: Shape) -> Shape:
    return tuple(length for length in shape if length != 1)


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


def note_relations(name_map: NameMap, values: tuple[Values, Values]) -> Iterator[Note]:
    """Yield how paired tensors hang together whose values differ, where both sides have values, and the line for it."""
    related: dict[tuple[str, Transform | None], list[tuple[str, str]]] = defaultdict(list)
    for pairing in name_map.pairings[:MOST_RELATED_TENSORS]:
        mine, theirs = values[0].get(pairing.source), values[1].get(pairing.target)
        if mine is None or theirs is None or not _is_whole(pairing):
            continue
        meant, value = pairing.transform.apply(mine.load()), theirs.load()
        if meant.shape == value.shape and np.array_equal(meant, value, equal_nan=is_float(theirs.dtype)):
            continue
        for relation in relate_weights(meant, value):
            change = relation.transform and chained(pairing.transform, relation.transform)
            related[relation.says, change].append((pairing.source, pairing.target))
    for (says, change), names in related.items():
        rows = fold_ranges([(pair, None) for pair in names])
        lines = [rule_text(source, [(target, change)]) for (source, target), _ in rows] if change else []
        yield "map_warning.related", {"names": [source for source, _ in names], "relation": says, "lines": lines}


# One model under trial, and a sampler of its calls.
#
# A run keeps samples of the inputs and outputs of every call, enough to tell equal from unlike. Full outputs are kept
# only where another run is to return them.


CallKey = tuple[str, int]  # module path, number of the call


class TrialSide:
    """One side under trial: its layers, and its values by the names that it had at first: a run may rename some."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.parameters = side.reader.read_parameters(side.model, side.label)
        self.own = side.reader.read_values(side.model)
        self.inputs: Mapping[str, Array] = {}
        self._tied = {p.name: p.tied_to for p in self.parameters.parameters if p.tied_to}

    @cached_property
    def layers(self) -> list[Layer]:
        """The layers of the side."""
        return read_layers(self.parameters)

    @cached_property
    def layer_of(self) -> dict[str, Layer]:
        """The layer of each parameter."""
        return {parameter.name: layer for layer in self.layers for parameter in layer.roles.values()}

    @cached_property
    def modules(self) -> set[str]:
        """The paths of the modules of all layers."""
        return {module_of(layer) for layer in self.layers}

    @cached_property
    def free(self) -> dict[str, str]:
        """The kind of each module without parameters whose class a rule knows."""
        free = ((module.path, rule_for(module.classes)) for module in self.parameters.modules if not module.parameters)
        return {path: rule[0].kind for path, rule in free if rule}

    def seconds(self, inputs: Mapping[str, Array]) -> float:
        """How long a run takes; the inputs are kept in the dtypes that the side takes."""
        start = time.perf_counter()
        taken = run_fitted(self.side, inputs, lambda given: self.side.runner.run(self.side.model, given, CallSampler()))
        self.inputs = dict(batches_of(taken)[0])
        return time.perf_counter() - start

    def run(self, sink: CaptureSink) -> None:
        """Run the model."""
        self.side.runner.run(self.side.model, self.inputs, sink)

    def tensor(self, name: str) -> str:
        """The first name of the tensor that bears this one."""
        return self._tied.get(name, name)

    def load(self, values: Mapping[str, Array]) -> None:
        """Fill the model, with its own values where none are given."""
        names = self.side.reader.read_values(self.side.model)
        new = (values.get(self.tensor(name), own) for name, own in self.own.items())
        self.side.reader.load_values(self.side.model, dict(zip(names, new, strict=True)))

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Give the model its own values back at the end."""
        try:
            yield
        finally:
            self.load({})

    def drawn(self, used: Set[str], generator: np.random.Generator) -> dict[str, Array]:
        """Random values for parameters that may have a counterpart, values without effect for the others."""
        apart = neutral_values(self.layers, self.layer_of.keys() - used)
        return apart | distinct_values(self.layers, used, generator)

    def is_leaf(self, path: str) -> bool:
        """Tell whether no module with parameters lies inside."""
        return not any(module.startswith(f"{path}.") for module in self.modules)


class CallSampler:
    """An Intervention that samples every call, and lets those modules return what they are `answers`."""

    def __init__(self, answers: Mapping[CallKey, Array] | None = None, *, keep: bool = False) -> None:
        self._answers = answers or {}
        self._keep = keep
        self.inputs: dict[CallKey, tuple[SeenTensor, ...]] = {}
        self.outputs: dict[CallKey, tuple[SeenTensor, ...]] = {}
        self.kept: dict[CallKey, Array] = {}

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> None:
        """Sample what a call is given."""
        self.inputs[module, call] = tuple(map(see_tensor, inputs.values()))

    def add(self, capture: Capture, value: Array) -> None:
        """Sample what a call returns."""
        key = capture.module, capture.call
        self.outputs[key] = (*self.outputs.get(key, ()), see_tensor(value))

    def instead(self, capture: Capture, value: Array) -> Array | None:
        """Return what the source's counterpart returned, of modules that return a lone tensor."""
        if capture.output:
            return None
        key = capture.module, capture.call
        if self._keep:
            self.kept[key] = np.array(value)
        answers = self._answers.get(key)
        return None if answers is None else laid_as(answers, value.shape)

    def calls(self, module: str) -> int:
        """How often a module was called."""
        number = 0
        while (module, number) in self.outputs:
            number += 1
        return number


def module_of(layer: Layer) -> str:
    """Path of the module that owns a layer's parameters."""
    return next(iter(layer.roles.values())).module


# Distinct random values that keep a signal alive, and what they need of a run: the statistics of each normalization.
#
# A default initialization can be blind: constant norms and zero biases let any assignment agree.

NEUTRAL = {"bias": 0.0, "mean": 0.0, "variance": 1.0}


def distinct_values(layers: Iterable[Layer], names: Set[str], generator: np.random.Generator) -> dict[str, Array]:
    """Random values by name for those floating parameters and statistics that are named; other buffers have none.

    A tensor of several names has its first one, whichever is named.
    """
    layers = list(layers)
    tensors = {p.tied_to or p.name for layer in layers for p in layer.roles.values() if p.name in names}
    return {
        parameter.name: _draw(role, parameter, generator).astype(numpy_dtype(parameter.dtype))
        for layer in layers
        for role, parameter in layer.roles.items()
        if parameter.name in tensors and is_float(parameter.dtype) and (not parameter.buffer or role in STATISTICS)
    }


def neutral_values(layers: Iterable[Layer], names: Set[str]) -> dict[str, Array]:
    """Values without effect for those named parameters that have such: what one side lacks must not speak."""
    return {
        parameter.name: np.full(parameter.shape, NEUTRAL[role], numpy_dtype(parameter.dtype))
        for layer in layers
        for role, parameter in layer.roles.items()
        if parameter.name in names and role in NEUTRAL
    }


def _draw(role: str, parameter: Parameter, generator: np.random.Generator) -> Array:
    shape = parameter.shape
    if role == "variance":
        return 1.0 + TRIAL_SPREAD * generator.random(shape)
    normal = generator.standard_normal(shape)
    scales = len(shape) < 2 or prod(shape) == max(shape)  # one value a channel
    if scales:
        return TRIAL_SPREAD * normal + (1.0 if "weight" in role else 0.0)
    return TRIAL_GAIN / sqrt(prod(shape[1:])) * normal


class Calibration:
    """An Intervention that gives each layer with running statistics those of its own first input.

    The layer returns what it will return with them, so that one run calibrates all layers; `statistics` holds the new
    values by name. They are moved a little from the batch's own, which would make the next bias blind.
    """

    def __init__(self, layers: Sequence[Layer], values: Mapping[str, Array], generator: np.random.Generator) -> None:
        self._layers = {layer.path: layer for layer in layers if {"mean", "variance"} <= layer.roles.keys()}
        self._values = values
        self._generator = generator
        self._input: dict[str, Array] = {}
        self.statistics: dict[str, Array] = {}

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> None:
        """Keep the input of a normalization."""
        first = next(iter(inputs.values()), None)
        if module in self._layers and not call and first is not None and first.ndim > 1:
            self._input[module] = first.astype(np.float64)

    def add(self, capture: Capture, value: Array) -> None:
        """Outputs are not needed."""

    def instead(self, capture: Capture, value: Array) -> Array | None:
        """Return what the normalization gives with the new statistics."""
        taken = None if capture.output else self._input.pop(capture.module, None)
        if taken is None or taken.shape != value.shape:
            return None
        layer = self._layers[capture.module]
        axes = tuple(axis for axis in range(taken.ndim) if axis != 1)
        mean, variance = taken.mean(axes), taken.var(axes)
        if not np.isfinite(variance).all() or mean.shape != layer.roles["mean"].shape:
            return None
        variance = np.maximum(variance, LEAST_VARIANCE_SHARE * variance.mean() + np.finfo(np.float32).eps)
        mean = mean + TRIAL_SPREAD * np.sqrt(variance) * self._generator.standard_normal(mean.shape)
        variance = variance * (1.0 + TRIAL_SPREAD * self._generator.random(variance.shape))
        made = {"mean": mean, "variance": variance}
        self.statistics |= {
            layer.roles[role].name: value.astype(numpy_dtype(layer.roles[role].dtype)) for role, value in made.items()
        }
        column = (-1,) + (1,) * (taken.ndim - 2)
        normal = (taken - mean.reshape(column)) / np.sqrt(variance.reshape(column))
        for role, change in (("weight", np.multiply), ("bias", np.add)):
            if role in layer.roles:
                own = self._values.get(layer.roles[role].name)  # that of a layer that nothing corresponds to stays
                normal = normal if own is None else change(normal, own.astype(np.float64).reshape(column))
        made_output: Array = normal.astype(value.dtype)
        return made_output


# What a trial keeps of the tensors that it sees, and whether two are the same, also with axes in another order.


class SeenTensor(NamedTuple):
    """What is kept of a tensor: some values, its shape without axes of length 1, its least and largest elements."""

    values: NDArray[np.float64]
    shape: tuple[int, ...]
    ends: NDArray[np.float64]

    def distance(self, other: SeenTensor) -> float:
        """The relative RMS distance; of tensors whose axes stand in another order that of their ends."""
        distance = relative_rms_distance(self.values, other.values)
        if self.shape == other.shape or not self.ends.size or distance < AGREEING_DISTANCE:
            return distance
        return relative_rms_distance(self.ends, other.ends) if prod(self.shape) == prod(other.shape) else distance


def laid_as(tensor: Array, shape: tuple[int, ...]) -> Array | None:
    """Return the tensor in this shape, its axes in that order; None if it does not fit, or lengths do not tell how."""
    lengths, wanted = ([length for length in one if length != 1] for one in (tensor.shape, shape))
    if tensor.size != prod(shape) or lengths == wanted or sorted(lengths) != sorted(wanted):
        return tensor.reshape(shape) if tensor.size == prod(shape) else None
    if len(set(lengths)) < len(lengths):
        return None
    return tensor.reshape(lengths).transpose([lengths.index(length) for length in wanted]).reshape(shape)


def agree(first: Sequence[SeenTensor], two: Sequence[SeenTensor]) -> bool:
    """Tell whether the same tensors were seen, up to rounding; tensors that vary nowhere tell nothing, and agree not.

    Where one side is given more tensors than the other (a mask, a cache), the common beginning counts.
    """
    return any(varies(a) or varies(b) for a, b in zip(first, two, strict=False)) and alike(first, two)


def alike(one: Sequence[SeenTensor], two: Sequence[SeenTensor]) -> bool:
    """Tell whether all tensors of the common beginning that vary are equal up to rounding."""
    both = [(a, b) for a, b in zip(one, two, strict=False) if varies(a) or varies(b)]
    return all(a.distance(b) < AGREEING_DISTANCE for a, b in both)


def varies(seen: SeenTensor) -> bool:
    """Tell whether a tensor has unlike elements."""
    sample = seen.values
    return bool(sample.size) and float(np.ptp(sample)) > LEAST_RANGE * float(np.max(np.abs(sample)))


def see_tensor(value: Array) -> SeenTensor:
    """Return what is kept of a tensor; no ends of a vector, a very large one or one of no numbers."""
    values, shape = sample_values(value), tuple(length for length in value.shape if length != 1)
    if len(shape) < 2 or not values.size or value.size > MOST_SORTED_ELEMENTS:
        return SeenTensor(values, shape, values[:0])
    flat = np.asarray(value).reshape(-1)
    most = min(SEEN_ENDS, flat.size // 2)
    parted = np.partition(flat, (most, flat.size - most - 1))
    ends = np.sort(np.concatenate([parted[:most], parted[flat.size - most :]]).astype(np.float64))
    return SeenTensor(values, shape, ends)
