"""What becomes of an optimizer's state: each moment goes the way of its parameter, numbers are made of what they mean.

A moment is turned, cut and joined as its weight is, but never cast. What the other side's optimizer lacks, what nothing
tells, and what it computes otherwise is listed: nothing is left out in silence.

torch numbers parameters in the order in which the optimizer's groups hold them. A model and its optimizer tell it, and
so do names that the optimizer saved. Else the order of the weights in the file is the order within each group, and the
shapes of the moments show which weight went into which group; where they leave two readings, nothing is taken.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from align.checkpoints.names_in_file import NAMES_OF_TORCH, matched_without_wrappers
from align.convert.optimizer_state import (
    SCALE_COUNTS,
    optimizer_name,
)
from align.convert.plan_conversion import plan_conversion
from align.convert.thresholds import MOST_ORDERS
from align.core.align_sequences import grouped
from align.core.name_map import Fill, NameMap, Pairing
from align.core.parameters import StoredTensor, is_float
from align.core.training import Training
from align.core.transforms import Add, Cast, Scale, chained
from align.errors import CannotRunError, MapError
from align.models.open_side import build_side
from align.models.user_code import load_function
from align.rules.training_rules import optimizer_state_rules, setting_at
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from align.convert.choose_names import ChosenNames
    from align.convert.optimizer_state import TorchStateFile
    from align.convert.plan_conversion import ConversionPlan
    from align.core.parameters import Array, Shape
    from align.core.protocols import CheckpointFormat
    from align.models.open_side import Side
    from align.rules.training_rules import MindSporeState, StateNumber, TorchState

    Tensors = Mapping[str, StoredTensor]
    Shapes = Sequence[Shape | None]

FRESH = "fresh"  # 1 until a parameter has a momentum


@dataclass(frozen=True, slots=True)
class StateGroup:
    """A group of torch's optimizer: its parameters by torch's names, in their order, and its settings."""

    parameters: tuple[str, ...]
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CarriedState:
    """What became of the state of an optimizer.

    `optimizer` is torch's, `port` MindSpore's. `file` is where the state lay, `order` how it is known which parameter
    is which. `carried`, `made`, `lost` and `differs` say what was carried, what was made of nothing in the source, what
    was not carried, and what the other optimizer computes otherwise. `schedule` is the position of torch's schedule.
    """

    optimizer: str
    port: str
    file: str
    steps: int | None
    order: str
    groups: tuple[StateGroup, ...]
    carried: tuple[str, ...]
    made: tuple[str, ...]
    lost: tuple[str, ...]
    differs: tuple[str, ...]
    schedule: int | None = None


@dataclass(frozen=True, slots=True)
class StatePlan:
    """The tensors of the state to be written beside the weights, and what is said of them.

    `nested` is the format of a file in which they do not stand beside the weights.
    """

    plan: ConversionPlan
    carried: CarriedState
    sources: dict[str, StoredTensor]
    nested: CheckpointFormat | None = None


@dataclass(slots=True)
class SaidOfState:
    """What is said of a state, as it is planned."""

    carried: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


def plan_for_mindspore(
    saved: TorchStateFile, order: ParameterOrder, port: MindSporeState, names: ChosenNames, tensors: Tensors
) -> StatePlan:
    """The state of torch's optimizer as MindSpore's `port` has it; raises MapError for what cannot be made."""
    form, said = saved.forms[0], SaidOfState()
    pairings = grouped((pair.source, pair) for pair in names.name_map.pairings)
    members = [
        _Member(member, name, number)
        for number, (group, group_names) in enumerate(zip(saved.members, order.groups, strict=True))
        for member, name in zip(group, group_names, strict=bool(group_names))
    ]
    if unknown := [parameter.name for parameter in members if parameter.name not in pairings]:
        said.lost.append(sentence("state_lost.not_converted", count=len(unknown), names=unknown))
    members = [parameter for parameter in members if parameter.name in pairings]
    sources: dict[str, StoredTensor] = {}
    moments: list[Pairing] = []
    for affix, role in port.moments.items():
        key = next((key for key, means in form.moments.items() if means == role), "")
        kept = {parameter.member: saved.moments(parameter.member).get(key) for parameter in members}
        if role == FRESH:
            kept = dict.fromkeys(kept)
        if affix in port.optional and not any(kept.values()):
            continue
        for parameter in members:
            tensor = kept[parameter.member] or _start(
                port, affix, role, bool(saved.moments(parameter.member)), tensors[parameter.name]
            )
            tensor = _with_rate(saved, port, role, parameter, tensor) if kept[parameter.member] else tensor
            label = f"optimizer.state.{parameter.member}.{key if kept[parameter.member] else affix}"
            sources[label] = replace(tensor, name=label, storage=None)
            moments += [moved(pair, label, affix + pair.target) for pair in pairings[parameter.name]]
        _say_moment(said, key, affix, list(kept.values()))
    _say_left_moments(said, saved, port, members)
    fills = [*_numbers(saved, port, said), *_scale_numbers(saved, said)]
    plan = sound_plan(sources, moments, fills, names)
    return StatePlan(plan, _carried_to_port(saved, order, port, said), sources)


@dataclass(frozen=True, slots=True)
class _Member:
    """A parameter: what the saved state calls it, its name, and the number of its group."""

    member: Any
    name: str
    group: int


def moved(pair: Pairing, source: str, target: str) -> Pairing:
    """The way of a weight, for what is kept of it: a moment is neither cast with it nor added to.

    Raises CannotRunError for a weight that is scaled: what then becomes of a moment is another optimizer's affair.
    """
    if any(isinstance(step, Scale) for step in pair.transform.steps):
        raise CannotRunError.of("optimizer_state.scaled", name=pair.source)
    steps = [step for step in pair.transform.steps if not isinstance(step, (Cast, Add))]
    return replace(pair, source=source, target=target, transform=chained(*steps))


def _start(port: MindSporeState, affix: str, role: str, trained: bool, weight: StoredTensor) -> StoredTensor:
    value = 0.0 if role == FRESH and trained else port.start.get(affix, 0.0)
    return _constant(weight.shape, value)


def _constant(shape: tuple[int, ...], value: float) -> StoredTensor:
    return StoredTensor("", shape, "float32", lambda: np.full(shape, value, np.float32))


def _with_rate(
    saved: TorchStateFile, port: MindSporeState, role: str, parameter: _Member, tensor: StoredTensor
) -> StoredTensor:
    if role != port.rate_in:
        return tensor
    rate = saved.groups[parameter.group].get("lr")
    if not isinstance(rate, (int, float)):
        raise CannotRunError.of("optimizer_state.no_rate", path=saved.path, port=port.id)
    return scaled(tensor, rate)


def scaled(tensor: StoredTensor, factor: float) -> StoredTensor:
    """The tensor, multiplied."""

    def load() -> Array:
        value: Array = tensor.load() * np.asarray(factor, np.float32)
        return value

    return StoredTensor(tensor.name, tensor.shape, tensor.dtype, load)


def _say_moment(said: SaidOfState, key: str, affix: str, kept: Sequence[StoredTensor | None]) -> None:
    there = sum(one is not None for one in kept)
    if there:
        said.carried.append(sentence("state_carried.moment", source=key, target=affix, count=there))
    if there < len(kept):
        said.made.append(sentence("state_made.moment", target=affix, count=len(kept) - there))


def _say_left_moments(
    said: SaidOfState, saved: TorchStateFile, port: MindSporeState, members: Sequence[_Member]
) -> None:
    for key, role in saved.forms[0].moments.items():
        count = sum(key in saved.moments(one.member) for one in members)
        if count and role not in port.moments.values():
            said.lost.append(sentence("state_lost.moment", name=key, count=count, port=port.id))


def _numbers(saved: TorchStateFile, port: MindSporeState, said: SaidOfState) -> Iterable[Fill]:
    if len(saved.steps) > 1:
        said.lost.append(sentence("state_lost.other_steps", steps=[*saved.steps], taken=saved.count))
    if saved.count is None and port.needs_steps and any(saved.entries.values()):
        if port.kind != "sgd":
            raise CannotRunError.of("optimizer_state.no_steps", path=saved.path, port=port.id)
        said.made.append(sentence("state_made.step", names=[one.name for one in port.numbers]))
    elif saved.count is None:
        said.lost.append(sentence("state_lost.steps"))
    rates = [group.get("lr") for group in saved.groups]
    for number in port.numbers:
        if number.means == "rate":
            yield from _rates(number, rates, saved, said)
            continue
        value = _value(number, saved, port)
        if value is None:
            continue
        reason = sentence("state_carried.number", name=number.name, value=value, means=number.means)
        said.carried.append(reason)
        yield Fill(number.name, np.array(value, number.dtype).reshape(number.shape), reason)


def _value(number: StateNumber, saved: TorchStateFile, port: MindSporeState) -> float | None:
    steps = saved.count if saved.count is not None else 1 if port.needs_steps and any(saved.entries.values()) else None
    if number.means == "steps":
        return None if steps is None else steps + number.offset
    settings = {key: tuple(one) if isinstance(one, list) else one for key, one in saved.groups[0].items()}
    setting = setting_at(settings, number.setting)
    if not isinstance(setting, (int, float)):
        return None
    if number.means == "setting" or steps is None:
        return float(setting) if number.means == "setting" else None
    return float(setting) ** steps if 0 <= setting <= 1 else None


def _rates(number: StateNumber, rates: Sequence[Any], saved: TorchStateFile, said: SaidOfState) -> Iterable[Fill]:
    """The rate of a group, unless a schedule makes it: MindSpore's would then have a table of that name, or none."""
    if not all(isinstance(rate, (int, float)) for rate in rates):
        said.lost.append(sentence("state_lost.odd_rate"))
        return
    if saved.schedule is not None or any("initial_lr" in group for group in saved.groups):
        said.lost.append(sentence("state_lost.scheduled_rate", rates=rates))
        return
    named = {number.name: rates[0]}
    if len({*rates}) > 1:
        named |= {f"{number.name}_group_{place}": rate for place, rate in enumerate(rates)}
    for name, rate in named.items():
        reason = sentence("state_carried.number", name=name, value=rate, means=number.means)
        said.carried.append(reason)
        yield Fill(name, np.array(rate, number.dtype).reshape(number.shape), reason)


