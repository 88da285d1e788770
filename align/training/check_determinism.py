"""Whether a side gives the same twice, bit for bit: its initial values, and all tensors of a training step."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

from align.core.progress import silent
from align.core.verdicts import Coverage, Finding, Outcome, Verdict
from align.models.recompute_layers import layers_recomputed
from align.models.restore_state import other_seed
from align.training.compare_steps import StepRecord, StepRepeat, same_bits, unrepeated
from align.training.determinism_result import DeterminismResult, PartCount, RepeatedSide
from align.training.make_deterministic import make_deterministic
from align.training.open_training import batch_findings, open_training
from align.training.own_generators import OwnGenerators
from align.training.training_batches import read_training_batch
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.progress import Progress
    from align.core.protocols import Batch
    from align.core.training import Training
    from align.models.inputs import InputsSource
    from align.training.determinism_result import Builds, RepeatCause, UnrepeatedTensor
    from align.training.make_deterministic import Determinism
    from align.training.open_training import TrainingSide

# What torch says of an operation that has no deterministic kernel.
_UNORDERED_PRINTED = "does not have a deterministic implementation"


def check_determinism(
    reference: str | Training,
    candidate: str | Training | None = None,
    *,
    batch: InputsSource,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress = silent,
) -> DeterminismResult:
    """Take a training step of each side twice, from the same state, and name the first tensor that differs.

    Calls `align.make_deterministic(seed, threads=threads)`, which holds for the rest of the process. A side given as
    `module:function` is built twice, each time after that call, and its initial values are compared too. Values,
    moments, buffers and random numbers are put back after each step. Sides and `batch` are as for
    `align.check_parameters`. Raises UsageError for a seed or a number of threads that there is not, and what the
    opening of a side or its step raises.

    >>> from align.core.training import Training
    >>> from align.models.frameworks.arrays import ArrayModel
    >>> import numpy as np
    >>> check_determinism(Training(ArrayModel(())), batch={"x": np.ones(2)})  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    align.errors.CannotRunError: arrays models cannot be trained
    """
    made = make_deterministic(seed, threads=threads)
    arrays = read_training_batch(batch)
    given = [one for one in (reference, candidate) if one is not None]
    sides, unordered, noted = [], set[str](), list[Finding]()
    for number, one in enumerate(given):
        progress("repeat", number, len(given))
        with other_seed(seed), _collect_operations(unordered), layers_recomputed():
            opened, twin, made = _opened(one, seed, threads)
            noted += batch_findings(opened, arrays)
            sides.append(_repeated(opened, twin, arrays))
    progress("repeat", len(given), len(given))
    findings = noted + [Finding("no-deterministic-kernel", "warning", "torch", one) for one in sorted(unordered)]
    return DeterminismResult(seed, threads, made.settings, tuple(sides), tuple(findings), _verdict(sides))


def _opened(
    given: str | Training, seed: int, threads: int | None
) -> tuple[TrainingSide, TrainingSide | None, Determinism]:
    """A side, built twice from one seed if it can be; a framework that the first build imports had none."""
    first = make_deterministic(seed, threads=threads)
    opened = open_training(given, from_start=False)
    if not isinstance(given, str):
        return opened, None, first
    now = make_deterministic(seed, threads=threads)
    if now.settings != first.settings:
        opened = open_training(given, from_start=False)
        make_deterministic(seed, threads=threads)
    return opened, open_training(given, from_start=False), now


def _repeated(opened: TrainingSide, twin: TrainingSide | None, batch: Batch) -> RepeatedSide:
    builds, initial, values = _builds(opened, twin)
    parameters = opened.side.reader.read_parameters(opened.side.model, opened.label).parameters
    buffers = {one.name for one in parameters if one.buffer}
    earlier, generators = StepRecord(buffers), OwnGenerators(opened.training, opened.side.reader.owns)
    opened.trainer.take_steps(opened.training, (batch,), earlier)
    again = StepRepeat(earlier, buffers)
    opened.trainer.take_steps(opened.training, (batch,), again)
    cause: RepeatCause = ""
    reason = ""
    if initial is not None:
        cause, reason = "initial values", sentence("determinism_reason.built_unseeded")
    elif again.first is not None:
        fresh = twin is not None and builds == "same" and _same_in(twin, earlier, batch)
        cause, reason = _likely(generators.advanced(), again.first, fresh=fresh)
    first = initial or again.first
    return RepeatedSide(opened.label, opened.side.reader.name, builds, (*values, *again.parts), first, cause, reason)


def _builds(opened: TrainingSide, twin: TrainingSide | None) -> tuple[Builds, UnrepeatedTensor | None, list[PartCount]]:
    """Whether both builds hold the same values; the first that differs, and how many do."""
    if twin is None:
        return "not built twice", None, []
    if twin.side.model is opened.side.model:
        return "one object", None, []
    one, other = (side.side.reader.read_values(side.side.model) for side in (opened, twin))
    names = list(dict.fromkeys((*one, *other)))
    unlike = [name for name in names if name not in one or name not in other or not same_bits(one[name], other[name])]
    first = next((unrepeated("initial value", name, one.get(name), other.get(name)) for name in unlike), None)
    return ("differ" if unlike else "same"), first, [PartCount("initial value", len(names), len(unlike))]


def _same_in(twin: TrainingSide, earlier: StepRecord, batch: Batch) -> bool:
    """Tell whether the first step of the second build is that of the first one."""
    fresh = StepRepeat(earlier, ())
    twin.trainer.take_steps(twin.training, (batch,), fresh)
    return fresh.first is None


def _likely(drawing: list[str], first: UnrepeatedTensor, *, fresh: bool) -> tuple[RepeatCause, str]:
    """What makes a step differ from itself."""
    if first.rounding:
        return "order of sums", sentence("determinism_reason.order_of_sums")
    if drawing:
        return "own generator", sentence("determinism_reason.own_generator", names=drawing, fresh=fresh)
    if fresh:
        return "kept state", sentence("determinism_reason.kept_state")
    return "unseeded", sentence("determinism_reason.unseeded")


@contextmanager
def _collect_operations(found: set[str]) -> Iterator[None]:
    """Collect torch's warnings of operations without a deterministic kernel; others are warned of as before."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for one in caught:
        text = str(one.message)
        if _UNORDERED_PRINTED in text:
            found.add(sentence("determinism_reason.no_kernel", operation=text.partition(_UNORDERED_PRINTED)[0].strip()))
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


def _verdict(sides: list[RepeatedSide]) -> Verdict:
    coverage = Coverage("tensors", sum(side.tensors for side in sides))
    unlike = [(side, side.first) for side in sides if side.first is not None]
    caveats = tuple(
        sentence("determinism_verdict.one_object", side=side.label) for side in sides if side.builds == "one object"
    )
    if not unlike:
        both = len(sides) > 1
        reason = (
            sentence("determinism_verdict.both_same", count=coverage.compared)
            if both
            else sentence("determinism_verdict.same", side=sides[0].label, count=coverage.compared)
        )
        return Verdict(Outcome.ALIGNED, reason, coverage, caveats)
    return Verdict(Outcome.NOT_ALIGNED, joined("; ", [_differs(*one) for one in unlike]), coverage, caveats)


def _differs(side: RepeatedSide, first: UnrepeatedTensor) -> str:
    facts = {"part": first.part, "name": first.name, "reason": side.reason}
    return sentence("determinism_verdict.differs", side=side.label, **facts)
