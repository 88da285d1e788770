"""A checkpoint written in the parts of ranks: Megatron's folders, MindSpore's with strategy files, or safetensors.

Each rank's piece of a parameter is cut as its name says (`mappings/shard_layouts.toml`), block by block while it is
written. The folder is made under another name, read back as one checkpoint by the reader of such folders, compared with
what was to be written, and renamed.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from align.checkpoints.protobuf import NUMBER, field_key, number_bytes
from align.checkpoints.shard_pieces import cut_for_rank, joined_along
from align.convert.write_checkpoint import (
    Output,
    OutputFile,
    SyncedWriter,
    TensorHashes,
    WrittenBytes,
    verify_written,
)
from align.core.atomic_files import atomic_folder, check_space
from align.core.load_code import checkpoint_formats, folder_formats
from align.core.parameters import StoredTensor, numpy_dtype
from align.errors import DestinationError, InputsError, UsageError
from align.rules.training_rules import FILE, shard_layouts
from align.words.catalogue import say, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from align.core.parameters import Checkpoint
    from align.core.protocols import CheckpointFormat, FolderFormat, Progress
    from align.rules.training_rules import ShardLayouts

# The format of each rank's file, what reads the folder, and the name of the file.
LAYOUTS: dict[str, tuple[str, str, str]] = {
    "megatron": ("torch", "megatron", "model_optim_rng.pt"),
    "mindspore": ("ckpt", "mindspore-ranks", "model.ckpt"),
    "safetensors": ("safetensors", "megatron", "model.safetensors"),
}
WORDS = {"tp": "tensor", "pp": "pipeline", "ep": "expert", "groups": "groups"}
COUNTS = re.compile(r"(tp|pp|ep|groups)=([1-9]\d{0,3})")
SETTINGS = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size")
RELEASE, TRACKER = "release", "latest_checkpointed_iteration.txt"
OWN = re.compile(rf"mp_rank_[\d_]+|rank_\d+|strategy|{RELEASE}|{re.escape(TRACKER)}|{re.escape(FILE)}")
PADDED_TO = 128  # format: Megatron pads a vocabulary to a multiple of so many rows a rank


@dataclass(frozen=True, slots=True)
class RankRequest:
    """Into how many tensor-, pipeline- and expert-parallel ranks to cut, and in which layout; `groups` of queries."""

    layout: str
    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    groups: int = 0

    @property
    def plugin(self) -> CheckpointFormat:
        """The format of each rank's file."""
        return checkpoint_formats()[LAYOUTS[self.layout][0]]

    @property
    def reader(self) -> FolderFormat:
        """What reads such a folder as one checkpoint."""
        return folder_formats()[LAYOUTS[self.layout][1]]


@dataclass(frozen=True, slots=True)
class RankOutput(Output):
    """A folder to be written: `targets` are the whole tensors, `beside` files of another kind by their paths."""

    request: RankRequest = field(default_factory=lambda: RankRequest("safetensors"))
    targets: tuple[StoredTensor, ...] = ()
    beside: tuple[tuple[Path, bytes], ...] = ()


def rank_request(shards: str | None, layout: str | None, *, with_state: bool = False) -> RankRequest | None:
    """What `--shards tp=4,pp=2` and `--layout` ask for, None for neither; raises UsageError.

    >>> rank_request("tp=4,pp=2", "megatron")
    RankRequest(layout='megatron', tensor=4, pipeline=2, expert=1, groups=0)
    """
    if shards is None and layout is None:
        return None
    if with_state:
        raise UsageError.of("rank_usage.no_state")
    found = [COUNTS.fullmatch(word.strip()) for word in (shards or "").split(",")]
    counts = {match[1]: int(match[2]) for match in found if match}
    if layout not in LAYOUTS or None in found or len(counts) < len(found):
        raise UsageError.of("rank_usage.no_counts", shards=shards or "", layout=layout or "", known=[*LAYOUTS])
    if layout == "mindspore" and counts.get("ep", 1) > 1:
        raise UsageError.of("rank_usage.no_experts", layout=layout)
    given = {name: counts[word] for word, name in WORDS.items() if word in counts}
    return RankRequest(layout, **given)


