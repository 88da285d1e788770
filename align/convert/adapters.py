"""Adapters: low-rank updates (LoRA, DoRA, rsLoRA) that PEFT and mindpet save without the weights they belong to.

Merged, an update is added to its weight in float32 while that is written, a block of rows after the other. Converted
alone, only names change: PEFT's `base_model.model.q.lora_A.weight` is mindpet's `q.mindpet_delta_lora_a`. What a file
does not tell, the scaling, stands in `adapter_config.json` beside it. What cannot be merged is refused by name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from math import prod, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from align.checkpoints.extents import byte_blocks
from align.checkpoints.inspect_checkpoint import packed_weights, stored_tensor
from align.checkpoints.names_in_file import naming_direction
from align.checkpoints.open_checkpoint import open_checkpoint, read_json
from align.checkpoints.quantized_forms import Unpacked
from align.convert.given_map import EndFrameworks, choose_direction, read_given_map
from align.convert.thresholds import ROWS_AT_ONCE
from align.core.documents import LimitedPattern
from align.core.name_map import NameMap, Pairing
from align.core.parameters import LARGEST_FLOAT16, StoredTensor, is_float, numpy_dtype
from align.errors import CannotRunError, UsageError
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from align.convert.choose_names import NameRequest
    from align.core.name_map import FrameworkName
    from align.core.parameters import Array, Checkpoint, Shape

CONFIG = "adapter_config.json"
MODELS = ("adapter_model.safetensors", "adapter_model.bin")  # format: peft, SAFETENSORS_WEIGHTS_NAME, WEIGHTS_NAME
PREFIX = "base_model.model."
PEFT = re.compile(
    r"(?:base_model\.model\.)?(?:(?P<module>.+?)\.)?(?P<part>lora_A|lora_B|lora_embedding_A|lora_embedding_B|"
    r"lora_magnitude_vector)(?:\.(?P<adapter>[^.]+?))??(?:\.(?P<leaf>weight|bias))?"
)
MINDPET = re.compile(r"(?:(?P<module>.+)\.)?(?:mindpet_delta_lora_(?P<part>[abAB])|lora_(?P<short>[ab]))")
# How a part is named, and what stands in front of all names (format: peft; mindpet 1.0.4, as MindSpore saves it).
NAMES: Mapping[FrameworkName, tuple[str, str]] = {
    "torch": ("{module}.lora_{part}.weight", PREFIX),
    "mindspore": ("{module}.mindpet_delta_lora_{small}", ""),
}
# Parts of names that PEFT puts around modules of the model.
WRAPPED = re.compile(r"\.(?:modules_to_save(?:\.[^.]+)?|base_layer)(?=\.)")
ORIGINAL = ".original_module."  # the weight of the base, beside the one that is saved in its place
# Settings with which an update is more than a product added to one weight, and starts that change the base first.
MORE = (
    "alora_invocation_tokens", "use_qalora", "use_bdlora", "layer_replication", "target_parameters", "arrow_config",
    "trainable_token_indices", "monteclora_config", "kasa_config", "velora_config",
)  # fmt: skip
TORCH_LANES = 8  # format: torch adds so many squares side by side (ATen, native/cpu/ReduceOpsKernel.cpp, in float32)
CHANGES_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")


@dataclass(frozen=True, slots=True)
class LoraLayer:
    """The update of one module: `a` (rank, inputs ...) and `b` (outputs, rank ...), as PEFT shapes them."""

    module: str
    embedding: bool
    parts: Mapping[str, StoredTensor]

    @property
    def rank(self) -> int:
        """The number of rows of `a`."""
        return self.parts["A"].shape[0]

    @property
    def weight(self) -> str:
        """The name of the weight that it belongs to."""
        return f"{self.module}.weight".lstrip(".")

    @property
    def weight_shape(self) -> Shape:
        """The shape of the weight that it belongs to, where that is not transposed."""
        outputs, inputs = self.parts["B"].shape[0], self.parts["A"].shape[1:]
        return (inputs[0], outputs) if self.embedding else (outputs, *inputs)

    def fault(self) -> str:
        """What is wrong with its parts, "" if nothing is."""
        if not {"A", "B"} <= self.parts.keys():
            return say("adapter_fault.half", have=[*self.parts])
        a, b = self.parts["A"].shape, self.parts["B"].shape
        sound = len(a) == len(b) >= 2 and b[1] == a[0] > 0 and prod(b[2:]) == 1 and prod(a) * prod(b) > 0
        vectors = [part.shape for key, part in self.parts.items() if key not in ("A", "B")]
        sound = sound and all(prod(shape) == b[0] for shape in vectors)
        if not sound or not all(is_float(part.dtype) for part in self.parts.values()):
            return say("adapter_fault.parts", a=str(a), b=str(b))
        return ""


@dataclass(frozen=True, slots=True)
class Adapter:
    """The layers of an adapter by their modules; `others` are what it saves whole, by names in the base."""

    checkpoint: Checkpoint
    style: Literal["PEFT", "mindpet"]
    layers: Mapping[str, LoraLayer]
    others: Mapping[str, StoredTensor]
    config: Mapping[str, Any] = field(default_factory=dict)

    def scaling(self, layer: LoraLayer) -> float:
        """The factor of a layer's update; raises ValueError where the config does not tell it.

        Source: peft, LoraLayer.update_layer: lora_alpha / r, with rsLoRA lora_alpha / sqrt(r), each by patterns.
        """
        rank = self._setting("rank_pattern", layer.module, self.config.get("r", self.config.get("lora_rank")))
        alpha = self._setting("alpha_pattern", layer.module, self.config.get("lora_alpha"))
        if type(alpha) not in (int, float) or not abs(alpha) <= LARGEST_FLOAT16:
            raise ValueError(say("adapter_fault.no_scaling", config=CONFIG))
        if rank != layer.rank:
            raise ValueError(say("adapter_fault.other_rank", found=layer.rank, config=CONFIG, told=str(rank)))
        return float(alpha) / (sqrt(layer.rank) if self.config.get("use_rslora") is True else layer.rank)

    def _setting(self, name: str, module: str, usual: Any) -> Any:
        """The value of the first pattern that the end of the module's name fits, as PEFT has it (get_pattern_key)."""
        patterns = self.config.get(name)
        table = patterns if isinstance(patterns, dict) else {}
        return next((value for pattern, value in table.items() if _ends_with(module, pattern)), usual)


