"""Folders of DeepSpeed ZeRO 1 to 3: the float32 weights, which the ranks hold in flat partitions without names.

The layout is that of DeepSpeed's zero_to_fp32. ZeRO-1 and 2 cut each group's weights, one behind the other, into a
partition a rank; ZeRO-3 cuts each weight, and a rank's parts of all weights follow each other over its groups. Names
and shapes stand in the model states, in that order. Nothing is joined before it is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any

from align.checkpoints.pickled_tensors import Made, is_tensor
from align.checkpoints.shard_pieces import cut_along, joined_along, reshaped, tracked_folder
from align.checkpoints.torch_archives import count_tensors, fields_of, read_rank_file, shape_table
from align.core.parameters import Checkpoint, StoredTensor
from align.core.protocols import collector_paused
from align.errors import MissingEntryError, ShardsError, UnsupportedCheckpointError
from align.words.catalogue import say, sentence, texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from align.checkpoints.torch_archives import RankFile
    from align.core.parameters import Shape

OPTIMIZER = re.compile(r"(?:[a-z0-9]+_)?zero_pp_rank_(\d{1,6})_mp_rank_(\d{1,4})_?optim_states\.pt")
WHOLE = "mp_rank_00_model_states.pt"
STATE = "optimizer_state_dict"
MOMENTS = ("base_optimizer_state", STATE)  # what an optimizer keeps beside the weights
PARTITIONS, FLAT_GROUPS = "single_partition_of_fp32_groups", "fp32_flat_groups"
EXPERTS, LAYERS = "*expert_*_model_states.pt", "layer_*-model_states.pt"


@dataclass(frozen=True, slots=True)
class DeepSpeedFolder:
    """What `engine.save_checkpoint` writes with ZeRO."""

    name: str = "deepspeed"
    summary: str = "folders of DeepSpeed ZeRO 1 to 3: the float32 weights of all ranks, joined while they are read"
    requires: tuple[str, ...] = ()
    file_names: tuple[str, ...] = ()

    def find(self, path: Path) -> Path | None:
        """The folder of one step: the one that is named, or the last one saved below it."""
        return tracked_folder(path, lambda folder: any(OPTIMIZER.fullmatch(one.name) for one in folder.iterdir()))

    def read(self, path: Path, key: str | None = None) -> Checkpoint:
        """Read the trees of all ranks' files, and place each weight in their partitions."""
        if key is not None:
            raise MissingEntryError(path, key, ())
        with collector_paused():
            run = _read_run(path)
            groups = _shapes(run)
            tensors = dict(_weights(path, run, groups) if groups else _module(path, run))
        notes = () if groups else (sentence("shard_note.half_weights", file=run.models[0].path.name),)
        files = (*(rank.path for rank in run.models), *(rank.path for rank in run.optimizers))
        states = sum(count_tensors(rank.table(STATE).get(key)) for rank in run.optimizers for key in MOMENTS)
        return Checkpoint(
            path,
            f"{self.name} (ZeRO-{run.stage}, {len(run.optimizers)} ranks)",
            tensors,
            {"format": "pt"},
            {"optimizer": sentence("shard_note.moments")} if states else {},
            {"optimizer": states} if states else {},
            files=files,
            notes=notes,
            checksums=tuple(extent for rank in (*run.models, *run.optimizers) for extent in rank.checksums),
            is_joined=True,
        )


PLUGIN = DeepSpeedFolder()


@dataclass(frozen=True, slots=True)
class _Run:
    """The files of all ranks of one step; a single file of model states but for ZeRO-3."""

    stage: int
    models: tuple[RankFile, ...]
    optimizers: tuple[RankFile, ...]


