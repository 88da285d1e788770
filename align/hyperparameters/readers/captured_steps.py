"""Training steps of `align capture --step`: optimizer and loss as they were, lengths of the data, versions.

An optimizer has groups, of which some are held out from decay or have a smaller rate: the largest number of a setting
is the training's.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from align.errors import UnreadableSettingsError
from align.hyperparameters.reader_parts.captured_facts import fact_name
from align.hyperparameters.settings_format import Setting
from align.hyperparameters.settings_source import SettingsSource
from align.hyperparameters.thresholds import LONGEST_LOG_HEAD_BYTES
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


STEPS, SCHEMA = "steps.json", "mindalign.training-steps/1"
OF_OPTIMIZER = (
    "lr", "learning_rate", "betas", "beta1", "beta2", "eps", "weight_decay", "momentum", "nesterov", "use_nesterov",
)  # fmt: skip
OF_LOSS = ("label_smoothing", "reduction", "ignore_index")


class CapturedSteps:
    """Folders of `align capture --step`."""

    name = "captured-steps"
    summary = "training steps of align capture --step: optimizer, loss, lengths of the data, versions"
    requires: tuple[str, ...] = ()
    certain = True

    def recognizes(self, source: SettingsSource) -> bool:
        """By its description."""
        return (source.path / STEPS).is_file()

    def read(self, source: SettingsSource) -> Iterator[Setting]:
        """Read what the description says of the training; tensors are not looked at."""
        place = f"{source.path / STEPS}:1"
        try:
            document = json.loads(SettingsSource(source.path / STEPS).whole_text(LONGEST_LOG_HEAD_BYTES))
            if document["schema"] != SCHEMA:
                raise KeyError(document["schema"])
            found = {**_facts(document), **_of_optimizer(document["groups"]), **_of_loss(document["loss"])}
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            raise UnreadableSettingsError(place, say("settings_fault.no_steps", error=error)) from error
        for name, value in found.items():
            yield Setting(name, tuple(value) if isinstance(value, list) else value, place)


def _facts(document: Mapping[str, Any]) -> dict[str, Any]:
    return {fact_name(name): value for name, value in document["environment"].items()}


def _of_optimizer(groups: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for own in (one["group"]["settings"] for one in groups):
        found.setdefault("optimizer", _short(own["classes"]))
        for name in OF_OPTIMIZER:
            if (value := own["values"].get(name)) is not None:
                found[name] = max(found.get(name, value), value)
    return found


def _of_loss(loss: Mapping[str, Any] | None) -> dict[str, Any]:
    if loss is None:
        return {}
    return {"loss": _short(loss["classes"]), **{name: loss["values"].get(name) for name in OF_LOSS}}


def _short(classes: Sequence[str]) -> str:
    return classes[0].rpartition(".")[2]


PLUGIN = CapturedSteps()
