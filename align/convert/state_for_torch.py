"""The state of an optimizer carried beside the weights: found, its parameters in order, and planned either way.

On the way to torch it becomes a nested file of weights and optimizer, as loops write it. torch takes the settings of
its groups from such a file. What nothing tells is torch's default, which is said.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from align.checkpoints.extents import byte_blocks
from align.checkpoints.names_in_file import source_framework
from align.convert.given_map import is_record
from align.convert.optimizer_state import (
    SCALE_COUNTS,
    MindSporeStateFile,
    choose_port,
    read_mindspore_state,
    read_torch_state,
    without_state,
)
from align.convert.plan_conversion import STEPS
from align.convert.plan_state import (
    CarriedState,
    SaidOfState,
    StateGroup,
    StatePlan,
    differences,
    is_plain,
    moved,
    order_parameters,
    plan_for_mindspore,
    read_live_order,
    scaled,
    sound_plan,
    weights_in_order,
)
from align.core.align_sequences import grouped
from align.core.atomic_files import existing_file
from align.core.documents import DocumentFault, Form, read_json
from align.core.name_map import Fill, NameMap
from align.core.parameters import Checkpoint, StoredTensor
from align.core.protocols import TreeWriter
from align.errors import CannotRunError, MapError, UsageError
from align.rules.training_rules import optimizer_state_rules
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from align.convert.choose_names import ChosenNames, NameRequest
    from align.convert.optimizer_state import StateOptions, TorchStateFile
    from align.convert.plan_state import LiveOrder
    from align.core.name_map import Pairing
    from align.core.protocols import CheckpointFormat
    from align.rules.training_rules import MindSporeState, TorchState

    Tensors = Mapping[str, StoredTensor]

SWITCHED = {
    "largest": "amsgrad",
    "mean": "centered",
    "momentum": "",
}  # kept where a setting wants it, by MindSpore always
RECORDED = Form(
    {
        "type": "object",
        "properties": {
            "state": {
                "type": ["object", "null"],
                "required": ["optimizer", "port", "groups"],
                "properties": {
                    "steps": {"type": ["integer", "null"]},
                    "optimizer": {"type": "string"},
                    "port": {"type": "string"},
                    "groups": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["parameters", "settings"],
                            "properties": {
                                "parameters": {"type": "array", "items": {"type": "string"}},
                                "settings": {"type": "object"},
                            },
                        },
                    },
                },
            }
        },
    }
)


@dataclass(frozen=True, slots=True)
class StateTask:
    """A state that was found beside weights: what is left of the file and of the request once it is taken out."""

    checkpoint: Checkpoint
    request: NameRequest
    whole: Checkpoint
    saved: TorchStateFile | MindSporeStateFile
    live: LiveOrder | None
    options: StateOptions
    recorded: KnownGroups | None = None

    def plan(self, names: ChosenNames, plugin: CheckpointFormat) -> StatePlan:
        """Say what becomes of the state, once the names are chosen; raises UsageError where it cannot be written."""
        source = "mindspore" if isinstance(self.saved, MindSporeStateFile) else "torch"
        if source == names.framework:
            raise UsageError.of("optimizer_state.one_framework", path=self.whole.path, framework=source)
        if not isinstance(self.saved, MindSporeStateFile):
            saved, port = self.saved, choose_port(self.saved, self.options)
            order = order_parameters(saved.shapes(), saved.listed(), self.whole.tensors, self.live)
            return plan_for_mindspore(saved, order, port, names, self.whole.tensors)
        if not isinstance(plugin, TreeWriter):
            raise UsageError.of("optimizer_state.not_nested", format=plugin.name)
        targets = {pair.target: self.whole.tensors[pair.source] for pair in names.name_map.pairings}
        known = groups_from(self.live, self.recorded, targets)
        return plan_for_torch(self.saved, known, names, self.whole, plugin)


def find_state(checkpoint: Checkpoint, request: NameRequest, options: StateOptions) -> StateTask:
    """Find the state of an optimizer in or beside a checkpoint, with what tells the order of its parameters.

    Beside a map or a family, a model only tells that order. Raises what reading the state raises.
    """
    framework, _ = source_framework(checkpoint.metadata, checkpoint.tensors)
    decided = request.name_map is not None or request.family is not None
    if framework == "torch":
        saved = read_torch_state(checkpoint, options)
        live = read_live_order(request.source_model) if isinstance(request.source_model, str) else None
        if live is not None:
            request = replace(request, source_model=None if decided else live.side)
        return StateTask(without_state(checkpoint, saved), request, checkpoint, saved, live, options)
    recorded, port = _recorded(request.name_map)
    state = read_mindspore_state(checkpoint, options, port)
    live = read_live_order(request.target_model) if isinstance(request.target_model, str) else None
    if live is not None:
        request = replace(request, target_model=live.side if request.source_model and not decided else None)
    steps = state.steps
    if steps is not None:
        counted = np.array([steps], np.int64)
        since = steps - (recorded.steps if recorded and recorded.steps is not None else steps)
        request = replace(request, counts={STEPS: StoredTensor(STEPS, (1,), "int64", lambda: counted)}, since=since)
    return StateTask(without_state(checkpoint, state), request, checkpoint, state, live, options, recorded)


def _recorded(given: NameMap | Path | str | None) -> tuple[KnownGroups | None, str]:
    """The groups that the record of a conversion has, and MindSpore's optimizer; raises MapError for an odd record."""
    path = None if given is None or isinstance(given, NameMap) else existing_file(Path(given), "map file")
    if path is None or not is_record(path):
        return None, ""
    try:
        state = RECORDED.require(read_json(path)).get("state")
    except DocumentFault as error:
        raise MapError(path, [str(error)]) from error
    if state is None or not all(group["parameters"] for group in state["groups"]):
        return None, state["port"] if state else ""
    groups = tuple(tuple(group["parameters"]) for group in state["groups"])
    settings = tuple(
        {key: tuple(one) if isinstance(one, list) else one for key, one in group["settings"].items() if is_plain(one)}
        for group in state["groups"]
    )
    known = KnownGroups(
        groups, settings, sentence("state_order.record", path=str(path)), state["optimizer"], state.get("steps")
    )
    return known, state["port"]


