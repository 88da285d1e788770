"""A live layer built anew with other settings: proposals of how it was built, tried until one is the truth.

Changing an attribute of a live layer often changes nothing, since what counts was made of it by the constructor.
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from align.errors import UserCodeError
from align.models.constructor_arguments import proposed_arguments, wanted_arguments
from align.models.live.copy_changed_setting import BuiltLayers, copy_changed_setting
from align.models.user_code import run_user_code

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from align.core.layer_settings import LayerSettings, Setting
    from align.core.protocols import Model
    from align.models.live.copy_changed_setting import LayerTypes


@dataclass(frozen=True, slots=True)
class LayerBuilder:
    """How a framework builds layers of one class, and copies a live one.

    `fill` gives a built layer (first) the values that it shares with a live one. `kept_at` says, of arguments that no
    attribute of their name holds, where a layer of the class keeps them: `norm1.eps`, `weight.shape.1`.
    """

    cls: type
    build: Callable[..., Model]
    copy: Callable[[Model], Model]
    fill: Callable[[Model, Model], None]
    types: LayerTypes
    kept_at: Mapping[str, str]


def rebuild_layer(
    layer: Model, settings: LayerSettings, changes: Mapping[str, Setting], builder: LayerBuilder
) -> Model | None:
    """Return a copy of the layer with `changes`, None where no proposal builds what the live layer is.

    Parameters that it lacked without the changes start as the constructor makes them.
    """
    known = {name: value for name, place in builder.kept_at.items() if (value := _reach(layer, place)) is not None}
    wanted = wanted_arguments(builder.cls)
    for before, after in proposed_arguments(settings, wanted, known, changes):
        with suppress(UserCodeError):  # a constructor that refuses what it is given
            code = partial(_changed, layer, before, after, builder)
            changed = run_user_code(code, partial(UserCodeError, f"building a {builder.cls.__name__}"))
            if changed is not None:
                return changed
    return None


def with_attributes(layer: Model, changes: Mapping[str, Setting]) -> Model:
    """Change attributes of a copy; whether that changes what it computes must show."""
    for name, value in changes.items():
        setattr(layer, name, value)
    return layer


def build_named(class_name: str, arguments: Mapping[str, Setting]) -> Model | None:
    """Return a new layer of a public class, None where there is none or its constructor refuses the arguments."""
    module, _, name = class_name.rpartition(".")

    def build() -> Model:
        return getattr(importlib.import_module(module), name)(**arguments)

    with suppress(UserCodeError):
        return run_user_code(build, partial(UserCodeError, f"building a {name}"))
    return None


def _changed(
    layer: Model, before: Mapping[str, Setting], after: Mapping[str, Setting], builder: LayerBuilder
) -> Model | None:
    built = BuiltLayers(*(builder.build(**arguments) for arguments in (before, before, after)))
    builder.fill(built.changed, layer)
    copied = builder.copy(layer)
    return copied if copy_changed_setting(copied, built, builder.types) else None


def _reach(value: Any, place: str) -> Any:
    """Follow attributes and, where the name is a number, items; None where one is missing."""
    for name in place.split("."):
        value = dict(enumerate(value or ())).get(int(name)) if name.isdigit() else getattr(value, name, None)
    return value
