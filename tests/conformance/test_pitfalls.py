"""Every pitfall is tried on the real layers: pairs that it calls different compute different numbers, others do not."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from real_layers import build, distance, observe, settings

from align.lint.compare_settings import LayerPair, compare_settings
from align.rules.pitfalls import is_of, pitfalls

if TYPE_CHECKING:
    from align.rules.pitfalls import Pitfall

pytestmark = pytest.mark.frameworks

RULES = {rule.id: rule for rule in pitfalls()}
CLASSES = sorted({name for rule in RULES.values() for form in rule.forms for name in form.classes})
RELATIVE = {"zeros": 0.05, "fresh": 0.05, "spread": 0.15}
PRECISION = 1e-5
AssertEach = Callable[[Callable[..., None], Collection[Any]], None]


def outcomes(rule: Pitfall) -> list[tuple[str, tuple[str, str]]]:
    """The pairs of all examples of a rule, and what they are examples of."""
    return [("differ", pair) for pair in rule.examples.differ] + [("agree", pair) for pair in rule.examples.agree]


def unrun(rule: Pitfall, layers: Collection[str]) -> list[str]:
    return sorted({layer for layer in layers if is_of(layer, rule.examples.unrun)})


RUN = {
    rule.id: run
    for rule in RULES.values()
    if (run := [(outcome, pair) for outcome, pair in outcomes(rule) if not unrun(rule, pair)])
}
UNRUN = {
    rule.id: layers
    for rule in RULES.values()
    if (layers := unrun(rule, [layer for _, pair in outcomes(rule) for layer in pair]))
}

every_rule = pytest.mark.parametrize("rule_id", RULES)


@every_rule
def test_the_settings_of_live_layers_are_read_as_the_examples_say(rule_id: str, assert_each: AssertEach) -> None:
    rule = RULES[rule_id]

    def are_read(outcome: str, pair: tuple[str, str]) -> None:
        compared = compare_settings([LayerPair(settings(pair[0]), settings(pair[1]))], [rule])
        assert compared.unread == 0
        assert [finding.rule for finding in compared.findings] == ([rule_id] if outcome == "differ" else [])

    assert_each(are_read, outcomes(rule))


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("rule_id", RUN)
def test_what_a_rule_calls_different_computes_different_numbers_and_what_it_calls_equal_the_same(
    rule_id: str, assert_each: AssertEach
) -> None:
    examples = RULES[rule_id].examples
    limit = RELATIVE.get(examples.judge, PRECISION)

    def computes(outcome: str, pair: tuple[str, str]) -> None:
        mine, theirs = observe(build(pair[0]), build(pair[1]), examples.inputs, examples.judge)
        assert np.isfinite(mine).all()
        assert (distance(mine, theirs) > limit) == (outcome == "differ")

    assert_each(computes, RUN[rule_id])


@pytest.mark.parametrize("rule_id", [rule.id for rule in RULES.values() if rule.training_only])
def test_what_is_said_to_show_in_training_only_does_not_show_in_evaluation_mode(
    rule_id: str, assert_each: AssertEach
) -> None:
    examples = RULES[rule_id].examples

    def shows_nothing(_: str, pair: tuple[str, str]) -> None:
        mine, theirs = observe(build(pair[0]), build(pair[1]), examples.inputs, "output")
        assert distance(mine, theirs) < PRECISION

    assert_each(shows_nothing, RUN[rule_id])


@pytest.mark.parametrize("rule_id", UNRUN)
def test_what_is_marked_unrun_has_no_kernel_here(rule_id: str, assert_each: AssertEach) -> None:
    examples = RULES[rule_id].examples

    def has_no_kernel(layer: str) -> None:
        with pytest.raises((RuntimeError, TypeError, ValueError)):
            observe(build(layer), build(layer), examples.inputs, examples.judge)

    assert_each(has_no_kernel, UNRUN[rule_id])


@every_rule
def test_what_a_finding_says_to_write_ends_it(rule_id: str, assert_each: AssertEach) -> None:
    """Where it is an argument: what is to be written instead of a layer, nobody can evaluate."""
    rule = RULES[rule_id]

    def ends(reference: str, candidate: str) -> None:
        form = rule.form_of(settings(candidate).classes)
        (finding,) = compare_settings([LayerPair(settings(reference), settings(candidate))], [rule]).findings
        if form is not None and not finding.arguments:
            assert finding.change == form.instead
            return
        _, _, argument = finding.change.partition("(..., ")
        mended = settings(with_argument(candidate, argument.removesuffix(")")))
        assert compare_settings([LayerPair(settings(reference), mended)], [rule]).findings == ()

    assert_each(ends, rule.examples.differ)


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


@every_rule
def test_each_form_of_a_rule_is_seen_in_its_examples(rule_id: str) -> None:
    rule = RULES[rule_id]
    layers = {layer for _, pair in outcomes(rule) for layer in pair}
    seen = [rule.form_of(settings(layer).classes) for layer in layers]
    assert [form for form in rule.forms if form not in seen] == []


def test_no_two_rules_read_one_setting_of_a_class(assert_each: AssertEach) -> None:
    def has_one_rule_each(name: str) -> None:
        forms = [(form.reads, rule.id) for rule in RULES.values() if (form := rule.form_of((name,))) and form.reads]
        assert len({reads for reads, _ in forms}) == len(forms), forms

    assert_each(has_one_rule_each, CLASSES)


def test_each_class_exists_under_its_public_name(assert_each: AssertEach) -> None:
    import importlib

    def exists(name: str) -> None:
        module, _, attribute = name.rpartition(".")
        assert isinstance(getattr(importlib.import_module(module), attribute), type)

    assert_each(exists, CLASSES)


def test_there_are_rules_over_all_kinds_of_layers_and_most_are_run() -> None:
    topics = {rule.topic for rule in RULES.values()}
    assert topics >= {
        "activations", "attention", "convolution", "dropout", "embedding", "initialisers", "interpolation", "losses",
        "norms", "optimizers", "pooling", "recurrent", "softmax",
    }  # fmt: skip
    assert len(RULES) >= 60
    assert sum(rule.unrun for rule in RULES.values()) < len(RULES) / 10
