"""The plan of a conversion: which target tensors are made of which source tensors, and all that stands against it.

Nothing is read here but tensors that a record calls tied, and rows that must be zeros. Values are made when the writer
asks for them: steps that leave the bytes as they are keep the source's place in its file, so that a writer copies
without loading. A cast is done block by block, whatever comes before it; only axes in another order need the source's
array, and that is a view of a file mapped into memory. A slice of the first axis has a place in the file as well. What
was dropped is filled: with the value that a record kept, else the default that a layer rule states, else not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import prod
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from align.checkpoints.extents import byte_blocks, retie_tensors, tied_names
from align.checkpoints.names_in_file import is_count
from align.core.align_sequences import grouped
from align.core.name_map import Fill, cut_faults, term_of
from align.core.parameters import StoredTensor, dtype_name, is_float, numpy_dtype, rounded_as
from align.core.piece_transforms import (
    Part,
    Share,
    Slice,
    Sum,
    apart_from_whole,
    around_sum,
    join_fault,
    joins,
    sum_step,
    summed,
    zero_cuts,
    zero_parts,
)
from align.core.transforms import IDENTITY, Add, Cast, Reshape, Scale, chained
from align.names.user_rules import literal_name
from align.rules.layer_rules import defaults
from align.words.catalogue import close_names, say, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

    from align.core.name_map import NameMap, Pairing
    from align.core.parameters import Array, Shape
    from align.core.piece_transforms import Place
    from align.core.transforms import Transform


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """One target tensor, made of `before` by the transform; `source` is "" for one that is filled.

    A target that is joined of several sources is planned once for each of them. `total` is the sum of which the source
    is the first term.
    """

    source: str
    transform: Transform
    target: StoredTensor
    before: StoredTensor
    total: StoredTensor | None = None


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
    problems += [] if problems else _rows_without_place(tensors, name_map)
    for group in grouped((pairing.target, pairing) for pairing in name_map.pairings).values():
        if all(pairing.source in tensors for pairing in group):
            planned += _planned(group, tensors, problems)
    order = {name: place for place, name in enumerate(tensors)}
    planned.sort(key=lambda tensor: order[tensor.source])
    for fill in fills:
        before = filled_tensor(fill)
        planned.append(PlannedTensor("", fill.transform, transformed_tensor(before, fill.name, fill.transform), before))
    warnings = list(_warnings(tensors, name_map))
    if ties and not problems:
        tied, untied = retie_tensors(list({tensor.target.name: tensor.target for tensor in planned}.values()), ties)
        planned = [replace(tensor, target=tied[tensor.target.name]) for tensor in planned]
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
    totals: dict[int, StoredTensor] = {}
    try:
        if not joins(first.transform):
            target = transformed_tensor(tensors[first.source], first.target, first.transform)
        else:
            target = _joined(group, tensors, totals)
    except ValueError as error:
        problems.append(f"{label} -> {first.target}: {error}")
        return []
    return [
        PlannedTensor(pairing.source, pairing.transform, target, tensors[pairing.source], totals.get(at))
        for at, pairing in enumerate(group)
    ]


def _joined(
    group: Sequence[Pairing], tensors: Mapping[str, StoredTensor], totals: dict[int, StoredTensor]
) -> StoredTensor:
    """One target of several sources; `totals` gets the sum at the number of the pairing that has its first term."""
    if fault := join_fault([pairing.transform for pairing in group]):
        raise ValueError(fault)
    pieces = []
    for place, ones in grouped((apart_from_whole(member.transform)[1], member) for member in group).items():
        for pairing in ones:
            pairing.transform.output_shape(tensors[pairing.source].shape)
        first, piece = ones[0], tensors[ones[0].source]
        if isinstance(sum_step(first.transform), Sum):
            first = min(ones, key=term_of)
            piece = totals[group.index(first)] = _total(sorted(ones, key=term_of), tensors)
            change = around_sum(first.transform)[1]
        else:
            change = apart_from_whole(first.transform)[0]
        piece = transformed_tensor(piece, group[0].target, change)
        if place is None:
            return piece
        pieces.append((piece, place))
    name, dtype = group[0].target, pieces[0][0].dtype
    empty = dict.fromkeys(place for member in group for place in zero_parts(member.transform))
    shapes = {place: place.inverse(None, None).output_shape(place.shape) for place in empty}
    pieces += [(zero_tensor(name, shape, dtype), place) for place, shape in shapes.items()]
    return joined_tensor(name, pieces)


def _total(terms: Sequence[Pairing], tensors: Mapping[str, StoredTensor]) -> StoredTensor:
    """The sum of terms, each brought into its form before they are added."""
    made = [transformed_tensor(tensors[one.source], one.target, around_sum(one.transform)[0]) for one in terms]
    _require_like(made)
    return StoredTensor(made[0].name, made[0].shape, made[0].dtype, lambda: summed([one.load() for one in made]))


def _require_like(tensors: Sequence[StoredTensor]) -> None:
    """Raise ValueError where tensors that are to be one have several dtypes."""
    if len(dtypes := sorted({tensor.dtype for tensor in tensors})) > 1:
        raise ValueError(say("plan_fault.several_dtypes", dtypes=dtypes))


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
    groups = grouped((one.target, one) for one in name_map.pairings)
    parts = {target for target, group in groups.items() if all(joins(one.transform) for one in group)}
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


def _rows_without_place(tensors: Mapping[str, StoredTensor], name_map: NameMap) -> Iterable[str]:
    """Rows of sources that are to be zeros, and are not: a layer of the target would need a bias for them."""
    for pairing in name_map.pairings:
        for cut in zero_cuts(pairing.transform):
            values = transformed_tensor(tensors[pairing.source], "", cut).load()
            if count := int(np.count_nonzero(values)):
                rows = [f"{step.start}:{step.stop}" for step in cut.steps if isinstance(step, Slice)]
                facts = {"name": pairing.source, "rows": rows, "count": count, "total": values.size}
                yield say("plan_fault.rows_without_place", **facts, beside=pairing.target)


def _warnings(tensors: Mapping[str, StoredTensor], name_map: NameMap) -> Iterable[str]:
    absent = [drop.name for drop in name_map.dropped if drop.side == "source" and drop.name not in tensors]
    if absent:
        yield sentence("convert_warning.drops_absent", count=len(absent), names=absent)
    if name_map.unused_rules:
        unused = name_map.unused_rules
        yield sentence("convert_warning.unused_rules", count=len(unused), rules=[*unused])
    steps = [(pair, sum_step(pair.transform)) for pair in name_map.pairings]
    if sums := dict.fromkeys(pair.target for pair, step in steps if isinstance(step, Sum)):
        yield sentence("convert_warning.added_up", names=[*sums])
    if made := dict.fromkeys(pair.target for pair in name_map.pairings if zero_parts(pair.transform)):
        yield sentence("convert_warning.zeros_in_place", names=[*made])
    if left := dict.fromkeys(pair.source for pair in name_map.pairings if zero_cuts(pair.transform)):
        yield sentence("convert_warning.zeros_left_out", names=[*left])
    if zeros := [pair for pair, step in steps if isinstance(step, Share) and step.term]:
        names, sources = (dict.fromkeys(map(attrgetter(side), zeros)) for side in ("target", "source"))
        yield sentence("convert_warning.zeros_beside", names=[*names], sources=[*sources])


def transformed_tensor(source: StoredTensor, name: str, transform: Transform) -> StoredTensor:
    """The source's value under another name after a transform; raises ValueError if its shape does not fit.

    Tensors of one storage stay of one storage if they are made alike, and only then.
    """
    tensor = replace(source, name=name)
    for step in transform.steps:
        tensor = _after(tensor, step)
    if source.storage is not None and transform.steps:
        tensor = replace(tensor, storage=f"{source.storage} {[step.as_table() for step in transform.steps]}")
    return tensor


def joined_tensor(name: str, pieces: Sequence[tuple[StoredTensor, Place]]) -> StoredTensor:
    """One tensor of pieces that tile it, each with its place; raises ValueError if their dtypes differ.

    Along the first axis its bytes are those of the pieces one after the other, and are never held whole.
    """
    pieces = sorted(pieces, key=lambda piece: [one.start or 0 for one in piece[1].region])
    first, part = pieces[0]
    rows = all(isinstance(place, Part) and not place.axis for _, place in pieces)
    _require_like([tensor for tensor, _ in pieces])

    def load() -> Array:
        whole: Array = np.empty(part.shape, numpy_dtype(first.dtype))
        for tensor, place in pieces:
            whole[place.region] = tensor.load()
        return whole

    def blocks(block: int) -> Iterator[memoryview]:
        for tensor, _ in pieces:
            yield from byte_blocks(tensor, block)

    return StoredTensor(name, part.shape, first.dtype, load, blocks=blocks if rows else None)


def zero_tensor(name: str, shape: Shape, dtype: str) -> StoredTensor:
    """A tensor of zeros."""
    return StoredTensor(name, shape, dtype, lambda: np.zeros(shape, numpy_dtype(dtype)))


def filled_tensor(fill: Fill) -> StoredTensor:
    """A tensor of a value at hand."""
    value = fill.value
    return StoredTensor(fill.name, tuple(value.shape), value.dtype.name, lambda: value)


def _after(source: StoredTensor, step: Transform) -> StoredTensor:
    def load() -> Array:
        return step.apply(source.load())

    if isinstance(step, (Add, Scale)) and not rounded_as(source.dtype):
        raise ValueError(say("plan_fault.exact_numbers", op=step.op, dtype=source.dtype))
    shape, dtype = step.output_shape(source.shape), step.output_dtype(source.dtype)
    tensor = replace(source, shape=shape, dtype=dtype, load=load)
    if isinstance(step, Reshape):
        return tensor
    if isinstance(step, Slice) and not step.axis and source.extent is not None:
        row = source.nbytes // source.shape[0]
        extent = replace(source.extent, offset=source.extent.offset + step.start * row, nbytes=tensor.nbytes)
        return replace(tensor, extent=extent)
    tensor = replace(tensor, extent=None, pieces=(), blocks=None)
    if isinstance(step, (Cast, Add, Scale)):
        return replace(tensor, blocks=lambda block: _changed_blocks(source, step, block))
    return tensor


def _changed_blocks(source: StoredTensor, step: Cast | Add | Scale, block: int) -> Iterator[memoryview]:
    """Blocks of values that are changed each by itself; those of the source hold as many elements each."""
    before, after = numpy_dtype(source.dtype), numpy_dtype(step.output_dtype(source.dtype))
    elements = max(block // after.itemsize, 1)
    for raw in byte_blocks(source, elements * before.itemsize):
        yield step.apply(np.frombuffer(raw, before)).view(np.uint8).data


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


def with_counted_steps(fills: Iterable[Fill], tensors: Mapping[str, StoredTensor], since: int = 0) -> tuple[Fill, ...]:
    """Fill counters of batches with the number of steps that the file tells, in the place of their default.

    `tensors` are those beside the weights. A batch norm counts the batches that it was trained on, which is one a step.
    A value that a record kept stays, but for the steps `since` then.
    """
    steps = _counted_steps(tensors)

    def counted(fill: Fill) -> Fill:
        if fill.name.rpartition(".")[2] != BATCHES:
            return fill
        if fill.reason == KEPT:
            return (
                replace(fill, value=fill.value + since, reason=sentence("fill.kept_and_steps", steps=since))
                if since
                else fill
            )
        reason = sentence("fill.steps_of_file", name=STEPS, steps=steps)
        return fill if steps is None else replace(fill, value=np.array(steps, np.int64), reason=reason)

    return tuple(map(counted, fills))


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


def number_warnings(plan: ConversionPlan) -> Iterable[str]:
    """One line for each tensor of which a number added, or a factor, makes values that its dtype cannot hold."""
    for planned in plan.tensors:
        before = planned.before
        for step in planned.transform.steps:
            if isinstance(step, Sum):  # whose terms were converted one by one
                break
            if isinstance(step, (Add, Scale)) and (lost := _lost_by_number(before, step)):
                facts = {"name": planned.target.name, "op": step.op, "dtype": before.dtype}
                yield sentence("convert_warning.number", **facts, lost=lost, total=prod(before.shape))
            if not isinstance(step, Part):
                before = transformed_tensor(before, before.name, step)


def _lost_by_number(tensor: StoredTensor, step: Add | Scale) -> int:
    """How many values are infinite afterwards, or, multiplied, 0, that were not."""
    lost = 0
    for block in byte_blocks(tensor):
        value = np.frombuffer(block, numpy_dtype(tensor.dtype))
        after = step.apply(value)
        gone = np.isfinite(value) & ~np.isfinite(after)
        lost += int(np.count_nonzero(gone | ((value != 0) & (after == 0)) if isinstance(step, Scale) else gone))
    return lost
