"""Every pitfall is tried on the real layers: pairs that it calls different compute different numbers, others do not."""

from __future__ import annotations

import ast
import inspect

import numpy as np
import pytest
from real_layers import build, distance, observe, settings_of

from align.lint.compare_settings import LayerPair, compare_settings
from align.rules.pitfalls import is_of, pitfalls

pytestmark = pytest.mark.frameworks

RULES = {rule.id: rule for rule in pitfalls()}
PAIRS = [
    (rule.id, outcome, pair)
    for rule in RULES.values()
    for outcome, pairs in (("differ", rule.examples.differ), ("agree", rule.examples.agree))
    for pair in pairs
]
RUN = [
    (rule, outcome, pair)
    for rule, outcome, pair in PAIRS
    if not any(is_of(x, RULES[rule].examples.unrun) for x in pair)
]
UNRUN = [(rule, layer) for rule, _, pair in PAIRS for layer in pair if is_of(layer, RULES[rule].examples.unrun)]
CLASSES = sorted({name for rule in RULES.values() for form in rule.forms for name in form.classes})
RELATIVE = {"zeros": 0.05, "fresh": 0.05, "spread": 0.15}
PRECISION = 1e-5


@pytest.mark.parametrize(("rule_id", "outcome", "pair"), PAIRS)
def test_the_settings_of_live_layers_are_read_as_the_examples_say(
    rule_id: str, outcome: str, pair: tuple[str, str]
) -> None:
    rule = RULES[rule_id]
    reference, candidate = (settings_of(build(layer)) for layer in pair)
    compared = compare_settings([LayerPair(reference, candidate)], [rule])
    assert compared.unread == 0
    assert [finding.rule for finding in compared.findings] == ([rule_id] if outcome == "differ" else [])


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize(("rule_id", "outcome", "pair"), RUN)
def test_what_a_rule_calls_different_computes_different_numbers_and_what_it_calls_equal_the_same(
    rule_id: str, outcome: str, pair: tuple[str, str]
) -> None:
    examples = RULES[rule_id].examples
    mine, theirs = observe(build(pair[0]), build(pair[1]), examples.inputs, examples.judge)
    assert np.isfinite(mine).all()
    limit = RELATIVE.get(examples.judge, PRECISION)
    assert (distance(mine, theirs) > limit) == (outcome == "differ")


@pytest.mark.parametrize(("rule_id", "layer"), sorted(set(UNRUN)))
def test_what_is_marked_unrun_has_no_kernel_here(rule_id: str, layer: str) -> None:
    examples = RULES[rule_id].examples
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        observe(build(layer), build(layer), examples.inputs, examples.judge)


@pytest.mark.parametrize(("rule_id", "pair"), [(rule, pair) for rule, outcome, pair in PAIRS if outcome == "differ"])
def test_what_a_finding_says_to_write_ends_it(rule_id: str, pair: tuple[str, str]) -> None:
    """Where it is an argument: what is to be written instead of a layer, nobody can evaluate."""
    rule = RULES[rule_id]
    reference = settings_of(build(pair[0]))
    form = rule.form_of(settings_of(build(pair[1])).classes)
    (finding,) = compare_settings([LayerPair(reference, settings_of(build(pair[1])))], [rule]).findings
    if form is not None and not finding.arguments:
        assert finding.change == form.instead
        return
    _, _, argument = finding.change.partition("(..., ")
    mended = settings_of(build(with_argument(pair[1], argument.removesuffix(")"))))
    assert compare_settings([LayerPair(reference, mended)], [rule]).findings == ()


def with_argument(layer: str, argument: str) -> str:
    """The expression with keywords of the argument replaced or added, `betas[0]=0.5` as `betas=(0.5, 0.999)`."""
    call = ast.parse(layer, mode="eval").body
    assert isinstance(call, ast.Call)
    new = ast.parse(f"f({argument})", mode="eval").body
    assert isinstance(new, ast.Call)
    told = {one.arg for one in new.keywords}
    if told & {"p", "keep_prob"}:
        told |= {"p", "keep_prob"}
    call.keywords = [one for one in call.keywords if one.arg not in told] + new.keywords
    names = list(inspect.signature(type(build(layer)).__init__).parameters)[1:]
    by_place = list(zip(names, call.args, strict=False))
    first_told = next((n for n, (name, _) in enumerate(by_place) if name in told), len(call.args))
    rest = [ast.keyword(name, value) for name, value in by_place[first_told:] if name not in told]
    call.args, call.keywords = call.args[:first_told], [*rest, *call.keywords]
    return ast.unparse(call)


@pytest.mark.parametrize("rule_id", RULES)
def test_each_form_of_a_rule_is_seen_in_its_examples(rule_id: str) -> None:
    rule = RULES[rule_id]
    layers = {layer for pair in (*rule.examples.differ, *rule.examples.agree) for layer in pair}
    seen = [rule.form_of(settings_of(build(layer)).classes) for layer in layers]
    assert [form for form in rule.forms if form not in seen] == []


@pytest.mark.parametrize("name", CLASSES)
def test_no_two_rules_read_one_setting_of_a_class(name: str) -> None:
    forms = [(form.reads, rule.id) for rule in RULES.values() if (form := rule.form_of((name,))) and form.reads]
    assert len({reads for reads, _ in forms}) == len(forms), forms


@pytest.mark.parametrize("name", CLASSES)
def test_each_class_exists_under_its_public_name(name: str) -> None:
    import importlib

    module, _, attribute = name.rpartition(".")
    assert isinstance(getattr(importlib.import_module(module), attribute), type)


def test_there_are_rules_over_all_kinds_of_layers_and_most_are_run() -> None:
    topics = {rule.topic for rule in RULES.values()}
    assert topics >= {
        "activations", "attention", "convolution", "dropout", "embedding", "initialisers", "interpolation", "losses",
        "norms", "optimizers", "pooling", "recurrent", "softmax",
    }  # fmt: skip
    assert len(RULES) >= 60
    assert sum(rule.unrun for rule in RULES.values()) < len(RULES) / 10
