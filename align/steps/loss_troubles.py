"""Classes of trouble of two loss curves: what tells each, and what to run next.

The first class that applies is the answer, so the order is that of the search: a curve with NaN says nothing about
drift. A new class is one more row. A small difference of the first loss is as a rule the cause of what differs later:
unless the first losses agree to rounding, the forward pass comes before the settings of the training, and a learning
rate that differs before what it may have caused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.steps import trouble_events as events
from align.steps import trouble_rules as rules
from align.steps.other_metrics import Beside

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.core.curves import Curve, Integers, PairedCurves

NOTHING_BESIDE = Beside()


@dataclass(frozen=True, slots=True)
class CurveEvidence:
    """What the rules look at: the pairs, the indices of points outside their limit, the keys of failed criteria.

    `first_compared` and `first_agrees` tell of the losses of step 1; `shift_option` is the option that would make the
    curves agree by counting one a step later, "" if there is none. `curves` are the reference and the candidate whole,
    `beside` is what the logs tell beside them; without these, fewer classes can be told.
    """

    pairs: PairedCurves
    outside: Integers
    failed: frozenset[str]
    of_loss: bool
    first_compared: bool
    first_agrees: bool
    shift_option: str = ""
    curves: tuple[Curve, ...] = ()
    beside: Beside = NOTHING_BESIDE


class Trouble(NamedTuple):
    """One class: its name, the rule that returns the step at which it shows (or None), the command to run next.

    `{step}` and `{before}` in the command are that step and the one before. `in_values`: losses differ, which can come
    from the forward pass or the learning rate: these are looked at first where they are not known to agree.
    """

    name: str
    shows_at: Callable[[CurveEvidence], int | None]
    next_command: str
    in_values: bool = False


def classify(evidence: CurveEvidence) -> tuple[str, str]:
    """Return (name, next command) of the first class that applies, ("", "") if no criterion failed."""
    if not evidence.failed:
        return "", ""
    with np.errstate(invalid="ignore", over="ignore"):
        usable = (one for one in TROUBLES if not one.in_values or not evidence.failed <= {"holes", "length"})
        found = ((trouble, trouble.shows_at(evidence)) for trouble in usable)
        trouble, step = next((trouble, step) for trouble, step in found if step is not None)
    command = trouble.next_command.replace("{step}", str(step)).replace("{before}", str(step - 1))
    command = command.replace("{shift_option}", evidence.shift_option)
    return trouble.name, "; then ".join([*_before_that(trouble, evidence), command])


def _before_that(trouble: Trouble, evidence: CurveEvidence) -> list[str]:
    """Return what to run before a class's own command."""
    if not trouble.in_values or not evidence.of_loss:
        return []
    commands = []
    if not evidence.first_agrees:
        reason = "differ by more than rounding" if evidence.first_compared else "could not be compared"
        commands.append(f"align forward REFERENCE CANDIDATE, as the losses of step 1 {reason}")
    rate = events.differing_rate(evidence)
    if rate is not None:
        since = "" if rate.first_divergent_step is None else f" from step {rate.first_divergent_step} on"
        commands.append(f"align loss REFERENCE CANDIDATE --metric lr, as the learning rates differ{since}")
    return commands


def _if(key: str) -> Callable[[CurveEvidence], int | None]:
    """Make the rule that only one criterion has to fail."""
    return lambda evidence: 1 if key in evidence.failed else None


def _shifted(evidence: CurveEvidence) -> int | None:
    return 1 if evidence.shift_option and evidence.failed & {"first", "mean"} else None


def _first_differs(evidence: CurveEvidence) -> int | None:
    return 1 if evidence.of_loss and "first" in evidence.failed else None