@dataclass(frozen=True, slots=True)
class KnownGroups:
    """Torch's parameters by group in their order, their settings as far as they are known, and what tells all that."""

    groups: tuple[tuple[str, ...], ...]
    settings: tuple[dict[str, Any], ...]
    known_by: str
    optimizer: str = ""
    steps: int | None = None


def plan_for_torch(
    saved: MindSporeStateFile, known: KnownGroups, names: ChosenNames, checkpoint: Checkpoint, writer: TreeWriter
) -> StatePlan:
    """The state of MindSpore's optimizer as torch numbers it, in a file that holds the weights as `model`."""
    said, port, steps = SaidOfState(), saved.form, saved.steps
    form = _torch_form(port, known)
    if steps is None and port.kind in ("adam", "adagrad", "lamb"):
        raise CannotRunError.of("optimizer_state.no_steps", path=checkpoint.path, port=port.id)
    settings = _group_settings(saved, known, form, said)
    way = _TorchWay(saved, form, known, checkpoint)
    for affix, role in port.moments.items():
        key = next((key for key, means in form.moments.items() if means == role), "")
        kept = saved.moments[affix]
        if not key or (role in SWITCHED and not _any_set(checkpoint.tensors[name] for name in kept.values())):
            continue
        if SWITCHED.get(role) and not known.settings:
            settings = [{**group, SWITCHED[role]: True} for group in settings]
        count = way.add(role, key, kept, names)
        said.carried.append(sentence("state_carried.moment", source=affix, target=key, count=count))
    fills = list(_step_fills(form, way.entries, steps, said))
    if steps is not None:
        said.carried.append(sentence("state_carried.number", name="step", value=steps, means="steps"))
        settings = [{**group, "step": steps} for group in settings] if form.steps == "group" else settings
    _say_left(said, saved, way.numbers, way.entries)
    members = (
        {**group_settings, "params": [way.numbers[n] for n in group]}
        for group, group_settings in zip(known.groups, settings, strict=True)
    )
    tree = {
        "optimizer": {"state": dict(sorted(way.entries.items())), "param_groups": [*members]},
        **({} if steps is None else {"global_step": steps}),
        **_scaler(saved, said),
    }
    groups = tuple(
        StateGroup(group, group_settings) for group, group_settings in zip(known.groups, settings, strict=True)
    )
    carried = CarriedState(
        optimizer=form.id,
        port=port.id,
        file=str(checkpoint.path),
        steps=steps,
        order=known.known_by,
        groups=groups,
        carried=tuple(said.carried),
        made=tuple(said.made),
        lost=tuple(said.lost),
        differs=tuple(differences(port, [form], settings)),
        schedule=steps,
    )
    return StatePlan(
        sound_plan(way.sources, way.pairings, fills, names), carried, way.sources, NestedFormat(writer, tree)
    )


