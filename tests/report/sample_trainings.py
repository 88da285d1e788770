"""Results of the commands about training, made from values alone: a step of 24 layers, and what is asked before it."""

from __future__ import annotations

import math
from dataclasses import replace

from align.core.traces import Limit, Measurement
from align.core.verdicts import Coverage, Outcome, Verdict
from align.loops.recorded_pass import CallFigures, NearOverflow, NonfiniteEvent, NonfiniteResult
from align.training.check_determinism import DeterminismResult, PartCount, RepeatedSide, UnrepeatedTensor
from align.training.check_parameters import CheckedParameter, CheckedSide, ParametersResult
from align.training.compare_initial_values import Distribution, InitialParameter, InitialValues
from align.training.step_result import (
    ComparedGradient,
    ComparedLayer,
    ComparedLoss,
    ComparedUpdate,
    StepComparison,
    StepCulprit,
    StepOutcome,
)

SIDES = "zoo.resnet:training", "ports.resnet:training"
CUT, LAYERS = 15, 24
LIMIT = 1e-6  # relative to the gradient


def sample_step() -> StepComparison:
    """No gradient comes back to the 16th of 24 layers, so that all before it differ; biases have another rate."""
    gradients = [one for place in range(LAYERS) for one in _gradients(place)]
    code = StepCulprit(
        "backward", "code", "body", "body", "Body", "Body", math.inf,
        cause="no-gradient", near=f"body.{CUT}.conv", line="resnet.py:88", sureness="confirmed",
    )  # fmt: skip
    rate = StepCulprit(
        "update", "optimizer", "", "", "", "", 4e5, "learning-rate", {"rates": "0.1 vs 0.2"},
        tuple(one.candidate for one in gradients if _is_bias(one)), sureness="confirmed",
    )  # fmt: skip
    return StepComparison(
        *SIDES,
        2,
        (ComparedLoss(1, 2.5, 2.5, 2.5, 1e-5), ComparedLoss(2, 2.25, 2.75, None, 1e-5)),
        tuple(ComparedLayer(*_names(place), "Conv2d", "Conv2d", 0, 2, 0.1, 0.2) for place in range(LAYERS)),
        tuple(gradients),
        (code, rate),
        (),
        {"reference": {"torch": "2.13.0"}, "candidate": {"mindspore": "2.10.0"}},
        Verdict(Outcome.NOT_ALIGNED, "2 places at fault", Coverage("gradients of parameters", len(gradients), 1)),
        tuple(_update(one, 4e5 if _is_bias(one) else 0.2) for one in gradients),
    )


def clean_step() -> StepComparison:
    """The same without any fault."""
    faulty = sample_step()
    gradients = tuple(_gradient(place, role, 0.1) for place in range(LAYERS) for role in ("weight", "bias"))
    return replace(
        faulty,
        gradients=gradients,
        culprits=(),
        verdict=Verdict(Outcome.ALIGNED, "48 gradients agree", Coverage("gradients of parameters", 48)),
        updates=tuple(_update(one, 0.2) for one in gradients),
    )


def _is_bias(one: ComparedGradient) -> bool:
    return one.reference.endswith(".bias")


def _names(place: int) -> tuple[str, str]:
    return f"body.{place}.convolution", f"body.{place}.conv"


def _gradients(place: int) -> list[ComparedGradient]:
    weight = _gradient(place, "weight", 3e4 if place <= CUT else 0.1)
    bias = replace(_gradient(place, "bias", 0.4), outcome="could not tell")
    if place == CUT:
        weight = replace(
            weight, outcome="not aligned", measurement=None, limit=None, factor=math.inf, alone=math.inf,
            candidate_norm=None,
        )  # fmt: skip
    return [weight, bias]