def _ends_with(module: str, pattern: str) -> bool:
    """Whether the last parts of a module's path fit a pattern; CannotRunError for one that is none or takes long."""
    try:
        return LimitedPattern(re.compile(rf"^(?:.*\.)?(?:{pattern})$")).search(module) is not None
    except (re.error, TimeoutError, OverflowError, RecursionError) as error:
        raise CannotRunError.of("adapter.pattern", pattern=pattern) from error


def adapted(
    checkpoint: Checkpoint, request: NameRequest, merged: Path | str | None, destination: FrameworkName | None
) -> tuple[Checkpoint, NameRequest]:
    """A checkpoint with the adapter at `merged`; or one that is an adapter itself, with what to ask of its names."""
    if merged is not None:
        return with_adapter(checkpoint, Path(merged)), request
    if not is_adapter(checkpoint):
        return checkpoint, request
    if request.family or request.source_model or request.target_model:
        raise UsageError.of("adapter.map_alone", path=checkpoint.path)
    named = adapter_names(checkpoint, request, destination)
    return (
        checkpoint if named is request else replace(checkpoint, notes=(*checkpoint.notes, adapter_note(checkpoint)))
    ), named


def adapter_file(path: Path) -> Path:
    """The weights in the folder of an adapter; any other path is returned as it is."""
    if (path / CONFIG).is_file():
        return next((path / name for name in MODELS if (path / name).is_file()), path)
    return path


