"""Megatron's folders of ranks, `mp_rank_TT_PPP_EEE`: tensor, pipeline and expert parallelism, read as one model.

Each rank's file is one of torch.save, or of safetensors with the sizes in its metadata. A stage of the
pipeline counts its layers from 0 and a rank its experts; along which axis the tensor-parallel ranks cut a parameter its
name says (`mappings/shard_layouts.toml`). A name that is not known there is asked for, never guessed.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from align.checkpoints.shard_pieces import cut_along, equal_copies, join_ranks, tracked_folder
from align.checkpoints.thresholds import MOST_RANKS
from align.checkpoints.torch_archives import MEGATRON, count_tensors, fields_of, read_rank_file, shape_arguments
from align.core.load_code import checkpoint_formats
from align.core.parameters import Checkpoint, StoredTensor
from align.core.protocols import collector_paused
from align.errors import MissingEntryError, ShardsError, UnsupportedCheckpointError
from align.rules.training_rules import FILE, shard_layouts
from align.words.catalogue import say, sentence, texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from align.core.parameters import Extent
    from align.rules.training_rules import ShardLayouts

FOLDER = re.compile(r"mp_rank_(\d{2,4})(?:_(\d{3,4}))?(?:_(\d{3,4}))?")
FILES = (".pt", ".safetensors")
SIZES = {
    "tensor": "tensor_model_parallel_size",
    "pipeline": "pipeline_model_parallel_size",
    "expert": "expert_model_parallel_size",
}
SHARDS = "shards"  # in the metadata of a safetensors file: the sizes, as JSON
SAME = ("num_layers", "hidden_size", "padded_vocab_size", "num_experts", "world_size", *SIZES.values())
TOLD = ("iteration", "checkpoint_version", "vocabulary", *SIZES.values())  # beside the arguments
CHUNK = re.compile(r"model(\d*)")
EXTRA = "_extra_state"

Place = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class MegatronFolder:
    """What `save_checkpoint` of Megatron-LM writes in its form `torch`."""

    name: str = "megatron"
    summary: str = "folders of Megatron's ranks (mp_rank_TT_PPP_EEE), joined while they are read"
    requires: tuple[str, ...] = ()
    file_names: tuple[str, ...] = ()

    def find(self, path: Path) -> Path | None:
        """The folder of one iteration: the one that is named, or the last one saved below it."""
        return tracked_folder(path, lambda folder: any(_place(one) is not None for one in folder.iterdir()))

    def read(self, path: Path, key: str | None = None) -> Checkpoint:
        """Read the trees of all ranks' files, and join what they hold of each parameter."""
        if key is not None:
            raise MissingEntryError(path, key, ())
        with collector_paused():
            ranks = {place: _read_rank(file) for place, file in _files(path).items()}
            sizes = _sizes(path, ranks)
            own = path / FILE
            model = _Model(path, ranks, sizes, shard_layouts(own if own.is_file() else None))
            tensors = model.joined()
        first = next(iter(ranks.values()))
        arguments = shape_arguments(first.settings)
        named = ", ".join(f"{kind} {size}" for kind, size in sizes.items() if size > 1) or "1 rank"
        return Checkpoint(
            path,
            f"{self.name} ({named})",
            tensors,
            {"format": first.framework} | ({MEGATRON: json.dumps(arguments)} if arguments else {}),
            first.others,
            first.counts,
            files=tuple(rank.path for rank in ranks.values()),
            notes=tuple(model.notes()),
            checksums=tuple(extent for rank in ranks.values() for extent in rank.checksums),
            is_joined=True,
        )


PLUGIN = MegatronFolder()


@dataclass(frozen=True, slots=True)
class _Rank:
    """What one rank wrote: the tensors of each chunk of its model, and what it tells of the run."""

    path: Path
    chunks: tuple[dict[str, StoredTensor], ...]
    settings: Mapping[str, Any]
    others: dict[str, str]
    counts: dict[str, int]
    checksums: tuple[Extent, ...]
    framework: str = "pt"


def _place(folder: Path) -> tuple[int | None, ...] | None:
    found = FOLDER.fullmatch(folder.name)
    return None if found is None else tuple(None if number is None else int(number) for number in found.groups())


def _files(path: Path) -> dict[tuple[int | None, ...], Path]:
    """The file of each rank; raises ShardsError for a folder without one, or with several."""
    rank_files: dict[tuple[int | None, ...], Path] = {}
    faults = []
    for folder in sorted(path.iterdir()):
        place = _place(folder)
        if place is None or not folder.is_dir():
            continue
        files = [file for file in sorted(folder.iterdir()) if file.suffix in FILES and "optim." not in file.name]
        if len(files) == 1:
            rank_files[place] = files[0]
        else:
            faults.append(
                say(
                    "shard_fault.files_of_rank",
                    folder=folder.name,
                    count=len(files),
                    names=[file.name for file in files],
                )
            )
    if faults or not rank_files:
        raise ShardsError(path, faults, of_ranks=True)
    return rank_files


