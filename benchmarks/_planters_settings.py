"""Wrong settings: a layer of mindspore.nn built anew with one constructor argument changed, or of another class.

A cell is rebuilt from what the live one tells, and with no change it must return the same bits as the live one: else
the place is left out. Layers of other packages are changed where they keep the setting, and only for epsilon.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from _planting import Mutation, Port, Undo, all_of, checked, exchange, set_attributes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NORMS = ("BatchNorm1d", "BatchNorm2d", "GroupNorm", "LayerNorm")
BATCH_NORMS = ("BatchNorm1d", "BatchNorm2d")
CONVOLUTIONS = ("Conv1d", "Conv2d", "Conv3d")
POOLS = ("MaxPool2d", "AvgPool2d")
EPSILONS = ("eps", "epsilon", "variance_epsilon")
# A class in the place of another one, with the arguments that it gets.
OTHER_CLASSES: dict[str, list[tuple[str, dict[str, object]]]] = {
    "ReLU": [("LeakyReLU", {"alpha": 0.2}), ("ReLU6", {}), ("GELU", {"approximate": True}), ("ELU", {})],
    "ReLU6": [("ReLU", {}), ("HSwish", {})],
    "GELU": [("ReLU", {}), ("SiLU", {})],
    "Sigmoid": [("HSigmoid", {}), ("Tanh", {})],
    "Tanh": [("Sigmoid", {})],
}

Arguments = dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """A kind of wrong setting: the classes that have it, and the changes that are wrong of what a layer has."""

    kind: str
    classes: tuple[str, ...]
    changes: Callable[[Arguments], list[Arguments]]
    causes: tuple[str, ...]
    lint: bool = field(default=False)


def plant_settings(port: Port) -> Iterator[Mutation]:
    """All wrong settings that the called layers of a network can have."""
    for fault in FAULTS:
        for path, cell in port.of(*fault.classes):
            for changes in fault.changes(arguments(cell)):
                change = ", ".join(f"{name}={value}" for name, value in changes.items())
                plant = partial(_rebuilt_in_place, port, path, changes)
                yield Mutation(fault.kind, "settings", (path,), change, plant, fault.causes, fault.lint)
    yield from _other_classes(port)
    yield from _own_epsilons(port)
    yield from _crossed_strides(port)
    yield from _unused_biases(port)


def arguments(cell: Any) -> Arguments:
    """The constructor arguments that a live cell tells, without initialisers and dtypes."""
    names = inspect.signature(type(cell).__init__).parameters
    kept = {n: vars(cell)[n] for n in names if n in vars(cell) and not n.endswith("_init") and n != "dtype"}
    read = next((READ[base.__name__] for base in type(cell).__mro__ if base.__name__ in READ), None)
    told = {**kept, **(read(cell) if read else {})}
    return {name: value for name, value in told.items() if name in names and name != "keep_prob"}


def _batch_norm(cell: Any) -> Arguments:
    return {"momentum": 1.0 - cell.momentum}  # kept as the weight of the new value


def _conv_1d(cell: Any) -> Arguments:
    lengths = {name: getattr(cell, name)[1] for name in ("kernel_size", "stride", "dilation")}
    return {**lengths, "padding": cell.padding[-1] if isinstance(cell.padding, tuple) else cell.padding}


def _max_pool(cell: Any) -> Arguments:
    pads = {"padding": tuple(cell.padding[1:])} if cell.pad_mode == "PAD" else {}
    return {**pads, "ceil_mode": bool(getattr(cell.max_pool, "ceil_mode", False)), "pad_mode": cell.pad_mode.lower()}


def _average_pool(cell: Any) -> Arguments:
    primitive, pads = cell.avg_pool, {}
    if cell.pad_mode == "PAD":
        pads = {"padding": tuple(primitive.pad_list[2::2]), "count_include_pad": bool(primitive.count_include_pad)}
    return {**pads, "ceil_mode": bool(getattr(primitive, "ceil_mode", False)), "pad_mode": cell.pad_mode.lower()}


READ: dict[str, Callable[[Any], Arguments]] = {
    "_BatchNorm": _batch_norm,
    "Conv1d": _conv_1d,
    "MaxPool2d": _max_pool,
    "AvgPool2d": _average_pool,
    "GELU": lambda cell: {"approximate": cell.approximate == "tanh"},
    "Softmax": lambda cell: {"axis": cell.softmax.axis[0] if isinstance(cell.softmax.axis, tuple) else -1},
}


def _epsilons(told: Arguments) -> list[Arguments]:
    name = "epsilon" if "epsilon" in told else "eps"
    return [{name: value} for value in (told[name] * 100, told[name] / 100, 1e-3) if value != told[name]]


def _paddings(told: Arguments) -> list[Arguments]:
    """One pixel to the side, and the padding that the mode `same` puts behind a strided convolution."""
    pads, sizes = _pair(told["padding"]), _pair(told["kernel_size"])
    if told["pad_mode"] != "pad" or len(sizes) != 2 or pads[0] < 1 or min(sizes) < 2:
        return []
    top, left = pads[0], pads[-1]
    shifted = [{"padding": (top - 1, top + 1, max(left - 1, 0), left + min(left, 1))}]
    return [{"pad_mode": "same", "padding": 0}, *shifted] if max(_pair(told["stride"])) > 1 else shifted


def _dilations(told: Arguments) -> list[Arguments]:
    """The output keeps its shape: the padding grows with the dilation."""
    pads, sizes = _pair(told["padding"]), _pair(told["kernel_size"])
    wide = told["pad_mode"] == "pad" and len(set(pads)) == 1 and set(sizes) == {3} and pads[0] == 1
    return [{"dilation": 2, "padding": 2}] if wide and set(_pair(told["dilation"])) == {1} else []


def _pool_paddings(told: Arguments) -> list[Arguments]:
    padded = told["pad_mode"] == "pad" and max(_pair(told["padding"])) > 0
    return [{"pad_mode": "same", "padding": 0}] if padded else []


def _dropout_shares(told: Arguments) -> list[Arguments]:
    """Of a layer that was built with `p`, not with what it keeps."""
    return [{"p": told["p"] / 2 + 0.3}] if isinstance(told.get("p"), float) else []


def _pair(value: Any) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value, value)


FAULTS = (
    Fault("epsilon", NORMS, _epsilons, ("*-epsilon",)),
    Fault("momentum", BATCH_NORMS, lambda told: [{"momentum": 1.0 - told["momentum"]}], ("*momentum",), lint=True),
    Fault("padding", ("Conv2d",), _paddings, ("*-padding",)),
    Fault("dilation", ("Conv2d", "Conv1d"), _dilations, ("*-dilation", "*-padding")),
    Fault("pool padding", POOLS, _pool_paddings, ("*pool*padding*", "*pool*pad*")),
    Fault("ceil mode", POOLS, lambda told: [{"ceil_mode": not told["ceil_mode"]}], ("*ceil*",)),
    Fault(
        "padding in the mean",
        ("AvgPool2d",),
        lambda told: [{"count_include_pad": not told["count_include_pad"]}] if "count_include_pad" in told else [],
        ("*pool*",),
    ),
    Fault("approximation", ("GELU",), lambda told: [{"approximate": not told["approximate"]}], ("gelu*",)),
    Fault("slope", ("LeakyReLU",), lambda told: [{"alpha": 0.2 if told["alpha"] != 0.2 else 0.01}], ("*slope",)),
    Fault("softmax axis", ("Softmax",), lambda told: [{"axis": told["axis"] - 1}], ("*axis*",)),
    Fault("dropout share", ("Dropout",), _dropout_shares, ("dropout*",), lint=True),
    Fault("group count", ("GroupNorm",), lambda told: [{"num_groups": told["num_channels"]}], ("*groups",)),
)


def rebuilt(cell: Any, **changes: Any) -> Any:
    """A cell of the same class and parameters with some constructor arguments changed."""
    kind = type(cell)
    new = kind(**{**arguments(cell), **changes})
    for name, parameter in cell.parameters_and_names(expand=False):
        setattr(new, name.rpartition(".")[2], parameter)
    return new


def _rebuilt_in_place(port: Port, path: str, changes: Arguments) -> Undo:
    cell = port.cells[path]
    checked(rebuilt(cell), port.seen[path])
    return exchange(port.net, path, rebuilt(cell, **changes))


def _other_classes(port: Port) -> Iterator[Mutation]:
    """Another activation; average pooling for max pooling and the reverse."""
    from mindspore import nn

    for kind, others in OTHER_CLASSES.items():
        for path, cell in port.of(kind):
            for name, given in others if type(cell).__name__ == kind else ():
                plant = partial(_exchanged, port, path, partial(getattr(nn, name), **given))
                yield Mutation(
                    "activation", "settings", (path,), f"{name} for {kind}", plant, ("other-kind", "*activ*")
                )
    for path, cell in port.of(*POOLS):
        other = nn.AvgPool2d if isinstance(cell, nn.MaxPool2d) else nn.MaxPool2d
        shared = {n: v for n, v in arguments(cell).items() if n in ("kernel_size", "stride", "pad_mode", "padding")}
        plant = partial(_exchanged, port, path, partial(other, **shared))
        yield Mutation("pooling", "settings", (path,), f"{other.__name__} for its rival", plant, ("other-kind",))


def _exchanged(port: Port, path: str, make: Callable[[], Any]) -> Undo:
    return exchange(port.net, path, make())


def _own_epsilons(port: Port) -> Iterator[Mutation]:
    """The epsilon of a norm that is no class of mindspore.nn, in its attribute and in its operators."""
    known = {path for path, _ in port.of(*NORMS)}
    for path, cell in port.cells.items():
        name = next((name for name in EPSILONS if isinstance(vars(cell).get(name), float)), None)
        if name and path not in known:
            value = vars(cell)[name] * 1000
            plant = partial(_set_epsilon, cell, name, value)
            causes = ("*-epsilon", "epsilon", "setting-differs")  # a class of the port's own is in no rule
            yield Mutation("epsilon", "settings", (path,), f"{name}={value:g}", plant, causes)


def _set_epsilon(cell: Any, name: str, value: float) -> Undo:
    import mindspore

    owners = [
        one for one in vars(cell).values() if isinstance(one, mindspore.ops.Primitive) and hasattr(one, "epsilon")
    ]
    operators = [partial(set_attributes, one, epsilon=value) for one in owners]
    return all_of(partial(set_attributes, cell, **{name: value}), *operators)


def _crossed_strides(port: Port) -> Iterator[Mutation]:
    """The stride of one convolution at another one of the same block: the block's output keeps its shape."""
    found = dict(port.of("Conv2d"))
    for first, second in zip(found, list(found)[1:], strict=False):
        strides = [_pair(found[path].stride) for path in (first, second)]
        if first.rpartition(".")[0] == second.rpartition(".")[0] and strides[0] != strides[1]:
            plant = partial(_cross, port, (first, second), strides)
            change = f"stride {strides[1]} and {strides[0]}"
            yield Mutation("stride order", "settings", (first, second), change, plant, ("*-stride",))


def _cross(port: Port, paths: tuple[str, str], strides: list[tuple[int, ...]]) -> Undo:
    crossed = zip(paths, strides[::-1], strict=True)
    return all_of(*(partial(_rebuilt_in_place, port, path, {"stride": stride}) for path, stride in crossed))


def _unused_biases(port: Port) -> Iterator[Mutation]:
    """A bias that is there and not added; both kinds of layers look at `has_bias` in each call."""
    for path, cell in port.of("Dense", *CONVOLUTIONS):
        if getattr(cell, "has_bias", False):
            plant = partial(set_attributes, cell, has_bias=False)
            yield Mutation("bias", "settings", (path,), "has_bias=False", plant, ("*bias*", "*shift*"))
