"""Training steps of `align capture --step`: optimizer and loss as they were, lengths of the data, versions.

An optimizer has groups, of which some are held out from decay or have a smaller rate: the largest number of a setting
is the training's.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from align.checkpoints.open_checkpoint import is_kept_by_torch, read_kept_settings
from align.core.atomic_files import sha256_of
from align.errors import NotACheckpointError, UnreadableSettingsError
from align.hyperparameters.settings_format import Setting, SettingsPlugin, SettingsSource
from align.hyperparameters.thresholds import LONGEST_LOG_HEAD_BYTES
from align.traces.open_trace import show_trace
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


STEPS, SCHEMA = "steps.json", "mindalign.training-steps/1"
OF_OPTIMIZER = (
    "lr", "learning_rate", "betas", "beta1", "beta2", "eps", "weight_decay", "momentum", "nesterov", "use_nesterov",
)  # fmt: skip
OF_LOSS = ("label_smoothing", "reduction", "ignore_index")


class CapturedSteps(SettingsPlugin):
    """Folders of `align capture --step`."""

    name = "captured-steps"
    summary = "training steps of align capture --step: optimizer, loss, lengths of the data, versions"

    def recognizes(self, source: SettingsSource) -> bool:
        """Tell by its description."""
        return (source.path / STEPS).is_file()

    def read(self, source: SettingsSource) -> Iterator[Setting]:
        """Read what the description says of the training; tensors are not looked at."""
        place = f"{source.path / STEPS}:1"
        try:
            document = json.loads(SettingsSource(source.path / STEPS).whole_text(LONGEST_LOG_HEAD_BYTES))
            if document["schema"] != SCHEMA:
                raise KeyError(document["schema"])
            facts = {fact_name(name): value for name, value in document["environment"].items()}
            found = {**facts, **_of_optimizer(document["groups"]), **_of_loss(document["loss"])}
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            raise UnreadableSettingsError(place, say("settings_fault.no_steps", error=error)) from error
        for name, value in found.items():
            yield Setting(name, tuple(value) if isinstance(value, list) else value, place)


def _of_optimizer(groups: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for settings in (one["group"]["settings"] for one in groups):
        values.setdefault("optimizer", _short(settings["classes"]))
        for name in OF_OPTIMIZER:
            if (value := settings["values"].get(name)) is not None:
                values[name] = max(values.get(name, value), value)
    return values


def _of_loss(loss: Mapping[str, Any] | None) -> dict[str, Any]:
    if loss is None:
        return {}
    return {"loss": _short(loss["classes"]), **{name: loss["values"].get(name) for name in OF_LOSS}}


def _short(classes: Sequence[str]) -> str:
    return classes[0].rpartition(".")[2]


# A trace folder of `align capture`: versions, devices and data that a run had, fingerprints of inputs and weights.

MANIFEST, VALUES = "manifest.jsonl", "values.safetensors"


class CaptureFolder(SettingsPlugin):
    """Folders of `align capture`."""

    name = "capture"
    summary = "a trace folder of align capture: versions, devices, variables, lengths of the data, fingerprints"

    def recognizes(self, source: SettingsSource) -> bool:
        """Tell by its manifest."""
        return (source.path / MANIFEST).is_file()

    def read(self, source: SettingsSource) -> Iterator[Setting]:
        """Read what the manifest says of the run, and hash the weights."""
        trace = show_trace(source.path)
        place = f"{source.path / MANIFEST}:1"
        for name, value in trace.environment.items():
            yield Setting(fact_name(name), value, place)
        if trace.head is not None:
            yield Setting("fingerprint.mode", trace.head.mode, place)
            for name, facts in trace.head.inputs.items():
                for fact, found in facts.items():
                    yield Setting(f"fingerprint.inputs.{name}.{fact}", str(found), place)
        if (source.path / VALUES).is_file():
            yield Setting("fingerprint.weights", sha256_of(source.path / VALUES), str(source.path / VALUES))


# training_args.bin of transformers' Trainer; its pickle is looked at and never run.


class TrainingArgsFile(SettingsPlugin):
    """Files of `torch.save` with one object of settings."""

    name = "training-args"
    summary = "training_args.bin of transformers, looked at and never run"

    def recognizes(self, source: SettingsSource) -> bool:
        """Tell by its first bytes."""
        return is_kept_by_torch(source.head)

    def read(self, source: SettingsSource) -> list[Setting]:
        """Read the fields of the object."""
        try:
            fields = read_kept_settings(source.path)
        except NotACheckpointError as error:
            raise UnreadableSettingsError(source.shown, error.message) from error
        return [Setting(name, value, source.shown) for name, value in fields.items()]


# What captures call facts of a run, and the names of settings that these are.

OWN_NAMES = {
    "seed": "seed",
    "world size": "world_size",
    "dataset samples": "dataset_size",
    "dataset batches": "batches_per_epoch",
    "dataset batch_size": "batch_size",
}


def fact_name(fact: str) -> str:
    """The name of a fact of the run; a variable has that of one which a script exports.

    >>> fact_name("dataset samples"), fact_name("variable NCCL_ALGO")
    ('dataset_size', 'environment.NCCL_ALGO')
    """
    return OWN_NAMES.get(fact, f"environment.{fact.removeprefix('variable ')}")


PLUGINS = (CapturedSteps(), CaptureFolder(), TrainingArgsFile())