def _read_rank(path: Path) -> _Rank:
    if path.suffix != ".pt":
        return _read_safetensors(path)
    file = read_rank_file(path)
    chunks = sorted((int(match[1] or 0), key) for key in file.entries if (match := _chunk(key)))
    models = tuple({tensor.name: tensor for tensor in file.tensors(fields_of(file.entries[key]))} for _, key in chunks)
    others = [key for key in file.entries if isinstance(key, str) and not _chunk(key) and key not in TOLD]
    settings = {key: file.entries.get(key) for key in TOLD if file.entries.get(key) is not None}
    counts = {key: count for key in others if (count := count_tensors(file.entries[key]))}
    words: dict[str, str] = {key: sentence("shard_note.of_rank", folder=path.parent.name) for key in others}
    kept = tuple({name: tensor for name, tensor in model.items() if not name.endswith(EXTRA)} for model in models)
    return _Rank(path, kept, {**file.table("args"), **settings}, words, counts, file.checksums)


def _chunk(key: Any) -> re.Match[str] | None:
    return CHUNK.fullmatch(key) if isinstance(key, str) else None


def _read_safetensors(path: Path) -> _Rank:
    checkpoint = checkpoint_formats()["safetensors"].read(path)
    try:
        told = json.loads(checkpoint.metadata.get(SHARDS, "{}"))
    except (ValueError, RecursionError):
        told = {}
    settings = told if isinstance(told, dict) else {}
    return _Rank(path, (checkpoint.tensors,), settings, {}, {}, (), checkpoint.metadata.get("format", "pt"))


def _sizes(path: Path, ranks: Mapping[tuple[int | None, ...], _Rank]) -> dict[str, int]:
    """How many ranks there are of each kind; raises ShardsError for one that is missing, or of another run."""
    faults = []
    for what in ("iteration", "checkpoint_version", *SAME):
        values = {str(rank.settings[what]) for rank in ranks.values() if rank.settings.get(what) is not None}
        if len(values) > 1:
            faults.append(say("shard_fault.other_run", what=what, values=sorted(values)))
    places = _places(ranks)
    sizes = {kind: 1 + max(place[n] for place in places) for n, kind in enumerate(SIZES)}
    first = next(iter(ranks.values())).settings
    told = {kind: first.get(name) for kind, name in SIZES.items()}
    sizes |= {kind: size for kind, size in told.items() if isinstance(size, int) and size > 0}
    tensor, pipeline, expert = sizes.values()
    if tensor * pipeline * expert > MOST_RANKS:
        raise ShardsError(path, [say("shard_fault.too_many_ranks", count=tensor * pipeline * expert)], of_ranks=True)
    wanted = [(t, p, e) for t in range(tensor) for p in range(pipeline) for e in range(expert)]
    if missing := [place for place in wanted if place not in places]:
        names = [_folder_name(place, sizes) for place in missing]
        faults.append(say("shard_fault.missing_ranks", count=len(missing), names=names, total=len(wanted)))
    if beyond := [place for place in places if place not in wanted]:
        names = [places[place].path.parent.name for place in beyond]
        faults.append(say("shard_fault.ranks_beyond", names=names, sizes=[f"{k} {n}" for k, n in sizes.items()]))
    if faults:
        raise ShardsError(path, faults, of_ranks=True)
    return sizes


def _places(ranks: Mapping[tuple[int | None, ...], _Rank]) -> dict[Place, _Rank]:
    """The ranks by tensor, stage and expert; a second number alone is that of a stage, or of experts without stages."""
    first = next(iter(ranks.values())).settings
    stages, experts = first.get(SIZES["pipeline"]), first.get(SIZES["expert"])
    swapped = isinstance(experts, int) and experts > 1 and stages in (None, 1)
    by_place: dict[Place, _Rank] = {}
    for (tensor, second, third), rank in ranks.items():
        two = (0, second or 0) if swapped and third is None else (second or 0, third or 0)
        by_place[tensor or 0, two[0], two[1]] = rank
    return by_place


def _folder_name(place: Place, sizes: Mapping[str, int]) -> str:
    stage = f"_{place[1]:03d}" if sizes["pipeline"] > 1 else ""
    return f"mp_rank_{place[0]:02d}{stage}" + (f"_{place[2]:03d}" if sizes["expert"] > 1 else "")