def rank_output(
    tensors: Sequence[StoredTensor],
    metadata: Mapping[str, str],
    destination: Path,
    request: RankRequest,
    source: Checkpoint,
) -> Output:
    """What goes into which rank's file; raises InputsError with all that cannot be cut, DestinationError."""
    if problems := request.plugin.problems(tensors, metadata):
        raise DestinationError.of("destination_fault.cannot_hold", destination=destination, problems=problems)
    folders = (source.path, source.path.parent)
    layouts_file = next((folder / FILE for folder in folders if (folder / FILE).is_file()), None)
    plan = _RankPlan(request, shard_layouts(layouts_file), {tensor.name: tensor for tensor in tensors})
    rows = plan.pad_vocabulary()
    plan.check()
    counts: dict[str, float] = dict(zip(SETTINGS, (request.tensor, request.pipeline, request.expert), strict=True))
    counts |= {"vocabulary": rows} if rows else {}
    home = destination / RELEASE if request.layout == "megatron" else destination
    files = tuple(OutputFile(home / place, tuple(tensors_of_file)) for place, tensors_of_file in plan.files())
    beside = [(home / FILE, layouts_file.read_bytes())] if layouts_file is not None else []
    if request.layout == "megatron":
        beside.append((destination / TRACKER, RELEASE.encode()))
        counts |= {"checkpoint_version": 3.0, "iteration": 0}
    if request.layout == "mindspore":
        beside += [(destination / "strategy" / name, data) for name, data in plan.strategies()]
    entries = {**metadata, "entries": json.dumps(counts), "shards": json.dumps(counts)}
    wanted = {"megatron": ("format", "entries"), "safetensors": ("format", "shards"), "mindspore": ("format",)}
    kept = {name: text for name, text in entries.items() if name in wanted[request.layout]}
    return RankOutput(request.plugin, kept, destination, files, None, (), request, tuple(tensors), tuple(beside))


def check_rank_output(output: Output, checkpoint: Checkpoint, *, overwrite: bool) -> None:
    """Raise DestinationError for a destination that is there, or has the source in it; NoSpaceError."""
    destination = output.destination
    if not destination.parent.is_dir():
        raise DestinationError.of("destination_fault.folder_missing", folder=destination.parent)
    if any(file.resolve().is_relative_to(destination.resolve()) for file in checkpoint.all_files):
        raise DestinationError.of("destination_fault.source_itself", destination=destination)
    if destination.exists() and (not overwrite or not destination.is_dir()):
        raise DestinationError.of("destination_fault.exists", destination=destination)
    check_space(destination.parent, output.nbytes)


def write_ranks(
    output: RankOutput, require_source: Callable[[], None], hashes: TensorHashes | None, progress: Progress
) -> dict[str, str]:
    """Write all ranks' files, read them back as one checkpoint, compare and rename; return each tensor's hash."""
    destination = output.destination
    old = [path.name for path in destination.iterdir()] if destination.is_dir() else []
    steps, read_back = WrittenBytes(progress, output.nbytes), dict[str, str]()
    with atomic_folder(destination, [name for name in old if OWN.fullmatch(name)]) as folder:
        for path, data in output.beside:
            place = folder / path.relative_to(destination)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        for file in output.files:
            place = folder / file.path.relative_to(destination)
            place.parent.mkdir(parents=True, exist_ok=True)
            with SyncedWriter(place, steps.show, file.nbytes) as stream:
                output.plugin.write(stream, file.tensors, output.metadata)
            steps.base += file.nbytes
        if hashes is not None:
            reader = output.request.reader
            places = reader.find(folder) or folder, destination
            read_back = verify_written(output.targets, reader, places, hashes, progress)
        require_source()
    return read_back


