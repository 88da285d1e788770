"""A framework's own layers for dropout found, and their outputs multiplied by masks that are given.

Masks come as hooks on layers whose own share is held at 0. So they need no generator of the framework: on a CPU
`nn.Dropout2d` and `ops.dropout2d` of MindSpore cannot be seeded. Hooks are plain functions, which copies of a model
share, so that its run in float64 sees the very same masks.
"""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from align.core.training import DropoutLayer
from align.models.thresholds import KEPT_SHARE_DIGITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.protocols import Model
    from align.core.training import DropoutSink

# What modules call the share that they drop, or that they keep, where they hand it to a function themselves.
_DROPS = re.compile(r"Drop|Stochastic_?Depth")
_SHARES = re.compile(r"(?:\w+_)?(?:dropout|drop)(?:_(?:p|prob|rate|ratio))?|keep_prob")


@dataclass(frozen=True, slots=True)
class DropoutForm:
    """Where a class keeps its share, which is the kept one if it `keeps`; `spatial` is a DropoutLayer's."""

    base: type
    attribute: str
    keeps: bool = False
    spatial: int = 0


def find_dropout_layers(
    modules: Iterable[tuple[str, Model]], forms: Sequence[DropoutForm], method: str
) -> Iterator[DropoutLayer]:
    """Yield the layers of these classes, of derived ones those whose `method`, the forward, is the class's own."""
    for path, module in modules:
        form = next((one for one in forms if isinstance(module, one.base)), None)
        if form is None or method in vars(module) or getattr(type(module), method) is not getattr(form.base, method):
            continue
        value = float(reduce(getattr, form.attribute.split("."), module))
        yield DropoutLayer(path, module, round(1.0 - value if form.keeps else value, KEPT_SHARE_DIGITS), form.spatial)


@contextmanager
def masked_outputs(
    layers: Iterable[DropoutLayer],
    model: Model,
    sink: DropoutSink,
    multiplied: Callable[[Any, Array, bool], Any],
) -> Iterator[None]:
    """Give layers their masks; `multiplied(output, mask, inplace)` is the framework's product."""

    def begin(*_: Any) -> None:
        sink.begin()

    def end(*_: Any) -> None:
        sink.end()

    with ExitStack() as stack:
        stack.callback(model.register_forward_pre_hook(begin).remove)
        for one in layers:
            stack.callback(one.module.register_forward_hook(_hook(one, sink, multiplied)).remove)
        stack.callback(model.register_forward_hook(end).remove)
        yield


def _hook(layer: DropoutLayer, sink: DropoutSink, multiplied: Callable[[Any, Array, bool], Any]) -> Any:
    def given_mask(module: Any, _args: Any, output: Any) -> Any:
        mask = sink.mask(layer, tuple(output.shape), active=bool(module.training))
        return None if mask is None else multiplied(output, mask, getattr(module, "inplace", False))

    return given_mask


def dropping(
    modules: Iterable[tuple[str, Model]], off: Mapping[str, float]
) -> Iterator[tuple[str, Model, dict[str, Any]]]:
    """Modules that drop a share of what they are given, each with the attributes that switch it off.

    Layers for dropout, by their class or one that it derives from, have the attributes `off`; others keep a share as a
    number under a usual name.
    """
    for path, module in modules:
        attributes = vars(module)
        drops = any(_DROPS.search(one.__name__) for one in type(module).__mro__)
        found = {name: value for name, value in off.items() if drops and name in attributes}
        shares = {name for name, value in attributes.items() if isinstance(value, float) and 0.0 < value < 1.0}
        found |= {name: 1.0 if name == "keep_prob" else 0.0 for name in shares if _SHARES.fullmatch(name)}
        if found:
            yield path, module, found
