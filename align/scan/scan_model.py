"""Every call of a torch model against the table of what MindSpore has for it.

With inputs the model is run, and its calls are seen with their lines; without, its source is read.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from align.core.progress import silent
from align.errors import CannotRunError
from align.models.api_calls import CallWatcher
from align.models.describe_sides import describe_host
from align.models.fit_inputs import run_fitted
from align.models.inputs import describe_inputs, read_batches
from align.models.open_side import open_side
from align.models.source_lines import made_at
from align.models.user_code import find_function
from align.rules.api_table import BY_EFFORT, api_entries, scan_target
from align.scan.calls_in_source import calls_in_source
from align.scan.scan_result import CallPlace, ScannedCall, ScanResult
from align.scan.source_rules import source_findings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from align.core.dtypes import Array
    from align.core.progress import Progress
    from align.core.protocols import Inputs, Model
    from align.core.traces import Capture
    from align.models.api_calls import ApiCall
    from align.models.inputs import InputsSource
    from align.models.open_side import Side
    from align.rules.api_table import ApiEntry, Counterpart, ScanTarget

STAGES = 2  # no limit: what progress is reported of


def scan_model(
    side: str | Model | Side,
    *,
    inputs: InputsSource | None = None,
    target: str = "cpu",
    progress: Progress = silent,
) -> ScanResult:
    """Look up every layer, function and tensor method that a torch model calls in the table of counterparts.

    With `inputs` the model is run, else its source is read. `target` is `cpu`, `gpu` or `ascend:CHIP`: many functions
    have a kernel on Ascend only. Raises UsageError for another target, CannotRunError for a model that is not torch's,
    or whose source cannot be read.

    >>> scan_model("model.py:build", target="tpu")
    Traceback (most recent call last):
    align.errors.UsageError: no target is called 'tpu'
    Hint: known: cpu, gpu, ascend:910a, ascend:310p, ascend:910b, ascend:910c, ascend:950
    """
    wanted = scan_target(target)
    opened = open_side(side)
    if not isinstance(opened.reader, CallWatcher):
        raise CannotRunError.of("scan_error.no_torch_model", side=opened.label, framework=opened.reader.name)
    progress("scan", 0, STAGES)
    took: Inputs = {}
    if inputs is None:
        calls = calls_in_source(opened.model, opened.reader, opened.label)
    else:
        calls, took = _seen_in_run(opened, opened.reader, inputs)
    if not calls:
        raise CannotRunError.of("scan_error.nothing_called", side=opened.label)
    progress("scan", 1, STAGES)
    scanned = scanned_calls(calls, wanted, opened.model)
    progress("scan", STAGES, STAGES)
    return ScanResult(
        model=opened.label,
        target=wanted.name,
        seen_by="source" if inputs is None else "run",
        calls=scanned,
        counts={status: sum(one.calls for one in scanned if one.status == status) for status in BY_EFFORT},
        findings=source_findings(opened.model, find_function(side) if isinstance(side, str) else None),
        inputs=describe_inputs(took) if took else {},
        environment={opened.reader.name: opened.reader.environment(), "host": describe_host()},
    )


class _Unkept:
    """A sink for a run of which nothing is kept."""

    def add(self, capture: Capture, value: Array) -> None:
        """Take nothing."""


def _seen_in_run(opened: Side, watcher: CallWatcher, inputs: InputsSource) -> tuple[tuple[ApiCall, ...], Inputs]:
    batches = read_batches(inputs)
    watched: list[Model] = []

    def run(given: Inputs) -> None:
        watched[:] = [watcher.watched(opened.model)]
        watcher.run(watched[0], given, _Unkept())

    took = run_fitted(opened, batches, run)
    return watcher.watched_calls(watched[0]), took


def scanned_calls(calls: Iterable[ApiCall], target: ScanTarget, model: Model) -> tuple[ScannedCall, ...]:
    """Calls by name, with what the table says of each; those that need most work first, then the most frequent."""
    by_name: dict[str, list[ApiCall]] = defaultdict(list)
    for call in calls:
        by_name[call.api].append(call)
    entries = api_entries()
    scanned = [_scanned(name, own, entries.get(name), target, model) for name, own in by_name.items()]
    return tuple(sorted(scanned, key=lambda one: (BY_EFFORT.index(one.status), -one.calls, one.api)))


def _scanned(
    name: str, calls: Sequence[ApiCall], entry: ApiEntry | None, target: ScanTarget, model: Model
) -> ScannedCall:
    kind, count, places = calls[0].kind, sum(one.calls for one in calls), _places(calls, model)
    if entry is None:
        return ScannedCall(name, kind, "unknown", count, places)
    status, counterpart = entry.answer(target.platform)
    return ScannedCall(
        api=name,
        kind=kind,
        status=status,
        calls=count,
        places=places,
        counterpart=counterpart.name if counterpart else "",
        settings=counterpart.settings if counterpart else (),
        write=entry.write if status in ("no counterpart", "no kernel") else _written(counterpart, calls, model),
        certainty=counterpart.certainty if counterpart else entry.certainty,
        source=entry.source,
        chip=_on_chip(entry, target),
    )


def _written(counterpart: Counterpart | None, calls: Sequence[ApiCall], model: Model) -> str:
    """What to write for these layers, of several forms each behind its setting; a function's arguments are not seen."""
    if counterpart is None:
        return ""
    layers = dict(model.named_modules()) if counterpart.otherwise else {}
    forms = {counterpart.call_for(vars(layers[one.module]) if one.module in layers else {}) for one in calls}
    if len(forms) == 1:
        return forms.pop().write
    ordered = sorted(forms, key=lambda one: (one.setting, one.value))
    return "; ".join(f"{one.setting}={one.value!r}: {one.write}" if one.setting else one.write for one in ordered)


def _places(calls: Sequence[ApiCall], model: Model) -> tuple[CallPlace, ...]:
    """Where a name is called; of a layer, the line that makes it."""
    return tuple(
        CallPlace(made_at(model, one.module) if one.kind == "layer" else one.line, one.module, one.calls)
        for one in calls
    )


def _on_chip(entry: ApiEntry, target: ScanTarget) -> str:
    """What an Ascend chip does with the operators of an entry, "" where nothing else than float32."""
    if target.chip is None or not entry.operators:
        return ""
    rules = (rule for rule in target.chip.entries() if rule.computes != "float32")
    return next((rule.operator_class for rule in rules if set(rule.torch) & set(entry.operators)), "")
