"""Training steps captured, or compared: loss, each layer's way back alone, gradients, updates, buffers."""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count, repeat
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.core import documents as form
from align.core.atomic_files import atomic_folder, sha256_of, write_text
from align.core.documents import DocumentFault, Form, kept_sentence, own_fields, read_json, to_json_data
from align.core.name_map import SIDES
from align.core.piece_transforms import Share, Sum, sum_step
from align.core.protocols import LearningRates, ParameterGroup, SettingsReader, silent
from align.core.verdicts import Coverage, Finding, Outcome, Verdict
from align.errors import DestinationError, RunFolderError, UsageError
from align.models.function_source import defined_at
from align.models.inputs import read_batches, save_inputs
from align.models.live_calls import looked_for_once
from align.models.open_side import named_environments
from align.models.source_lines import made_in
from align.models.user_code import find_function
from align.traces.capture_trace import describe_data
from align.traces.manifest import MODEL_FILE, layer_from, read_model, write_model
from align.traces.open_trace import read_noise, write_noise
from align.traces.pair_traces import open_names
from align.training.faults.find_step_culprits import find_step_culprits
from align.training.faults.find_step_faults import OF_LOSS, SPENT
from align.training.faults.state_faults import mode_findings
from align.training.faults.step_updates import explain_at_rate_zero
from align.training.open_training import (
    batch_findings,
    open_training,
    open_trainings,
    put_together,
    taken_apart,
    without_dropout,
)
from align.training.replay_dropout import DropoutReplay
from align.training.step_result import CapturedSteps, StepComparison
from align.training.steps.both_steps import compare_apart, compare_moments, moment_findings, owners_of, take_apart
from align.training.steps.judge_step import NOT_CLEARED, UNMEASURED, StepNoise
from align.training.steps.record_step import AFTER, COMPUTED, PARTS, StepTrace
from align.training.steps.recorded_steps import (
    RecordedSteps,
    ReferenceSteps,
    batches_of_steps,
    record_reference,
    refuse_random_steps,
)
from align.training.steps.see_both_sides import (
    compare_free_runs,
    compared_gradients,
    compared_layers,
    compared_losses,
    free_run_findings,
    judged_gradients,
    run_candidate_freely,
    see_recorded_steps,
    take_steps_beside,
)
from align.training.thresholds import STEPS_OF_ONE_BATCH
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from align.core.name_map import NameMap
    from align.core.protocols import Batch, LayerSettings, Progress
    from align.core.training import Training
    from align.models.inputs import InputsSource
    from align.training.open_training import TrainingSide
    from align.training.step_result import ComparedGradient, ComparedLoss, StepCulprit
    from align.training.steps.both_steps import SeenSteps

    Given = str | Path | Training
    Opened = TrainingSide | ReferenceSteps

COMPARE_STAGES = 6  # no limit: what progress is reported of
UNLIKE = "calls-unlike"


