"""The plan of a conversion: which target tensors are made of which source tensors, and all that stands against it.

Nothing is read here but tensors that a record calls tied. Values are made when the writer asks for them: steps that
leave the bytes as they are keep the source's place in its file, so that a writer copies without loading. A cast is done
block by block, whatever comes before it; only axes in another order need the source's array, and that is a view of a
file mapped into memory. A slice of the first axis has a place in the file as well. What was dropped is filled: with the
value that a record kept, else the default that a layer rule states, else not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np

from align.checkpoints.extents import byte_blocks, retie_tensors, tied_names
from align.checkpoints.names_in_file import is_count
from align.core.checkpoints import StoredTensor
from align.core.dtypes import dtype_name, is_float, numpy_dtype
from align.core.name_map import Fill
from align.core.piece_transforms import Part, Slice, apart_from_whole, cut_faults, join_fault
from align.core.transforms import IDENTITY, Cast, Reshape, chained
from align.names.user_rules import literal_name
from align.rules.layer_rules import defaults
from align.words.catalogue import say, sentence
from align.words.message_words import close_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

    from align.core.dtypes import Array
    from align.core.name_map import NameMap, Pairing
    from align.core.piece_transforms import Place
    from align.core.transforms import Transform


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """One target tensor, made of `before` by the transform; `source` is "" for one that is filled.

    A target that is joined of several sources is planned once for each of them.
    """

    source: str
    transform: Transform
    target: StoredTensor
    before: StoredTensor


@dataclass(frozen=True, slots=True)
class ConversionPlan:
    """Targets in the source's order, then those that are filled. With `problems`, nothing must be written.

    `ties` holds the targets' names.
    """

    tensors: tuple[PlannedTensor, ...]
    dropped: dict[str, str]
    ties: tuple[tuple[str, ...], ...]
    warnings: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def targets(self) -> list[StoredTensor]:
        """All tensors to write, each once."""
        return list({planned.target.name: planned.target for planned in self.tensors}.values())


def plan_conversion(
    tensors: Mapping[str, StoredTensor],
    name_map: NameMap,
    fills: Sequence[Fill] = (),
    ties: Sequence[Sequence[str]] = (),
) -> ConversionPlan:
    """Apply a name map to a checkpoint's tensors; all problems are collected, none is raised.

    `fills` are written beside what the map makes; `ties` are targets recorded as one tensor, which counts where their
    values are equal.
    """
    planned: list[PlannedTensor] = []
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    problems = [
        *_map_problems(name_map, fills),
        *_name_problems(tensors, name_map),
        *(
            say("fault_list.one", head=f"{name} {tensors[name].shape}", fault=fault)
            for name, fault in cut_faults(name_map.pairings, shapes).items()
        ),
    ]
    for group in _by_target(name_map.pairings).values():
        if all(pairing.source in tensors for pairing in group):
            planned += _planned(group, tensors, problems)
    order = {name: place for place, name in enumerate(tensors)}
    planned.sort(key=lambda tensor: order[tensor.source])
    for fill in fills:
        before = filled_tensor(fill)
        planned.append(PlannedTensor("", fill.transform, transformed_tensor(before, fill.name, fill.transform), before))
    warnings = list(_warnings(tensors, name_map))
    if ties and not problems:
        tied, untied = retie_tensors(list({one.target.name: one.target for one in planned}.values()), ties)
        planned = [replace(one, target=tied[one.target.name]) for one in planned]
        warnings += untied
    return ConversionPlan(
        tuple(planned),
        {drop.name: drop.reason for drop in name_map.dropped if drop.side == "target" or drop.name in tensors},
        tied_names({tensor.target.name: tensor.target for tensor in planned}.values()),
        tuple(warnings),
        tuple(problems),
    )


def _planned(group: Sequence[Pairing], tensors: Mapping[str, StoredTensor], problems: list[str]) -> list[PlannedTensor]:
    """One target, made of one source or joined of several; what stands against it is added to the problems."""
    first, label = group[0], ", ".join(pairing.source for pairing in group)
    try:
        if apart_from_whole(first.transform)[1] is None:
            made = transformed_tensor(tensors[first.source], first.target, first.transform)
        else:
            made = _joined(group, tensors)
    except ValueError as error:
        problems.append(f"{label} -> {first.target}: {error}")
        return []
    return [PlannedTensor(one.source, one.transform, made, tensors[one.source]) for one in group]


def _joined(group: Sequence[Pairing], tensors: Mapping[str, StoredTensor]) -> StoredTensor:
    if fault := join_fault([pairing.transform for pairing in group]):
        raise ValueError(fault)
    pieces = []
    for pairing in group:
        pairing.transform.output_shape(tensors[pairing.source].shape)
        change, part = apart_from_whole(pairing.transform)
        if part is not None:
            pieces.append((transformed_tensor(tensors[pairing.source], pairing.source, change), part))
    return joined_tensor(group[0].target, pieces)


def _by_target(pairings: Iterable[Pairing]) -> dict[str, list[Pairing]]:
    groups: dict[str, list[Pairing]] = {}
    for pairing in pairings:
        groups.setdefault(pairing.target, []).append(pairing)
    return groups


def with_dtype(
    name_map: NameMap, fills: Sequence[Fill], tensors: Mapping[str, StoredTensor], dtype: str
) -> tuple[NameMap, tuple[Fill, ...]]:
    """Return the map and the fills with a cast to `dtype` after all else; what is no floating tensor then stays so."""

    def cast(transform: Transform, before: str) -> Transform:
        made = transform.output_dtype(before)
        change, part = apart_from_whole(transform)
        return chained(change, Cast(dtype, made) if is_float(made) and made != dtype else IDENTITY, part or IDENTITY)

    pairings = (
        replace(pair, transform=cast(pair.transform, tensors[pair.source].dtype)) if pair.source in tensors else pair
        for pair in name_map.pairings
    )
    filled = (replace(fill, transform=cast(fill.transform, dtype_name(fill.value.dtype))) for fill in fills)
    return replace(name_map, pairings=tuple(pairings)), tuple(filled)


def _map_problems(name_map: NameMap, fills: Sequence[Fill]) -> Iterable[str]:
    for ambiguity in name_map.ambiguous:
        sources, targets = [*ambiguity.sources], [*ambiguity.targets]
        yield say("plan_fault.ambiguous", sources=sources, targets=targets, reason=ambiguity.reason)
    for unmatched in name_map.unmatched:
        facts = {"side": unmatched.side, "name": unmatched.name, "reason": unmatched.reason}
        yield say("plan_fault.unmatched", **facts, closest=unmatched.suggestions)
    groups = _by_target(name_map.pairings)
    parts = {target for target, group in groups.items() if all(apart_from_whole(one.transform)[1] for one in group)}
    takers = {target: [pairing.source for pairing in group] for target, group in groups.items()}
    for fill in fills:
        takers.setdefault(fill.name, []).append(f"a fill ({fill.reason})")
    for target, sources in takers.items():
        if not target.isprintable() or not target:  # surrogates, which no file can hold, are not printable either
            yield say("plan_fault.unprintable", source=sources[0], target=target)
        if len(sources) > (len(groups[target]) if target in parts else 1):
            yield say("plan_fault.target_of_several", target=target, count=len(sources), sources=sources)


def _name_problems(tensors: Mapping[str, StoredTensor], name_map: NameMap) -> Iterable[str]:
    absent = [pairing for pairing in name_map.pairings if pairing.source not in tensors]
    close = close_names((pairing.source for pairing in absent), tensors)
    for pairing in absent:
        facts = {"source": pairing.source, "target": pairing.target}
        yield say("plan_fault.not_in_checkpoint", **facts, closest=close.get(pairing.source, ()))
    mentioned = {p.source for p in name_map.pairings} | {d.name for d in name_map.dropped if d.side == "source"}
    mentioned |= {u.name for u in name_map.unmatched} | {name for a in name_map.ambiguous for name in a.sources}
    for name, tensor in tensors.items():
        if name not in mentioned:
            yield say("plan_fault.not_in_map", name=name, shape=str(tensor.shape))


def _warnings(tensors: Mapping[str, StoredTensor], name_map: NameMap) -> Iterable[str]:
    absent = [drop.name for drop in name_map.dropped if drop.side == "source" and drop.name not in tensors]
    if absent:
        yield sentence("convert_warning.drops_absent", count=len(absent), names=absent)
    if name_map.unused_rules:
        unused = name_map.unused_rules
        yield sentence("convert_warning.unused_rules", count=len(unused), rules=[*unused])


def transformed_tensor(source: StoredTensor, name: str, transform: Transform) -> StoredTensor:
    """The source's value under another name after a transform; raises ValueError if its shape does not fit.

    Tensors of one storage stay of one storage if they are made alike, and only then.
    """
    made = replace(source, name=name)
    for step in transform.steps:
        made = _after(made, step)
    if source.storage is not None and transform.steps:
        made = replace(made, storage=f"{source.storage} {[step.as_table() for step in transform.steps]}")
    return made


def joined_tensor(name: str, pieces: Sequence[tuple[StoredTensor, Place]]) -> StoredTensor:
    """One tensor of pieces that tile it, each with its place; raises ValueError if their dtypes differ.

    Along the first axis its bytes are those of the pieces one after the other, and are never held whole.
    """
    pieces = sorted(pieces, key=lambda piece: [one.start or 0 for one in piece[1].region])
    first, part = pieces[0]
    rows = all(isinstance(place, Part) and not place.axis for _, place in pieces)
    if len(dtypes := sorted({tensor.dtype for tensor, _ in pieces})) > 1:
        raise ValueError(say("plan_fault.several_dtypes", dtypes=dtypes))

    def load() -> Array:
        whole: Array = np.empty(part.shape, numpy_dtype(first.dtype))
        for tensor, place in pieces:
            whole[place.region] = tensor.load()
        return whole

    def blocks(block: int) -> Iterator[memoryview]:
        for tensor, _ in pieces:
            yield from byte_blocks(tensor, block)

    return StoredTensor(name, part.shape, first.dtype, load, blocks=blocks if rows else None)


def filled_tensor(fill: Fill) -> StoredTensor:
    """A tensor of a value at hand."""
    value = fill.value
    return StoredTensor(fill.name, tuple(value.shape), value.dtype.name, lambda: value)


def _after(source: StoredTensor, step: Transform) -> StoredTensor:
    def load() -> Array:
        return step.apply(source.load())

    shape, dtype = step.output_shape(source.shape), step.output_dtype(source.dtype)
    made = replace(source, shape=shape, dtype=dtype, load=load)
    if isinstance(step, Reshape):
        return made
    if isinstance(step, Slice) and not step.axis and source.extent is not None:
        row = source.nbytes // source.shape[0]
        extent = replace(source.extent, offset=source.extent.offset + step.start * row, nbytes=made.nbytes)
        return replace(made, extent=extent)
    made = replace(made, extent=None, pieces=(), blocks=None)
    return replace(made, blocks=lambda block: _cast_blocks(source, step, block)) if isinstance(step, Cast) else made


def _cast_blocks(source: StoredTensor, cast: Cast, block: int) -> Iterator[memoryview]:
    """Blocks of the cast value; those of the source hold as many elements each."""
    before, after = numpy_dtype(source.dtype), numpy_dtype(cast.dtype)
    elements = max(block // after.itemsize, 1)
    for raw in byte_blocks(source, elements * before.itemsize):
        yield cast.apply(np.frombuffer(raw, before)).view(np.uint8).data


STEPS = "global_step"  # MindSpore's optimizers count their steps under this name
BATCHES = "num_batches_tracked"
KEPT = sentence("fill.kept")


def refilled(drops: Iterable[str], values: Mapping[str, Array], named: Set[str]) -> tuple[list[Fill], list[str]]:
    """Fill what was dropped, as far as a value or a default is known; return also what stays lost.

    `drops` are names or globs, `values` what a record kept of them, `named` the names that are there in any case.
    """
    fills: dict[str, Fill] = {}
    lost = []
    for glob in drops:
        names = _names_of(glob, named)
        lost += [] if names else [glob]
        for name in names:
            kept = Fill(name, values[name], KEPT) if name in values else None
            if name not in named and (fill := kept or default_fill(name)):
                fills[name] = fill
            elif name not in named:
                lost.append(name)
    return list(fills.values()), lost


def default_fill(name: str) -> Fill | None:
    """Fill a parameter whose attribute has a default; None if it has not."""
    found = defaults().get(name.rpartition(".")[2])
    return None if found is None else Fill(name, np.array(found[0], np.int64), sentence("fill.default", value=found[0]))


def with_counted_steps(fills: Iterable[Fill], tensors: Mapping[str, StoredTensor]) -> tuple[Fill, ...]:
    """Fill counters of batches with the number of steps that the file tells, in the place of their default.

    `tensors` are those beside the weights. A batch norm counts the batches that it was trained on, which is one a step.
    A value that a record kept stays.
    """
    steps = _counted_steps(tensors)
    return tuple(
        replace(fill, value=np.array(steps, np.int64), reason=sentence("fill.steps_of_file", name=STEPS, steps=steps))
        if steps is not None and fill.name.rpartition(".")[2] == BATCHES and fill.reason != KEPT
        else fill
        for fill in fills
    )


def _counted_steps(tensors: Mapping[str, StoredTensor]) -> int | None:
    """The one whole number of that name, at the end of any path; None if there is none or there are several."""
    found = [one for name, one in tensors.items() if name.rpartition(".")[2] == STEPS]
    if len(found) != 1 or not is_count(found[0]):
        return None
    steps = int(found[0].load().reshape(()))
    return steps if steps > 0 else None


def _names_of(glob: str, named: Iterable[str]) -> list[str]:
    """The name that a drop means, or for a pattern the names beside which an attribute with a default belongs."""
    if (name := literal_name(glob)) is not None:
        return [name]
    names = (
        f"{name.removesuffix(beside)}{attribute}"
        for attribute, (_, beside) in defaults().items()
        for name in named
        if name.rpartition(".")[2] == beside
    )
    return sorted(name for name in names if fnmatchcase(name, glob))