def as_adapter(checkpoint: Checkpoint) -> Adapter:
    """The adapter that a checkpoint holds, by its names and shapes and the config beside it.

    Raises CannotRunError for another kind of adapter, and one that names each layer that is not whole.
    """
    path = checkpoint.path.parent / CONFIG
    table = read_json(path) if path.is_file() else {}
    config = table if isinstance(table, dict) else {}
    if (kind := str(config.get("peft_type", "LORA"))) != "LORA":
        raise CannotRunError.of("adapter.kind", path=checkpoint.path, kind=kind)
    parts, others, styles, names = _parts(checkpoint)
    if not parts:
        raise CannotRunError.of("adapter.none", path=checkpoint.path)
    if len(styles) > 1 or len(names) > 1:
        raise CannotRunError.of("adapter.several", path=checkpoint.path, names=sorted(styles | names))
    layers = {}
    for module, found in parts.items():
        plain = {part.removeprefix("embedding_"): tensor for part, tensor in found.items()}
        layers[module] = LoraLayer(module, plain.keys() != found.keys(), plain)
    faults = [say("fault_list.one", head=name, fault=fault) for name, one in layers.items() if (fault := one.fault())]
    if faults:
        raise CannotRunError.of("adapter.not_whole", path=checkpoint.path, faults=faults)
    style: Literal["PEFT", "mindpet"] = "PEFT" if "PEFT" in styles else "mindpet"
    return Adapter(checkpoint, style, layers, others, config)


def _parts(
    checkpoint: Checkpoint,
) -> tuple[dict[str, dict[str, StoredTensor]], dict[str, StoredTensor], set[str], set[str]]:
    """Parts by module and what they are, other tensors by name, the styles of names, and names of adapters."""
    parts: dict[str, dict[str, StoredTensor]] = {}
    others: dict[str, StoredTensor] = {}
    styles, names = set[str](), set[str]()
    for name, tensor in checkpoint.tensors.items():
        if match := MINDPET.fullmatch(name):
            styles.add("mindpet")
            parts.setdefault(match["module"] or "", {})[(match["part"] or match["short"]).upper()] = tensor
        elif match := PEFT.fullmatch(name):
            styles.add("PEFT")
            names |= {match["adapter"]} if match["adapter"] else set()
            module = WRAPPED.sub("", f".{match['module'] or ''}.").strip(".")
            part = match["part"].removeprefix("lora_")
            parts.setdefault(module, {})["bias" if match["leaf"] == "bias" else part] = tensor
        elif ORIGINAL not in name:
            others[WRAPPED.sub("", name.removeprefix(PREFIX))] = tensor
    return parts, others, styles, names


def is_adapter(checkpoint: Checkpoint) -> bool:
    """Tell whether a checkpoint is an adapter alone: no weight of a module that it updates is in it."""
    found = [PEFT.fullmatch(name) or MINDPET.fullmatch(name) for name in checkpoint.tensors if "lora_" in name]
    modules = {one["module"] for one in found if one is not None}
    return bool(modules) and not any(f"{module}.weight" in checkpoint.tensors for module in modules)


# Merging.