def compare_training_step(  # noqa: PLR0913 - one keyword an option
    reference: str | Path | Training,
    candidate: str | Path | Training,
    *,
    batch: InputsSource | None = None,
    name_map: NameMap | Path | str | None = None,
    steps: int | None = None,
    thorough: bool = False,
    progress: Progress = silent,
) -> StepComparison:
    """Take training steps on both sides, each from the reference's state, and name what is wrong by itself.

    A side is an `align.Training`, or `module:function` that returns one, a tuple (model, loss, optimizer[, step])
    or a dict of these; or a folder that `capture_training_step` wrote, which brings its batches and the number of
    steps. `batch` is one batch, or several in a list that follow one another; of one, each step takes it again, 3
    times if `steps` does not say. What bears no name of the model's parameters goes to the loss. Before each step a
    live candidate is given the reference's parameters and buffers, and at each update the reference's gradients.
    Layers for dropout get the reference's masks on both sides, or are switched off. Code that is wrong is looked
    into with 24 steps for a loss and 150 runs for a model, or with as many as that takes if it is `thorough`.
    Neither side is changed. Raises CannotRunError for a model without trainable parameters and a loss that is no
    scalar, SharedModelError for sides that are one object or share tensors, NothingInCommonError if no layer pairs,
    UnlikeTracesError for folders of other batches, or other values to begin with.

    >>> from align.core.training import Training
    >>> from align.models.frameworks.arrays import ArrayModel
    >>> import numpy as np
    >>> side = Training(ArrayModel(()))
    >>> compare_training_step(side, side, batch={"x": np.ones(2)})  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    align.errors.CannotRunError: arrays models cannot be trained
    """
    sides = _opened(reference, candidate)
    batches = _batches(batch, steps, [side.steps for side in sides if isinstance(side, ReferenceSteps)])
    stages = chain(range(1, COMPARE_STAGES), repeat(COMPARE_STAGES))
    with tempfile.TemporaryDirectory(prefix="align-") as folder, looked_for_once():

        def begun() -> None:
            progress("step", next(stages), COMPARE_STAGES)

        task = _Task(sides, batches, name_map, Path(folder), begun, thorough=thorough)
        live = tuple(side for side in sides if not isinstance(side, ReferenceSteps))
        noted = tuple(chain.from_iterable(batch_findings(side, batches[0]) for side in live))
        both = (live[0], live[1]) if len(live) == len(SIDES) else None
        result = _with_masks(task, both) if both else _without_dropout(task, live)
        if both and (later := _first_faulty(result, batches)):
            again = replace(task, batches=[*batches[later:], *batches[:later]], folder=task.folder / "later")
            shown = _with_masks(again, both)
            culprits = tuple(
                replace(culprit, step=(culprit.step - 1 + later) % len(batches) + 1) for culprit in shown.culprits
            )
            result = replace(result, culprits=culprits, verdict=shown.verdict) if culprits else result
        culprits = _with_lines(result.culprits, candidate, sides[1])
        return replace(result, findings=(*noted, *result.findings), culprits=culprits)


def _first_faulty(result: StepComparison, batches: Sequence[Batch]) -> int:
    """The number of the first step, from 0, whose batch shows what the first one does not; 0 for none.

    What a step leaves behind for the next one is no matter of the batch.
    """
    steps = {one.step - 1 for one in result.culprits if one.cause != NOT_CLEARED}
    first = min(steps, default=0)
    known = len(steps) == len({one.step for one in result.culprits}) and batches[first] is not batches[0]
    return first if first and known else 0


def _with_lines(culprits: Sequence[StepCulprit], candidate: Given, side: Opened) -> tuple[StepCulprit, ...]:
    if not isinstance(candidate, str) or isinstance(side, ReferenceSteps):
        return tuple(culprits)
    made = {"optimizer": side.training.optimizers, "loss": (side.training.loss,)}
    lines = {part: _line_of(candidate, own) for part, own in made.items()}
    return tuple(replace(one, line=one.line or lines.get(one.part, "")) for one in culprits)


def _line_of(candidate: str, made: Sequence[object]) -> str:
    """The one line of a factory that makes these, or that begins a function of the user's own; "" for several."""
    factory = find_function(candidate)
    lines = {defined_at(one) or made_in(factory, type(one).__name__) for one in made}
    return lines.pop() if len(lines) == 1 else ""


@dataclass(frozen=True)
class _Task:
    sides: tuple[Opened, Opened]
    batches: Sequence[Batch]
    name_map: NameMap | Path | str | None
    folder: Path
    begun: Callable[[], None]
    thorough: bool = False


def _with_masks(task: _Task, live: tuple[TrainingSide, TrainingSide]) -> StepComparison:
    """Compare live sides with the reference's dropout in both."""
    with DropoutReplay(live, task.batches[0]) as dropout:
        result = dropout.compare_steps(lambda time: _compared(replace(task, folder=task.folder / time)))
        culprits = (*dropout.culprits, *result.culprits)
        apart = any(one.code == UNLIKE for one in result.findings)
        verdict = _verdict(culprits, result.gradients, apart=apart, loss=result.losses[0].reference)
        return replace(result, culprits=culprits, findings=(*result.findings, *dropout.findings), verdict=verdict)


def _without_dropout(task: _Task, live: Sequence[TrainingSide]) -> StepComparison:
    """Compare captured steps, which are taken without dropout, with others."""
    with ExitStack() as stack:
        found = [stack.enter_context(without_dropout(one)) for one in live]
        result = _compared(task)
        return replace(result, findings=(*result.findings, *(one for own in found for one in own)))


