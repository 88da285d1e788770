"""What a user added, held against its own examples: rules of `mappings/`, and plugins of installed packages.

Rules of align itself are asked the same in its tests, and more. Every example is built with the real framework: one
that is not installed leaves the rule untried, and that is said.
"""

from __future__ import annotations

import ast
import io
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from align.checkpoints.open_checkpoint import open_checkpoint
from align.core.about import user_mappings
from align.core.load_code import (
    PACKAGES,
    UNFIT_PLUGIN,
    installed_plugins,
    model_readers,
    plugin_states,
    put_first,
    refused_plugins,
)
from align.core.parameters import StoredTensor
from align.core.protocols import CheckpointFormat, SettingsReader
from align.curves.log_sources import LogSource, log_formats
from align.curves.place_on_axis import place_on_axis
from align.errors import AlignError, UsageError
from align.lint.compare_settings import LayerPair, compare_settings
from align.rules.layer_rules import read_layer_rules, rule_for
from align.rules.model_families import read_family
from align.rules.pitfalls import read_pitfalls
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from align.core.protocols import LayerSettings
    from align.curves.log_sources import LogFormat
    from align.rules.layer_rules import FamilyName, LayerRule
    from align.rules.model_families import ModelFamily
    from align.rules.pitfalls import Pitfall

CheckState = Literal["passed", "failed", "not tried"]
Roles = dict[str, tuple[int, ...]]
_OPTIMIZED = "PARAMETER"  # format: what an optimizer in an example trains


@dataclass(frozen=True, slots=True)
class PluginCheck:
    """A rule or plugin, the file or package that it is from, and what its examples showed; `reasons` are sentences."""

    kind: str
    name: str
    origin: str
    state: CheckState
    reasons: tuple[str, ...] = ()


def check_plugins() -> list[PluginCheck]:
    """Hold each rule and plugin of the user's against its examples; raises UsageError if there is none."""
    checks = [*_check_rules(), *_check_installed()]
    if not checks:
        raise UsageError.of("plugin_check.none")
    return checks


def _check_rules() -> Iterator[PluginCheck]:
    for kind, check in (("layers", _check_layers), ("models", _check_family), ("pitfalls", _check_pitfalls)):
        for path in user_mappings(kind):
            put_first(path.parents[2])  # classes of the examples are often the project's own
            try:
                yield from check(path)
            except AlignError as error:
                yield PluginCheck(kind, path.stem, str(path), "failed", (str(error),))
    paths = {*user_mappings("log_formats")}
    for name, plugin in log_formats().items() if paths else ():
        if getattr(plugin, "path", None) in paths:
            yield _judged("log_formats", name, str(cast("Any", plugin).path), _log_faults, plugin)


def _judged(kind: str, name: str, origin: str, find_faults: Callable[[Any], list[str]], subject: Any) -> PluginCheck:
    """The outcome of one check; what the user's code raises is a fault of it."""
    try:
        faults = find_faults(subject)
    except ImportError as error:
        return PluginCheck(kind, name, origin, "not tried", (say("plugin_check.needs", name=error.name or str(error)),))
    except (AlignError, *UNFIT_PLUGIN) as error:
        faults = [f"{type(error).__name__}: {error}"]
    return PluginCheck(kind, name, origin, "failed" if faults else "passed", tuple(faults))


# Layer rules: each example is claimed by its rule, and its parameters are those that the rule tells of.


def _check_layers(path: Path) -> Iterator[PluginCheck]:
    for rule in read_layer_rules(path):
        yield _judged("layers", rule.id, str(path), layer_faults, rule)