def with_adapter(base: Checkpoint, path: Path) -> Checkpoint:
    """The base with an adapter merged in: updated weights, and what the adapter saves whole in the place of the base's.

    Raises CannotRunError naming every layer that has no weight in the base, or none of its shape, and settings that
    make an update more than a product; also for a base whose weights are quantized.
    """
    adapter = as_adapter(open_checkpoint(adapter_file(path)))
    if packed := packed_weights(base):
        raise CannotRunError.of("adapter.quantized_base", path=base.path, name=packed[0].name)
    adapter_names_of_base = {name for name in base.tensors if MINDPET.fullmatch(name) or PEFT.fullmatch(name)}
    if adapter_names_of_base and adapter.checkpoint.path.resolve() != base.path.resolve():
        raise CannotRunError.of("adapter.base_has_one", path=base.path, names=sorted(adapter_names_of_base))
    plain = {name: tensor for name, tensor in base.tensors.items() if name not in adapter_names_of_base}
    if adapter_names_of_base:
        adapter = replace(adapter, others={})  # which are the base itself
    updated, faults = _merged(adapter, plain)
    faults = [*_setting_faults(adapter), *faults]
    if faults:
        facts = {"path": adapter.checkpoint.path, "base": base.path, "count": len(faults), "faults": faults}
        raise CannotRunError.of("adapter.not_merged", **facts)
    tensors = {name: updated.get(name, tensor) for name, tensor in plain.items()}
    facts = {"count": len(adapter.layers), "others": len(adapter.others)}
    note = sentence("adapter.note", path=str(adapter.checkpoint.path), **facts)
    return replace(
        base,
        tensors=tensors,
        files=tuple(dict.fromkeys((*base.all_files, *adapter.checkpoint.all_files))),
        notes=(*base.notes, note),
        checksums=(*base.checksums, *adapter.checkpoint.checksums),
        states={**adapter.checkpoint.states, **base.states},
    )


def _setting_faults(adapter: Adapter) -> Iterator[str]:
    config = adapter.config
    for name in MORE:
        if config.get(name):
            yield say("adapter_fault.setting", name=name)
    start = config.get("init_lora_weights")
    if isinstance(start, str) and start.lower().startswith(CHANGES_BASE):
        yield say("adapter_fault.changed_base", start=start)


def _merged(adapter: Adapter, base: Mapping[str, StoredTensor]) -> tuple[dict[str, StoredTensor], list[str]]:
    """New tensors by name, those that are tied in the base all together, and what stands against others."""
    updated: dict[str, StoredTensor] = {}
    faults: list[str] = []
    for name, tensor in adapter.others.items():
        if name not in base or base[name].shape != tensor.shape:
            faults.append(_missing(name, base, tensor.shape))
        else:
            updated[name] = replace(tensor, name=name)
    for layer in adapter.layers.values():
        name, bias = layer.weight, f"{layer.module}.bias".lstrip(".")
        try:
            scaling = adapter.scaling(layer)
            if name not in base or (turned := _is_turned(adapter, layer, base[name])) is None:
                raise ValueError(_missing(name, base, layer.weight_shape))
            updated[name] = _updated(updated.get(name, base[name]), layer, scaling, turned=turned)
            if "bias" in layer.parts:
                if bias not in base or base[bias].shape != layer.parts["bias"].shape:
                    raise ValueError(_missing(bias, base, layer.parts["bias"].shape))
                updated[bias] = _shifted(updated.get(bias, base[bias]), layer.parts["bias"], scaling)
        except ValueError as error:
            faults.append(say("fault_list.one", head=layer.module, fault=error))
    tied, several = _tied(updated, base)
    return updated | tied, [*faults, *several]


def _missing(name: str, base: Mapping[str, StoredTensor], shape: Shape) -> str:
    if name in base:
        return say("adapter_fault.other_shape", name=name, shape=str(base[name].shape), wanted=str(shape))
    return say("adapter_fault.not_in_base", name=name)


def _tied(
    updated: Mapping[str, StoredTensor], base: Mapping[str, StoredTensor]
) -> tuple[dict[str, StoredTensor], list[str]]:
    """What is one tensor with an updated one: it is updated too, as it is in the model. And who has two updates."""
    names = [name for name in updated if base[name].storage is not None]
    groups = {base[name].identity: name for name in names}
    several = [say("adapter_fault.tied", name=name) for name in names if groups[base[name].identity] != name]
    sources = {name: groups[one.identity] for name, one in base.items() if one.identity in groups}
    tied = {name: replace(updated[source], name=name, storage=f"updated {source}") for name, source in sources.items()}
    return tied, several