def _opened(reference: Given, candidate: Given) -> tuple[Opened, Opened]:
    """Read folders of captured steps, and open the others; two live sides together, as they must not share tensors."""
    given = reference, candidate
    folders = [Path(side) if isinstance(side, (str, Path)) and Path(side).is_dir() else None for side in given]
    named = [str(side) if isinstance(side, Path) else side for side in given]
    if folders == [None, None]:
        return open_trainings(named[0], named[1])
    first, second = (
        read_steps(folder) if folder else open_training(name) for folder, name in zip(folders, named, strict=True)
    )
    return first, second


def _batches(batch: InputsSource | None, steps: int | None, recorded: Sequence[RecordedSteps]) -> Sequence[Batch]:
    """The batches of all steps: those that are given, or those of captured steps."""
    if not recorded:
        if batch is None:
            raise UsageError.of("training_error.no_batch")
        return batches_of_steps(batch, STEPS_OF_ONE_BATCH if steps is None else steps)
    known = recorded[0].batches
    if batch is not None or steps not in (None, len(known)):
        raise UsageError.of("training_error.has_its_batch", side=recorded[0].label, count=len(known))
    return known


def _compared(task: _Task) -> StepComparison:
    return _judged(_seen(task), task.folder)


def _seen(task: _Task) -> SeenSteps:
    """Record what is live, and put both sides beside each other."""
    first, second = task.sides
    if not isinstance(first, ReferenceSteps):
        layers = isinstance(second, ReferenceSteps)
        first = record_reference(first, task.batches, task.folder / SIDES[0], begun=task.begun, layers=layers)
    task.begun()
    if isinstance(second, ReferenceSteps):
        seen = see_recorded_steps(first, second.steps, task.name_map)
        theirs = [one for one in second.findings if one.code != UNMEASURED]  # limits are the reference's
        return replace(seen, findings=(*seen.findings, *theirs))
    seen = take_steps_beside(first, second, task.name_map, task.folder / SIDES[1], task.begun)
    reference = None if isinstance(task.sides[0], ReferenceSteps) else task.sides[0]
    return replace(seen, live_reference=reference, thorough=task.thorough)


def _judged(seen: SeenSteps, folder: Path) -> StepComparison:
    live, runs_alike = seen.live, seen.runs_alike
    together = judged_gradients(seen, seen.computed(1, 0), COMPUTED, alone=False)
    alone = (
        judged_gradients(seen, seen.first.computed_gradients, COMPUTED, alone=True) if live and runs_alike else together
    )
    culprits, scale, updates, rates, same = find_step_culprits(seen, alone, together)
    alone = together if same else alone
    run = run_candidate_freely(seen)
    if culprits and live is not None and run is not None:
        again = folder / "candidate-again"
        refuse_random_steps(live, seen.sides[0].batches, seen.traces[1], run, again, seen.start)
    apart = take_apart(seen) if culprits else None
    if apart is not None and seen.sees_updates:
        culprits = explain_at_rate_zero(culprits, seen, apart)
    losses = tuple(compared_losses(seen))
    gradients = tuple(compared_gradients(alone, together, owners_of(seen.parameters[1])))
    unsure = {gradient.candidate for gradient in gradients if scale is not None or gradient.outcome == "could not tell"}
    moments = tuple(compare_moments(seen, unsure))
    free = compare_free_runs(seen, run)
    return StepComparison(
        seen.sides[0].label,
        seen.sides[1].label,
        len(losses),
        losses,
        tuple(compared_layers(seen)) if runs_alike else (),
        gradients,
        tuple(culprits),
        (
            *seen.findings,
            *open_names(seen.names),
            *_unjudged_findings(seen),
            *_sum_findings(seen),
            *mode_findings(seen),
            *_spent_findings(culprits),
            *_call_findings(seen),
            *(
                _loss_findings(losses, culprits, scale or (seen.scale if seen.scale != 1.0 else None))
                if runs_alike
                else ()
            ),
            *rates,
            *(moment_findings(moments) if all(culprit.kind != "update" for culprit in culprits) else ()),
            *(free_run_findings(free) if not culprits else ()),
        ),
        named_environments(*((side.framework, side.environment) for side in seen.sides)),
        _verdict(culprits, gradients, apart=live is None or not runs_alike, loss=losses[0].reference),
        updates,
        free,
        moments,
        () if apart is None else tuple(compare_apart(apart, {update.candidate for update in updates})),
    )


