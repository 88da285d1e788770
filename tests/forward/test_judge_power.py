"""Agreement that could not have been otherwise is not called alignment."""

from __future__ import annotations

import pytest

from align.core.verdicts import Coverage, Outcome, Verdict
from align.forward.forward_result import OutputPower, ParameterPower, Power
from align.forward.measure_power import with_power

COVERAGE = Coverage("layer outputs", 3)
ALIGNED = Verdict(Outcome.ALIGNED, "all agree", COVERAGE)


def output(module: str, factor: float | None) -> OutputPower:
    return OutputPower(module, 0, "", "Layer", factor)


def test_outputs_that_do_not_move_with_the_input_could_not_tell() -> None:
    verdict = with_power(ALIGNED, Power((output("conv", 900.0), output("", 0.03))))
    assert verdict.outcome is Outcome.NOT_COMPARED
    assert verdict.reason.startswith("could not tell: the model's outputs agree")
    assert "0.03 times their limit" in verdict.reason
    assert verdict.coverage == COVERAGE


def test_one_output_of_the_model_that_moves_is_enough() -> None:
    assert with_power(ALIGNED, Power((output("", 0.0), output("", 12.0)))) == ALIGNED


def test_no_compared_layer_that_moves_could_not_tell() -> None:
    verdict = with_power(ALIGNED, Power((output("conv", 0.0), output("fc", 1.0))))
    assert verdict.reason.startswith("could not tell: all compared layers agree")


def test_blind_parameters_keep_the_verdict_and_are_counted() -> None:
    blind = [ParameterPower(name, 4, 4, None, "blind") for name in ("head.weight", "head.bias")]
    seen = ParameterPower("fc.weight", 4, 1, 1e-4, "partly blind")
    verdict = with_power(ALIGNED, Power((output("", 9.0),), (*blind, seen)))
    assert verdict.outcome is Outcome.ALIGNED
    assert verdict.reason == "all agree; 2 parameters of the reference have no effect on them that shows"


def test_what_could_not_be_measured_is_said() -> None:
    verdict = with_power(ALIGNED, Power((output("", None),), unmeasured={"x": "why"}))
    assert verdict.outcome is Outcome.ALIGNED
    assert verdict.reason == "all agree; whether they depend on the inputs could not be measured"


@pytest.mark.parametrize("outcome", [Outcome.NOT_ALIGNED, Outcome.NOT_COMPARED])
def test_other_verdicts_stay(outcome: Outcome) -> None:
    verdict = Verdict(outcome, "why", COVERAGE)
    assert with_power(verdict, Power((output("", 0.0),))) is verdict
