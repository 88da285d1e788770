"""Classes of trouble of two loss curves: what tells each, and what to run next.

The first class that applies is the answer, so the order is that of the search: a curve with NaN says nothing about
drift. A new class is one more row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from align.curves.troubles import difference_rules as gaps
from align.curves.troubles import event_rules as events
from align.curves.troubles import noise_rules as noise
from align.curves.troubles import shape_rules as rules

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.curves.troubles.curve_evidence import CurveEvidence


class Trouble(NamedTuple):
    """One class: its name, the rule that returns the step at which it shows (or None), the command to run next.

    `{step}` and `{before}` in the command are that step and the one before, `{well}` and `{batches}` the last step that
    is known to be well and the batches from there on. What follows `#` is a comment: the command can be pasted.
    `forward_first` and `rates_first`: it can come from the forward pass, or from the learning rate, which are looked
    at first where they are not known to agree. `of_values`: it needs values that differ, not only steps that one log
    lacks.
    """

    name: str
    shows_at: Callable[[CurveEvidence], int | None]
    next_command: str
    forward_first: bool = True
    rates_first: bool = True
    of_values: bool = True


def _if(key: str) -> Callable[[CurveEvidence], int | None]:
    """Make the rule that only one criterion has to fail."""
    return lambda evidence: 1 if key in evidence.failed else None


def _behind(evidence: CurveEvidence) -> int | None:
    return 1 if evidence.update_behind and evidence.failed & {"first", "mean"} else None


def _ratio(evidence: CurveEvidence) -> int | None:
    return 1 if evidence.steps_per else None


def _unsaid_means(evidence: CurveEvidence) -> int | None:
    return 1 if evidence.window and evidence.failed & {"first", "mean", "every", "drift"} else None


def _shifted(evidence: CurveEvidence) -> int | None:
    return 1 if evidence.shift_option and evidence.failed & {"first", "mean"} else None


_FORWARD = "align forward REFERENCE CANDIDATE --inputs BATCH, with the weights after step"
FORWARD_AT = f"{_FORWARD} {{well}} on both sides"
OPTIMIZERS = "align lint REFERENCE CANDIDATE with the functions that make the optimizers"
DATA = "align validate REFERENCE CANDIDATE --data FUNCTION --candidate-data FUNCTION"
STEP = "align step REFERENCE CANDIDATE --batch BATCH"
TRAINED = "align params CANDIDATE --batch BATCH: which parameters a step does not train, and why"
MOVED = (
    f"{TRAINED}; or align diff FIRST LAST --unchanged, two checkpoints of the candidate: which parameters never move"
)
NORMS = "align loss REFERENCE CANDIDATE --metric grad_norm"
RATES = "align loss REFERENCE CANDIDATE --metric lr"
TROUBLES = (
    Trouble(
        "persistent overflow",
        events.overflows,
        f"{_FORWARD} {{before}} on both sides, where the overflow begins: which layers come near the largest float16; "
        "then align loss REFERENCE CANDIDATE --metric loss_scale",
        of_values=False,
    ),
    Trouble(
        "NaN",
        events.not_finite,
        f"{FORWARD_AT}, the last ones that are known to be before NaN or Inf, and {{batches}}",
        of_values=False,
    ),
    Trouble(
        "counted one step apart",
        _shifted,
        "align loss REFERENCE CANDIDATE {shift_option}",
        forward_first=False,
        rates_first=False,
    ),
    Trouble(
        "an update behind",
        _behind,
        f"{RATES} # whether it is 0 at step 1; then the first step of the {{behind}}, which changes nothing: a skipped "
        "step, a learning rate that is set too late",
        forward_first=False,
        rates_first=False,
    ),
    Trouble(
        "steps of unlike batches",
        _ratio,
        "align loss REFERENCE CANDIDATE {steps_per} # if so many steps see as many samples",
        forward_first=False,
        rates_first=False,
    ),
    Trouble(
        "means against single steps",
        _unsaid_means,
        "align loss REFERENCE CANDIDATE {window} # if that log prints means of so many steps",
        forward_first=False,
        rates_first=False,
    ),
    Trouble(
        "noise of another size",
        noise.noise_of_other_size,
        f"{DATA}: batch size, shuffling, augmentation; then align lint REFERENCE CANDIDATE: dropout",
    ),
    Trouble(
        "noise of its own",
        noise.other_noise,
        f"{DATA}: the order of the batches; seeds and dropout make such noise too: "
        "align loss REFERENCE CANDIDATE --reference-runs RUN says how much of it is usual",
    ),
    Trouble(
        "first loss differs",
        rules.first_differs,
        f"align forward REFERENCE CANDIDATE; if that agrees, {DATA}: the order of the batches, and the seed that "
        "shuffles them; then align lint REFERENCE CANDIDATE: dropout, with its seed, and what else differs in training "
        "only",
        forward_first=False,
    ),
    Trouble(
        "constant loss",
        rules.stands_still,
        f"{MOVED}; then a learning rate of 0",
    ),
    Trouble("not descending", rules.does_not_descend, f"{MOVED}; then {STEP}"),
    Trouble(
        "differs from the second step",
        rules.parts_at_once,
        f"{STEP}: the gradients of each layer, the loop and the optimizer, each by itself; or {OPTIMIZERS} "
        "(epsilon, weight decay, bias correction)",
    ),
    Trouble(
        "explosion",
        rules.explodes,
        f"{FORWARD_AT}, and {{batches}}, from which on the loss stays up; "
        f"then {NORMS}: clipping of gradients, learning rate",
    ),
    Trouble(
        "spike",
        rules.spikes,
        f"{FORWARD_AT}, and {{batches}}, where the loss goes up; then {NORMS}: clipping of gradients",
    ),
    Trouble(
        "differs from a change of the learning rate",
        events.boundary,
        f"{RATES} # around step {{step}}: the end of the warm-up, steps of decay, counting from 0 or 1",
    ),
    Trouble("rising", rules.rises, f"{RATES} # from step {{step}} on; then {OPTIMIZERS} (learning rate, clipping)"),
    Trouble(
        "slower than the reference",
        gaps.converges_slower,
        f"{RATES}; then {OPTIMIZERS} (learning rate, scale of the loss or its reduction, accumulated gradients)",
    ),
    Trouble(
        "plateau above the reference",
        gaps.stays_above,
        f"{OPTIMIZERS} (learning rate, weight decay, which parameters are trained); then {DATA}; "
        "then precision and randomness",
    ),
    Trouble(
        "stays below the reference",
        gaps.stays_below,
        f"{RATES}; then {OPTIMIZERS} (weight decay); then align lint REFERENCE CANDIDATE: dropout; then {DATA}: "
        "augmentation",
    ),
    Trouble(
        "slow drift",
        gaps.drifts,
        f"{OPTIMIZERS} (weight decay, epsilon); then {RATES}; then the initial values of what was not converted, and "
        "the precision of weights and of the optimizer's state",
    ),
    Trouble(
        "rounding that grows",
        noise.rounding_that_grows,
        "align loss REFERENCE CANDIDATE --reference-runs RUN, with runs of the reference that only round in other ways "
        f"(other devices or numbers of threads): whether they part as far; then {RATES}; "
        "then the batches from step {step} on",
    ),
    Trouble("differs later", rules.differs_later, f"{RATES}; then the batches from step {{step}} on"),
    Trouble(
        "points missing",
        _if("holes"),
        "align loss REFERENCE, and align loss CANDIDATE: each lists the gaps of its log",
        forward_first=False,
        rates_first=False,
        of_values=False,
    ),
    Trouble(
        "broken off",
        _if("length"),
        "align loss REFERENCE CANDIDATE --last-step {last_common} # if the logs are meant to differ in length",
        forward_first=False,
        rates_first=False,
        of_values=False,
    ),
    Trouble("differs", lambda _: 1, "", forward_first=False, rates_first=False, of_values=False),
)
