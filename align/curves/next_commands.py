"""What to run next, for each class of trouble: sentences with the commands, one after the other.

What follows `#` in a command is a comment, so that it can be pasted. A learning rate is looked at by `rates`, which is
found again by how it begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.curves.curve_shapes import find_excursions
from align.curves.judging_thresholds import OF_GRADIENTS
from align.curves.loss_log import RAW, same_metric
from align.curves.other_axis import compare_logs, describe_log
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.curves.event_rules import CurveEvidence
    from align.curves.loss_log import Booleans, Curve, OtherMetric, TroubleName

RATES = "--metric lr"
# One thing to run or to look at, from the evidence and the step at which the trouble shows.
Next = Callable[["CurveEvidence", int], str]


def said(key: str, **facts: object) -> Next:
    """A sentence whose facts are given, or made from the evidence and the step."""

    def told(evidence: CurveEvidence, step: int) -> str:
        return sentence(key, **{name: one(evidence, step) if callable(one) else one for name, one in facts.items()})

    return told


def _comparing(option: str | Callable[[CurveEvidence], str]) -> Next:
    """Compare both logs with an option."""
    return lambda evidence, _: compare_logs(option if isinstance(option, str) else option(evidence))


def _with_metric(metric: str) -> Next:
    """Compare another metric; say that both logs have to hold it where they do not."""

    def told(evidence: CurveEvidence, _step: int) -> str:
        command = compare_logs(f"--metric {metric}")
        shared = {same_metric(one.metric) for one in evidence.beside.others}
        return command if metric in shared else sentence(f"metric_to_log.{metric}", command=command)

    return told


def _forward_at(key: str) -> Next:
    """Compare the forward passes with the last weights that are known to be well."""

    def told(evidence: CurveEvidence, step: int) -> str:
        beginning = find_trouble_start(evidence, step)
        forward = sentence("loss_next.forward_at", step=beginning.before)
        return sentence(key, command=forward, batches=beginning.batches)

    return told


def _forward_at_overflow(_evidence: CurveEvidence, step: int) -> str:
    if step > 1:
        return sentence("loss_next.forward_at_overflow", before=step - 1)
    return sentence("loss_next.forward_at_first_overflow")


def _factor(evidence: CurveEvidence, _step: int) -> str:
    """Say what a factor between the losses is, by what is known of the gradients."""
    factor, norms = evidence.factor or 1.0, evidence.factor_of_norms
    side, times = ("candidate", factor) if factor > 1 else ("reference", 1.0 / factor)
    norm, step = compare_logs("--metric grad_norm"), sentence("loss_next.step")
    facts = {"side": side, "times": round(times), "command": norm, "step": step}
    key = "untold" if norms is None else "printed" if abs(norms - 1.0) <= OF_GRADIENTS else "gradients"
    return sentence(f"multiple_next.{key}", **facts)


def _step(_evidence: CurveEvidence, step: int) -> int:
    return step


def _logs(_evidence: CurveEvidence, _trouble_at: int) -> str:
    return compare_logs()


def _source(evidence: CurveEvidence, _trouble_at: int) -> str:
    """Say what to run and to look at where a metric differs."""
    name = same_metric(evidence.metric)
    if name == "lr":
        return sentence("metric_next.learning_rate", command=sentence("loss_next.optimizers"))
    if name == "grad_norm":
        return sentence("metric_next.gradient_norm", command=compare_logs())
    if name == "loss_scale":
        return sentence("metric_next.loss_scale", command=compare_logs())
    return sentence("metric_next.computed", command=compare_logs())


_rates, _norms = _with_metric("lr"), _with_metric("grad_norm")
_data, _optimizers, _one_step = said("loss_next.data"), said("loss_next.optimizers"), said("loss_next.step")
_not_finite, _with_runs = said("loss_next.first_not_finite", steps=_step), _comparing("--reference-runs RUN")
NEXT: dict[TroubleName, tuple[Next, ...]] = {
    "persistent overflow": (_forward_at_overflow, _with_metric("loss_scale"), _not_finite),
    "NaN": (_not_finite, _forward_at("loss_next.before_nan")),
    "a multiple of the reference": (_factor,),
    "counted one step apart": (_comparing(lambda evidence: evidence.shift_option),),
    "an update behind": (
        said("loss_next.rate_at_first", command=_rates),
        said("loss_next.first_step", side=lambda evidence, _: evidence.update_behind or ""),
    ),
    "steps of unlike batches": (
        said("loss_next.same_samples", command=_comparing(lambda evidence: evidence.steps_per)),
    ),
    "means against single steps": (
        said("loss_next.prints_means", command=_comparing(lambda evidence: evidence.window)),
    ),
    "gradients not finite": (
        said("loss_next.gradients_not_finite", steps=_step),
        said(
            "loss_next.before_gradients",
            command=said("loss_next.forward_at", step=lambda _, step: step - 1),
            step=_step,
        ),
    ),
    "noise of another size": (said("loss_next.size_of_batches", command=_data), said("loss_next.dropout")),
    "noise of its own": (said("loss_next.usual_noise", data=_data, command=_with_runs),),
    "first loss differs": (said("loss_next.forward_or_data", data=_data), said("loss_next.training_only")),
    "constant loss": (said("loss_next.untrained"), said("loss_next.rate_of_zero")),
    "not descending": (said("loss_next.untrained"), _one_step),
    "differs from the second step": (said("loss_next.parts_of_step", command=_one_step, optimizers=_optimizers),),
    "explosion": (
        _forward_at("loss_next.stays_up"),
        said("loss_next.norms_and_rate", command=_norms),
        said("loss_next.first_explosion", steps=_step),
    ),
    "spike": (_forward_at("loss_next.goes_up"), said("loss_next.norms", command=_norms)),
    "differs from a change of the learning rate": (said("loss_next.rates_around", command=_rates, step=_step),),
    "rising": (
        said("loss_next.rates_from", command=_rates, step=_step),
        said("loss_next.optimizers_clipping", command=_optimizers),
    ),
    "epochs of unlike length": (said("loss_next.length_of_epochs", command=_data),),
    "slower than the reference": (_rates, said("loss_next.optimizers_scale", command=_optimizers)),
    "plateau above the reference": (
        said("loss_next.optimizers_trained", command=_optimizers),
        _data,
        said("loss_next.precision"),
    ),
    "stays below the reference": (
        _rates,
        said("loss_next.optimizers_decay", command=_optimizers),
        said("loss_next.dropout"),
        said("loss_next.augmentation", command=_data),
    ),
    "slow drift": (said("loss_next.optimizers_epsilon", command=_optimizers), _rates, said("loss_next.initial_values")),
    "rounding that grows": (
        said("loss_next.rounding_runs", command=_with_runs),
        _rates,
        said("loss_next.batches_from", step=_step),
    ),
    "differs later": (_rates, said("loss_next.batches_from", step=_step), said("loss_next.watch")),
    "points missing": (
        said(
            "loss_next.gaps",
            reference=lambda *_: describe_log("reference"),
            candidate=lambda *_: describe_log("candidate"),
        ),
    ),
    "broken off": (
        said("loss_next.unlike_lengths", command=_comparing(lambda evidence: f"--last-step {evidence.last_common}")),
        said("loss_next.crashed"),
    ),
    "differs": (),
}
# The next command of a metric leads on to what such a metric comes from, and never is the one that was just run.
NEXT_OF_METRICS: dict[TroubleName, tuple[Next, ...]] = {
    **NEXT,
    "NaN": (said("metric_next.losses_at", command=_logs, step=_step, source=_source),),
    "a step ahead": (said("metric_next.too_early", source=_source),),
    "a step behind": (said("metric_next.too_late", source=_source),),
    "another factor": (said("metric_next.one_factor", source=_source),),
    "noise of its own": (said("metric_next.order_of_batches", command=_data, source=_source),),
    "differs from the beginning": (_source,),
    "differs later": (said("metric_next.at_step", source=_source, step=_step),),
    "differs": (_source,),
}


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
    start = TroubleStart(int(pairs.steps[at - 1]) if at else 0, step)
    common = at < len(pairs.steps) and pairs.steps[at] == step
    values = (pairs.reference[at], pairs.candidate[at]) if common else (0.0, 0.0)
    for curve, own, other in zip(evidence.curves, values, values[::-1], strict=False):
        if start.last - start.before > 1 and curve.window == RAW:
            start = _closer(start, curve, _troubled(curve, above=bool(own > other)))
    return start


def _closer(start: TroubleStart, curve: Curve, troubled: Booleans) -> TroubleStart:
    """Take the first troubled point of a log in the range, and the point that the log has before it."""
    places = np.flatnonzero(troubled & (curve.steps > start.before) & (curve.steps <= start.last))
    if not len(places):
        return start
    first = int(places[0])
    return TroubleStart(max(start.before, int(curve.steps[first - 1]) if first else 0), int(curve.steps[first]))


def _troubled(curve: Curve, *, above: bool) -> Booleans:
    """Tell which points are not finite, or (of the side above the other) begin to go up."""
    troubled: Booleans = ~np.isfinite(curve.values)
    if above:
        troubled[[excursion.start for excursion in find_excursions(curve.values)]] = True
    return troubled
