"""The rule read from the settings of a real optimizer reproduces what that optimizer does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from align.core.protocols import LayerSettings, LearningRates, ParameterGroup
from align.training.apply_rule import apply_rule, gradient_steps, observed_steps, read_rule
from align.training.explain_update import worst_excess

if TYPE_CHECKING:
    from collections.abc import Callable

TORCH = [
    "SGD([P], 0.1)",
    "SGD([P], 0.1, momentum=0.9, dampening=0.3, weight_decay=0.01)",
    "SGD([P], 0.1, momentum=0.9, nesterov=True)",
    "SGD([P], 0.1, maximize=True)",
    "Adam([P], 0.01, eps=1e-3)",
    "Adam([P], 0.01, weight_decay=0.1, amsgrad=True, betas=(0.8, 0.6))",
    "Adam([P], 0.01, weight_decay=0.1, decoupled_weight_decay=True)",
    "AdamW([P], 0.01, weight_decay=0.1)",
    "RMSprop([P], 0.01, alpha=0.8, momentum=0.5, centered=True, weight_decay=0.01)",
    "RMSprop([P], 0.01, eps=1e-2)",
    "Adagrad([P], 0.01, lr_decay=0.1, initial_accumulator_value=0.3, eps=1e-3)",
    "Adadelta([P], 0.5, rho=0.7)",
    "Adamax([P], 0.01, eps=1e-2)",
]
NN = [
    "SGD([P], 0.1, momentum=0.9, dampening=0.3, weight_decay=0.01)",
    "SGD([P], 0.1, momentum=0.9, nesterov=True, loss_scale=4.0)",
    "Momentum([P], 0.1, 0.9, weight_decay=0.01, loss_scale=2.0)",
    "Adam([P], 0.01, eps=1e-3, weight_decay=0.1)",
    "Adam([P], 0.01, use_nesterov=True)",
    "Adam([P], 0.01, use_amsgrad=True, beta2=0.6)",
    "AdamWeightDecay([P], 0.01, weight_decay=0.1, eps=1e-3)",
    "RMSProp([P], 0.01, decay=0.8, momentum=0.5)",
    "RMSProp([P], 0.01, centered=True, epsilon=1e-3)",
    "Adagrad([P], 0.3, 0.01, weight_decay=0.1)",
    "Adadelta([P], 0.5, rho=0.7)",
    "AdaMax([P], 0.01, eps=1e-2)",
]
EXPERIMENTAL = [
    "SGD([P], 0.1, momentum=0.9, dampening=0.3, weight_decay=0.01)",
    "Adam([P], 0.01, eps=1e-3, weight_decay=0.1)",
    "Adam([P], 0.01, amsgrad=True, betas=(0.9, 0.6), maximize=True)",
    "AdamW([P], 0.01, amsgrad=True, betas=(0.9, 0.6), eps=1e-3)",
    "RMSprop([P], 0.01, alpha=0.8, momentum=0.5, centered=True)",
    "Adagrad([P], 0.01, lr_decay=0.1, initial_accumulator_value=0.3, eps=1e-3)",
    "Adamax([P], 0.01, eps=1e-2)",
]
TABLE = [
    *(f"torch.optim.{one}" for one in TORCH),
    *(f"mindspore.nn.{one}" for one in NN),
    *(f"mindspore.experimental.optim.{one}" for one in EXPERIMENTAL),
]


@pytest.mark.frameworks
@pytest.mark.parametrize("text", TABLE)
def test_the_rule_of_the_settings_reproduces_five_steps(text: str, new_case: Callable, real_steps: Callable) -> None:
    case = new_case()
    real = real_steps(text, case)
    rule = read_rule(real.group)
    assert rule is not None
    seen = observed_steps([case.before, *real.after[:-1]], real.after, gradient_steps(case.gradients), "float32")
    assert worst_excess(seen, rule) <= 1
    assert worst_excess(seen, replace(rule, rates=tuple(1.01 * one for one in rule.rates))) > 1
    freely = apply_rule(rule, case.before, gradient_steps(case.gradients))
    assert abs(freely[-1] - real.after[-1]).max() < 2e-5 * abs(case.before).max()


@pytest.mark.frameworks
@pytest.mark.parametrize("text", ["torch.optim.SGD([P], 0.1, momentum=0.9)", "torch.optim.RMSprop([P], 0.1)"])
def test_rates_that_change_are_taken_step_by_step(text: str, new_case: Callable, real_steps: Callable) -> None:
    case = new_case()
    real = real_steps(text, case, (0.1, 0.2, 0.05, 0.4, 0.0))
    rule = read_rule(real.group)
    assert rule is not None
    seen = observed_steps([case.before, *real.after[:-1]], real.after, gradient_steps(case.gradients), "float32")
    assert worst_excess(seen, rule) <= 1
    assert worst_excess(seen, replace(rule, rates=(0.1,))) > 1


def group(name: str, **settings: object) -> ParameterGroup:
    return ParameterGroup(LayerSettings("", (name,), settings), ("w",), 1, LearningRates((0.1,)))


def test_an_optimizer_that_the_family_does_not_know_has_no_rule() -> None:
    assert read_rule(group("torch.optim.LBFGS")) is None
    assert read_rule(group("mindspore.nn.Lamb")) is None
    assert read_rule(None) is None


def test_a_class_of_the_users_own_has_no_rule_though_it_derives_from_a_known_one() -> None:
    settings = LayerSettings("", ("own.Adam", "torch.optim.Adam"), {"betas": (0.9, 0.999), "eps": 1e-8})
    assert read_rule(ParameterGroup(settings, ("w",), 1, LearningRates((0.1,)))) is None


def test_settings_that_could_not_be_read_leave_no_rule() -> None:
    known = group("torch.optim.SGD", momentum=0.9)
    assert read_rule(known) is not None
    assert read_rule(replace(known, problems=("momentum is changed from step to step",))) is None
    assert read_rule(replace(known, rates=LearningRates(problem="ReduceLROnPlateau"))) is None
    assert read_rule(group("mindspore.nn.Adam", use_lazy=True)) is None
