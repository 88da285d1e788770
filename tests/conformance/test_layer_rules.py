"""Every layer rule is held against the real layers: names, roles, shapes, children, classes, and what a file tells."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest

from align.core.mappings import FileForm, LayerRule, layer_rules, rule_for
from align.core.registry import model_readers

pytestmark = pytest.mark.frameworks

RULES = {rule.id: rule for rule in layer_rules()}
HITS = [(rule.id, number) for rule in layer_rules() for number in range(len(rule.hits))]
MISSES = [(rule.id, expression) for rule in layer_rules() for expression in rule.misses]
CLASSES = [
    (rule.id, family, name)
    for rule in layer_rules()
    for family in rule.families
    for name in rule.families[family].classes
]

Shapes = dict[str, tuple[int, ...]]


@pytest.mark.parametrize(("rule_id", "number"), HITS)
def test_each_hit_is_claimed_by_its_rule_in_its_family(rule_id: str, number: int) -> None:
    for family, expression in RULES[rule_id].hits[number].items():
        claim = rule_for(classes_of(build(expression)))
        assert claim is not None, expression
        assert (claim[0].id, claim[1]) == (rule_id, family), expression


@pytest.mark.parametrize(("rule_id", "number"), HITS)
def test_torch_names_follow_from_the_rules_to_exactly_the_ports_names_and_shapes(rule_id: str, number: int) -> None:
    hit = RULES[rule_id].hits[number]
    torch_layer = build(hit["torch"]) if "torch" in hit else None
    for family in sorted(hit.keys() & {"nn", "mint"}):
        assert torch_layer is not None
        assert translated(torch_layer, family) == parameter_shapes(build(hit[family])), hit


@pytest.mark.parametrize("rule_id", RULES)
def test_each_parameter_that_a_rule_names_is_seen_in_one_of_its_hits(rule_id: str) -> None:
    rule = RULES[rule_id]
    for family, layer_family in rule.families.items():
        seen = {name for hit in rule.hits if family in hit for name in parameter_shapes(build(hit[family]))}
        named = {name for name in layer_family.parameters.values() if not _number_above_one(name)}
        assert named <= seen, family


@pytest.mark.parametrize(("rule_id", "number"), HITS)
def test_torch_layers_have_no_parameter_beyond_their_rule(rule_id: str, number: int) -> None:
    rule = RULES[rule_id]
    own = [name for name in parameter_shapes(build(rule.hits[number]["torch"])) if "." not in name]
    assert set(own) <= set(rule.families["torch"].parameters.values())


@pytest.mark.parametrize(("rule_id", "expression"), MISSES)
def test_a_miss_is_not_claimed_by_the_rule(rule_id: str, expression: str) -> None:
    claim = rule_for(classes_of(build(expression)))
    assert claim is None or claim[0].id != rule_id


@pytest.mark.parametrize(("rule_id", "family", "name"), CLASSES)
def test_each_class_exists_under_its_public_name(rule_id: str, family: str, name: str) -> None:
    import mindspore
    import torch

    assert name.startswith("torch.nn." if family == "torch" else "mindspore."), rule_id
    assert issubclass(resolve(name), torch.nn.Module if family == "torch" else mindspore.nn.Cell)


def test_no_class_is_claimed_by_two_rules_or_two_families() -> None:
    claims: dict[type, set[tuple[str, str]]] = {}
    for rule_id, family, name in CLASSES:
        claims.setdefault(resolve(name), set()).add((rule_id, family))
    assert {cls: claim for cls, claim in claims.items() if len(claim) > 1} == {}


@pytest.mark.parametrize(("rule_id", "number"), [case for case in HITS if RULES[case[0]].files])
def test_a_torch_hit_fits_a_file_form_or_is_beyond_what_a_file_tells(rule_id: str, number: int) -> None:
    rule = RULES[rule_id]
    shapes = {n: s for n, s in parameter_shapes(build(rule.hits[number]["torch"])).items() if "." not in n}
    fitting = {other.id for other in RULES.values() if any(fits(form, shapes) for form in other.files)}
    statistics = {"running_mean", "running_var"} <= shapes.keys()
    assert fitting == {"batch-norm"} if statistics else rule_id in fitting


@pytest.mark.parametrize(
    ("expression", "deciding"),
    [
        ("torch.nn.Linear(3, 4)", {"linear"}),
        ("torch.nn.Linear(3, 4, bias=False)", {"linear", "embedding"}),
        ("torch.nn.Embedding(3, 4)", {"linear", "embedding"}),
        ("torch.nn.Conv2d(3, 4, 5)", {"conv"}),
        ("torch.nn.Conv3d(3, 4, 5)", {"conv"}),
        ("torch.nn.Conv1d(3, 4, 5)", {"conv-1d", "bilinear"}),
        ("torch.nn.Bilinear(3, 4, 5)", {"conv-1d", "bilinear"}),
        ("torch.nn.ConvTranspose2d(3, 4, 5)", {"conv"}),
        ("torch.nn.BatchNorm2d(4)", {"batch-norm"}),
        ("torch.nn.LayerNorm(4)", {"layer-norm", "group-norm", "instance-norm"}),
        ("torch.nn.RMSNorm(4)", {"layer-norm", "rms-norm", "prelu"}),
        ("torch.nn.LSTM(3, 4, num_layers=3, bidirectional=True)", {"lstm"}),
        ("torch.nn.GRUCell(3, 4)", {"lstm-cell"}),
        ("torch.nn.MultiheadAttention(4, 2)", {"multi-head-attention"}),
    ],
)
def test_a_file_leaves_open_exactly_what_it_cannot_decide(expression: str, deciding: set[str]) -> None:
    shapes = {n: s for n, s in parameter_shapes(build(expression)).items() if "." not in n}
    assert {rule.id for rule in RULES.values() if any(fits(form, shapes) for form in rule.files)} == deciding


def build(expression: str) -> Any:
    import mindspore
    import torch

    return eval(expression, {"torch": torch, "mindspore": mindspore})


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


def fits(form: FileForm, shapes: Shapes) -> bool:
    named = set(form.attributes)
    return (
        named <= shapes.keys() <= named | set(form.optional)
        and all(len(shapes[name]) == ndim for name, ndim in form.ndim.items() if name in shapes)
        and len({shapes[name] for name in form.same_shape}) <= 1
    )


def _number_above_one(name: str) -> bool:
    number = re.search(r"_l(\d+)", name)
    return number is not None and int(number[1]) > 1