@dataclass(slots=True)
class _TorchWay:
    """The moments on their way: what they are made of, and what torch keeps under each number of a parameter."""

    saved: MindSporeStateFile
    form: TorchState
    known: KnownGroups
    checkpoint: Checkpoint
    sources: dict[str, StoredTensor] = field(default_factory=dict)
    pairings: list[Pairing] = field(default_factory=list)
    entries: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def numbers(self) -> dict[str, int]:
        """The number of each parameter."""
        return {name: place for place, name in enumerate(name for group in self.known.groups for name in group)}

    def add(self, role: str, key: str, kept: Mapping[str, str], names: ChosenNames) -> int:
        """Take one moment of all parameters that have it, and return how many these are."""
        numbers, count = self.numbers, 0
        for name, pairs in grouped((pair.target, pair) for pair in names.name_map.pairings).items():
            if not all(pair.source in kept for pair in pairs):
                continue
            if name not in numbers:
                raise CannotRunError.of("optimizer_state.not_in_order", name=name, known_by=self.known.known_by)
            label = f"optimizer.state.{numbers[name]}.{key}"
            for pair in pairs:
                tensor = self.checkpoint.tensors[kept[pair.source]]
                self.sources[tensor.name] = _without_rate(self.saved, role, tensor, self.checkpoint.path)
                self.pairings.append(moved(pair, tensor.name, label))
            self.entries.setdefault(numbers[name], {})[key] = TensorName(label)
            count += 1
        return count


def _any_set(tensors: Iterable[StoredTensor]) -> bool:
    """Whether any of them holds more than zeros."""
    return any(np.any(np.frombuffer(block, np.uint8)) for tensor in tensors for block in byte_blocks(tensor))


def _torch_form(port: MindSporeState, known: KnownGroups) -> TorchState:
    forms = [form for form in optimizer_state_rules().torch if form.kind == port.kind]
    if known.settings and (fitting := [form for form in forms if form.fits(known.settings[0])]):
        forms = fitting
    elif known.settings and known.optimizer and not any(form.id == known.optimizer for form in forms):
        raise UsageError.of("optimizer_state.other_optimizer", port=port.id, optimizer=known.optimizer)
    by_rate = "decay_by_rate" in port.differs
    wanted = (form for form in forms if form.values.get("decoupled_weight_decay", by_rate) == by_rate)
    return next((form for form in forms if form.id == known.optimizer), None) or next(wanted, forms[0])


def _group_settings(
    saved: MindSporeStateFile, known: KnownGroups, form: TorchState, said: SaidOfState
) -> list[dict[str, Any]]:
    """The settings of each group: what the file tells, else what is known, else torch's defaults, which is said."""
    in_file = _settings_in_file(saved)
    by_group: list[dict[str, Any]] = []
    missing: dict[str, Any] = {}
    for place, _ in enumerate(known.groups):
        known_settings = dict(known.settings[place]) if known.settings else {}
        rate = saved.numbers.get(f"learning_rate_group_{place}", saved.numbers.get("learning_rate"))
        of_file = in_file if not known.settings else {}
        of_file = of_file if rate is None or _near(known_settings.get("lr"), rate) else {**of_file, "lr": _short(rate)}
        settings = {**form.defaults, **known_settings, **of_file}
        missing = {
            key: value for key, value in form.defaults.items() if key not in {**known_settings, **of_file}
        } or missing
        by_group.append(settings)
    if missing:
        listed = [f"{key} {value}" for key, value in missing.items()]
        said.made.append(sentence("state_made.settings", settings=listed, optimizer=form.id))
    return by_group


def _settings_in_file(saved: MindSporeStateFile) -> dict[str, Any]:
    """What MindSpore's optimizer keeps of its settings: a momentum, and betas as powers."""
    numbers, steps = saved.numbers, saved.steps
    settings: dict[str, Any] = {"momentum": _short(numbers["momentum"])} if "momentum" in numbers else {}
    powers = [numbers.get(f"beta{n}_power") for n in (1, 2)]
    if steps and all(power is not None and power > np.finfo(np.float32).tiny for power in powers):
        settings["betas"] = tuple(_short(power ** (1 / steps)) for power in powers if power is not None)
    return settings


def _near(value: Any, other: float) -> bool:
    return isinstance(value, (int, float)) and np.float32(value) == np.float32(other)


def _short(value: float) -> float:
    """A setting as it was written, of its float32."""
    return float(f"{value:.6g}")


def _without_rate(saved: MindSporeStateFile, role: str, tensor: StoredTensor, path: Path) -> StoredTensor:
    if role != saved.form.rate_in:
        return tensor
    rates = {one for name, one in saved.numbers.items() if name.startswith("learning_rate")}
    if len(rates) != 1 or 0.0 in rates:
        raise CannotRunError.of("optimizer_state.no_rate", path=path, port=saved.form.id)
    return scaled(tensor, 1 / rates.pop())


def _step_fills(
    form: TorchState, entries: dict[int, dict[str, Any]], steps: int | None, said: SaidOfState
) -> Iterable[Fill]:
    """A count of steps beside the moments of each parameter, as torch keeps it."""
    if form.steps != "parameter":
        return
    if steps is None:
        said.made.append(sentence("state_made.zero_steps"))
    for number, entry in entries.items():
        label = f"optimizer.state.{number}.step"
        entry["step"] = TensorName(label)
        yield Fill(label, np.array(steps or 0, np.float32), "step")


