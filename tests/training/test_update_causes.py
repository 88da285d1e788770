"""What no setting of the two frameworks gives, planted by computing it; and what is said of several parameters."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.core.documents import to_json_data
from align.core.parameters import EPSILON, numpy_dtype
from align.core.protocols import LayerSettings, LearningRates, ParameterGroup
from align.training.apply_rule import GradientStep, Memory, apply_rule, gradient_steps, read_rule
from align.training.compare_updates import explain_updates
from align.training.step_result import SteppedParameter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.core.parameters import Array
    from align.training.apply_rule import UpdateRule

SGD = {"momentum": 0.9, "dampening": 0, "nesterov": False, "maximize": False}
ADAM = {"betas": (0.9, 0.999), "eps": 1e-8, "amsgrad": False, "maximize": False}


def group(name: str, rates: Sequence[float] = (0.1,), **settings: Any) -> ParameterGroup:
    by = "a schedule" if len(rates) > 1 else ""
    classes = (f"torch.optim.{name}",)
    return ParameterGroup(LayerSettings("", classes, settings), ("w",), 1, LearningRates(tuple(rates), by=by))


def stepped(rule: UpdateRule, before: Array, gradients: Sequence[GradientStep]) -> list[Array]:
    """The values after each step as their dtype keeps them."""
    memory, after = Memory(), [before]
    for gradient in gradients:
        after.append(apply_rule(rule, after[-1], [gradient], memory)[0].astype(before.dtype))
    return after[1:]


def sides(
    name: str,
    own: ParameterGroup,
    changes: dict[str, Any],
    *,
    steps: int = 4,
    size: int = 64,
    norm: float | None = None,
) -> SteppedParameter:
    """A parameter that one side steps by the rule of a group and the other by that with changes."""
    generator = np.random.default_rng(len(name))
    before = generator.standard_normal(size).astype(np.float32)
    drawn = [(generator.standard_normal(size) * (1 + step)).astype(np.float32) for step in range(steps)]
    gradients = gradient_steps(drawn, None if norm is None else [norm * (step + 1) ** 2 for step in range(steps)])
    rule = read_rule(own)
    assert rule is not None
    both = (stepped(one, before, gradients) for one in (rule, replace(rule, **changes)))
    return SteppedParameter(name, f"port.{name}", before, drawn, *both, own, None)


def codes(parameter: SteppedParameter) -> list[tuple[str, ...]]:
    return [cause.codes for cause in explain_updates([parameter]).parameters[0].causes]


DECAYED = group("AdamW", **ADAM, weight_decay=0.1)
PLANTED = [
    ("decay-without-rate", DECAYED, {"decay_form": "plain"}),
    ("decay-after-step", DECAYED, {"decay_form": "after"}),
    ("decay-decoupled", group("Adam", **ADAM, weight_decay=0.1), {"decay_form": "rate"}),
    ("rate-in-momentum", group("SGD", (0.1, 0.2, 0.3, 0.1), **SGD), {"rate_in_momentum": True}),
    ("first-dampening", group("SGD", **{**SGD, "dampening": 0.5}), {"dampens_first": True}),
    ("clip-value", group("SGD", **SGD), {"clip_value": 0.75}),
    ("clip-norm", group("SGD", **SGD), {"clip_norm": 5.0}),
    ("steps-skipped", group("SGD", **SGD), {"skipped": (2,)}),
    ("moment-start", group("Adagrad", eps=1e-10, lr_decay=0, initial_accumulator_value=0), {"second_start": 0.1}),
    ("rate-decay", group("Adagrad", eps=1e-10, lr_decay=0, initial_accumulator_value=0), {"rate_decay": 0.5}),
    ("epsilon", group("Adagrad", eps=1e-10, lr_decay=0, initial_accumulator_value=0), {"epsilon": 0.5}),
    ("beta2", group("RMSprop", alpha=0.99, eps=1e-8, momentum=0, centered=False), {"beta2": 0.9}),
    ("no-bias-correction", group("Adamax", betas=(0.9, 0.999), eps=1e-8), {"corrected": False}),
    ("step-count-held", group("Adam", **ADAM), {"count_held": True}),
]


@pytest.mark.parametrize(("code", "own", "changes"), PLANTED)
def test_a_computed_deviation_is_found_and_its_clean_twin_is_the_same(
    code: str, own: ParameterGroup, changes: dict[str, Any]
) -> None:
    assert explain_updates([sides("w", own, {})]).same
    result = explain_updates([sides("w", own, changes)])
    alternatives = {one[0].code: one[0] for one in result.findings[0].alternatives if len(one) == 1}
    assert code in alternatives
    (name, value), *_ = changes.items()
    found = alternatives[code]
    assert found.setting == name
    assert found.candidate == (pytest.approx(value, rel=1e-2) if isinstance(value, float) else value)


def test_clipping_by_the_norm_of_all_gradients_is_told_from_clipping_each() -> None:
    own = group("SGD", **SGD)
    alone = [sides(name, own, {}, size=size) for name, size in (("a", 64), ("bb", 256))]
    norms = np.sqrt(
        sum(np.array([float(np.sum(one.astype(np.float64) ** 2)) for one in each.gradients]) for each in alone)
    )
    rule = read_rule(own)
    assert rule is not None
    clipped = []
    for each in alone:
        gradients = gradient_steps(each.gradients, list(norms))
        clipped.append(
            replace(each, candidate_after=stepped(replace(rule, clip_global_norm=20.0), each.before, gradients))
        )
    (finding,) = explain_updates(clipped).findings
    assert finding.references == ("a", "bb")
    assert [(one.code, one.candidate) for one in finding.alternatives[0]] == [("clip-global-norm", 20.0)]


def test_one_step_cannot_tell_a_rate_from_a_scale_and_two_tell_momentum() -> None:
    decayed = group("SGD", **SGD, weight_decay=0.01)
    once = explain_updates([sides("w", group("SGD", **SGD), {"rates": (0.2,)}, steps=1)]).parameters[0]
    assert [one.codes for one in once.causes] == [("learning-rate",), ("gradient-scale",)]
    assert once.steps_to_tell is None
    assert codes(sides("w", decayed, {"rates": (0.2,)})) == [("learning-rate",)]
    nesterov = sides("w", group("SGD", **SGD), {"nesterov": True}, steps=1)
    first = explain_updates([nesterov]).parameters[0]
    assert {("nesterov",), ("learning-rate",)} <= {one.codes for one in first.causes}
    assert first.steps_to_tell == 2
    assert codes(sides("w", group("SGD", **SGD), {"nesterov": True}, steps=2)) == [("nesterov",)]


def test_what_the_settings_say_comes_first() -> None:
    own, others = group("SGD", **SGD), group("SGD", (0.2,), **SGD)
    both = sides("w", own, {"rates": (0.2,)}, steps=1)
    scaled = group("SGD", **{**SGD, "maximize": False})
    confirmed = explain_updates([replace(both, candidate_group=others)])
    assert [one.confirmed for one in confirmed.parameters[0].causes] == [True, False]
    assert confirmed.findings[0].alternatives[0][0].code == "learning-rate"
    unconfirmed = explain_updates([replace(both, candidate_group=scaled)])
    assert not any(one.confirmed for one in unconfirmed.parameters[0].causes)
    assert unconfirmed.parameters[0].candidate_known is False


def test_parameters_with_one_cause_are_one_finding() -> None:
    decayed = group("AdamW", **ADAM, weight_decay=0.01)
    plain = replace(
        decayed, settings=replace(decayed.settings, values={**decayed.settings.values, "weight_decay": 0.0})
    )
    odd = [sides(name, plain, {"weight_decay": 0.01, "decay_form": "rate"}) for name in ("a.bias", "norm.weight")]
    clean = [sides("fc.weight.long", decayed, {})]
    slower = [sides("head", decayed, {"rates": (0.05,)})]
    result = explain_updates([odd[0], *clean, *slower, odd[1]])
    assert [one.state for one in result.parameters] == ["explained", "same", "explained", "explained"]
    first, second = result.findings
    assert first.references == ("a.bias", "norm.weight")
    assert first.candidates == ("port.a.bias", "port.norm.weight")
    assert first.alternatives[0][0].candidate == 0.01
    assert [one.code for one in second.alternatives[0]] == ["learning-rate"]


def test_without_a_rule_a_sign_a_factor_and_a_still_side_are_told() -> None:
    both = replace(sides("w", group("SGD", **SGD), {}), reference_group=None)
    before, reference = both.before, both.reference_after
    moved = [after - before for after in reference]

    def told(factor: float) -> Any:
        after = [(before + np.float32(factor) * one).astype(np.float32) for one in moved]
        return explain_updates([replace(both, candidate_after=after)]).parameters[0]

    assert told(1.0).state == "same"
    assert [one.codes for one in told(-1.0).causes] == [("sign",)]
    assert [(one.code, one.candidate) for one in told(0.5).causes[0].changes] == [("learning-rate", 0.5)]
    assert [one.codes for one in told(0.0).causes] == [("did-not-move",)]
    reverse = explain_updates([replace(both, reference_after=[before] * 4)]).parameters[0]
    assert [one.codes for one in reverse.causes] == [("reference-did-not-move",)]


def test_a_reference_that_its_settings_do_not_reproduce_is_said_to_be_unknown() -> None:
    both = sides("w", group("SGD", **SGD), {"momentum": 0.5})
    wrong = replace(both, reference_group=group("SGD", **{**SGD, "momentum": 0.3}))
    row = explain_updates([wrong]).parameters[0]
    assert (row.state, row.reference_known, row.causes) == ("rule unknown", False, ())
    assert explain_updates([both]).parameters[0].reference_known is True


def test_what_nothing_explains_is_left_unexplained() -> None:
    both = sides("w", group("SGD", **SGD), {})
    generator = np.random.default_rng(9)
    odd = [after + generator.standard_normal(64).astype(np.float32) for after in both.reference_after]
    result = explain_updates([replace(both, candidate_after=odd)])
    assert (result.parameters[0].state, result.parameters[0].first_step) == ("unexplained", 0)
    assert result.findings[0].alternatives == ()


def test_the_first_step_that_differs_is_counted_from_0() -> None:
    dampened = explain_updates([sides("w", group("SGD", **SGD), {"dampening": 0.5})]).parameters[0]
    assert dampened.first_step == 1
    assert dampened.difference > 1


def test_numbers_that_are_none_on_one_side_are_a_difference_and_on_both_are_not() -> None:
    both = sides("w", group("SGD", **SGD), {})
    broken = [after.copy() for after in both.reference_after]
    broken[-1][3] = np.nan
    assert codes(replace(both, candidate_after=broken)) == [("not-finite",)]
    assert explain_updates([replace(both, reference_after=broken, candidate_after=broken)]).same


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2, 3, 4)])
def test_parameters_of_any_shape_are_taken(shape: tuple[int, ...]) -> None:
    before, gradient = np.ones(shape, np.float32), np.full(shape, 0.5, np.float32)
    same = [(before - np.float32(0.1) * gradient).astype(np.float32)]
    wider = [(before - np.float32(0.2) * gradient).astype(np.float32)]
    own = group("SGD", **{**SGD, "momentum": 0})
    clean = SteppedParameter("w", "w", before, [gradient], same, same, own, own)
    assert explain_updates([clean]).same
    result = explain_updates([replace(clean, candidate_after=wider)])
    assert result.same == (before.size == 0)


def test_a_mixed_pair_is_judged_in_the_coarser_dtype() -> None:
    both = sides("w", group("SGD", **SGD), {})
    halves = [after.astype(np.float16) for after in both.reference_after]
    assert explain_updates([replace(both, candidate_after=halves)]).same
    doubled = sides("w", group("SGD", **SGD), {"rates": (0.2,)}).candidate_after
    assert not explain_updates([replace(both, candidate_after=[one.astype(np.float16) for one in doubled])]).same


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_values_of_any_precision_are_judged_by_their_own_rounding(dtype: str) -> None:
    own = group("SGD", **SGD)
    clean = sides("w", own, {})
    before, gradients = clean.before.astype(numpy_dtype(dtype)), gradient_steps(clean.gradients)
    rule = read_rule(own)
    assert rule is not None
    rates = (0.1, 0.1 * (1 + EPSILON[dtype]), 0.2)
    mine, near, far = (stepped(replace(rule, rates=(rate,)), before, gradients) for rate in rates)
    assert any(np.any(one != other) for one, other in zip(mine, near, strict=True))
    both = replace(clean, before=before, reference_after=mine)
    assert explain_updates([replace(both, candidate_after=near)]).same
    assert codes(replace(both, candidate_after=far))[0] == ("learning-rate",)


def test_another_method_is_one_change() -> None:
    own, other = group("SGD", **SGD), group("Adam", (0.01,), **ADAM)
    rule = read_rule(other)
    assert rule is not None
    both = sides("w", own, {})
    after = stepped(rule, both.before, gradient_steps(both.gradients))
    (finding,) = explain_updates([replace(both, candidate_after=after, candidate_group=other)]).findings
    changes = [(one.code, one.reference, one.candidate) for one in finding.alternatives[0]]
    assert changes == [("method", "sgd", "adam"), ("learning-rate", 0.1, 0.01)]
    assert finding.confirmed


def test_the_result_is_plain_data() -> None:
    result = explain_updates([sides("w", group("SGD", **SGD), {"nesterov": True})])
    told = json.loads(json.dumps(to_json_data(result), allow_nan=False))
    assert told["parameters"][0]["reference"] == "w"
    broken = replace(sides("w", group("SGD", **SGD), {}), candidate_after=[np.full(64, np.nan, np.float32)] * 4)
    told = json.loads(json.dumps(to_json_data(explain_updates([broken])), allow_nan=False))
    assert told["findings"][0]["alternatives"][0][0]["code"] == "not-finite"


def test_no_parameter_is_nothing_to_find() -> None:
    assert explain_updates([]).same