@dataclass(frozen=True, slots=True)
class _Model:
    """The ranks of one model, and how they cut it."""

    path: Path
    ranks: Mapping[tuple[int | None, ...], _Rank]
    sizes: Mapping[str, int]
    layouts: ShardLayouts

    def joined(self) -> dict[str, StoredTensor]:
        """All parameters in the order of the model; raises UnsupportedCheckpointError or ShardsError."""
        self._refuse_other_cuts()
        places, faults = _places(self.ranks), list[str]()
        whole: dict[str, tuple[str, StoredTensor]] = {}
        for stage, number, offsets in self._chunks(places):
            for expert in range(self.sizes["expert"]):
                ranks = [
                    (rank.path.parent.name, rank.chunks[number])
                    for tensor in range(self.sizes["tensor"])
                    for rank in [places[tensor, stage, expert]]
                ]
                self._join_chunk(ranks, offsets, expert, whole, faults)
        if faults:
            raise ShardsError(self.path, faults, of_ranks=True)
        return {name: tensor for name, (_, tensor) in whole.items()}

    def _refuse_other_cuts(self) -> None:
        first = next(iter(self.ranks.values())).settings
        tensor, version = self.sizes["tensor"], first.get("checkpoint_version")
        if isinstance(version, (int, float)) and version < 2 and tensor > 1:
            raise UnsupportedCheckpointError(self.path, *texts("shard_fault.old_version", version=version))
        if (experts := first.get("expert_tensor_parallel_size")) not in (None, tensor):
            raise UnsupportedCheckpointError(self.path, *texts("shard_fault.other_expert_size", size=experts))
        groups = first.get("num_query_groups") or first.get("num_attention_heads")
        if isinstance(groups, int) and groups % tensor:
            raise UnsupportedCheckpointError(self.path, *texts("shard_fault.groups", count=groups, ranks=tensor))

    def _chunks(self, places: Mapping[Place, _Rank]) -> Iterator[tuple[int, int, dict[str, int]]]:
        """Stages and chunks in the order of their layers, with how many layers of each kind come before them."""
        counts = {len(rank.chunks) for rank in self.ranks.values()}
        if len(counts) > 1 or 0 in counts:
            raise ShardsError(self.path, [say("shard_fault.no_model")], of_ranks=True)
        before: dict[str, int] = defaultdict(int)
        for number in range(counts.pop()):
            for stage in range(self.sizes["pipeline"]):
                yield stage, number, dict(before)
                here: dict[str, int] = defaultdict(int)
                for name in places[0, stage, 0].chunks[number]:
                    if (layer := self.layouts.layer_of(name)) is not None:
                        here[layer[0]] = max(here[layer[0]], layer[1] + 1)
                for prefix, count in here.items():
                    before[prefix] += count

    def _join_chunk(
        self,
        ranks: Sequence[tuple[str, dict[str, StoredTensor]]],
        offsets: Mapping[str, int],
        expert: int,
        whole: dict[str, tuple[str, StoredTensor]],
        faults: list[str],
    ) -> None:
        """Join what one stage's ranks with the same experts hold; what is there already must be equal."""
        names = {name for _, tensors in ranks for name in tensors}
        unlike = {name: [label for label, tensors in ranks if name not in tensors] for name in sorted(names)}
        faults += [say("shard_fault.not_on_rank", name=name, ranks=lack) for name, lack in unlike.items() if lack]
        numbers = [number for name in names if (number := self.layouts.expert_of(name)) is not None]
        experts = expert * (max(numbers, default=-1) + 1)
        for local in ranks[0][1]:
            if unlike[local]:
                continue
            layer = self.layouts.layer_of(local)
            name = self.layouts.renumbered(local, layer=offsets.get(layer[0], 0) if layer else 0, expert=experts)
            cut = self.layouts.cut_of(name)
            try:
                parameter = replace(join_ranks(self.path, name, ranks, cut, local), name=name, storage=None)
                rows = self._rows()
                if cut is not None and cut.vocabulary and 0 < rows < parameter.shape[0]:
                    parameter = cut_along(name, parameter, 0, 0, rows)
                label = ranks[0][0]
                whole[name] = (
                    label,
                    equal_copies(self.path, [whole[name], (label, parameter)]) if name in whole else parameter,
                )
            except ValueError as error:
                faults.append(str(error))

    def _rows(self) -> int:
        """How many rows the vocabulary has without its padding, where who wrote the file said so; else 0."""
        rows = next(iter(self.ranks.values())).settings.get("vocabulary")
        return rows if isinstance(rows, int) else 0

    def notes(self) -> Iterator[str]:
        """That a vocabulary may have padding, where only the padded size is known."""
        first = next(iter(self.ranks.values())).settings
        padded = first.get("padded_vocab_size")
        if isinstance(padded, int) and not self._rows() and first.get("vocab_size") != padded:
            yield sentence("shard_note.padded", rows=padded)