def layer_faults(rule: LayerRule) -> list[str]:
    """What the examples of a layer rule show to be wrong in it, each a sentence; raises ImportError for a framework."""
    faults = [] if rule.hits and rule.misses else [say("plugin_check.no_examples")]
    for hit in rule.hits:
        layers = {family: build_example(expression) for family, expression in hit.items()}
        for family, layer in layers.items():
            claim = rule_for(_classes_of(layer))
            if claim is None or (claim[0].id, claim[1]) != (rule.id, family):
                faults.append(say("plugin_check.not_claimed", example=hit[family]))
        if not faults and "torch" in layers:
            faults += _role_faults(rule, hit, layers)
    claimed = (
        miss for miss in rule.misses if (claim := rule_for(_classes_of(build_example(miss)))) and claim[0].id == rule.id
    )
    return faults + [say("plugin_check.claimed", example=miss) for miss in claimed]


def _role_faults(rule: LayerRule, hit: dict[str, str], layers: dict[str, Any]) -> list[str]:
    """Roles that an example of MindSpore lacks or has too many of, or in another shape than torch's."""
    faults = []
    torch = rule.families["torch"]
    expected, _ = _roles(rule, "torch", layers["torch"])
    for family in sorted(layers.keys() - {"torch"}):
        target = rule.families[cast("FamilyName", family)]
        roles, others = _roles(rule, cast("FamilyName", family), layers[family])
        missing = expected.keys() - roles.keys() - target.dropped.keys()
        more = roles.keys() - expected.keys() - {*target.always, *target.may_lack, *torch.fill, *torch.dropped}
        unlike = {role for role in roles.keys() & expected.keys() if roles[role] != expected[role]}
        if wrong := sorted(missing | more | unlike | others):
            faults.append(say("plugin_check.other_parameters", example=hit[family], names=wrong))
    return faults


def _roles(rule: LayerRule, family: FamilyName, layer: Any) -> tuple[Roles, set[str]]:
    """The shapes of a layer's parameters by role, without the axes that the rule inserts, and names of no role."""
    form = rule.families[family]
    names = {name: role for role, name in form.parameters.items()}
    roles, others = {}, set()
    for parameter in _reader_of(layer).read_parameters(layer, "layer").parameters:
        place = f"{parameter.module}.{parameter.attribute}".strip(".")
        role = names.get(place, "")
        axis = form.insert_axis.get(role)
        if role:
            roles[role] = tuple(size for at, size in enumerate(parameter.shape) if at != axis)
        elif not parameter.module:
            others.add(place)
    return roles, others


def _reader_of(layer: Any) -> Any:
    for reader in model_readers().values():
        if reader.owns(layer) or (isinstance(reader, SettingsReader) and reader.is_optimizer(layer)):
            return reader
    raise TypeError(say("plugin_check.no_layer", name=type(layer).__qualname__))


def _classes_of(layer: Any) -> tuple[str, ...]:
    classes: tuple[str, ...] = _reader_of(layer).read_parameters(layer, "layer").modules[0].classes
    return classes


def build_example(expression: str) -> Any:
    """The object that names, calls and literals make: `torch.nn.Linear(3, 2)`; raises ValueError for anything else.

    >>> build_example("fractions.Fraction(1, denominator=2)")
    Fraction(1, 2)
    """
    return _value(ast.parse(expression, mode="eval").body)


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Call):
        named = {keyword.arg: _value(keyword.value) for keyword in node.keywords if keyword.arg is not None}
        return _value(node.func)(*map(_value, node.args), **named)
    if isinstance(node, (ast.Name, ast.Attribute)):
        return resolve_name(ast.unparse(node))
    if isinstance(node, (ast.List, ast.Tuple)):
        values = list(map(_value, node.elts))
        return values if isinstance(node, ast.List) else tuple(values)
    return ast.literal_eval(node)


# Families, pitfalls, log formats: as their examples say.


def _check_family(path: Path) -> Iterator[PluginCheck]:
    yield _judged("models", path.stem, str(path), family_faults, read_family(path.stem))


def family_faults(family: ModelFamily) -> list[str]:
    """Examples of a family that do not lead there and back, and paths of other models that it claims."""

    def leads(path: str, other: str, *, backwards: bool) -> bool:
        places = (family.place(name, backwards=backwards) for name in (path, f"{path}.weight"))
        place = next((place for place in places if place), None)
        return place is not None and other in place.paths

    faults = [] if family.hits and family.misses else [say("plugin_check.no_examples")]
    for torch, mindspore in family.hits:
        if not (leads(torch, mindspore, backwards=False) and leads(mindspore, torch, backwards=True)):
            faults.append(say("plugin_check.no_way", torch=torch, mindspore=mindspore))
    claimed = (path for path in family.misses if family.place(path, backwards=False))
    return faults + [say("plugin_check.claimed", example=path) for path in claimed]