def _scale_numbers(saved: TorchStateFile, said: SaidOfState) -> Iterable[Fill]:
    if saved.scale is None:
        return
    scale, good = saved.scale["scale"], saved.scale["_growth_tracker"]
    if not isinstance(scale, (int, float)) or not isinstance(good, int):
        said.lost.append(sentence("state_lost.odd_scale"))
        return
    factors = {key: saved.scale[key] for key in optimizer_state_rules().scale_defaults}
    said.lost.append(sentence("state_lost.scale_settings", settings=[f"{key} {one}" for key, one in factors.items()]))
    values = {"scale_sense": np.array(scale, np.float32)}
    values |= {name: np.array(one, np.int32) for name, one in zip(SCALE_COUNTS, (good + 1, 0), strict=True)}
    for name, value in values.items():
        reason = sentence("state_carried.number", name=name, value=float(value), means="scale")
        said.carried.append(reason)
        yield Fill(name, value, reason)


def sound_plan(sources: Tensors, made: Sequence[Pairing], fills: Sequence[Fill], names: ChosenNames) -> ConversionPlan:
    """The plan of the state's tensors; raises MapError for what cannot be made."""
    name_map = NameMap("state", "state", tuple(made), frameworks=names.name_map.frameworks)
    plan = plan_conversion(sources, name_map, fills)
    if plan.problems:
        raise MapError(say("optimizer_state.map"), plan.problems)
    return plan