def _sum_findings(seen: SeenSteps) -> Iterator[Finding]:
    steps = [(one, sum_step(one.transform)) for one in seen.names.pairings]
    for kind, side in ((Sum, "reference"), (Share, "candidate")):
        names = [one.target if kind is Sum else one.source for one, step in steps if isinstance(step, kind)]
        if names := [*dict.fromkeys(names)]:
            message = sentence("step_finding.sums_not_compared", names=names, side=side)
            yield Finding("sums-not-compared", "note", names[0], message)


def _unjudged_findings(seen: SeenSteps) -> Iterator[Finding]:
    for side in seen.sides:
        if side.trace.repeated:
            yield Finding("updates-repeated", "warning", side.label, sentence("step_finding.updates_repeated"))
        if side.recomputes and not (seen.live and seen.live_reference):
            message = sentence("step_finding.recompute_not_compared")
            yield Finding("recompute-not-compared", "note", side.label, message)


def _spent_findings(culprits: Sequence[StepCulprit]) -> Iterator[Finding]:
    """Say that looking into the code of a loss ended with the steps that it gets."""
    spent = [one for one in culprits if SPENT in one.facts and not one.cause]
    if spent:
        message = sentence("step_finding.steps_spent", steps=spent[0].facts[SPENT])
        yield Finding("search-ended", "note", spent[0].candidate or spent[0].part, message)


def _call_findings(seen: SeenSteps) -> Iterator[Finding]:
    counts = seen.runs_a_step
    if not seen.runs_alike:
        message = sentence("step_finding.calls_unlike", candidate=counts[1], reference=counts[0])
        yield Finding(UNLIKE, "warning", seen.sides[1].label, message)


def _loss_findings(
    losses: Sequence[ComparedLoss], culprits: Sequence[StepCulprit], scale: float | None
) -> Iterator[Finding]:
    first = losses[0]
    if scale is not None:
        message = sentence("step_finding.loss_scale", factor=scale)
        yield Finding("loss-scale", "note", "loss", message, {"factor": scale})
    candidate_loss = first.candidate if first.alone is None else first.alone
    known = (
        any(culprit.kind in ("loss", "forward") or culprit.cause in OF_LOSS for culprit in culprits)
        or scale is not None
    )
    if first.reference is None or candidate_loss is None or first.limit is None or known:
        return
    in_whole = first.candidate is not None and abs(first.candidate - first.reference) <= first.limit
    if not in_whole and not abs(candidate_loss - first.reference) <= first.limit:
        message = sentence("step_finding.loss_value_differs", candidate=candidate_loss, reference=first.reference)
        yield Finding("loss-value-differs", "warning", "loss", message)


def _verdict(
    culprits: Sequence[StepCulprit], gradients: Sequence[ComparedGradient], *, apart: bool, loss: float | None
) -> Verdict:
    compared = sum(one.outcome != "could not tell" for one in gradients)
    coverage = Coverage(sentence("step_verdict.unit"), compared, len(gradients) - compared)
    if culprits:
        first = culprits[0]
        where = first.candidate or first.part
        kind = first.kind if first.kind != where else ""
        reason = sentence("step_verdict.faults", count=len(culprits), place=where, kind=kind)
        return Verdict(Outcome.NOT_ALIGNED, reason, coverage)
    if loss is not None and not isfinite(loss):
        return Verdict(Outcome.NOT_COMPARED, sentence("step_verdict.loss_not_finite", loss=loss), coverage)
    if not compared:
        return Verdict(Outcome.NOT_COMPARED, sentence("step_verdict.nothing_compared"), coverage)
    agree = sentence("step_verdict.agree_in_whole" if apart else "step_verdict.agree_alone", count=compared)
    return Verdict(Outcome.ALIGNED, agree, coverage)


# Training steps of one side written into a folder, to be compared on another machine, or later.


CAPTURE_STAGES = 3  # no limit: what progress is reported of


