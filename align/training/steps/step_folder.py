"""A folder with the steps of a side, read where neither its model nor its framework is."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from align.core import documents as form
from align.core.atomic_files import sha256_of, write_text
from align.core.documents import DocumentFault, Form, read_json
from align.core.json_data import kept_sentence, own_fields, to_json_data
from align.core.protocols import LearningRates, ParameterGroup
from align.core.verdicts import Finding
from align.errors import RunFolderError
from align.models.inputs import read_batches, save_inputs
from align.traces.manifest import MODEL_FILE, layer_from, read_model, write_model
from align.traces.open_trace import read_noise, write_noise
from align.training.open_training import put_together, taken_apart
from align.training.steps.judge_step import StepNoise
from align.training.steps.record_step import PARTS, StepTrace
from align.training.steps.recorded_steps import RecordedSteps, ReferenceSteps

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from align.core.protocols import LayerSettings

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
        {name: group for one in document["groups"] for name, group in _group(one)},
        layer_from(document["loss"]) if document["loss"] else None,
        document["own_step"],
        partial(_kept_line, (document["made_at"], document["called_at"])),
        put_together(read_batches(folder / BATCHES), document.get("batches")),
        StepTrace(folder, [_number(one) for one in document["losses"]], repeated=document["repeated"]),
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
    own, rates = table["group"], table["group"]["rates"]
    group = ParameterGroup(
        layer_from(own["settings"]),
        None if own["names"] is None else tuple(own["names"]),
        own["count"],
        LearningRates(**{**rates, "values": tuple(float(one) for one in rates["values"])}),
        tuple(own["problems"]),
    )
    return ((name, group) for name in table["parameters"])