def _is_turned(adapter: Adapter, layer: LoraLayer, weight: StoredTensor) -> bool | None:
    """Whether the weight has its inputs first (an embedding, a Conv1D of GPT-2); None where no shape fits."""
    shape = layer.weight_shape
    if layer.embedding:
        return True if weight.shape == shape else None
    if weight.shape == shape:
        square = len(shape) == 2 and shape[0] == shape[1]
        return bool(adapter.config.get("fan_in_fan_out")) if square else False
    return True if len(shape) == 2 and weight.shape == shape[::-1] else None


def _updated(weight: StoredTensor, layer: LoraLayer, scaling: float, *, turned: bool) -> StoredTensor:
    """The weight with the update, in float32, rounded once to its own dtype.

    Source: peft, lora/layer.py (get_delta_weight) and lora/dora.py: weight + scaling * B A; DoRA scales the sum so that
    each output's norm is its magnitude. Norms are summed in float32 in the order of torch, and so are rounded as there.
    """
    columns = prod(weight.shape[1:])

    def opened() -> Callable[[int, int], Array]:
        a, b = (layer.parts[key].load().astype(np.float32) for key in ("A", "B"))
        left, right = b.reshape(b.shape[0], -1), a.reshape(a.shape[0], -1)
        if turned:
            left, right = right.T, left.T
        factor = np.float32(scaling)

        def summed() -> Callable[[int, int], Array]:
            take = _row_taker(weight, columns)
            return lambda first, last: take(last - first) + (left[first:last] @ right) * factor

        rows = summed()
        magnitude = layer.parts.get("magnitude_vector")
        if magnitude is None:
            return rows
        wanted = magnitude.load().astype(np.float32).reshape(-1)
        if turned:
            by_column = wanted / _column_norms(summed(), weight.shape[0], columns)
            return lambda first, last: rows(first, last) * by_column
        return lambda first, last: _with_norms(rows(first, last), wanted[first:last])

    return stored_tensor(weight.name, Unpacked("", weight.shape, columns, opened, ()), weight.dtype)


def _with_norms(rows: Array, wanted: Array) -> Array:
    return np.asarray(rows * (wanted / _row_norms(rows))[:, None])


def _row_norms(rows: Array) -> Array:
    """As torch takes norms of rows on a processor: sums side by side, added in their order, then the rest."""
    count, columns = rows.shape
    squares, whole = np.square(rows), columns // TORCH_LANES
    side_by_side = squares[:, : whole * TORCH_LANES].reshape(count, whole, TORCH_LANES).sum(1, dtype=np.float32)
    total = np.zeros(count, np.float32)
    for column in (*side_by_side.T, *squares[:, whole * TORCH_LANES :].T):
        total += column
    return np.asarray(np.sqrt(total))


def _column_norms(rows: Callable[[int, int], Array], count: int, columns: int) -> Array:
    """As torch takes norms of columns: the rows' squares added one after the other."""
    sums = np.zeros((1, columns), np.float32)
    for first in range(0, count, ROWS_AT_ONCE):
        squares = np.square(rows(first, min(first + ROWS_AT_ONCE, count)))
        sums = np.add.reduce(np.concatenate((sums, squares)), axis=0, keepdims=True)
    return np.asarray(np.sqrt(sums[0]))


def _row_taker(tensor: StoredTensor, columns: int) -> Callable[[int], Array]:
    """What returns the next rows of a tensor in float32 each time; its bytes are read once, in blocks."""
    blocks, pending, kind = byte_blocks(tensor), bytearray(), numpy_dtype(tensor.dtype)

    def take(count: int) -> Array:
        size = count * columns * kind.itemsize
        while len(pending) < size:
            pending.extend(next(blocks))
        taken = np.frombuffer(bytes(pending[:size]), kind).reshape(count, columns).astype(np.float32)
        del pending[:size]
        return taken

    return take


def _shifted(bias: StoredTensor, part: StoredTensor, scaling: float) -> StoredTensor:
    def load() -> Array:
        made = bias.load().astype(np.float32) + part.load().astype(np.float32) * np.float32(scaling)
        return made.astype(numpy_dtype(bias.dtype))

    return StoredTensor(bias.name, bias.shape, bias.dtype, load)