def _check_pitfalls(path: Path) -> Iterator[PluginCheck]:
    rules, faults = read_pitfalls(path)
    if faults:
        yield PluginCheck("pitfalls", path.stem, str(path), "failed", tuple(faults))
    for rule in rules:
        yield _judged("pitfalls", rule.id, str(path), pitfall_faults, rule)


def pitfall_faults(rule: Pitfall) -> list[str]:
    """Pairs of layers whose settings, read from the live layers, the rule does not tell apart as its examples say."""
    faults = []
    for differ, pairs in ((True, rule.examples.differ), (False, rule.examples.agree)):
        for reference, candidate in pairs:
            compared = compare_settings([LayerPair(_settings(reference), _settings(candidate))], [rule])
            if compared.unread or bool(compared.findings) != differ:
                key = "plugin_check.not_differ" if differ else "plugin_check.not_agree"
                faults.append(say(key, reference=reference, candidate=candidate))
    return faults


def _settings(expression: str) -> LayerSettings:
    if _OPTIMIZED in expression:
        raise ImportError(name=_OPTIMIZED)
    layer = build_example(expression)
    settings: list[LayerSettings] = _reader_of(layer).read_settings(layer)
    return settings[0]


def _log_faults(plugin: LogFormat) -> list[str]:
    """The sample is recognised by this format alone, and gives losses: those of `points`, where the format has some."""
    names = [name for name, other in log_formats().items() if other.recognizes(LogSource("sample", plugin.sample))]
    if names != [plugin.name]:
        return [say("plugin_check.recognised", names=names)]
    curve = place_on_axis(plugin.read(LogSource("sample", plugin.sample)))
    points = [*zip(curve.steps.tolist(), curve.values.tolist(), strict=True)]
    expected = [(step, loss) for step, loss in getattr(plugin, "points", points)]
    return [] if points == expected else [say("plugin_check.points", points=str(points))]


# Plugins of installed packages.


def _check_installed() -> Iterator[PluginCheck]:
    plugin_states()  # all kinds are loaded, so that those that cannot be are known
    for kind, folder in PACKAGES.items():
        for entry in installed_plugins(folder):
            if entry.plugin is not None:
                faults = {"formats": _format_faults, "losslogs": _log_faults}.get(kind, lambda _: [])
                yield _judged(kind, entry.plugin.name, entry.package, cast("Any", faults), entry.plugin)
    for entry in refused_plugins():
        yield PluginCheck(entry.group.partition(".")[2], entry.entry, entry.package, "failed", (entry.fault,))


def _format_faults(plugin: Any) -> list[str]:
    """A format that writes reads back what it wrote; one that does not says so before it is asked to."""
    if not isinstance(plugin, CheckpointFormat):
        return []
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensor = StoredTensor("layer.weight", value.shape, "float32", lambda: value)
    faults = [say("plugin_check.suffix", suffix=one) for one in plugin.suffixes if one != f".{one.lower().lstrip('.')}"]
    if plugin.problems([tensor], {}):
        return faults
    stream = io.BytesIO()
    plugin.write(stream, [tensor], {})
    with TemporaryDirectory(prefix="align-") as folder:
        path = Path(folder, f"file{plugin.suffixes[0]}")
        path.write_bytes(stream.getvalue())
        checkpoint = open_checkpoint(path)
        read = {name: other.load().tobytes() for name, other in checkpoint.tensors.items()}
    same = (checkpoint.format, read) == (plugin.name, {"layer.weight": value.tobytes()})
    return faults if same else [*faults, say("plugin_check.not_read_back", format=checkpoint.format, names=[*read])]