def capture_training_step(  # noqa: PLR0913 - the options of one command
    side: str | Training,
    folder: Path | str,
    *,
    batch: InputsSource,
    steps: int = STEPS_OF_ONE_BATCH,
    overwrite: bool = False,
    data: Any = None,
    progress: Progress = silent,
) -> CapturedSteps:
    """Take training steps of one side and write all that `compare_training_step` needs of them into a folder.

    `side`, `batch` and `steps` are as there. The folder holds losses, tensors and gradients of the layers in the first
    step, gradients and values of parameters and buffers of all steps, their rounding, the settings of the optimizer,
    and the batches; of `data`, the loader or dataset that the training iterates over, its lengths, and it is not read.
    It is written whole or not at all; captured steps are replaced if `overwrite` says so.
    Raises DestinationError for one that is not to be replaced, holds something else, or cannot be written.

    >>> from align.core.training import Training
    >>> from align.models.frameworks.arrays import ArrayModel
    >>> import numpy as np
    >>> side = Training(ArrayModel(()))
    >>> capture_training_step(side, "none", batch={"x": np.ones(2)})  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    align.errors.CannotRunError: arrays models cannot be trained
    """
    destination = Path(folder)
    if not overwrite and any((destination / name).exists() for name in FILES):
        raise DestinationError.of("training_error.folder_exists", folder=destination)
    lengths = describe_data(data)
    opened, batches, stages = open_training(side), batches_of_steps(batch, steps), count(1)
    reader, noted = opened.side.reader, batch_findings(opened, batches[0])
    with without_dropout(opened) as findings, atomic_folder(destination, FILES) as part:
        recorded = record_reference(
            opened, batches, part, begun=lambda: progress("capture", next(stages), CAPTURE_STAGES), layers=True
        )
        recorded_steps = replace(recorded.steps, environment={**recorded.steps.environment, **lengths})
        recorded = replace(recorded, steps=recorded_steps, findings=(*noted, *recorded.findings, *findings))
        settings = reader.read_settings(opened.side.model) if isinstance(reader, SettingsReader) else []
        write_steps(part, recorded, settings)
        result = _summary(destination, recorded, sum(path.stat().st_size for path in part.rglob("*") if path.is_file()))
    progress("capture", CAPTURE_STAGES, CAPTURE_STAGES)
    return result


def _summary(folder: Path, captured: ReferenceSteps, nbytes: int) -> CapturedSteps:
    steps = captured.steps
    return CapturedSteps(
        str(folder),
        steps.label,
        steps.framework,
        tuple(steps.trace.losses),
        len({(one.module, one.call) for one in steps.trace.forward.captures}),
        len(steps.trace.values(0, COMPUTED)),
        len(steps.trace.values(0, AFTER)),
        nbytes,
        {**steps.environment},
        captured.findings,
    )


# A folder with the steps of a side, read where neither its model nor its framework is.


SCHEMA = "mindalign.training-steps/1"
STEPS, BATCHES, NOISE = "steps.json", "batches.npz", "noise"
FILES = (STEPS, BATCHES, NOISE, MODEL_FILE, *PARTS)
_KINDS = ("forward", "backward", "alone", "together", "gathered_forward", "gathered_backward")


def write_steps(folder: Path, reference: ReferenceSteps, settings: Iterable[LayerSettings]) -> None:
    """Write what is known of steps whose tensors are in the folder already; `settings` are those of the layers."""
    steps, noise = reference.steps, reference.noise
    write_model(folder, steps.parameters, [*settings])
    arrays, forms = taken_apart(steps.batches)
    save_inputs(folder / BATCHES, arrays)
    for kind in _KINDS:
        (folder / NOISE / kind).mkdir(parents=True)
        write_noise(folder / NOISE / kind, getattr(noise, kind))
    paths = [one.path for one in steps.parameters.modules]
    document = {
        "schema": SCHEMA,
        "side": steps.label,
        "framework": steps.framework,
        "environment": steps.environment,
        "losses": steps.trace.losses,
        "noise_losses": noise.losses,
        "growth": noise.growth,
        "groups": _group_tables(steps.groups),
        "loss": steps.loss,
        "own_step": steps.own_step,
        "batches": forms,
        "recomputes": steps.recomputes,
        "repeated": steps.trace.repeated,
        "findings": reference.findings,
        "made_at": {path: line for path in paths if (line := steps.line_of(path))},
        "called_at": {path: line for path in paths if (line := steps.line_of(path, calls=True))},
        "files": {name: sha256_of(folder / name) for name in sorted(_files(folder))},
    }
    write_text(folder / STEPS, json.dumps(to_json_data(document), ensure_ascii=False) + "\n")


