"""Classes of trouble of two loss curves: what tells each, and what to run next.

The first class that applies is the answer, so the order is that of the search: a curve with NaN says nothing about
drift. A new class is one more row. A small difference of the first loss is as a rule the cause of what differs later:
unless the first losses agree to rounding, the forward pass comes before the settings of the training, and a learning
rate that differs before what it may have caused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.steps import trouble_events as events
from align.steps import trouble_gaps as gaps
from align.steps import trouble_rules as rules

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.steps.loss_evidence import CurveEvidence


class Trouble(NamedTuple):
    """One class: its name, the rule that returns the step at which it shows (or None), the command to run next.

    `{step}` and `{before}` in the command are that step and the one before. `forward_first`: it can come from the
    forward pass or the learning rate, which are looked at first where they are not known to agree. `of_values`: it
    needs values that differ, not only steps that one log lacks.
    """

    name: str
    shows_at: Callable[[CurveEvidence], int | None]
    next_command: str
    forward_first: bool = True
    of_values: bool = True


def classify(evidence: CurveEvidence) -> tuple[str, str]:
    """Return (name, next command) of the first class that applies, ("", "") if no criterion failed."""
    if not evidence.failed:
        return "", ""
    with np.errstate(invalid="ignore", over="ignore"):
        usable = (one for one in TROUBLES if not one.of_values or not evidence.failed <= {"holes", "length"})
        found = ((trouble, trouble.shows_at(evidence)) for trouble in usable)
        trouble, step = next((trouble, step) for trouble, step in found if step is not None)
    command = trouble.next_command.replace("{step}", str(step)).replace("{before}", str(step - 1))
    command = command.replace("{shift_option}", evidence.shift_option)
    return trouble.name, "; then ".join([*_before_that(trouble, evidence), command])


def _before_that(trouble: Trouble, evidence: CurveEvidence) -> list[str]:
    """Return what to run before a class's own command."""
    if not trouble.forward_first or not evidence.of_loss:
        return []
    commands = []
    if not evidence.first_agrees:
        reason = "differ by more than rounding" if evidence.first_compared else "could not be compared"
        commands.append(f"align forward REFERENCE CANDIDATE, as the losses of step 1 {reason}")
    rate = events.differing_rate(evidence)
    if rate is not None and trouble.shows_at is not events.boundary:
        since = "" if rate.first_divergent_step is None else f" from step {rate.first_divergent_step} on"
        commands.append(f"align loss REFERENCE CANDIDATE --metric lr, as the learning rates differ{since}")
    return commands


def _if(key: str) -> Callable[[CurveEvidence], int | None]:
    """Make the rule that only one criterion has to fail."""
    return lambda evidence: 1 if key in evidence.failed else None


def _shifted(evidence: CurveEvidence) -> int | None:
    return 1 if evidence.shift_option and evidence.failed & {"first", "mean"} else None


_FORWARD_AT = "align forward REFERENCE CANDIDATE --inputs BATCH, with the weights after step {before} on both sides"
_OPTIMIZERS = "align lint REFERENCE CANDIDATE with the functions that make the optimizers"
_DATA = "align validate REFERENCE CANDIDATE --data FUNCTION --candidate-data FUNCTION"
_MOVED = "align diff FIRST LAST --unchanged, two checkpoints of the candidate: which parameters never move"
_NORMS = "align loss REFERENCE CANDIDATE --metric grad_norm"
_RATES = "align loss REFERENCE CANDIDATE --metric lr"
TROUBLES = (
    Trouble(
        "persistent overflow",
        events.overflows,
        f"{_FORWARD_AT}, where the overflow begins: which layers come near the largest float16; "
        "then align loss REFERENCE CANDIDATE --metric loss_scale",
    ),
    Trouble(
        "NaN",
        events.not_finite,
        f"{_FORWARD_AT}, the last ones before NaN or Inf, and the batch of step {{step}}",
        of_values=False,
    ),
    Trouble(
        "counted one step apart",
        _shifted,
        "align loss REFERENCE CANDIDATE {shift_option}, if that log counts from 0 and has lost its first line",
        forward_first=False,
    ),
    Trouble(
        "noise of another size",
        rules.noise_of_other_size,
        f"{_DATA}: batch size, shuffling, augmentation; then align lint REFERENCE CANDIDATE: dropout",
    ),
    Trouble(
        "noise of its own",
        rules.other_noise,
        f"{_DATA}: the order of the batches; seeds and dropout make such noise too: "
        "align loss REFERENCE CANDIDATE --reference-runs RUN says how much of it is usual",
    ),
    Trouble(
        "first loss differs",
        rules.first_differs,
        "align forward REFERENCE CANDIDATE; if that agrees, align lint REFERENCE CANDIDATE: dropout and what else "
        "differs in training only",
        forward_first=False,
    ),
    Trouble(
        "constant loss",
        rules.stands_still,
        f"{_MOVED}; then requires_grad, the list of parameters that the optimizer was given, and a learning rate of 0",
    ),
    Trouble("not descending", rules.does_not_descend, f"{_MOVED}; then {_OPTIMIZERS}"),
    Trouble(
        "differs from the second step",
        rules.parts_at_once,
        f"{_NORMS}: if it differs at step 1, the backward pass is at fault, else the optimizer: {_OPTIMIZERS} "
        "(epsilon, weight decay, bias correction)",
    ),
    Trouble(
        "explosion",
        rules.explodes,
        f"{_FORWARD_AT}, and the batch of step {{step}}, from which on the loss stays up; "
        f"then {_NORMS}: clipping of gradients, learning rate",
    ),
    Trouble(
        "spike",
        rules.spikes,
        f"{_FORWARD_AT}, and the batch of step {{step}}, at which the loss goes up; "
        f"then {_NORMS}: clipping of gradients",
    ),
    Trouble(
        "differs from a change of the learning rate",
        events.boundary,
        f"{_RATES}, around step {{step}}: the end of the warm-up, steps of decay, counting from 0 or 1",
    ),
    Trouble("rising", rules.rises, f"{_RATES}, from step {{step}} on; then {_OPTIMIZERS} (learning rate, clipping)"),
    Trouble(
        "slower than the reference",
        gaps.converges_slower,
        f"{_RATES}; then {_OPTIMIZERS} (learning rate, scale of the loss or its reduction, accumulated gradients)",
    ),
    Trouble(
        "plateau above the reference",
        gaps.stays_above,
        f"{_OPTIMIZERS} (learning rate, weight decay, which parameters are trained); then {_DATA}; "
        "then precision and randomness",
    ),
    Trouble(
        "stays below the reference",
        gaps.stays_below,
        f"align lint REFERENCE CANDIDATE: dropout; then {_OPTIMIZERS} (weight decay); then {_DATA}: augmentation",
    ),
    Trouble(
        "slow drift",
        gaps.drifts,
        f"{_OPTIMIZERS} (weight decay, epsilon); then {_RATES}; then the initial values of what was not converted, and "
        "the precision of weights and of the optimizer's state",
    ),
    Trouble("differs later", rules.differs_later, f"{_RATES}; then the batches from step {{step}} on"),
    Trouble(
        "points missing",
        _if("holes"),
        "align loss REFERENCE, and align loss CANDIDATE: each lists the gaps of its log",
        forward_first=False,
        of_values=False,
    ),
    Trouble(
        "broken off",
        _if("length"),
        "align loss REFERENCE CANDIDATE --last-step {last_common}, if the logs are meant to differ in length",
        forward_first=False,
        of_values=False,
    ),
    Trouble("differs", lambda _: 1, "", forward_first=False, of_values=False),
)