def _gradient(place: int, role: str, factor: float) -> ComparedGradient:
    """A gradient whose norm grows on the way back, with the candidate's off by `factor` limits."""
    size, off = 0.5 * 1.1 ** (LAYERS - place), factor * LIMIT
    measurement = Measurement(
        100, 3 * off, None, off, off, off, 1.0, 3 * size, size, 0, 0, 0, 0, 0, 100, (0,), (0,) * 20
    )
    outcome: StepOutcome = "aligned"
    reference, candidate = _names(place)
    return ComparedGradient(
        f"{reference}.{role}", f"{candidate}.{role}", candidate, outcome, measurement,
        Limit(3 * size * LIMIT, size * LIMIT, "noise"), factor, 0.05, size, size * (1 + off),
    )  # fmt: skip


def _update(one: ComparedGradient, factor: float) -> ComparedUpdate:
    first = 0.1 * (one.reference_norm or 0.0)
    ratio = 2.0 if factor > 1 else 1.0
    return ComparedUpdate(
        one.reference, one.candidate, 8.0, (first, 1.9 * first), (ratio * first, 1.9 * ratio * first), factor
    )


def sample_params() -> ParametersResult:
    """One side that trains one of two parameters."""
    head = CheckedParameter("head.weight", "head", (3, 4), "trained", "", 0.2, 0.02, 4e5, 0.1, 1, 0)
    idle = replace(head, name="idle.weight", module="idle", state="no gradient", reason="idle is never called")
    side = CheckedSide(SIDES[1], "mindspore", 2.5, 1, (head, idle), ())
    coverage = Coverage("parameters", 2)
    return ParametersResult((side,), (), (), (), Verdict(Outcome.NOT_ALIGNED, "1 is not trained", coverage))


def sample_initial() -> InitialValues:
    """One parameter that the port draws otherwise."""
    theirs = Distribution("uniform", 0.0, 0.1, 0.17)
    row = InitialParameter(
        "head.weight", "head.weight", (3, 4), "distributions differ", 960, 0.2, 1e-9,
        Distribution("normal", 0.0, 0.1, 0.1), theirs, 'initializer("normal")',
    )  # fmt: skip
    verdict = Verdict(Outcome.NOT_ALIGNED, "1 is drawn otherwise", Coverage("parameters", 1))
    return InitialValues(*SIDES, 8, 20000, 0.001, 0.001, 1, (row,), (), verdict)


def sample_determinism() -> DeterminismResult:
    """Two sides, the second of which draws from a generator of its own."""
    parts = (PartCount("gradient", 2, 0),)
    same = RepeatedSide(SIDES[0], "torch", "same", parts, None, "", "")
    tensor = UnrepeatedTensor("output", "drop", (3, 4), 12, 6, 0.5, 0.25, rounding=False)
    other = RepeatedSide(
        SIDES[1], "mindspore", "same", (PartCount("output", 2, 1),), tensor, "own generator", "drop.generator"
    )
    verdict = Verdict(Outcome.NOT_ALIGNED, "drop differs", Coverage("tensors", 4))
    return DeterminismResult(0, None, ("seed 0",), (same, other), (), verdict)


def sample_nonfinite() -> NonfiniteResult:
    """A log of 0 on the way back."""
    event = NonfiniteEvent(
        "NaN", 3, "backward", "head", 0, "log", "train.py:7", "gradient", "", "log of 0", "log of 0",
        "keep the argument above 0", "sound", (2,), "float16", 1024.0, 512.0,
    )  # fmt: skip
    before = (CallFigures("head", 0, "log", "train.py:7", "backward", (0.5, None, float("nan"))),)
    near = (NearOverflow("head", "log", "backward", 2, 40000.0, 1024.0, 256.0),)
    verdict = Verdict(Outcome.NOT_ALIGNED, "NaN first at step 3", Coverage("steps", 4))
    return NonfiniteResult("Net", "torch", 4, 1, 20, event, (1, 2, 3), before, near, (), verdict)


SAMPLES = {
    "step": sample_step,
    "params": sample_params,
    "initial": sample_initial,
    "determinism": sample_determinism,
    "nonfinite": sample_nonfinite,
}
