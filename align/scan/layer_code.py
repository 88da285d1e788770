"""The line of MindSpore that makes a torch layer, with its settings translated.

`mappings/skeleton.toml` says what a constructor is given by place and by name, the rules of `mappings/pitfalls` how
every other setting is written there. What has no counterpart is told with what to write instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from align.rules.api_table import api_entries
from align.rules.layer_rules import mappings_folder, read_rules
from align.rules.pitfalls import pitfalls
from align.rules.setting_forms import SAME
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.core.layer_settings import Setting
    from align.models.module_outline import ModuleOutline
    from align.rules.setting_forms import Form

TORCH, NN = "torch.nn.", "mindspore.nn."
NOT_WRITTEN = ("initialisers",)  # topics of rules: values are loaded
ABSENT = (None, False, 0)  # no limit: values of a setting that a layer does not have
LEFT_OUT = ("device", "dtype", "inplace")  # arguments of torch that say nothing of what is computed


@dataclass(frozen=True, slots=True)
class LayerCode:
    """What makes a layer: `call` as `nn.Dense(3, 4)`, its class, and what is left `todo`; `call` is "" for nothing."""

    call: str
    cls: str
    inner: str
    todo: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Constructor:
    """How a class of mindspore.nn is built; see `mappings/skeleton.toml`."""

    nn: str
    places: tuple[str, ...] = ()
    named: Mapping[str, str] = field(default_factory=dict)


def layer_code(layer: ModuleOutline) -> LayerCode:
    """Translate a layer of torch.nn, or the base of one that is derived."""
    torch = next((name for name in layer.classes if name.startswith(TORCH)), "")
    known = constructors().get(layer.classes[0]) or constructors().get(torch.removeprefix(TORCH))
    if known is not None:
        return _built(layer, known)
    entry = api_entries().get(torch)
    counterpart = entry.counterparts[0] if entry and entry.counterparts else None
    if counterpart is not None and counterpart.relation == "same":
        return _same(layer, counterpart.name)
    instead = (counterpart.write or counterpart.name) if counterpart else entry.write if entry else ""
    torch_call = f"{torch}({_joined(_kept(layer))})"
    return LayerCode("", "", "", (say("skeleton.no_counterpart", torch=torch_call, instead=instead),))


def _built(layer: ModuleOutline, known: Constructor) -> LayerCode:
    values = {**layer.settings, **layer.arguments}
    named: dict[str, Setting] = {name: values.get(own) for name, own in known.named.items()}
    todo: list[str] = []
    for form, own, silent in _forms(layer, NN + known.nn):
        value = _given(form, layer)
        written = own.arguments(value)
        if written and silent(written[-1]):
            continue
        if written:
            _take(named, dict(written))
        elif value not in ABSENT and (instead := own.alternative(value)):
            todo.append(instead)
    places = [_literal(_place(values.get(name), layer)) for name in known.places]
    if axes := _axes(layer):
        named |= {"begin_norm_axis": axes, "begin_params_axis": axes}
    kept = {
        name: value
        for name, value in named.items()
        if value is not None and name not in known.places and not _is_silent(name, value)
    }
    inner = ", ".join([*places, *(f"{name}={_literal(value)}" for name, value in kept.items())])
    return LayerCode(f"nn.{known.nn}({inner})", f"nn.{known.nn}", inner, tuple(todo))


def _forms(layer: ModuleOutline, target: str) -> Iterator[tuple[Form, Form, Any]]:
    """The settings that rules know of both classes."""
    for rule in pitfalls():
        form, own = rule.form_of(layer.classes), rule.form_of((target,))
        if form and own and rule.topic not in NOT_WRITTEN and form.readable(layer.settings) and _plainly(form, layer):
            yield form, own, lambda last: _is_silent(*last)


def _given(form: Form, layer: ModuleOutline) -> Setting:
    """The common value; padding to the input's size stays a word, as MindSpore's Conv1d takes no two numbers."""
    same = form.means == "padding" and layer.settings.get("padding") == SAME
    return SAME if same else form.given(layer.settings, layer.classes)


def _plainly(form: Form, layer: ModuleOutline) -> bool:
    """Tell whether a rule has a say: zeros as padding need no word."""
    zeros = "padding_mode" in form.attributes and layer.settings.get("padding_mode") == "zeros"
    return not zeros and form.means != "first_axis"  # the axes of a LayerNorm are counted here


def _take(named: dict[str, Setting], written: dict[str, Setting]) -> None:
    """Add arguments; a padding of none does not take away the mode that another argument needs."""
    if named.get("pad_mode") == "pad" and written == {"pad_mode": "valid"}:
        return
    named.update(written)


def _axes(layer: ModuleOutline) -> int:
    """The first axis of a LayerNorm over several, counted from behind; 0 where it is the last."""
    shape = layer.settings.get("normalized_shape")
    return -len(shape) if isinstance(shape, tuple) and len(shape) > 1 else 0


def _place(value: Setting, layer: ModuleOutline) -> Setting:
    """A value given by place; of one axis a number alone, of several alike one number."""
    if not isinstance(value, tuple) or layer.class_name.startswith("LayerNorm") or "normalized_shape" in layer.settings:
        return value
    return value[0] if len(set(value)) == 1 else value


def _same(layer: ModuleOutline, name: str) -> LayerCode:
    """A class that takes the same arguments."""
    package, inner = name.removeprefix("mindspore."), _joined(_kept(layer))
    return LayerCode(f"{package}({inner})", package, inner)


def _kept(layer: ModuleOutline) -> dict[str, Setting]:
    return {name: value for name, value in layer.arguments.items() if name not in LEFT_OUT}


def _joined(arguments: Mapping[str, Setting]) -> str:
    return ", ".join(f"{name}={_literal(value)}" for name, value in arguments.items())


def _literal(value: Setting) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _is_silent(name: str, value: Setting) -> bool:
    return any(value is one or (value == one and not isinstance(value, bool)) for one in silent_values().get(name, ()))


@cache
def constructors() -> Mapping[str, Constructor]:
    """By torch's class, without `torch.nn.`."""
    return read_rules(mappings_folder() / "skeleton.toml", _constructors)


def _constructors(document: dict[str, Any]) -> dict[str, Constructor]:
    found: dict[str, Constructor] = {}
    for table in document["layer"]:
        for torch, nn in zip(table["torch"], table.get("nn", table["torch"]), strict=True):
            found[torch] = Constructor(nn, tuple(table.get("places", ())), table.get("named", {}))
    return found


@cache
def silent_values() -> Mapping[str, list[Setting]]:
    """What MindSpore's constructors have by default, by argument."""
    return read_rules(mappings_folder() / "skeleton.toml", lambda document: {**document["silent"]})