def _say_left(
    said: SaidOfState, saved: MindSporeStateFile, numbers: Mapping[str, int], entries: Mapping[int, Mapping[str, Any]]
) -> None:
    if entries and (without := [name for name, place in numbers.items() if place not in entries]):
        said.lost.append(sentence("state_lost.no_state", count=len(without), names=without))
    if saved.left:
        said.lost.append(sentence("state_lost.unknown", count=len(saved.left), names=[*saved.left]))


def _scaler(saved: MindSporeStateFile, said: SaidOfState) -> dict[str, Any]:
    if "scale_sense" not in saved.numbers:
        return {}
    now, last = (saved.numbers.get(name) for name in SCALE_COUNTS)
    good = 0 if now is None or last is None else max(int(now - last) - 1, 0)
    factors = optimizer_state_rules().scale_defaults
    scale = saved.numbers["scale_sense"]
    said.carried.append(sentence("state_carried.number", name="scale", value=scale, means="scale"))
    listed = [f"{key} {one}" for key, one in factors.items()]
    said.made.append(sentence("state_made.settings", settings=listed, optimizer="GradScaler"))
    return {"scaler": {"scale": scale, **factors, "_growth_tracker": good}}


def groups_from(live: LiveOrder | None, given: KnownGroups | None, tensors: Tensors) -> KnownGroups:
    """Torch's groups by a live optimizer, a record, or a model alone, which has one group.

    Raises UsageError without any of them.
    """
    if live is not None and live.groups is not None:
        plain = tuple({key: one for key, one in group.items() if is_plain(one)} for group in live.settings)
        return KnownGroups(live.groups, plain, sentence("state_order.optimizer", label=live.side.label))
    if given is not None:
        return given
    if live is None:
        raise UsageError.of("optimizer_state.no_target_order")
    names = tuple(weights_in_order(tensors, live))
    return KnownGroups((names,), (), sentence("state_order.one_group", label=live.side.label, count=len(names)))


@dataclass(frozen=True, slots=True)
class TensorName:
    """Stands in a tree for the tensor of this name."""

    name: str


@dataclass(frozen=True, slots=True)
class NestedFormat:
    """Torch's file with a tree in it: the weights under `model`, and what `tree` says of all other tensors.

    It writes and reads as other formats do, each tensor by its own name, so that all of them are read back.
    """

    writer: TreeWriter
    tree: dict[str, Any]
    name: str = "torch"
    summary: str = ""
    requires: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = (".pth", ".pt", ".bin")
    framework: Any = "torch"

    def recognizes(self, path: Path, head: bytes) -> bool:
        """Tell whether the file is torch's."""
        return self.writer.recognizes(path, head)

    def problems(self, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> list[str]:
        """What torch's format cannot hold."""
        problems: Callable[..., list[str]] = getattr(self.writer, "problems")  # noqa: B009 - it is a format too
        return problems(tensors, metadata)

    def write(self, stream: BinaryIO, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> None:  # noqa: ARG002
        """Write weights and state."""
        by_name = {one.name: one for one in tensors}
        of_state = set(_names_in(self.tree))
        weights = {name: one for name, one in by_name.items() if name not in of_state}
        self.writer.write_tree(stream, {**_filled(self.tree, by_name), "model": weights})

    def read(self, path: Path, key: str | None = None) -> Checkpoint:  # noqa: ARG002 - all entries are read
        """The tensors of all entries by their own names."""
        tree = self.writer.read_tree(path)
        found = dict(tree["model"])
        found |= {one.name.removeprefix("."): one for one in _tensors_in({**tree, "model": None})}
        tensors = {name: replace(one, name=name) for name, one in found.items()}
        return Checkpoint(path, self.name, tensors)


def _names_in(tree: Any) -> Iterable[str]:
    if isinstance(tree, TensorName):
        yield tree.name
    for one in _parts(tree):
        yield from _names_in(one)


def _tensors_in(tree: Any) -> Iterable[StoredTensor]:
    if isinstance(tree, StoredTensor):
        yield tree
    for one in _parts(tree):
        yield from _tensors_in(one)


def _parts(tree: Any) -> Iterable[Any]:
    return tree.values() if isinstance(tree, dict) else tree if isinstance(tree, (list, tuple)) else ()


def _filled(tree: Any, tensors: Tensors) -> Any:
    if isinstance(tree, TensorName):
        return tensors[tree.name]
    if isinstance(tree, dict):
        return {key: _filled(one, tensors) for key, one in tree.items()}
    return type(tree)(map(partial(_filled, tensors=tensors), tree)) if isinstance(tree, (list, tuple)) else tree