@dataclass
class _RankPlan:
    request: RankRequest
    layouts: ShardLayouts
    tensors: dict[str, StoredTensor]

    def pad_vocabulary(self) -> int:
        """Pad the vocabulary as Megatron does; returns its rows without padding, 0 where none was needed."""
        if self.request.layout != "megatron":
            return 0
        step, true_rows = PADDED_TO * self.request.tensor, 0
        for name, tensor in self.tensors.items():
            cut = self.layouts.cut_of(name)
            if cut is not None and cut.vocabulary and (missing := -tensor.shape[0] % step):
                true_rows = tensor.shape[0]
                self.tensors[name] = joined_along(name, [tensor, _zeros(tensor, missing)], 0)
        return true_rows

    def check(self) -> None:
        """Raise InputsError with all parameters that cannot be cut so."""
        faults = []
        for name, tensor in self.tensors.items():
            cut = self.layouts.cut_of(name)
            if cut is None and self.request.tensor > 1:
                faults.append(say("shard_fault.unknown_cut", name=name, shape=str(tensor.shape)))
            elif cut is not None and cut.fused == "groups" and (fault := self._groups_fault(name)):
                faults.append(fault)
            else:
                try:
                    self._piece(name, 0)
                except ValueError as error:
                    faults.append(str(error))
        for prefix, count in self.layer_counts.items():
            if count % self.request.pipeline:
                faults.append(say("rank_fault.uneven_layers", prefix=prefix, count=count, stages=self.request.pipeline))
        if (experts := self.experts) % self.request.expert or (self.request.expert > 1 and not experts):
            faults.append(say("rank_fault.uneven_experts", count=experts, ranks=self.request.expert))
        if faults:
            raise InputsError(*texts("rank_fault.not_cut"), faults=faults)

    def _groups_fault(self, name: str) -> str:
        if self.request.tensor == 1 or self.request.layout == "mindspore":
            return ""
        groups = self.request.groups or self._told_groups(name)
        if not groups:
            return say("rank_fault.groups_unknown", name=name)
        uneven = groups % self.request.tensor
        return say("rank_fault.groups", name=name, count=groups, ranks=self.request.tensor) if uneven else ""

    def _told_groups(self, name: str) -> int:
        """How many groups of queries there are, where a norm tells the size of a head; else 0."""
        front = name.partition(".linear_qkv.")[0]
        norm, behind = self.tensors.get(f"{front}.q_layernorm.weight"), self.tensors.get(f"{front}.linear_proj.weight")
        if norm is None or behind is None or len(behind.shape) != 2 or not prod(norm.shape):
            return 0
        return (self.tensors[name].shape[0] - behind.shape[1]) // (2 * norm.shape[0])

    @cached_property
    def layer_counts(self) -> dict[str, int]:
        """How many layers there are of each kind, by what stands in front of their number."""
        counts: dict[str, int] = defaultdict(int)
        for name in self.tensors:
            if (layer := self.layouts.layer_of(name)) is not None:
                counts[layer[0]] = max(counts[layer[0]], layer[1] + 1)
        return counts

    @cached_property
    def experts(self) -> int:
        """How many experts a layer has."""
        return max(
            (number + 1 for name in self.tensors if (number := self.layouts.expert_of(name)) is not None), default=0
        )

    def _piece(self, name: str, rank: int) -> StoredTensor:
        """What a rank holds of a parameter; MindSpore knows plain slices only."""
        cut, count = self.layouts.cut_of(name), self.request.tensor
        if cut is None or cut.axis is None or count == 1:
            return self.tensors[name]
        if self.request.layout == "mindspore":
            cut = replace(cut, gated=(), fused="", beside=())
        return cut_for_rank(name, self.tensors, cut, rank, count)

    def stage_of(self, name: str) -> int:
        """The stage of a parameter: by its layer; what belongs to none is in the first or in the last."""
        layer = self.layouts.layer_of(name)
        if layer is None:
            return 0 if self.layouts.is_first(name) else self.request.pipeline - 1
        return layer[1] * self.request.pipeline // self.layer_counts[layer[0]]

    def files(self) -> Iterator[tuple[str, Iterator[StoredTensor]]]:
        """The file of each rank, and what goes into it."""
        stages = {name: self.stage_of(name) for name in self.tensors}
        file = LAYOUTS[self.request.layout][2]
        for stage in range(self.request.pipeline):
            names = [name for name, own in stages.items() if own == stage]
            for rank in range(self.request.tensor):
                if self.request.layout == "mindspore":
                    yield (
                        f"rank_{stage * self.request.tensor + rank}/{file}",
                        (self._piece(name, rank) for name in names),
                    )
                    continue
                for expert in range(self.request.expert):
                    place = f"mp_rank_{rank:02d}" + (f"_{stage:03d}" if self.request.pipeline > 1 else "")
                    place += f"_{expert:03d}" if self.request.expert > 1 else ""
                    yield f"{place}/{file}", self._local(names, rank, stage, expert)

    def _local(self, names: Sequence[str], rank: int, stage: int, expert: int) -> Iterator[StoredTensor]:
        """The parameters of a rank under the names that it gives them: its layers and experts counted from 0."""
        share = self.experts // self.request.expert
        for name in names:
            number, layer = self.layouts.expert_of(name), self.layouts.layer_of(name)
            if number is not None and number // share != expert:
                continue
            first = stage * self.layer_counts[layer[0]] // self.request.pipeline if layer else 0
            local = self.layouts.renumbered(name, layer=-first, expert=-expert * share)
            yield replace(self._piece(name, rank), name=local)

    def strategies(self) -> Iterator[tuple[str, bytes]]:
        """The strategy file of each stage, as MindSpore's node_strategy.proto has it."""
        for stage in range(self.request.pipeline):
            operator = _bytes(1, f"{stage}-parameters".encode()) + _bytes(
                2, _number(1, stage) + _bytes(2, _number(1, 1))
            )
            items = [_bytes(3, self._layout(name)) for name in self.tensors if self.stage_of(name) == stage]
            content = _number(1, 1) + _bytes(2, operator) + b"".join(items)
            yield f"ckpt_strategy_rank_{stage * self.request.tensor}.ckpt", content

    def _layout(self, name: str) -> bytes:
        cut, axes = self.layouts.cut_of(name), range(len(self.tensors[name].shape))
        over = [0 if cut is not None and cut.axis == axis and self.request.tensor > 1 else -1 for axis in axes]
        maps = b"".join(_number(1, one) for one in over)
        layout = _bytes(1, _number(1, self.request.tensor)) + _bytes(2, maps) + _bytes(3, b"") + _bytes(4, b"")
        return _bytes(1, name.encode()) + _bytes(2, layout + _number(5, 0) + _number(6, 0) + _number(7, 0))


def _zeros(like: StoredTensor, rows: int) -> StoredTensor:
    shape = (rows, *like.shape[1:])
    return StoredTensor(like.name, shape, like.dtype, lambda: np.zeros(shape, numpy_dtype(like.dtype)))


def _bytes(number: int, content: bytes) -> bytes:
    return bytes([field_key(number)]) + number_bytes(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return bytes([field_key(number, NUMBER)]) + number_bytes(value & (1 << 64) - 1)
