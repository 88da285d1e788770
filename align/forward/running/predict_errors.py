"""What a chip is expected to do to the reference, as the limit of a port that has not run there, or has.

The reference runs twice more with the chip's roundings: by itself, and each layer on the inputs of its ordinary run.
What that moves takes the place of the reference's noise in a coarser dtype.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.core.dtypes import NOT_EMULATED
from align.core.protocols import ChipEmulator
from align.core.verdicts import Finding, Outcome
from align.errors import CannotRunError, UsageError
from align.forward.forward_result import Prediction
from align.forward.isolation.isolated_calls import NoiseIsolation
from align.forward.running.measure_noise import failure_of
from align.forward.thresholds import BLIND_LIMIT
from align.measure.limits import RoundingNoise
from align.rules.ascend_rules import ascend_target
from align.traces.rounding_noise import NoiseSink
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.dtypes import EmulatedCalls
    from align.core.protocols import Inputs
    from align.core.traces import Trace
    from align.core.verdicts import Verdict
    from align.forward.forward_result import ForwardComparison, LayerComparison
    from align.forward.running.measure_noise import Noise
    from align.models.open_side import Side
    from align.rules.ascend_rules import AscendTarget, Driver

TORCH_DRIVERS: dict[str, Driver] = {"gpu": "torch"}  # by maker, where torch is the candidate; torch_npu for all others


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
    maker = emulate.lower().partition(":")[0]
    by_torch = sides[1].reader.name == "torch"
    return ascend_target(emulate, TORCH_DRIVERS.get(maker, "torch_npu") if by_torch else "mindspore", switches)


def with_prediction(noise: Noise, side: Side, inputs: Inputs, trace: Trace, chip: AscendTarget) -> Noise:
    """The noise with what the chip is expected to move; `trace` is the ordinary run.

    Where the layers cannot be given inputs one by one, each is expected to be off by what gathers up to it.
    """
    assert isinstance(side.runner, ChipEmulator)  # noqa: S101 - for the type checker: `chip_of` has asked
    model = side.runner.emulated(side.model, chip.emulation())
    together, alone = NoiseSink(trace, ""), NoiseIsolation(trace, "")
    side.runner.run(model, inputs, together)
    reason = failure_of(side.runner, model, inputs, alone)
    calls = side.runner.emulated_calls(model)
    return replace(
        noise,
        findings=(*noise.findings, *_nothing_rounded(calls, chip), *emulation_findings(calls, chip, reason)),
        accumulated=replace(noise.accumulated or RoundingNoise({}), expected=together.noise),
        isolated=replace(
            noise.isolated or RoundingNoise({}), expected={**(together.noise if reason else {}), **alone.noise}
        ),
    )


def _nothing_rounded(calls: Sequence[EmulatedCalls], chip: AscendTarget) -> Iterator[Finding]:
    coarse = {entry.id for entry in chip.entries() if entry.computes != "float32"}
    if not any(one.entry in coarse for one in calls):
        message = sentence("emulation_finding.nothing", target=chip.chip.label, framework=chip.driver)
        yield Finding("nothing-emulated", "warning", sentence("model_part.model"), message)


def emulation_findings(calls: Sequence[EmulatedCalls], chip: AscendTarget, reason: str = "") -> Iterator[Finding]:
    """Operators that cannot be looked into, switches that change nothing, and `reason`: why no layer was run alone."""
    if reason:
        message = sentence("emulation_finding.none_alone", reason=reason)
        yield Finding("emulated-alone-unmeasured", "note", sentence("model_part.model"), message)
    for one in calls:
        if one.entry == NOT_EMULATED:
            message = sentence("emulation_finding.hidden", operator=one.operator)
            yield Finding("not-emulated", "warning", one.module or sentence("model_part.model"), message)
    for name in chip.without_effect():
        message = sentence("emulation_finding.no_effect", target=chip.chip.label, framework=chip.driver)
        yield Finding("switch-without-effect", "warning", name, message)


def predicted(result: ForwardComparison, chip: AscendTarget | None) -> ForwardComparison:
    """A comparison by a prediction: models that agree are within it and no more, and the verdict says so."""
    if chip is None:
        return result
    target = chip.chip.label
    prediction = Prediction(target, chip.chip.product, chip.driver, dict(chip.switches))
    verdict = _verdict(result.verdict, target)
    caveats = (*verdict.caveats, *_blind(result, target))
    return replace(result, prediction=prediction, verdict=replace(verdict, caveats=caveats))


def _blind(result: ForwardComparison, target: str) -> Iterator[str]:
    """Say where the chip is expected to be so far off that hardly any output would be beyond the limit."""
    wide = [one for one in result.layers if _is_blind(one)]
    if wide:
        yield sentence("prediction.blind", target=target, count=len(wide), layer=wide[0].reference or "the output")


def _is_blind(one: LayerComparison) -> bool:
    if one.limit is None or one.measurement is None or one.limit.source != "prediction":
        return False
    return one.limit.rmse >= BLIND_LIMIT * one.measurement.reference_rms > 0.0


def _verdict(verdict: Verdict, target: str) -> Verdict:
    if verdict.outcome is not Outcome.ALIGNED:
        return replace(verdict, caveats=(*verdict.caveats, sentence("prediction.beyond", target=target)))
    reason = sentence("prediction.within", reason=verdict.reason, target=target)
    caveats = (*verdict.caveats, sentence("prediction.caveat"))
    return replace(verdict, outcome=Outcome.PREDICTED, reason=reason, caveats=caveats)