_FORWARD_AT = "align forward REFERENCE CANDIDATE --inputs BATCH, with the weights after step {before} on both sides"
_OPTIMIZERS = "align lint REFERENCE CANDIDATE with the functions that make the optimizers"
TROUBLES = (
    Trouble(
        "persistent overflow",
        events.overflows,
        _FORWARD_AT + " (the first steps in a row that overflow): which layers come near the largest float16; "
        "then align loss REFERENCE CANDIDATE --metric loss_scale",
        in_values=True,
    ),
    Trouble(
        "NaN",
        events.not_finite,
        _FORWARD_AT + ", the last ones before NaN or Inf, and the batch of step {step}",
    ),
    Trouble(
        "counted one step apart",
        _shifted,
        "align loss REFERENCE CANDIDATE {shift_option}, if that log counts from 0 and has lost its first line",
    ),
    Trouble(
        "noise of another size",
        rules.noise_of_other_size,
        "align validate REFERENCE CANDIDATE --data FUNCTION --candidate-data FUNCTION: batch size, shuffling, "
        "augmentation; "
        "then align lint REFERENCE CANDIDATE: dropout",
        in_values=True,
    ),
    Trouble(
        "noise of its own",
        rules.other_noise,
        "align validate REFERENCE CANDIDATE --data FUNCTION --candidate-data FUNCTION: the order of the batches; "
        "seeds and dropout make such noise too: align loss ... --reference-runs says how much of it is usual",
        in_values=True,
    ),
    Trouble("first loss differs", _first_differs, "align forward REFERENCE CANDIDATE"),
    Trouble(
        "constant loss",
        rules.stands_still,
        "align diff FIRST LAST --unchanged, two checkpoints of the candidate: which parameters never move; then "
        "requires_grad, the list of parameters that the optimizer was given, and a learning rate of 0",
        in_values=True,
    ),
    Trouble(
        "not descending",
        rules.does_not_descend,
        "align diff FIRST LAST --unchanged, two checkpoints of the candidate: which parameters never move; then "
        + _OPTIMIZERS,
        in_values=True,
    ),
    Trouble(
        "differs from the second step",
        rules.parts_at_once,
        "align loss REFERENCE CANDIDATE --metric grad_norm: if it differs at step 1, the backward pass is at fault, "
        "else the optimizer: " + _OPTIMIZERS + " (epsilon, weight decay, bias correction)",
        in_values=True,
    ),
    Trouble(
        "explosion",
        rules.explodes,
        _FORWARD_AT + ", and the batch of step {step}, from which on the loss stays up; "
        "then align loss REFERENCE CANDIDATE --metric grad_norm: clipping of gradients, learning rate",
        in_values=True,
    ),
    Trouble(
        "spike",
        rules.spikes,
        _FORWARD_AT + ", and the batch of step {step}, at which the loss goes up; "
        "then align loss REFERENCE CANDIDATE --metric grad_norm: clipping of gradients",
        in_values=True,
    ),
    Trouble(
        "differs from a change of the learning rate",
        events.boundary,
        "align loss REFERENCE CANDIDATE --metric lr, around step {step}: the end of the warm-up, steps of decay, "
        "counting from 0 or 1",
        in_values=True,
    ),
    Trouble(
        "rising",
        rules.rises,
        "align loss REFERENCE CANDIDATE --metric lr, from step {step} on; then "
        + _OPTIMIZERS
        + " (learning rate, clipping)",
        in_values=True,
    ),
    Trouble(
        "plateau above the reference",
        rules.stays_above,
        _OPTIMIZERS + " (learning rate, weight decay, which parameters are trained); then the data: "
        "align validate REFERENCE CANDIDATE --data FUNCTION --candidate-data FUNCTION; then precision and randomness",
        in_values=True,
    ),
    Trouble(
        "stays below the reference",
        rules.stays_below,
        "align lint REFERENCE CANDIDATE: dropout and what else makes training harder; then "
        "align validate REFERENCE CANDIDATE --data FUNCTION --candidate-data FUNCTION: augmentation",
        in_values=True,
    ),
    Trouble(
        "slow drift",
        rules.drifts,
        _OPTIMIZERS + " (weight decay, epsilon); then align loss REFERENCE CANDIDATE --metric lr; then the precision "
        "of weights and of the optimizer's state",
        in_values=True,
    ),
    Trouble(
        "differs later",
        rules.differs_later,
        "align loss REFERENCE CANDIDATE --metric lr; then the batches from step {step} on",
        in_values=True,
    ),
    Trouble(
        "points missing",
        _if("holes"),
        "align loss REFERENCE, and align loss CANDIDATE: each lists the gaps of its log",
    ),
    Trouble(
        "broken off",
        _if("length"),
        "align loss REFERENCE CANDIDATE --last-step {last_common}, if the logs are meant to differ in length",
    ),
    Trouble("differs", lambda _: 1, ""),
)