def _carried_to_port(
    saved: TorchStateFile, order: ParameterOrder, port: MindSporeState, said: SaidOfState
) -> CarriedState:
    position = saved.schedule.get("last_epoch") if saved.schedule is not None else None
    if isinstance(position, int) and saved.count is not None and position != saved.count:
        said.lost.append(sentence("state_lost.schedule", position=position, steps=saved.count))
    shown = tuple(
        StateGroup(names, {key: one for key, one in group.items() if is_plain(one) and key != "param_names"})
        for names, group in zip(order.groups, saved.groups, strict=True)
    )
    said.lost += _lacking(port, saved.groups)
    return CarriedState(
        optimizer_name(saved.forms),
        port.id,
        f"{saved.path}:{saved.key}" if saved.key else str(saved.path),
        saved.count,
        order.known_by,
        shown,
        tuple(said.carried),
        tuple(said.made),
        tuple(said.lost),
        tuple(differences(port, saved.forms, saved.groups)),
        position if isinstance(position, int) else None,
    )


def is_plain(value: Any) -> bool:
    """Whether a setting is one that a document can hold."""
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def _lacking(port: MindSporeState, groups: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """Settings of torch's that are on and that the port's optimizer does not have."""
    for name in port.without:
        values = [*dict.fromkeys(repr(group[name]) for group in groups if group.get(name))]
        if values:
            yield sentence("state_lost.setting", name=name, values=values, port=port.id)


def differences(
    port: MindSporeState, forms: Sequence[TorchState], groups: Sequence[Mapping[str, Any]]
) -> Iterable[str]:
    """What the port's optimizer computes otherwise than torch's with these settings."""
    decays = any(group.get("weight_decay") for group in groups)
    by_rate = any(form.values.get("decoupled_weight_decay") for form in forms)
    in_gradient = any(not form.values.get("decoupled_weight_decay") for form in forms)
    shown = {
        "decay_in_gradient": decays and by_rate,
        "decay_by_rate": decays and in_gradient,
        "nesterov_on_cpu": any(group.get("nesterov") for group in groups),
    }
    for key in port.differs:
        if shown.get(key, True):
            yield sentence(f"state_difference.{key}", port=port.id)


@dataclass(frozen=True, slots=True)
class LiveOrder:
    """What a side tells: its model, and the names and settings of its optimizer's groups.

    `groups` is None where the side has no optimizer: then `names` are the parameters as the model lists them, and
    `trained` those of them that it trains.
    """

    side: Side
    names: tuple[str, ...]
    trained: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...] | None
    settings: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class ParameterOrder:
    """The parameters of each group in their order, and in words how that is known."""

    groups: tuple[tuple[str, ...], ...]
    known_by: str


