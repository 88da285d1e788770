"""What a chip is expected to do to the reference, as the limit of a port that has not run there, or has.

The reference runs twice more with the chip's roundings: by itself, and each layer on the inputs of its ordinary run.
What that moves takes the place of the reference's noise in a coarser dtype.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.core.protocols import ChipEmulator
from align.core.verdicts import Outcome
from align.errors import CannotRunError, UsageError
from align.forward.forward_result import Prediction
from align.forward.isolation.isolated_calls import NoiseIsolation
from align.measure.limits import RoundingNoise
from align.rules.ascend_rules import ascend_target
from align.traces.rounding_noise import NoiseSink
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.protocols import Inputs
    from align.core.traces import Trace
    from align.core.verdicts import Verdict
    from align.forward.forward_result import ForwardComparison
    from align.forward.running.measure_noise import Noise
    from align.models.open_side import Side
    from align.rules.ascend_rules import AscendTarget, Driver

DRIVERS: dict[str, Driver] = {"torch": "torch_npu"}  # of a candidate's framework; MindSpore for all others


def refuse_unknown(emulate: str | None, switches: Mapping[str, str] | None) -> None:
    """Raise UsageError for a chip or a switch that is not known, and for switches of no chip."""
    if emulate is not None:
        ascend_target(emulate, switches=switches)
    elif switches:
        raise UsageError.of("ascend_usage.no_chip")


def chip_of(emulate: str | None, switches: Mapping[str, str] | None, sides: tuple[Side, Side]) -> AscendTarget | None:
    """The chip as the candidate's framework drives it; raises CannotRunError where the reference is no torch model."""
    if emulate is None:
        return None
    if not isinstance(sides[0].runner, ChipEmulator):
        facts = {"side": sides[0].label, "framework": sides[0].reader.name}
        raise CannotRunError.of("emulation_error.no_torch_model", **facts)
    return ascend_target(emulate, DRIVERS.get(sides[1].reader.name, "mindspore"), switches)


def with_prediction(noise: Noise, side: Side, inputs: Inputs, trace: Trace, chip: AscendTarget) -> Noise:
    """The noise with what the chip is expected to move; `trace` is the ordinary run."""
    assert isinstance(side.runner, ChipEmulator)  # noqa: S101 - for the type checker: `chip_of` has asked
    model = side.runner.emulated(side.model, chip.emulation())
    together, alone = NoiseSink(trace, ""), NoiseIsolation(trace, "")
    for sink in (together, alone):
        side.runner.run(model, inputs, sink)
    return replace(
        noise,
        accumulated=replace(noise.accumulated or RoundingNoise({}), expected=together.noise),
        isolated=replace(noise.isolated or RoundingNoise({}), expected=alone.noise),
    )


def predicted(result: ForwardComparison, chip: AscendTarget | None) -> ForwardComparison:
    """A comparison by a prediction: models that agree are within it and no more, and the verdict says so."""
    if chip is None:
        return result
    target = f"ascend:{chip.chip.id}"
    prediction = Prediction(target, chip.chip.product, chip.driver, dict(chip.switches))
    return replace(result, prediction=prediction, verdict=_verdict(result.verdict, target))


def _verdict(verdict: Verdict, target: str) -> Verdict:
    if verdict.outcome is not Outcome.ALIGNED:
        return replace(verdict, caveats=(*verdict.caveats, sentence("prediction.beyond", target=target)))
    reason = sentence("prediction.within", reason=verdict.reason, target=target)
    caveats = (*verdict.caveats, sentence("prediction.caveat"))
    return replace(verdict, outcome=Outcome.PREDICTED, reason=reason, caveats=caveats)
