"""MindSpore's folders of ranks, `rank_0/net.ckpt` and so on, with the strategy file that says how each was cut.

The strategy is protobuf (node_strategy.proto of MindSpore 2): the devices as a matrix, and for each axis of a parameter
the axis of that matrix over which it is cut, counted from the last. A stage of the pipeline has a file of its own, or
its number before each name where the files were merged. Without a strategy nothing is guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING

from align.checkpoints.protobuf import NUMBER, field_key, scanned
from align.checkpoints.shard_pieces import Box, equal_copies, tiled_tensor
from align.checkpoints.thresholds import MOST_RANKS
from align.core.load_code import checkpoint_formats
from align.core.parameters import Checkpoint
from align.core.protocols import collector_paused
from align.core.thresholds import MOST_AXES
from align.errors import (
    HostileFileError,
    MissingEntryError,
    NotACheckpointError,
    ShardsError,
    UnsupportedCheckpointError,
    UsageError,
)
from align.words.catalogue import say, texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from align.checkpoints.protobuf import ProtobufScan
    from align.core.parameters import Shape, StoredTensor

RANK = re.compile(r"rank_(\d{1,6})")
SUFFIXES = {".ckpt": "ckpt", ".safetensors": "safetensors"}
STRATEGIES = (".", "strategy", "../strategy")  # where trainings put them, from the folder of the ranks
CURRENT_STAGE, STRATEGY_ITEM, LAYOUT_ITEM = field_key(1, NUMBER), field_key(2), field_key(3)
NAME, INNER = field_key(1), field_key(2)  # of both kinds of items
STAGE = field_key(1, NUMBER)
DEVICES, TENSOR_MAP, FIELD = field_key(1), field_key(2), field_key(5, NUMBER)
SHARD_STEP, SHARD_SIZE = field_key(6, NUMBER), field_key(7, NUMBER)
DIM, DIMS = field_key(1, NUMBER), field_key(1)
NO_AXIS = -1  # format: an axis that is not cut


@dataclass(slots=True)
class _Layout:
    """How one parameter lies on the devices of its stage; an axis may be cut over several axes of the matrix."""

    stage: int = 0
    devices: list[int] = field(default_factory=list)
    axes: list[list[int]] = field(default_factory=list)
    uneven: int = 0
    step: int = 0
    size: int = 0

    def place(self, rank: int, shape: Shape) -> tuple[Shape, Shape]:
        """Where the piece of a rank of this shape begins in the whole, and the shape of that."""
        rest, coordinates = rank, list[int]()
        for count in reversed(self.devices):
            coordinates.append(rest % count)
            rest //= count
        starts, whole = [], []
        for axis, length in enumerate(shape):
            number, pieces = 0, 1
            for one in self.axes[axis] if axis < len(self.axes) else ():
                if one != NO_AXIS:
                    count = self.devices[len(self.devices) - 1 - one]
                    number, pieces = number * count + coordinates[one], pieces * count
            if axis == 0 and self.size:
                number, pieces = number * self.shards + (rank // max(self.step, 1)) % self.shards, pieces * self.shards
            starts.append(number * length)
            whole.append(pieces * length)
        return tuple(starts), tuple(whole)

    @property
    def shards(self) -> int:
        """Over how many ranks an optimizer's parallelism cuts the first axis besides."""
        used = {one for axes in self.axes for one in axes}
        free = prod(count for n, count in enumerate(reversed(self.devices)) if n not in used)
        return free if self.size == -1 else self.size


@dataclass(frozen=True, slots=True)
class MindSporeRanks:
    """What `save_checkpoint` of a training in parallel leaves, with `strategy_ckpt_save_file`."""

    name: str = "mindspore-ranks"
    summary: str = "folders of MindSpore's ranks (rank_0/*.ckpt) with their strategy files, joined while they are read"
    requires: tuple[str, ...] = ()
    file_names: tuple[str, ...] = ()

    def find(self, path: Path) -> Path | None:
        """The folder of the ranks, if a strategy lies with them or beside it."""
        return path if any(map(_rank, path.iterdir())) and any(_strategy_files(path)) else None

    def read(self, path: Path, key: str | None = None) -> Checkpoint:
        """Read the headers of all ranks' files, and place their tensors by the strategy; `key` names a step."""
        with collector_paused():
            strategies = [*_strategy_files(path)]
            stages = _stages(path, strategies)
            files = _files(path, key)
            ranks = {rank: _read_rank(file) for rank, file in files.items()}
            tensors = _joined(path, stages, ranks)
        devices = prod(next(iter(stages[0].values())).devices)
        others = {name: words for rank in ranks.values() for name, words in rank.other.items()}
        return Checkpoint(
            path,
            f"{self.name} ({len(stages)} x {devices} ranks)",
            tensors,
            {"format": "ms"},
            others,
            files=(*files.values(), *strategies),
            check=partial(_check, [*ranks.values()]) if any(rank.check for rank in ranks.values()) else None,
            is_joined=True,
        )