# Names of the other side.


def adapter_names(checkpoint: Checkpoint, request: NameRequest, destination: FrameworkName | None) -> NameRequest:
    """What to ask of names to convert an adapter alone: a map of its names to those of the other side.

    A map of the models that is given leads the modules to their counterparts; without one they keep their paths. Raises
    CannotRunError for what the other side has no place for, and where the map changes a weight that an update is of.
    """
    adapter = as_adapter(checkpoint)
    source: FrameworkName = "torch" if adapter.style == "PEFT" else "mindspore"
    family = naming_direction(source, request.target, destination).family
    if family is None:
        return request
    target: FrameworkName = "torch" if family == "torch" else "mindspore"
    ways = _ways_of_modules(adapter, request, EndFrameworks(source, target))
    pairings, faults = list[Pairing](), list[str]()
    form, outside = NAMES[target]
    by_tensor = {id(tensor): name for name, tensor in checkpoint.tensors.items()}
    for layer in adapter.layers.values():
        alone = Pairing(layer.weight, layer.weight, "user", 1.0) if request.name_map is None else None
        pair = ways.get(layer.weight, alone)
        fault = _place_fault(layer, pair, target)
        if fault or pair is None:
            faults.append(say("fault_list.one", head=layer.module, fault=fault))
            continue
        module = pair.target.rpartition(".")[0]
        for part, tensor in layer.parts.items():
            name = outside + form.format(module=module, part=part, small=part.lower()).lstrip(".")
            pairings.append(Pairing(by_tensor[id(tensor)], name, "user", 1.0))
    for name, tensor in adapter.others.items():
        if name in ways:
            way = ways[name]
            pairings.append(replace(way, source=by_tensor[id(tensor)], target=f"{outside}{way.target}"))
        else:
            faults.append(say("fault_list.one", head=name, fault=say("adapter_fault.needs_map")))
    if faults:
        raise CannotRunError.of("adapter.no_place", path=checkpoint.path, faults=faults, count=len(faults))
    name_map = NameMap("source", "target", tuple(pairings), frameworks=(source, target))
    return replace(request, name_map=name_map)


def adapter_note(checkpoint: Checkpoint) -> str:
    """What belongs to a converted adapter and is not in its file: rank and scaling, as far as they are known."""
    adapter = as_adapter(checkpoint)
    ranks = sorted({layer.rank for layer in adapter.layers.values()})
    try:
        scalings = sorted({adapter.scaling(layer) for layer in adapter.layers.values()})
    except ValueError:
        scalings = []
    return sentence("adapter.beside", ranks=ranks, scalings=[f"{one:g}" for one in scalings])


def _ways_of_modules(adapter: Adapter, request: NameRequest, ends: EndFrameworks) -> dict[str, Pairing]:
    """Where a given map leads the weights that the adapter updates, and what it saves whole."""
    if request.name_map is None:
        return {}
    weights = {
        one.weight: replace(one.parts["A"], name=one.weight, shape=one.weight_shape, extent=None)
        for one in adapter.layers.values()
    }  # of which only names and shapes are asked
    tensors = {**weights, **adapter.others}
    way = choose_direction(read_given_map(request.name_map), tensors, ends)
    return {pair.source: pair for pair in way.name_map.pairings if pair.source in tensors}


def _place_fault(layer: LoraLayer, pair: Pairing | None, target: FrameworkName) -> str:
    if pair is None:
        return say("plan_fault.not_in_map", name=layer.weight, shape=str(layer.weight_shape))
    if pair.transform.steps:
        return say("adapter_fault.map_changes", name=pair.source)
    if pair.target.rpartition(".")[2] != "weight":
        return say("adapter_fault.no_weight", name=pair.source, target=pair.target)
    if target == "mindspore" and (layer.embedding or len(layer.weight_shape) != 2 or layer.parts.keys() != {"A", "B"}):
        return say("adapter_fault.dense_only", parts=[*layer.parts], shape=str(layer.weight_shape))
    return ""
