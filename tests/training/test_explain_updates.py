"""One planted deviation of an optimizer at a time, explained; and clean twins, in which nothing is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.training.compare_updates import explain_updates

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.frameworks

T, N, X = "torch.optim.", "mindspore.nn.", "mindspore.experimental.optim."
SGD = T + "SGD([P], 0.1, momentum=0.9)"
ADAM = T + "Adam([P], 1e-3)"
ADAMW = T + "AdamW([P], 1e-3, weight_decay=0.1)"

# Reference, candidate, and the change: its code, setting and both values. The settings of both sides say so too.
PLANTED = [
    (SGD, N + "Momentum([P], 0.1, 0.9, weight_decay=0.01)", ("weight-decay", "weight_decay", 0.0, 0.01)),
    (SGD, N + "Momentum([P], 0.2, 0.9)", ("learning-rate", "rates", 0.1, 0.2)),
    (SGD, N + "Momentum([P], 0.1, 0.8)", ("momentum", "momentum", 0.9, 0.8)),
    (SGD, N + "SGD([P], 0.1, momentum=0.9, dampening=0.5)", ("dampening", "dampening", 0.0, 0.5)),
    (SGD, N + "SGD([P], 0.1, momentum=0.9, nesterov=True)", ("nesterov", "nesterov", False, True)),
    (
        T + "SGD([P], 0.1, momentum=0.9, weight_decay=0.01)",
        N + "Momentum([P], 0.1, 0.9, weight_decay=0.01, loss_scale=1024.0)",
        ("gradient-scale", "gradient_scale", 1.0, 1 / 1024),
    ),
    (SGD, T + "SGD([P], 0.1, momentum=0.9, maximize=True)", ("sign", "gradient_scale", 1.0, -1.0)),
    (ADAM, N + "AdamWeightDecay([P], 1e-3, eps=1e-8)", ("no-bias-correction", "corrected", True, False)),
    (ADAM, N + "Adam([P], 1e-3, beta1=0.8)", ("beta1", "beta1", 0.9, 0.8)),
    (ADAM, N + "Adam([P], 1e-3, beta2=0.99)", ("beta2", "beta2", 0.999, 0.99)),
    (
        T + "Adam([P], 1e-3, betas=(0.9, 0.5))",
        T + "Adam([P], 1e-3, betas=(0.9, 0.5), amsgrad=True)",
        ("amsgrad", "amsgrad", False, True),
    ),
    (ADAMW, N + "Adam([P], 1e-3, weight_decay=0.1)", ("decay-coupled", "decay_form", "rate", "gradient")),
    (ADAMW, T + "AdamW([P], 1e-3, weight_decay=0.0)", ("weight-decay", "weight_decay", 0.1, 0.0)),
    (T + "AdamW([P], 1e-3)", T + "AdamW([P], 1e-3, eps=1e-3)", ("epsilon", "epsilon", 1e-8, 1e-3)),
    (
        T + "Adam([P], 1e-3, eps=1e-3)",
        N + "Adam([P], 1e-3, eps=1e-3)",
        ("epsilon-before-correction", "epsilon_scaled", False, True),
    ),
    (
        T + "RMSprop([P], 0.01, alpha=0.9)",
        N + "RMSProp([P], 0.01, decay=0.9)",
        ("moment-start", "second_start", 0.0, 1.0),
    ),
    (T + "RMSprop([P], 0.01)", T + "RMSprop([P], 0.01, centered=True)", ("centered", "centered", False, True)),
]


def change_of(result: Any) -> tuple[Any, ...]:
    """The one change of the first cause of the one finding."""
    (finding,) = result.findings
    (change,) = finding.alternatives[0]
    return change.code, change.setting, change.reference, change.candidate


def is_like(found: tuple[Any, ...], expected: tuple[Any, ...]) -> bool:
    """Numbers went through float32."""
    words = [one for one in zip(found, expected, strict=True) if not isinstance(one[1], float)]
    numbers = [one for one in zip(found, expected, strict=True) if isinstance(one[1], float)]
    return all(one == other for one, other in words) and all(
        one == pytest.approx(other, 1e-4) for one, other in numbers
    )


@pytest.mark.parametrize(("reference", "candidate", "expected"), PLANTED)
def test_a_planted_deviation_is_named_by_settings_and_by_data(
    reference: str,
    candidate: str,
    expected: tuple[Any, ...],
    new_case: Callable,
    real_steps: Callable,
    paired: Callable,
) -> None:
    case = new_case(256, 3)
    both = paired(case, real_steps(reference, case), real_steps(candidate, case))
    told = explain_updates([both])
    assert told.findings[0].confirmed
    assert is_like(change_of(told), expected)
    row = explain_updates([replace(both, candidate_group=None)]).parameters[0]
    assert row.state == "explained"
    assert row.reference_known
    changes = [cause.changes[0] for cause in row.causes if len(cause.changes) == 1]
    found = {(one.code, one.setting, one.reference, one.candidate) for one in changes}
    assert any(is_like(one, expected) for one in found)
    assert all(cause.after <= 1 < cause.before for cause in row.causes)


TWINS = [
    (T + "SGD([P], 0.1)", N + "SGD([P], 0.1)"),
    (SGD, N + "Momentum([P], 0.1, 0.9)"),
    (
        T + "SGD([P], 0.1, momentum=0.9, weight_decay=0.01)",
        N + "Momentum([P], 0.1, 0.9, weight_decay=0.01, loss_scale=1.0)",
    ),
    (
        T + "SGD([P], 0.1, momentum=0.9, nesterov=True)",
        N + "SGD([P], 0.1, momentum=0.9, nesterov=True)",
    ),
    (ADAM, N + "Adam([P], 1e-3)"),
    (ADAM, X + "Adam([P], 1e-3)"),
    (T + "Adam([P], 1e-3, weight_decay=0.1)", N + "Adam([P], 1e-3, weight_decay=0.1)"),
    (ADAMW, X + "AdamW([P], 1e-3, weight_decay=0.1)"),
    (T + "RMSprop([P], 0.01)", X + "RMSprop([P], 0.01)"),
]


@pytest.mark.parametrize(("reference", "candidate"), TWINS)
def test_clean_twins_are_the_same_at_all_sizes_of_gradients(
    reference: str, candidate: str, new_case: Callable, real_steps: Callable, paired: Callable
) -> None:
    scales = np.repeat([0.0, 1e-30, 1e-12, 1e-8, 1e-4, 1.0, 1e8], 64)
    case = new_case(len(scales), 3, scales)
    result = explain_updates([paired(case, real_steps(reference, case), real_steps(candidate, case))])
    assert result.same, result.parameters[0]
    assert result.parameters[0].judged == 1


def part(case: Any, steps: Any, chosen: slice) -> tuple[Any, Any]:
    """Some elements of a case, and of what an optimizer did."""
    some = replace(case, before=case.before[chosen], gradients=[one[chosen] for one in case.gradients])
    return some, replace(steps, after=[one[chosen] for one in steps.after])


def test_half_precision_is_judged_by_its_own_rounding(
    new_case: Callable, real_steps: Callable, paired: Callable
) -> None:
    scales = (1.0, 1e-3, 1e-6)
    case = new_case(256 * len(scales), 3, np.repeat(scales, 256), "float16")
    made = [real_steps(text, case) for text in (SGD, *(N + f"Momentum([P], {rate}, 0.9)" for rate in (0.1, 0.2)))]
    for number, scale in enumerate(scales):
        chosen = slice(256 * number, 256 * (number + 1))
        (own, reference), (_, clean), (_, faulty) = (part(case, one, chosen) for one in made)
        assert explain_updates([paired(own, reference, clean)]).same
        result = explain_updates([paired(own, reference, faulty)])
        if scale < 1e-5:  # such steps are below the last place of almost all values
            assert result.same
        else:
            assert change_of(result)[0] == "learning-rate"


def test_adam_in_float16_divides_by_nothing_in_torch_only(
    new_case: Callable, real_steps: Callable, paired: Callable
) -> None:
    case = new_case(256, 2, 1e-3, "float16")
    both = paired(case, real_steps(T + "AdamW([P], 1e-3)", case), real_steps(N + "AdamWeightDecay([P], 1e-3)", case))
    result = explain_updates([both])
    assert change_of(result) == ("not-finite", "values", 256, 0)


def test_momentum_that_ignores_nesterov_is_seen_though_both_settings_ask_for_it(
    new_case: Callable, real_steps: Callable, paired: Callable
) -> None:
    case = new_case(256)
    asked = real_steps(T + "SGD([P], 0.1, momentum=0.9, nesterov=True)", case)
    ignored = real_steps(N + "Momentum([P], 0.1, 0.9, use_nesterov=True)", case)
    result = explain_updates([paired(case, asked, ignored)])
    assert change_of(result) == ("nesterov", "nesterov", True, False)
    assert not result.findings[0].confirmed
    assert result.parameters[0].candidate_known is False


def test_an_optimizer_that_silently_changes_nothing_did_not_move(
    new_case: Callable, real_steps: Callable, paired: Callable
) -> None:
    case = new_case(64, 2)
    both = paired(case, real_steps(SGD, case), real_steps("mindspore.mint.optim.SGD([P], 0.1, momentum=0.9)", case))
    result = explain_updates([both])
    assert change_of(result) == ("did-not-move", "moved", True, False)
    assert result.parameters[0].candidate_known is False


RATES = (0.01, 0.02, 0.03, 0.04, 0.05)


@pytest.mark.parametrize(
    ("rates", "code"),
    [
        (RATES[1:], "schedule-shifted"),
        ((0.0, *RATES[:3]), "schedule-shifted"),
        ((0.01, *RATES[:3]), "schedule-shifted"),
        ((0.01, 0.05, 0.02, 0.09), "schedule"),
        (tuple(2 * one for one in RATES[:4]), "learning-rate"),
    ],
)
def test_a_schedule_that_is_off_is_told_with_and_without_settings(
    rates: tuple[float, ...], code: str, new_case: Callable, real_steps: Callable, paired: Callable
) -> None:
    case = new_case(256, 4)
    reference = real_steps(SGD, case, RATES)
    both = paired(case, reference, real_steps(SGD, case, rates))
    assert explain_updates([replace(both, candidate_after=reference.after)]).same
    for one in (both, replace(both, candidate_group=None)):
        found = change_of(explain_updates([one]))
        assert found[0] == code
        assert found[3][:4] == pytest.approx(rates)


def test_epsilon_inside_the_root_of_an_optimizer_of_ones_own(
    new_case: Callable, real_steps: Callable, paired: Callable
) -> None:
    case = new_case(256, 4, 1e-3)
    reference = real_steps(ADAM, case)
    value, first, second, after = case.before.copy(), 0.0, 0.0, []
    for step, gradient in enumerate(case.gradients, start=1):
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        root = np.sqrt(second / (1 - 0.999**step) + 1e-8)
        value = (value - 1e-3 * first / (1 - 0.9**step) / root).astype(np.float32)
        after.append(value)
    result = explain_updates([paired(case, reference, replace(reference, after=after), candidate_group=None)])
    assert change_of(result) == ("epsilon-inside-root", "epsilon_inside", False, True)


def test_two_deviations_at_once_are_found_without_the_settings(
    new_case: Callable, real_steps: Callable, paired: Callable
) -> None:
    case = new_case(256)
    both = paired(case, real_steps(SGD, case), real_steps(N + "Momentum([P], 0.2, 0.8)", case), candidate_group=None)
    (finding,) = explain_updates([both]).findings
    changes = {(one.code, one.reference, one.candidate) for one in finding.alternatives[0]}
    assert changes == {("learning-rate", 0.1, 0.2), ("momentum", 0.9, 0.8)}


def test_the_decay_of_fine_tuning_is_seen_in_all_elements_together(
    new_case: Callable, real_steps: Callable, paired: Callable
) -> None:
    case = new_case(20000, 2, seed=1)
    without, by_default = (T + "AdamW([P], 1e-5, weight_decay=0.0)", T + "AdamW([P], 1e-5)")
    reference = real_steps(without, case)
    assert explain_updates([paired(case, reference, real_steps(X + "AdamW([P], 1e-5, weight_decay=0.0)", case))]).same
    result = explain_updates([paired(case, reference, real_steps(by_default, case))])
    assert change_of(result) == ("weight-decay", "weight_decay", 0.0, 0.01)