PLUGIN = MindSporeRanks()


def _rank(folder: Path) -> int | None:
    found = RANK.fullmatch(folder.name)
    return int(found[1]) if found and folder.is_dir() and any(_weights(folder)) else None


def _weights(folder: Path) -> Iterator[Path]:
    return (file for file in sorted(folder.iterdir()) if file.suffix in SUFFIXES and file.is_file())


def _strategy_files(path: Path) -> Iterator[Path]:
    """The strategies in the first place that has any; they begin with the number of a stage."""
    for place in STRATEGIES:
        folder = path / place
        found = [file for file in sorted(folder.glob("*.ckpt")) if file.is_file()] if folder.is_dir() else []
        known = [file for file in found if _begins_with(file, CURRENT_STAGE)]
        if known:
            yield from known
            return


def _begins_with(file: Path, key: int) -> bool:
    with file.open("rb") as stream:
        return stream.read(1) == bytes([key])


def _stages(path: Path, files: Sequence[Path]) -> dict[int, dict[str, _Layout]]:
    """The layouts of each stage; files of ranks of one stage say the same, and one of them is taken."""
    stages: dict[int, dict[str, _Layout]] = {}
    for file in files:
        for (stage, name), layout in _read_strategy(file).items():
            known = stages.setdefault(stage, {}).setdefault(name, layout)
            if known != layout:
                raise ShardsError(path, [say("shard_fault.two_strategies", name=name, file=file.name)], of_ranks=True)
    if not stages or [*sorted(stages)] != [*range(len(stages))]:
        fault = say("shard_fault.no_stages", stages=[str(stage) for stage in sorted(stages)])
        raise ShardsError(path, [fault], of_ranks=True)
    if len(sizes := {prod(layout.devices) for layouts in stages.values() for layout in layouts.values()}) > 1:
        fault = say("shard_fault.other_devices", sizes=[str(size) for size in sorted(sizes)])
        raise ShardsError(path, [fault], of_ranks=True)
    if any(layout.uneven for layouts in stages.values() for layout in layouts.values()):
        raise UnsupportedCheckpointError(path, *texts("shard_fault.uneven_field"))
    return stages


def _read_strategy(file: Path) -> dict[tuple[int, str], _Layout]:
    by_stage: dict[tuple[int, str], _Layout] = {}
    with scanned(file) as scan:
        own_stage = 0
        items: list[tuple[str, _Layout]] = []
        for key, value, stop in scan.fields(0, len(scan.data)):
            if key == STRATEGY_ITEM and not items:
                own_stage = _stage_of(scan, value, stop)
            elif key == LAYOUT_ITEM:
                items.append(_item(scan, value, stop))
    for name, layout in items:
        first, dash, rest = name.partition("-")
        merged = bool(dash) and first.isdecimal() and len(first) < 5
        layout.stage = int(first) if merged else own_stage
        by_stage[layout.stage, rest if merged else name] = layout
        _check_layout(file, name, layout)
    if not by_stage:
        raise NotACheckpointError(file, say("shard_fault.no_layouts"))
    return by_stage


def _stage_of(scan: ProtobufScan, start: int, end: int) -> int:
    inner = next(((value, stop) for key, value, stop in scan.fields(start, end) if key == INNER), (start, start))
    return next((value for key, value, _ in scan.fields(*inner) if key == STAGE), 0)


def _item(scan: ProtobufScan, start: int, end: int) -> tuple[str, _Layout]:
    name, layout = "", _Layout()
    for key, value, stop in scan.fields(start, end):
        if key == NAME:
            name = scan.text(value, stop)
        elif key == INNER:
            _read_layout(scan, value, stop, layout)
    return name, layout


def _read_layout(scan: ProtobufScan, start: int, end: int, layout: _Layout) -> None:
    maps: list[list[int]] = []
    for key, value, stop in scan.fields(start, end):
        if key == DEVICES:
            layout.devices = _dims(scan, value, stop)
        elif key == TENSOR_MAP:
            maps.append(_dims(scan, value, stop))
        elif key == FIELD:
            layout.uneven = value
        elif key == SHARD_STEP:
            layout.step = _signed(value)
        elif key == SHARD_SIZE:
            layout.size = _signed(value)
    layout.axes = [[one] for one in maps[0]] if len(maps) == 1 else [one for one in maps if one]


def _dims(scan: ProtobufScan, start: int, end: int) -> list[int]:
    dims: list[int] = []
    for key, value, stop in scan.fields(start, end):
        if key in (DIM, DIMS):
            scan.add_dims(dims, key, value, stop)
    return [_signed(one) for one in dims]


