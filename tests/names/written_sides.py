"""Sides of a port written down layer by layer, without any framework, and what is true of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from align.core.parameters import Module, Parameter, ParameterSet
from align.names.matching.match_names import match_names
from align.names.user_rules import NameRules

# kind -> role -> the attribute in torch, mindspore.nn, mindspore.mint.nn; the first row of a kind holds the classes.
FAMILIES = ("torch", "nn", "mint")
CLASSES = {
    "conv": ("torch.nn.Conv2d", "mindspore.nn.Conv2d", "mindspore.mint.nn.Conv2d"),
    "conv1d": ("torch.nn.Conv1d", "mindspore.nn.Conv1d", None),
    "batch_norm": ("torch.nn.BatchNorm2d", "mindspore.nn.BatchNorm2d", "mindspore.mint.nn.BatchNorm2d"),
    "layer_norm": ("torch.nn.LayerNorm", "mindspore.nn.LayerNorm", "mindspore.mint.nn.LayerNorm"),
    "linear": ("torch.nn.Linear", "mindspore.nn.Dense", "mindspore.mint.nn.Linear"),
    "embedding": ("torch.nn.Embedding", "mindspore.nn.Embedding", "mindspore.mint.nn.Embedding"),
    "own": ("port.Own", "port.Own", "port.Own"),
}
NN_NAMES = {
    "batch_norm": {
        "weight": "gamma",
        "bias": "beta",
        "running_mean": "moving_mean",
        "running_var": "moving_variance",
        "num_batches_tracked": None,
    },
    "layer_norm": {"weight": "gamma", "bias": "beta"},
    "embedding": {"weight": "embedding_table"},
}


@dataclass(frozen=True)
class Written:
    """A layer: its path, its kind and the shapes of its parameters by torch's attribute names."""

    path: str
    kind: str
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def at(self, path: str) -> Written:
        return Written(path, self.kind, self.shapes)

    def attributes(self, family: str) -> dict[str, str]:
        """The family's attribute for each of torch's."""
        other = NN_NAMES.get(self.kind, {}) if family == "nn" else {}
        named = {name: other.get(name, name) for name in self.shapes}
        return {name: attribute for name, attribute in named.items() if attribute is not None}

    def shape(self, name: str, family: str) -> tuple[int, ...]:
        shape = self.shapes[name]
        inserted = self.kind == "conv1d" and family == "nn" and name == "weight"
        return (*shape[:2], 1, *shape[2:]) if inserted else shape


def conv(path: str, out: int = 4, into: int = 4, kernel: int = 3, *, bias: bool = False) -> Written:
    return Written(path, "conv", _with_bias((out, into, kernel, kernel), out, bias=bias))


def conv1d(path: str, out: int = 4, into: int = 4, kernel: int = 3, *, bias: bool = False) -> Written:
    return Written(path, "conv1d", _with_bias((out, into, kernel), out, bias=bias))


def linear(path: str, out: int = 4, into: int = 4, *, bias: bool = True) -> Written:
    return Written(path, "linear", _with_bias((out, into), out, bias=bias))


def batch_norm(path: str, width: int = 4) -> Written:
    names = ("weight", "bias", "running_mean", "running_var")
    return Written(path, "batch_norm", {**dict.fromkeys(names, (width,)), "num_batches_tracked": ()})


def layer_norm(path: str, width: int = 4) -> Written:
    return Written(path, "layer_norm", {"weight": (width,), "bias": (width,)})


def embedding(path: str, rows: int = 4, width: int = 4) -> Written:
    return Written(path, "embedding", {"weight": (rows, width)})


def own(path: str, **shapes: tuple[int, ...]) -> Written:
    """A layer of a class that no rule knows."""
    return Written(path, "own", shapes)


def side(
    family: str, *layers: Written, order: str = "registration", ties: dict[str, str] | None = None
) -> ParameterSet:
    """The parameters of layers of one family; `ties` maps a name to the first name of the same tensor."""
    parameters = []
    modules = []
    for layer in layers:
        names = []
        for name, attribute in layer.attributes(family).items():
            key = f"{layer.path}.{attribute}"
            names.append(key)
            shape = layer.shape(name, family)
            tied = (ties or {}).get(key)
            buffer = name.startswith(("running", "num"))
            parameters.append(Parameter(key, shape, "float32", layer.path, attribute, not buffer, buffer, tied))
        modules.append(Module(layer.path, (CLASSES[layer.kind][FAMILIES.index(family)],), tuple(names)))
    framework = "torch" if family == "torch" else "mindspore"
    return ParameterSet(f"the {family} side", framework, tuple(parameters), tuple(modules), order)


def truth(pairs: list[tuple[Written, Written]], family: str = "nn") -> dict[str, str]:
    """The true map of a torch side to a side of `family`, from the true pairs of layers."""
    return {
        f"{a.path}.{name}": f"{b.path}.{attribute}"
        for a, b in pairs
        for name, attribute in b.attributes(family).items()
        if name in a.shapes
    }


def matched(source: ParameterSet, target: ParameterSet, rules: NameRules | None = None):
    return match_names(source, target, rules or NameRules())


def paired(name_map) -> dict[str, str]:
    """The pairs of a map."""
    return {pairing.source: pairing.target for pairing in name_map.pairings}


def open_names(name_map) -> set[str]:
    """Every source name that is ambiguous."""
    return {name for group in name_map.ambiguous for name in group.sources}


def unmatched(name_map, side: str) -> set[str]:
    """The names of a side that have no counterpart."""
    return {one.name for one in name_map.unmatched if one.side == side}


def _with_bias(weight: tuple[int, ...], out: int, *, bias: bool) -> dict[str, tuple[int, ...]]:
    return {"weight": weight, **({"bias": (out,)} if bias else {})}