_RATES = form.table({"values": form.listed(form.FIGURE)})
_OWN_GROUP = {"settings": form.SETTINGS, "names": form.maybe(form.TEXTS), "count": form.COUNT, "rates": _RATES}
_GROUP = {"group": form.table({**_OWN_GROUP, "problems": form.TEXTS}), "parameters": form.TEXTS}
_FORM = Form(
    form.table(
        {"schema": form.TEXT},
        {
            "side": form.TEXT,
            "framework": form.TEXT,
            "environment": form.TEXT_BY_NAME,
            "losses": form.listed(form.maybe(form.FIGURE)),
            "noise_losses": form.listed(form.maybe(form.FIGURE)),
            "growth": form.listed(form.maybe(form.FIGURE)),
            "groups": form.listed(form.table(_GROUP)),
            "loss": form.maybe(form.SETTINGS),
            "findings": form.listed({"type": "object"}),
            "made_at": form.TEXT_BY_NAME,
            "called_at": form.TEXT_BY_NAME,
            "files": form.TEXT_BY_NAME,
        },
    )
)


def read_steps(folder: Path) -> ReferenceSteps:
    """Read a folder back; raises RunFolderError for none, for another schema and for damage."""
    if not (folder / STEPS).is_file():
        raise RunFolderError.of("training_error.no_steps_in_folder", folder=folder)
    try:
        document = _FORM.require(read_json(folder / STEPS))
        if document["schema"] != SCHEMA:
            schemas = {"schema": document["schema"], "expected": SCHEMA}
            raise RunFolderError.of("training_error.other_schema", path=folder / STEPS, **schemas)
        _check(folder, document["files"])
        return _reference(folder, document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = str(error) if isinstance(error, DocumentFault) else f"{type(error).__name__}: {error}"
        raise RunFolderError.of("training_error.damaged", path=folder / STEPS, reason=reason) from error


def _files(folder: Path) -> Iterable[str]:
    """All that is not checked by the traces themselves; a manifest stands for its tensors."""
    return (
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and path.name != STEPS and path.suffix != ".safetensors"
    )


def _check(folder: Path, files: Mapping[str, str]) -> None:
    for name, known in files.items():
        path = folder / name
        if not path.is_file():
            raise RunFolderError.of("training_error.missing", path=path)
        if sha256_of(path) != known:
            raise RunFolderError.of("training_error.other_file", path=path)


def _reference(folder: Path, document: Mapping[str, Any]) -> ReferenceSteps:
    model = read_model(folder)
    if model is None:
        raise RunFolderError.of("training_error.missing", path=folder / MODEL_FILE)
    steps = RecordedSteps(
        document["side"],
        document["framework"],
        document["environment"],
        model[0],
        {name: group for table in document["groups"] for name, group in _group(table)},
        layer_from(document["loss"]) if document["loss"] else None,
        document["own_step"],
        partial(_kept_line, (document["made_at"], document["called_at"])),
        put_together(read_batches(folder / BATCHES), document.get("batches")),
        StepTrace(folder, [_number(loss) for loss in document["losses"]], repeated=document["repeated"]),
        document["recomputes"],
    )
    kinds = {kind: read_noise(folder / NOISE / kind)[0] or {} for kind in _KINDS}
    losses, growth = (tuple(map(_number, document[key])) for key in ("noise_losses", "growth"))
    noise = StepNoise(**kinds, losses=losses, growth=growth)
    return ReferenceSteps(steps, noise, tuple(map(_finding, document["findings"])))


def _finding(table: dict[str, Any]) -> Finding:
    """A finding as it was written, with what its message was made from if that was kept."""
    return replace(Finding(**own_fields(table)), message=kept_sentence(table, "message"))


def _kept_line(lines: tuple[Mapping[str, str], Mapping[str, str]], path: str, *, calls: bool = False) -> str:
    return lines[calls].get(path, "")


def _number(value: float | str | None) -> float | None:
    """A loss as it was before JSON, which has no NaN."""
    return None if value is None else float(value)


def _group_tables(groups: Mapping[str, ParameterGroup]) -> list[dict[str, Any]]:
    """Each group once, with the names of its parameters here."""
    found: dict[int, dict[str, Any]] = {}
    for name, group in groups.items():
        found.setdefault(id(group), {"group": group, "parameters": []})["parameters"].append(name)
    return [*found.values()]


def _group(table: Mapping[str, Any]) -> Iterable[tuple[str, ParameterGroup]]:
    stored, rates = table["group"], table["group"]["rates"]
    group = ParameterGroup(
        layer_from(stored["settings"]),
        None if stored["names"] is None else tuple(stored["names"]),
        stored["count"],
        LearningRates(**{**rates, "values": tuple(float(rate) for rate in rates["values"])}),
        tuple(stored["problems"]),
    )
    return ((name, group) for name in table["parameters"])