def _signed(value: int) -> int:
    """A number of protobuf's type int32 or int64."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _check_layout(file: Path, name: str, layout: _Layout) -> None:
    devices = layout.devices
    sound = 0 < len(devices) <= MOST_AXES and min(devices) > 0 and prod(devices) <= MOST_RANKS
    numbers = [one for axes in layout.axes for one in axes if one != NO_AXIS]
    sound = sound and all(0 <= one < len(devices) for one in numbers) and len({*numbers}) == len(numbers)
    if not sound or not -1 <= layout.size <= MOST_RANKS or not 0 <= layout.stage < MOST_RANKS:
        raise HostileFileError(file, say("shard_fault.odd_layout", name=name[:60]))


def _files(path: Path, key: str | None) -> dict[int, Path]:
    """The file of each rank: that of the step of this name, or the only one that all of them have."""
    folders = {rank: folder for folder in path.iterdir() if (rank := _rank(folder)) is not None}
    named = {
        rank: {re.sub(rf"(?i)(rank[_-]?){rank}(?!\d)", r"\g<1>*", file.name): file for file in _weights(folder)}
        for rank, folder in sorted(folders.items())
    }
    steps = sorted(set[str].intersection(*({*files} for files in named.values())))
    if key is not None and key not in steps:
        raise MissingEntryError(path, key, steps)
    if key is None and len(steps) > 1:
        raise UsageError.of("shard_usage.several_steps", folder=path, count=len(steps), names=steps, first=steps[-1])
    if not steps:
        raise ShardsError(path, [say("shard_fault.no_common_step")], of_ranks=True)
    return {rank: files[key or steps[0]] for rank, files in named.items()}


def _check(ranks: Sequence[Checkpoint]) -> None:
    """Read what the files of ranks carry a crc of."""
    for one in ranks:
        if one.check is not None:
            one.check()


def _read_rank(file: Path) -> Checkpoint:
    return checkpoint_formats()[SUFFIXES[file.suffix]].read(file)


def _joined(
    path: Path, stages: Mapping[int, Mapping[str, _Layout]], ranks: Mapping[int, Checkpoint]
) -> dict[str, StoredTensor]:
    """All parameters, stage by stage; raises ShardsError with all faults."""
    devices = prod(next(iter(stages[0].values())).devices)
    wanted = range(devices * len(stages))
    faults = []
    if missing := [f"rank_{rank}" for rank in wanted if rank not in ranks]:
        faults.append(say("shard_fault.missing_ranks", count=len(missing), names=missing, total=len(wanted)))
    if beyond := [f"rank_{rank}" for rank in ranks if rank not in wanted]:
        faults.append(say("shard_fault.ranks_beyond", names=beyond, sizes=[f"{len(stages)} x {devices}"]))
    if faults:
        raise ShardsError(path, faults, of_ranks=True)
    whole: dict[str, tuple[str, StoredTensor]] = {}
    for stage, layouts in sorted(stages.items()):
        of_stage = [(f"rank_{rank}", ranks[rank].tensors) for rank in range(stage * devices, (stage + 1) * devices)]
        names = dict.fromkeys(name for _, tensors in of_stage for name in tensors)
        for name in names:
            if lack := [label for label, tensors in of_stage if name not in tensors]:
                faults.append(say("shard_fault.not_on_rank", name=name, ranks=lack))
                continue
            pieces = [(label, tensors[name]) for label, tensors in of_stage]
            try:
                made = _placed(path, name, layouts.get(name), pieces)
                label = pieces[0][0]
                whole[name] = label, equal_copies(path, [whole[name], (label, made)]) if name in whole else made
            except (ValueError, NotACheckpointError) as error:
                faults.append(str(error))
    if faults:
        raise ShardsError(path, faults, of_ranks=True)
    return {name: tensor for name, (_, tensor) in whole.items()}


def _placed(path: Path, name: str, layout: _Layout | None, pieces: Sequence[tuple[str, StoredTensor]]) -> StoredTensor:
    """One parameter of the pieces of a stage's ranks; what several ranks hold of it must be equal."""
    if layout is None:
        return equal_copies(path, pieces)
    copies: dict[Shape, list[tuple[str, StoredTensor]]] = {}
    wholes = set()
    for rank, (label, piece) in enumerate(pieces):
        start, whole = layout.place(rank, piece.shape)
        copies.setdefault(start, []).append((label, piece))
        wholes.add(whole)
    if len(wholes) > 1 or len({piece.dtype for _, piece in pieces}) > 1:
        shapes = [f"{piece.dtype} {piece.shape} ({label})" for label, piece in pieces]
        raise ValueError(say("shard_fault.unlike_copies", name=name, shapes=shapes[:4]))
    boxes = [Box(start, equal_copies(path, same)) for start, same in copies.items()]
    return replace(tiled_tensor(path, name, wholes.pop(), pieces[0][1].dtype, boxes), name=name, storage=None)