def _read_run(path: Path) -> _Run:
    shards = {
        (int(match[1]), int(match[2])): file for file in path.iterdir() if (match := OPTIMIZER.fullmatch(file.name))
    }
    if (parts := len({model for _, model in shards})) > 1:
        raise UnsupportedCheckpointError(path, *texts("shard_fault.zero_of_parts", count=parts))
    if any(path.glob(EXPERTS)) or any(path.glob(LAYERS)):
        raise UnsupportedCheckpointError(path, *texts("shard_fault.zero_of_layers"))
    optimizers = tuple(read_rank_file(shards[place]) for place in sorted(shards))
    states = [optimizer.table(STATE) for optimizer in optimizers]
    stage, world = _number(states[0].get("zero_stage")), _world(states[0])
    if stage < 1 and (path / WHOLE).is_file():
        return _Run(0, (read_rank_file(path / WHOLE),), optimizers)
    _check_ranks(path, stage, world, [rank for rank, _ in sorted(shards)], states)
    names = [WHOLE]
    if stage == 3:
        names = [f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt" for rank in range(world)]
    if missing := [name for name in names if not (path / name).is_file()]:
        raise ShardsError(path, [_missing(name) for name in missing], of_ranks=True)
    models = tuple(read_rank_file(path / name) for name in names)
    steps = {str(model.entries.get("global_steps")) for model in models}
    if len(steps) > 1:
        raise ShardsError(
            path, [say("shard_fault.other_run", what="global_steps", values=sorted(steps))], of_ranks=True
        )
    return _Run(stage, models, optimizers)


def _number(value: Any) -> int:
    """A number, or that of an enum; -1 for all else."""
    if isinstance(value, Made) and isinstance(value.arguments, tuple) and len(value.arguments) == 1:
        value = value.arguments[0]
    return value if isinstance(value, int) else -1


def _world(state: Mapping[Any, Any]) -> int:
    """How many ranks there were; groups of experts may have fewer."""
    counts = state.get("partition_count")
    known = [count for count in (counts if isinstance(counts, list) else [counts]) if isinstance(count, int)]
    return max(known, default=0)


def _missing(name: str) -> str:
    return say("index_file.shard", name=name, problem=say("index_file.shard_missing"))


def _check_ranks(path: Path, stage: int, world: int, ranks: list[int], states: Sequence[Mapping[Any, Any]]) -> None:
    """All ranks are there, and tell the same of the run."""
    if stage not in (1, 2, 3) or not world:
        raise UnsupportedCheckpointError(path, *texts("shard_fault.zero_unknown"))
    faults = [say("shard_fault.missing_rank", rank=rank, count=world) for rank in range(world) if rank not in ranks]
    faults += [say("shard_fault.rank_beyond", rank=rank, count=world) for rank in ranks if rank >= world]
    for what, values in (
        ("zero_stage", [_number(state.get("zero_stage")) for state in states]),
        ("partition_count", [_world(state) for state in states]),
        ("ds_version", [str(state.get("ds_version")) for state in states]),
    ):
        if len({*values}) > 1:
            faults.append(say("shard_fault.other_run", what=what, values=sorted({str(value) for value in values})))
    if faults:
        raise ShardsError(path, faults, of_ranks=True)


def _shapes(run: _Run) -> list[dict[str, Shape]]:
    """Names and shapes of the weights of each group; older versions do not tell them."""
    given = run.models[0].entries.get("param_shapes")
    groups = [shape_table(group) for group in (given if isinstance(given, list) else [given])]
    return groups if any(groups) else []


def _module(path: Path, run: _Run) -> Iterator[tuple[str, StoredTensor]]:
    """The weights of the model states, which are whole but with ZeRO-3."""
    if run.stage == 3:
        raise UnsupportedCheckpointError(path, *texts("shard_fault.zero_unknown"))
    yield from ((tensor.name, tensor) for tensor in run.models[0].tensors(run.models[0].table("module")))


def _weights(path: Path, run: _Run, groups: Sequence[Mapping[str, Shape]]) -> Iterator[tuple[str, StoredTensor]]:
    """Buffers, frozen weights, trained ones, and those that share their values with one of these."""
    first = run.models[0]
    module = {tensor.name: tensor for tensor in first.tensors(first.table("module"))}
    try:
        weights = _trained_of_groups(run, groups) if run.stage < 3 else _trained_of_weights(run, groups)
        weights |= _frozen(run)
    except (ValueError, KeyError) as error:
        raise ShardsError(path, [str(error)], of_ranks=True) from error
    buffers = first.entries.get("buffer_names")
    names = [name for name in buffers if name in module] if isinstance(buffers, list) else []
    weights |= {name: module[name] for name in names}
    for name, other in _shared(first.entries.get("shared_params")).items():
        if other in weights:
            weights[other] = replace(weights[other], storage=f"shared {other}")
            weights[name] = replace(weights[other], name=name)
    order = {name: place for place, name in enumerate(module)}
    left = [name for name in module if name not in weights]
    if run.stage < 3:  # with ZeRO-1 nothing else holds frozen weights
        weights |= {name: module[name] for name in left}
    elif left:
        raise ShardsError(path, [say("shard_fault.zero_unplaced", names=left)], of_ranks=True)
    yield from sorted(weights.items(), key=lambda item: order.get(item[0], len(order)))


def _shared(given: Any) -> dict[str, str]:
    """Names of weights that are others under another name: a mapping, or pairs in older versions."""
    pairs = given if isinstance(given, list) else [*fields_of(given).items()]
    sound = (pair for pair in pairs if isinstance(pair, (list, tuple)) and len(pair) == 2)
    return {name: other for name, other in sound if isinstance(name, str) and isinstance(other, str)}


def _flat(rank: RankFile, key: str) -> list[StoredTensor]:
    """The flat tensors of a rank, one a group; raises ValueError for what is none."""
    given = rank.table(STATE).get(key)
    tensors = given if isinstance(given, (list, tuple)) else []
    if not tensors or not all(is_tensor(tensor) for tensor in tensors):
        raise ValueError(say("shard_fault.zero_no_groups", file=rank.path.name, entry=key))
    return [rank.tensor(f"{key}.{number}", tensor) for number, tensor in enumerate(tensors)]


def _trained_of_groups(run: _Run, groups: Sequence[Mapping[str, Shape]]) -> dict[str, StoredTensor]:
    """ZeRO-1 and 2: the partitions of a group follow each other, and its weights in them, with padding behind each."""
    partitions = [_flat(one, PARTITIONS) for one in run.optimizers]
    if any(len(of_rank) != len(groups) for of_rank in partitions):
        counts = sorted({len(of_rank) for of_rank in partitions})
        raise ValueError(say("shard_fault.zero_groups", counts=[str(count) for count in counts], shapes=len(groups)))
    paddings = run.optimizers[0].table(STATE).get("param_alignment_paddings")
    weights: dict[str, StoredTensor] = {}
    for number, shapes in enumerate(groups):
        vector, at = [of_rank[number] for of_rank in partitions], 0
        own = paddings[number] if isinstance(paddings, list) and number < len(paddings) else []
        gaps = own if isinstance(own, list) and len(own) == len(shapes) else [0] * len(shapes)
        for (name, shape), gap in zip(shapes.items(), gaps, strict=True):
            weights[name] = _window(name, shape, vector, at, at + prod(shape))
            at += prod(shape) + (gap if isinstance(gap, int) and gap >= 0 else 0)
        step = 2 * len(partitions)
        stored = sum(part.shape[0] for part in vector)
        if -(-at // step) != -(-stored // step):
            raise ValueError(say("shard_fault.zero_left", stored=stored, used=at))
    return weights


def _trained_of_weights(run: _Run, groups: Sequence[Mapping[str, Shape]]) -> dict[str, StoredTensor]:
    """ZeRO-3: each rank has a part of each weight, of equal size, padded behind the last."""
    ranks = [_flat(rank, FLAT_GROUPS) for rank in run.optimizers]
    weights, at, world = dict[str, StoredTensor](), 0, len(ranks)
    for name, shape in ((name, shape) for group in groups for name, shape in group.items()):
        part = -(-prod(shape) // world)
        pieces = [_window(name, (part,), flat, at, at + part) for flat in ranks]
        weights[name] = _window(name, shape, pieces, 0, prod(shape))
        at += part
    for flat in ranks:
        if (stored := sum(part_of_flat.shape[0] for part_of_flat in flat)) != at:
            raise ValueError(say("shard_fault.zero_left", stored=stored, used=at))
    return weights


def _frozen(run: _Run) -> dict[str, StoredTensor]:
    """Weights that were not trained, which no optimizer holds."""
    first = run.models[0]
    shapes = shape_table(first.entries.get("frozen_param_shapes"))
    parts = {
        name: [one.tensor(name, one.table("frozen_param_fragments")[name]) for one in run.models] for name in shapes
    }
    flat = {name: [reshaped(one, name, (prod(one.shape),)) for one in pieces] for name, pieces in parts.items()}
    return {name: _window(name, shape, flat[name], 0, prod(shape)) for name, shape in shapes.items()}


def _window(name: str, shape: Shape, vector: Sequence[StoredTensor], start: int, stop: int) -> StoredTensor:
    """The elements from `start` to `stop` of flat tensors in a row; raises ValueError beyond their end."""
    if any(len(flat.shape) != 1 for flat in vector):
        raise ValueError(say("shard_fault.zero_not_flat", name=name))
    ends = [*accumulate(flat.shape[0] for flat in vector)]
    if stop > ends[-1]:
        raise ValueError(say("shard_fault.zero_short", name=name, shape=str(shape), stop=stop, stored=ends[-1]))
    pieces = [
        cut_along(name, flat, 0, max(start - end + flat.shape[0], 0), min(stop - end, 0) + flat.shape[0])
        for flat, end in zip(vector, ends, strict=True)
        if start < end and stop > end - flat.shape[0]
    ]
    return reshaped(joined_along(name, pieces or [cut_along(name, vector[0], 0, 0, 0)], 0), name, shape)
