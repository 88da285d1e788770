"""What was found, in words: the event with its reason, its remedy, and what is known of the weights."""

from __future__ import annotations

from math import isfinite, log2
from typing import TYPE_CHECKING, Any

from align.core.verdicts import Coverage, Finding, Outcome, Verdict
from align.errors import CannotRunError
from align.watch.find_event import Origin
from align.watch.nonfinite_result import NonfiniteEvent, NonfiniteResult
from align.watch.running_figures import scale_for
from align.watch.thresholds import FLOAT16_LARGEST
from align.words.catalogue import sentence, word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.watch.find_explosion import Explosion
    from align.watch.nonfinite_result import GuiltyPart, NearOverflow
    from align.watch.watched_framework import WatchedFramework
    from align.words.message_words import Sentence


def worded(framework: WatchedFramework, origin: Origin) -> NonfiniteEvent:
    """The event that an origin is."""
    record = origin.record
    layer = record.path if record is not None else _layer_of(origin)
    scale, better = _scales(framework, origin)
    operator = record.name if record is not None else ""
    facts = {
        "tensor": origin.tensor,
        "operator": operator,
        "dtype": origin.dtype,
        "scale": framework.loss_scale,
        "better": better or 0.0,
        "samples": ", ".join(map(str, origin.samples)),
    }
    key = origin.cause.replace("-", "_")
    return NonfiniteEvent(
        origin.kind,
        framework.step,
        origin.direction,
        layer,
        record.call if record is not None else 0,
        operator,
        record.line if record is not None else "",
        origin.part,
        origin.tensor,
        origin.cause,
        sentence(f"nonfinite_cause.{key}", **facts),
        sentence(f"nonfinite_remedy.{key}", **facts),
        _weights(framework, origin),
        origin.samples,
        origin.dtype,
        scale,
        better,
    )


def _layer_of(origin: Origin) -> str:
    """The layer of a parameter that went wrong; what the step does is done in none."""
    return "" if origin.direction == "step" else origin.tensor.rpartition(".")[0]


def exploded(framework: WatchedFramework, explosion: Explosion) -> tuple[NonfiniteEvent, Origin]:
    """The event that an explosion is."""
    record, way, tensor = explosion.record, explosion.direction, explosion.tensor
    part: GuiltyPart = "output" if way == "forward" else "gradient"
    dtype = explosion.arrival.dtype if explosion.arrival is not None else record.dtype if record is not None else ""
    origin = Origin("explosion", way, record, part, tensor, "explosion", dtype, (), explosion.arrival)
    facts = {"factor": explosion.factor, "rms": explosion.rms, "tensor": tensor}
    event = NonfiniteEvent(
        "explosion",
        framework.step,
        way,
        record.path if record is not None else _layer_of(origin),
        record.call if record is not None else 0,
        record.name if record is not None else "",
        record.line if record is not None else "",
        part,
        tensor,
        "explosion",
        sentence(f"nonfinite_cause.{explosion.words}", **facts),
        sentence(f"nonfinite_remedy.{explosion.words}", **facts),
        _weights(framework, origin),
        (),
        dtype,
        framework.loss_scale if framework.loss_scale > 1 else None,
        None,
        explosion.factor,
    )
    return event, origin


def headline(event: NonfiniteEvent) -> Sentence:
    """The line that says what matters."""
    facts = {
        "kind": event.kind,
        "step": event.step,
        "direction": word("nonfinite_direction", event.direction),
        "layer": event.layer,
        "operator": event.operator,
        "reason": event.reason,
        "line": event.line,
    }
    place = "in_step" if event.direction == "step" else "in_layer" if event.layer else "outside"
    return sentence(f"nonfinite_verdict.{place}", **facts)


def judged(
    framework: WatchedFramework, event: NonfiniteEvent | None, before: Sequence[Any], near: Sequence[NearOverflow]
) -> NonfiniteResult:
    """The result of a training that was watched so far; raises CannotRunError where nothing ran."""
    steps = framework.step + (event is not None)
    if event is None and steps == 0:
        raise CannotRunError.of("watch_error.nothing_ran")
    coverage = Coverage("steps", max(steps, 1))
    if event is not None:
        verdict = Verdict(Outcome.NOT_ALIGNED, headline(event), coverage)
    else:
        verdict = Verdict(Outcome.ALIGNED, sentence("nonfinite_verdict.nothing", steps=steps), coverage)
    return NonfiniteResult(
        framework.label,
        framework.watcher.name,
        steps,
        framework.skipped,
        framework.tensors,
        event,
        before[0],
        before[1],
        tuple(near),
        tuple(_findings(framework, near)),
        verdict,
    )


def _findings(framework: WatchedFramework, near: Sequence[NearOverflow]) -> list[Finding]:
    found = []
    if framework.skipped:
        message = sentence("nonfinite_finding.skipped", count=framework.skipped)
        found.append(Finding("steps-skipped", "note", framework.label, message))
    if near:
        back = [one.better_scale for one in near if one.better_scale is not None]
        key = "nonfinite_finding.near_backward" if back else "nonfinite_finding.near_forward"
        facts = {"layer": near[0].layer, "largest": near[0].largest, "scale": min(back, default=0.0)}
        found.append(Finding("float16-near-overflow", "warning", near[0].layer, sentence(key, **facts)))
    return found


def _weights(framework: WatchedFramework, origin: Origin) -> Sentence:
    """What is known of the weights before this step, and so where the fault is not."""
    if origin.direction in ("update", "step"):
        return sentence(f"nonfinite_weights.{origin.direction}")
    if origin.part == "parameter":
        return sentence("nonfinite_weights.first" if framework.step == 0 else "nonfinite_weights.between")
    return sentence("nonfinite_weights.sound")


def _scales(framework: WatchedFramework, origin: Origin) -> tuple[float | None, float | None]:
    """The loss scale in force, and one that avoids an overflow in float16 on the way back."""
    scale = framework.loss_scale
    if origin.direction != "backward":
        return (scale if scale > 1 else None), None
    if origin.cause != "float16-gradient-overflow":
        return (scale if scale > 1 else None), None
    given = [one.gradient for one in origin.record.outputs if one.gradient is not None] if origin.record else []
    norms = [float(one.norm) for one in given if isfinite(one.norm)]
    guess = scale_for(max([*norms, FLOAT16_LARGEST]), scale)  # a norm is at least the largest value
    return scale, min(guess, 2.0 ** (log2(scale) // 1 - 1)) if scale > 1 else None