def read_live_order(given: str) -> LiveOrder:
    """Build the model of `module:function`, which may return `(model, loss, optimizer)`, and list its parameters."""
    given_side = load_function(given)()
    if isinstance(given_side, tuple) and given_side:
        given_side = Training(*given_side[:4])
    elif isinstance(given_side, dict) and "model" in given_side:
        given_side = Training(given_side["model"], optimizer=given_side.get("optimizer"))
    training = given_side if isinstance(given_side, Training) else Training(given_side)
    built = build_side(training.model)
    side = type(built)(given, built.model, built.reader, built.prepared)
    listed = side.reader.read_parameters(side.model, given).parameters
    parameters = [parameter for parameter in listed if not parameter.buffer and parameter.tied_to is None]
    names = tuple(parameter.name for parameter in parameters)
    trained = tuple(parameter.name for parameter in parameters if parameter.trainable)
    if len(training.optimizers) != 1 or not hasattr(training.model, "named_parameters"):
        return LiveOrder(side, names, trained, None)
    known = {id(tensor): name for name, tensor in training.model.named_parameters()}
    groups = training.optimizers[0].param_groups
    members = tuple(tuple(known.get(id(tensor), "") for tensor in group["params"]) for group in groups)
    settings = tuple({key: value for key, value in group.items() if key != "params"} for group in groups)
    return LiveOrder(side, names, trained, members, settings)


def order_parameters(
    shapes: Sequence[Shapes],
    listed: Sequence[Sequence[str]],
    tensors: Mapping[str, StoredTensor],
    live: LiveOrder | None,
) -> ParameterOrder:
    """The names of each group's parameters, by the shapes of what is kept of each (None: nothing is).

    Of several groups of which nothing is kept, as SGD without momentum leaves them, no name is needed, nor known.
    `listed` are names that the optimizer saved itself, `tensors` the file's. Raises CannotRunError where the order is
    open, or is not that of these shapes.
    """
    if live is not None and live.groups is not None:
        order = ParameterOrder(
            _as_in_file(live.groups, tensors), sentence("state_order.optimizer", label=live.side.label)
        )
    elif listed:
        order = ParameterOrder(_as_in_file(listed, tensors), sentence("state_order.saved_names"))
    elif len(shapes) > 1 and all(one is None for group in shapes for one in group):
        return ParameterOrder(tuple(() for _ in shapes), sentence("state_order.nothing_kept"))
    else:
        order = _by_shapes(shapes, tensors, live)
    _check(order, shapes, tensors)
    return order


