"""What to run next, for each class of trouble: sentences with the commands, one after the other.

Each function takes the evidence and the step at which the trouble shows. What follows `#` in a command is a comment, so
that it can be pasted. A learning rate is looked at by `rates`, which is found again by how it begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.curves.curve_shapes import find_excursions
from align.curves.judging_thresholds import OF_GRADIENTS
from align.curves.loss_log import RAW, same_metric
from align.curves.other_axis import compare_logs, describe_log
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.curves.curve_result import OtherMetric
    from align.curves.loss_log import Booleans, Curve
    from align.curves.troubles.event_rules import CurveEvidence

RATES = "--metric lr"


def of_overflow(evidence: CurveEvidence, step: int) -> list[str]:
    """Look at the layers where the overflow begins, then at the loss scales, then at the training itself."""
    forward = sentence("loss_next.forward_at_first_overflow")
    if step > 1:
        forward = sentence("loss_next.forward_at_overflow", before=step - 1)
    return [forward, _metric(evidence, "loss_scale"), sentence("loss_next.first_not_finite", steps=step)]


def of_nan(evidence: CurveEvidence, step: int) -> list[str]:
    """Look at the training itself, then at the forward pass before NaN or Inf."""
    return [sentence("loss_next.first_not_finite", steps=step), _forward_at("loss_next.before_nan", evidence, step)]


def of_gradients(_evidence: CurveEvidence, step: int) -> list[str]:
    """Look at the step whose gradients are no numbers, then at its forward pass."""
    forward = sentence("loss_next.before_gradients", command=sentence("loss_next.forward_at", step=step - 1), step=step)
    return [sentence("loss_next.gradients_not_finite", steps=step), forward]


def of_multiple(evidence: CurveEvidence, _step: int) -> list[str]:
    """Say what a factor between the losses is, by what is known of the gradients."""
    factor, norms = evidence.factor or 1.0, evidence.factor_of_norms
    side, times = ("candidate", factor) if factor > 1 else ("reference", 1.0 / factor)
    norm, step = compare_logs("--metric grad_norm"), sentence("loss_next.step")
    facts = {"side": side, "times": round(times), "command": norm, "step": step}
    key = "untold" if norms is None else "printed" if abs(norms - 1.0) <= OF_GRADIENTS else "gradients"
    return [sentence(f"multiple_next.{key}", **facts)]


def of_shift(evidence: CurveEvidence, _step: int) -> list[str]:
    """Count one log a step later."""
    return [compare_logs(evidence.shift_option)]


def of_update_behind(evidence: CurveEvidence, _step: int) -> list[str]:
    """Look at the first learning rate, then at the first step."""
    return [
        sentence("loss_next.rate_at_first", command=rates(evidence)),
        sentence("loss_next.first_step", side=evidence.update_behind or ""),
    ]


def of_ratio(evidence: CurveEvidence, _step: int) -> list[str]:
    """Take several steps as one."""
    return [sentence("loss_next.same_samples", command=compare_logs(evidence.steps_per))]


def of_unlike_epochs(_evidence: CurveEvidence, _step: int) -> list[str]:
    """Compare how much data an epoch has."""
    return [sentence("loss_next.length_of_epochs", command=_data())]


def of_unsaid_means(evidence: CurveEvidence, _step: int) -> list[str]:
    """Say what a log prints."""
    return [sentence("loss_next.prints_means", command=compare_logs(evidence.window))]


def of_noise_size(_evidence: CurveEvidence, _step: int) -> list[str]:
    """Compare the data, then dropout."""
    return [sentence("loss_next.size_of_batches", command=_data()), sentence("loss_next.dropout")]


def of_other_noise(_evidence: CurveEvidence, _step: int) -> list[str]:
    """Compare the order of the data, or with how runs differ anyway."""
    return [sentence("loss_next.usual_noise", data=_data(), command=compare_logs("--reference-runs RUN"))]


def of_first_loss(_evidence: CurveEvidence, _step: int) -> list[str]:
    """Compare the forward passes, the first batch, and what differs in training only."""
    return [sentence("loss_next.forward_or_data", data=_data()), sentence("loss_next.training_only")]


def of_constant_loss(_evidence: CurveEvidence, _step: int) -> list[str]:
    """Look for parameters that never move."""
    return [sentence("loss_next.untrained"), sentence("loss_next.rate_of_zero")]


def of_no_descent(_evidence: CurveEvidence, _step: int) -> list[str]:
    """Look for parameters that never move, then at a training step."""
    return [sentence("loss_next.untrained"), sentence("loss_next.step")]


def of_second_step(_evidence: CurveEvidence, _step: int) -> list[str]:
    """Compare one training step."""
    return [sentence("loss_next.parts_of_step", command=sentence("loss_next.step"), optimizers=_optimizers())]


def of_explosion(evidence: CurveEvidence, step: int) -> list[str]:
    """Look at the forward pass where the loss goes up for good, then at the gradient norms."""
    norms = sentence("loss_next.norms_and_rate", command=_metric(evidence, "grad_norm"))
    return [_forward_at("loss_next.stays_up", evidence, step), norms, sentence("loss_next.first_explosion", steps=step)]


def of_spike(evidence: CurveEvidence, step: int) -> list[str]:
    """Look at the forward pass where the loss goes up, then at the gradient norms."""
    norms = sentence("loss_next.norms", command=_metric(evidence, "grad_norm"))
    return [_forward_at("loss_next.goes_up", evidence, step), norms]


def of_rate_change(evidence: CurveEvidence, step: int) -> list[str]:
    """Look at the learning rates around a step."""
    return [sentence("loss_next.rates_around", command=rates(evidence), step=step)]


def of_rise(evidence: CurveEvidence, step: int) -> list[str]:
    """Look at the learning rates from a step on, then at the optimizers."""
    return [
        sentence("loss_next.rates_from", command=rates(evidence), step=step),
        sentence("loss_next.optimizers_clipping", command=_optimizers()),
    ]


def of_slower(evidence: CurveEvidence, _step: int) -> list[str]:
    """Look at the learning rates, then at the optimizers."""
    return [rates(evidence), sentence("loss_next.optimizers_scale", command=_optimizers())]


def of_plateau(_evidence: CurveEvidence, _step: int) -> list[str]:
    """Look at the optimizers, the data and the precision."""
    return [sentence("loss_next.optimizers_trained", command=_optimizers()), _data(), sentence("loss_next.precision")]


def of_below(evidence: CurveEvidence, _step: int) -> list[str]:
    """Look at what makes a loss smaller than it should be."""
    return [
        rates(evidence),
        sentence("loss_next.optimizers_decay", command=_optimizers()),
        sentence("loss_next.dropout"),
        sentence("loss_next.augmentation", command=_data()),
    ]


def of_drift(evidence: CurveEvidence, _step: int) -> list[str]:
    """Look at the optimizers, the learning rates and the precision."""
    return [
        sentence("loss_next.optimizers_epsilon", command=_optimizers()),
        rates(evidence),
        sentence("loss_next.initial_values"),
    ]


def of_rounding(evidence: CurveEvidence, step: int) -> list[str]:
    """Compare with runs that only round in other ways."""
    runs = sentence("loss_next.rounding_runs", command=compare_logs("--reference-runs RUN"))
    return [runs, rates(evidence), sentence("loss_next.batches_from", step=step)]


def of_later(evidence: CurveEvidence, step: int) -> list[str]:
    """Look at the learning rates, then at the batches."""
    return [rates(evidence), sentence("loss_next.batches_from", step=step)]


def of_missing(_evidence: CurveEvidence, _step: int) -> list[str]:
    """List the gaps of each log."""
    return [sentence("loss_next.gaps", reference=describe_log("reference"), candidate=describe_log("candidate"))]


def of_length(evidence: CurveEvidence, _step: int) -> list[str]:
    """Leave out what one log alone has at its end; and what to run if the shorter training crashed."""
    command = compare_logs(f"--last-step {evidence.last_common}")
    return [sentence("loss_next.unlike_lengths", command=command), sentence("loss_next.crashed")]


def of_nothing(_evidence: CurveEvidence, _step: int) -> list[str]:
    """Propose nothing."""
    return []


def metric_nan(evidence: CurveEvidence, step: int) -> list[str]:
    """See whether the losses are numbers, then what the metric comes from."""
    source = comes_from(evidence.metric)
    return [sentence("metric_next.losses_at", command=compare_logs(), step=step, source=source)]


def metric_ahead(evidence: CurveEvidence, _step: int) -> list[str]:
    """Look at where the metric is set too early."""
    return [sentence("metric_next.too_early", source=comes_from(evidence.metric))]


def metric_behind(evidence: CurveEvidence, _step: int) -> list[str]:
    """Look at where the metric is set too late."""
    return [sentence("metric_next.too_late", source=comes_from(evidence.metric))]


def metric_factor(evidence: CurveEvidence, _step: int) -> list[str]:
    """Look for a factor."""
    return [sentence("metric_next.one_factor", source=comes_from(evidence.metric))]


def metric_noise(evidence: CurveEvidence, _step: int) -> list[str]:
    """Compare the order of the data, then what the metric comes from."""
    return [sentence("metric_next.order_of_batches", command=_data(), source=comes_from(evidence.metric))]


def metric_source(evidence: CurveEvidence, _step: int) -> list[str]:
    """Look at what the metric comes from."""
    return [comes_from(evidence.metric)]


def metric_later(evidence: CurveEvidence, step: int) -> list[str]:
    """Look at what the metric comes from, at a step."""
    return [sentence("metric_next.at_step", source=comes_from(evidence.metric), step=step)]


def comes_from(metric: str) -> str:
    """Return what to run and to look at where a metric differs."""
    name = same_metric(metric)
    if name == "lr":
        return sentence("metric_next.learning_rate", command=_optimizers())
    if name == "grad_norm":
        return sentence("metric_next.gradient_norm", command=compare_logs())
    if name == "loss_scale":
        return sentence("metric_next.loss_scale", command=compare_logs())
    return sentence("metric_next.computed", command=compare_logs())


def rates(evidence: CurveEvidence) -> str:
    """Compare the learning rates."""
    return _metric(evidence, "lr")


def rates_differ(rate: OtherMetric) -> str:
    """Compare learning rates that are known to differ, and say where they do."""
    command, first, last = compare_logs(RATES), rate.first_divergent_step, rate.last_divergent_step
    if first is None:
        return sentence("loss_next.rates_differ", command=command)
    if last is None:
        return sentence("loss_next.rates_differ_from", command=command, step=first)
    return sentence("loss_next.rates_differ_between", command=command, first=first, last=last)


def forward_first(*, compared: bool) -> str:
    """Compare the forward passes, as the first losses differ, or as they could not be `compared`."""
    return sentence("loss_next.forward_as_first_differ" if compared else "loss_next.forward_as_first_unknown")


def _metric(evidence: CurveEvidence, metric: str) -> str:
    """Compare another metric; say that both logs have to hold it where they do not."""
    command = compare_logs(f"--metric {metric}")
    shared = {same_metric(one.metric) for one in evidence.beside.others}
    return command if metric in shared else sentence(f"metric_to_log.{metric}", command=command)


def _forward_at(key: str, evidence: CurveEvidence, step: int) -> str:
    """Compare the forward passes with the last weights that are known to be well."""
    beginning = find_trouble_start(evidence, step)
    forward = sentence("loss_next.forward_at", step=beginning.before)
    return sentence(key, command=forward, batches=beginning.batches)


def _data() -> str:
    return sentence("loss_next.data")


def _optimizers() -> str:
    return sentence("loss_next.optimizers")


class TroubleStart(NamedTuple):
    """The last step that is known to be well (0: none is), and the last one at which the trouble can have begun."""

    before: int
    last: int

    @property
    def batches(self) -> str:
        """What to call the batches in question."""
        if self.last - self.before == 1:
            return sentence("loss_next.batch", step=self.last)
        return sentence("loss_next.batches", first=self.before + 1, last=self.last)


def find_trouble_start(evidence: CurveEvidence, step: int) -> TroubleStart:
    """Find where the trouble that shows at `step` begins: since the common step before it, closer if a log shows it.

    A point that two logs share may be the mean of many steps, or the only one printed of many. A log that prints single
    steps then often shows which of them it was; where none does, the answer is a range.
    """
    pairs = evidence.pairs
    at = int(np.searchsorted(pairs.steps, step))
    found = TroubleStart(int(pairs.steps[at - 1]) if at else 0, step)
    common = at < len(pairs.steps) and pairs.steps[at] == step
    values = (pairs.reference[at], pairs.candidate[at]) if common else (0.0, 0.0)
    for curve, own, other in zip(evidence.curves, values, values[::-1], strict=False):
        if found.last - found.before > 1 and curve.window == RAW:
            found = _closer(found, curve, _troubled(curve, above=bool(own > other)))
    return found


def _closer(found: TroubleStart, curve: Curve, troubled: Booleans) -> TroubleStart:
    """Take the first troubled point of a log in the range, and the point that the log has before it."""
    places = np.flatnonzero(troubled & (curve.steps > found.before) & (curve.steps <= found.last))
    if not len(places):
        return found
    first = int(places[0])
    return TroubleStart(max(found.before, int(curve.steps[first - 1]) if first else 0), int(curve.steps[first]))


def _troubled(curve: Curve, *, above: bool) -> Booleans:
    """Tell which points are not finite, or (of the side above the other) begin to go up."""
    troubled: Booleans = ~np.isfinite(curve.values)
    if above:
        troubled[[excursion.start for excursion in find_excursions(curve.values)]] = True
    return troubled
