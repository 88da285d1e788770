"""Which parameter each number of a saved optimizer's state is of.

torch numbers parameters in the order in which the optimizer's groups hold them. A model and its optimizer tell it, and
so do names that the optimizer saved. Else the order of the weights in the file is one within each group, and the shapes
of the moments show which weight went into which group. Where they leave more than one reading, nothing is taken.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from align.checkpoints.names_in_file import NAMES_OF_TORCH, matched_without_wrappers
from align.convert.thresholds import MOST_ORDERS
from align.core.parameters import is_float
from align.core.training import Training
from align.errors import CannotRunError
from align.models.open_side import build_side
from align.models.user_code import load_function
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from align.core.parameters import Shape, StoredTensor
    from align.models.open_side import Side

    Shapes = Sequence[Shape | None]


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
    made = load_function(given)()
    if isinstance(made, tuple) and made:
        made = Training(*made[:4])
    elif isinstance(made, dict) and "model" in made:
        made = Training(made["model"], optimizer=made.get("optimizer"))
    training = made if isinstance(made, Training) else Training(made)
    built = build_side(training.model)
    side = type(built)(given, built.model, built.reader, built.prepared)
    listed = side.reader.read_parameters(side.model, given).parameters
    parameters = [one for one in listed if not one.buffer and one.tied_to is None]
    names = tuple(one.name for one in parameters)
    trained = tuple(one.name for one in parameters if one.trainable)
    if len(training.optimizers) != 1 or not hasattr(training.model, "named_parameters"):
        return LiveOrder(side, names, trained, None)
    known = {id(one): name for name, one in training.model.named_parameters()}
    groups = training.optimizers[0].param_groups
    members = tuple(tuple(known.get(id(one), "") for one in group["params"]) for group in groups)
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
        found = _placed([[one for group in shapes for one in group]], [tensors[name].shape for name in names])
        found = found and [[place] for place in found[0]]
    else:
        found = _placed(shapes, [tensors[name].shape for name in names])
    if found is None:
        raise CannotRunError.of("optimizer_state.no_order", **counts)
    groups = tuple(tuple(names[place] for place in group) for group in found)
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
    found: list[list[int]] = [[] for _ in groups]
    at = next(iter(layers[0]))
    for number, shape in enumerate(weights):
        ways = [(group, after) for group, after in _ways(at, shape, groups) if after in count[number + 1]]
        if len(ways) > 1:
            raise _open_order(groups, weights, number)
        group, at = ways[0]
        if group is not None:
            found[group].append(number)
    return found


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
