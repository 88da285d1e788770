"""Every layer rule is held against the real layers: names, roles, shapes, children, classes, and what a file tells."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection
from functools import cache
from typing import Any, Literal

import pytest

from align.core.load_code import model_readers
from align.names.infer_names import infer_names
from align.rules.layer_rules import LayerRule, layer_rules, rule_for

pytestmark = pytest.mark.frameworks

RULES = {rule.id: rule for rule in layer_rules()}
CLASSES = [
    (rule.id, family, name)
    for rule in layer_rules()
    for family in rule.families
    for name in rule.families[family].classes
]

Shapes = dict[str, tuple[int, ...]]
AssertEach = Callable[[Callable[..., None], Collection[Any]], None]

every_rule = pytest.mark.parametrize("rule_id", RULES)


@every_rule
def test_each_hit_is_claimed_by_its_rule_in_its_family(rule_id: str, assert_each: AssertEach) -> None:
    def is_claimed(family: str, expression: str) -> None:
        claim = rule_for(classes_of(build(expression)))
        assert claim is not None
        assert (claim[0].id, claim[1]) == (rule_id, family)

    assert_each(is_claimed, [layer for hit in RULES[rule_id].hits for layer in hit.items()])


@every_rule
def test_torch_names_follow_from_the_rules_to_exactly_the_ports_names_and_shapes(
    rule_id: str, assert_each: AssertEach
) -> None:
    def follow(hit: dict[str, str]) -> None:
        torch_layer = build(hit["torch"]) if "torch" in hit else None
        for family in sorted(hit.keys() & {"nn", "mint"}):
            assert torch_layer is not None
            assert translated(torch_layer, family) == parameter_shapes(build(hit[family])), family

    assert_each(follow, RULES[rule_id].hits)


@every_rule
def test_each_parameter_that_a_rule_names_is_seen_in_one_of_its_hits(rule_id: str) -> None:
    rule = RULES[rule_id]
    for family, layer_family in rule.families.items():
        seen = {name for hit in rule.hits if family in hit for name in parameter_shapes(build(hit[family]))}
        named = {name for name in layer_family.parameters.values() if not _number_above_one(name)}
        assert named <= seen, family


@every_rule
def test_torch_layers_have_no_parameter_beyond_their_rule(rule_id: str, assert_each: AssertEach) -> None:
    rule = RULES[rule_id]

    def has_no_other(hit: dict[str, str]) -> None:
        own = [name for name in parameter_shapes(build(hit["torch"])) if "." not in name]
        assert set(own) <= set(rule.families["torch"].parameters.values())

    assert_each(has_no_other, rule.hits)


@every_rule
def test_no_miss_is_claimed_by_the_rule(rule_id: str, assert_each: AssertEach) -> None:
    def is_not_claimed(expression: str) -> None:
        claim = rule_for(classes_of(build(expression)))
        assert claim is None or claim[0].id != rule_id

    assert_each(is_not_claimed, RULES[rule_id].misses)


@every_rule
def test_each_class_exists_under_its_public_name(rule_id: str, assert_each: AssertEach) -> None:
    import mindspore
    import torch

    def exists(family: str, name: str) -> None:
        assert name.startswith("torch.nn." if family == "torch" else "mindspore.")
        assert issubclass(resolve(name), torch.nn.Module if family == "torch" else mindspore.nn.Cell)

    assert_each(exists, [(family, name) for rule, family, name in CLASSES if rule == rule_id])


def test_no_class_is_claimed_by_two_rules_or_two_families() -> None:
    claims: dict[type, set[tuple[str, str]]] = {}
    for rule_id, family, name in CLASSES:
        claims.setdefault(resolve(name), set()).add((rule_id, family))
    assert {cls: claim for cls, claim in claims.items() if len(claim) > 1} == {}


@every_rule
def test_always_names_what_the_layer_has_with_any_settings_and_torchs_can_lack(
    rule_id: str, assert_each: AssertEach
) -> None:
    rule = RULES[rule_id]

    def names_what_it_has(family: str) -> None:
        target = next((layers for name, layers in rule.families.items() if name == family), None)
        hits = [hit for hit in rule.hits if family in hit]
        if target is None or not target.parameters:
            return
        roles = {name: role for role, name in target.parameters.items()}
        everywhere = set.intersection(*(set(shapes) for hit in hits for shapes in variants(hit[family])))
        of_torch = [set(shapes) for hit in rule.hits for shapes in variants(hit["torch"])]
        attributes = rule.families["torch"].parameters
        lacking = {role for role in roles.values() if any(attributes[role] not in shapes for shapes in of_torch)}
        assert set(target.always) == {roles[name] for name in everywhere & roles.keys()} & lacking

    assert_each(names_what_it_has, ("nn", "mint"))


@every_rule
def test_a_layer_that_is_the_whole_net_is_named_as_its_rule_says(rule_id: str, assert_each: AssertEach) -> None:
    rule = RULES[rule_id]

    def is_named(family: str, expression: str) -> None:
        layers = next(layers for name, layers in rule.families.items() if name == family)
        layer = build(expression)
        own = [name for name in parameter_shapes(layer) if name in layers.parameters.values()]
        roles = {name: role for role, name in layers.parameters.items()}
        alone = {layers.alone.get(roles[name], name) for name in own}
        lone = build(expression)
        found = set(lone.state_dict() if family == "torch" else [p.name for p in lone.get_parameters()])
        assert alone <= found
        assert len(found) == len(parameter_shapes(layer))

    assert_each(is_named, [layer for hit in rule.hits for layer in hit.items()])


@every_rule
def test_what_a_file_decides_is_what_the_port_has(rule_id: str, assert_each: AssertEach) -> None:
    def decides(hit: dict[str, str]) -> None:
        shapes = {f"layer.{n}": s for n, s in parameter_shapes(build(hit["torch"])).items()}
        beside = {"other.weight": (1,) * 5} if "3d" in hit["torch"] else {}
        for family in sorted(hit.keys() & {"nn", "mint"}):
            inferred = infer_names(shapes | beside, layer_rules(), family)
            assert not inferred.faults
            actual = {f"layer.{n}": s for n, s in parameter_shapes(build(hit[family])).items()}
            decided = {
                p.target: p.transform.output_shape(shapes[p.source])
                for p in inferred.name_map.pairings
                if p.source in shapes
            }
            still_open = tuple(f"{layer.prefix}." for layer in inferred.open)
            settled = {name: shape for name, shape in decided.items() if not name.startswith(still_open)}
            assert settled.items() <= actual.items()
            assert settled.keys() == actual.keys() or inferred.open

    assert_each(decides, RULES[rule_id].hits)


@pytest.mark.parametrize(
    ("expression", "family", "open_between"),
    [
        ("torch.nn.Linear(3, 4)", "nn", None),
        ("torch.nn.Linear(3, 4, bias=False)", "nn", {"linear", "embedding"}),
        ("torch.nn.Embedding(3, 4)", "nn", {"linear", "embedding"}),
        ("torch.nn.Embedding(3, 4)", "mint", None),
        ("torch.nn.Conv2d(3, 4, 5)", "nn", None),
        ("torch.nn.Conv3d(3, 4, 5)", "nn", None),
        ("torch.nn.Conv1d(3, 4, 5)", "nn", {"conv-1d, conv-transpose-1d", "bilinear"}),
        ("torch.nn.Conv1d(3, 4, 5)", "mint", None),
        ("torch.nn.ConvTranspose2d(4, 8, 3, groups=2)", "nn", None),
        ("torch.nn.BatchNorm2d(4)", "nn", None),
        ("torch.nn.LayerNorm(4)", "nn", None),
        ("torch.nn.GroupNorm(2, 4)", "nn", None),
        ("torch.nn.RMSNorm(4)", "nn", {"layer-norm", "rms-norm", "prelu"}),
        ("torch.nn.PReLU()", "nn", {"layer-norm", "rms-norm", "prelu"}),
        ("torch.nn.LSTM(3, 4, num_layers=3, bidirectional=True)", "nn", None),
        ("torch.nn.GRUCell(3, 4)", "nn", None),
        ("torch.nn.MultiheadAttention(4, 2)", "nn", None),
    ],
)
def test_a_file_leaves_open_exactly_what_it_cannot_decide(
    expression: str, family: Literal["nn", "mint"], open_between: set[str] | None
) -> None:
    shapes = {f"layer.{n}": s for n, s in parameter_shapes(build(expression)).items()}
    inferred = infer_names(shapes, layer_rules(), family)
    alternatives = [{ids for ids, _ in layer.alternatives} for layer in inferred.open]
    assert alternatives == ([open_between] if open_between else [])
    assert bool(inferred.name_map.pairings) == (open_between is None)


def build(expression: str) -> Any:
    import mindspore
    import torch

    return eval(expression, {"torch": torch, "mindspore": mindspore})


OFF = (
    "affine=False", "elementwise_affine=False", "bias=False", "has_bias=False", "track_running_stats=False",
    "use_batch_statistics=True",
)  # fmt: skip


def variants(expression: str) -> list[Shapes]:
    """Parameters of the layer as it is and with each setting that the class has and that could take some away."""
    found = [parameter_shapes(build(expression))]
    for setting in OFF:
        name, _, value = setting.partition("=")
        if name in inspect.signature(type(build(expression)).__init__).parameters:
            plain = re.sub(rf", {name}=\w+", "", expression)
            found.append(parameter_shapes(build(f"{plain[:-1]}, {name}={value})")))
    return found


def resolve(name: str) -> Any:
    import mindspore
    import torch

    root, *path = name.split(".")
    value: Any = {"torch": torch, "mindspore": mindspore}[root]
    for part in path:
        value = getattr(value, part)
    return value


def classes_of(layer: Any) -> tuple[str, ...]:
    reader = next(reader for reader in model_readers().values() if reader.owns(layer))
    return reader.read_parameters(layer, "layer").modules[0].classes


def parameter_shapes(layer: Any) -> Shapes:
    """Names and shapes as they are inside a net: some lone MindSpore layers name their parameters differently."""
    import torch

    if isinstance(layer, torch.nn.Module):
        return {name: tuple(value.shape) for name, value in layer.state_dict().items()}
    net = net_class()(layer)
    return {p.name.removeprefix("layer."): tuple(p.shape) for p in net.get_parameters()}


@cache
def net_class() -> Any:
    import mindspore

    class Net(mindspore.nn.Cell):
        def __init__(self, layer: Any) -> None:
            super().__init__()
            self.layer = layer

    return Net


def translated(layer: Any, family: str, prefix: str = "") -> Shapes:
    """What the rules make of a torch layer and all layers in it."""
    claim = rule_for(classes_of(layer))
    shapes: Shapes = {}
    children: dict[str, str] = {}
    if claim:
        target = claim[0].families[family]
        children = target.children
        shapes = own_translated(layer, claim[0], family, prefix)
    for name, child in layer.named_children():
        shapes |= translated_if_known(child, family, f"{prefix}{children.get(name, name)}.")
    return shapes


def translated_if_known(child: Any, family: str, prefix: str) -> Shapes:
    return translated(child, family, prefix) if child.state_dict() else {}


def own_translated(layer: Any, rule: LayerRule, family: str, prefix: str) -> Shapes:
    target = rule.families[family]
    roles = {attribute: role for role, attribute in rule.families["torch"].parameters.items()}
    shapes: Shapes = {}
    for attribute, shape in parameter_shapes(layer).items():
        if "." in attribute or (role := roles[attribute]) in target.dropped:
            continue
        axis = target.insert_axis.get(role)
        shapes[prefix + target.parameters[role]] = shape if axis is None else (*shape[:axis], 1, *shape[axis:])
    return shapes


def _number_above_one(name: str) -> bool:
    number = re.search(r"_l(\d+)", name)
    return number is not None and int(number[1]) > 1