def _as_in_file(groups: Iterable[Sequence[str]], names: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    groups = [*groups]
    known = matched_without_wrappers([name for group in groups for name in group], names)
    return tuple(tuple(known[name] for name in group) for group in groups)


def weights_in_order(tensors: Mapping[str, StoredTensor], live: LiveOrder | None = None) -> list[str]:
    """The names of what may be a parameter, in the model's order if one is given, else in the file's; ties once."""
    first: dict[object, str] = {}
    for name, one in tensors.items():
        if is_float(one.dtype) and name.rpartition(".")[2] not in NAMES_OF_TORCH:
            first.setdefault(one.identity, name)
    if live is None:
        return [*first.values()]
    return [name for name in _as_in_file([live.names], tensors)[0] if name in tensors]


def _by_shapes(shapes: Sequence[Shapes], tensors: Mapping[str, StoredTensor], live: LiveOrder | None) -> ParameterOrder:
    names = weights_in_order(tensors, live)
    if live is not None and len(live.trained) == sum(map(len, shapes)) < len(names):
        names = [*_as_in_file([live.trained], tensors)[0]]
    counts = {"parameters": sum(map(len, shapes)), "weights": len(names), "groups": len(shapes)}
    if all(len(group) == 1 for group in shapes):  # as a list in one order, whatever each group is set to
        places = _placed([[shape for group in shapes for shape in group]], [tensors[name].shape for name in names])
        places = places and [[place] for place in places[0]]
    else:
        places = _placed(shapes, [tensors[name].shape for name in names])
    if places is None:
        raise CannotRunError.of("optimizer_state.no_order", **counts)
    groups = tuple(tuple(names[place] for place in group) for group in places)
    key = "state_order.model" if live else "state_order.file"
    return ParameterOrder(groups, sentence(key, label=live.side.label if live else "", **counts))


def _placed(groups: Sequence[Shapes], weights: Sequence[Shape]) -> list[list[int]] | None:
    """The place of each group's parameters among the weights, in rising order; None if none fits.

    Raises CannotRunError for two of them or more, and where there are too many to look at.
    """
    ends = tuple(map(len, groups))
    layers: list[set[tuple[int, ...]]] = [{tuple(0 for _ in groups)}]
    for number, shape in enumerate(weights):
        left = len(weights) - number - 1
        layers.append(
            {after for at in layers[-1] for _, after in _ways(at, shape, groups) if sum(ends) - sum(after) <= left}
        )
        if len(layers[-1]) > MOST_ORDERS:
            raise _open_order(groups, weights, number)
    if ends not in layers[-1]:
        return None
    count: list[dict[tuple[int, ...], int]] = [{} for _ in weights] + [{ends: 1}]
    for number in reversed(range(len(weights))):
        for at in layers[number]:
            total = sum(count[number + 1].get(after, 0) for _, after in _ways(at, weights[number], groups))
            if total:
                count[number][at] = total
    placed: list[list[int]] = [[] for _ in groups]
    at = next(iter(layers[0]))
    for number, shape in enumerate(weights):
        ways = [(group, after) for group, after in _ways(at, shape, groups) if after in count[number + 1]]
        if len(ways) > 1:
            raise _open_order(groups, weights, number)
        group, at = ways[0]
        if group is not None:
            placed[group].append(number)
    return placed


def _ways(at: tuple[int, ...], shape: Shape, groups: Sequence[Shapes]) -> Iterable[tuple[int | None, tuple[int, ...]]]:
    """What may become of a weight: it is the next of a group, or of none (frozen, or no parameter)."""
    yield None, at
    for number, group in enumerate(groups):
        place = at[number]
        if place < len(group) and group[place] in (None, shape):
            yield number, (*at[:number], place + 1, *at[number + 1 :])


def _open_order(groups: Sequence[Shapes], weights: Sequence[Shape], number: int) -> CannotRunError:
    shape = weights[number]
    alike = Counter(weights)[shape]
    facts = {"groups": len(groups), "parameters": sum(map(len, groups)), "weights": len(weights)}
    return CannotRunError.of("optimizer_state.open_order", shape=str(shape), count=alike, **facts)


def _check(order: ParameterOrder, shapes: Sequence[Shapes], tensors: Mapping[str, StoredTensor]) -> None:
    sizes, wanted = [len(group) for group in order.groups], [len(group) for group in shapes]
    if sizes != wanted:
        raise CannotRunError.of("optimizer_state.other_groups", known_by=order.known_by, found=sizes, saved=wanted)
    faults = []
    for names, saved in zip(order.groups, shapes, strict=True):
        for name, shape in zip(names, saved, strict=True):
            if name not in tensors:
                faults.append(say("optimizer_state.no_weight", name=name))
            elif shape not in (None, tensors[name].shape):
                faults.append(
                    say("optimizer_state.other_shape", name=name, shape=str(tensors[name].shape), saved=str(shape))
                )
    if faults:
        raise CannotRunError.of("optimizer_state.other_order", known_by=order.known_by, faults=faults)
