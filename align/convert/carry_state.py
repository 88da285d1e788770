"""The state of an optimizer carried beside the weights: found, its parameters in order, and planned either way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from align.checkpoints.names_in_file import source_framework
from align.convert.given_map import is_record
from align.convert.optimizer_state import (
    MindSporeStateFile,
    choose_port,
    read_mindspore_state,
    read_torch_state,
    without_state,
)
from align.convert.parameter_order import order_parameters, read_live_order
from align.convert.plan_conversion import STEPS
from align.convert.plan_state import is_plain, plan_for_mindspore
from align.convert.state_for_torch import KnownGroups, groups_from, plan_for_torch
from align.core.atomic_files import existing_file
from align.core.documents import DocumentFault, Form, read_json
from align.core.name_map import NameMap
from align.core.parameters import StoredTensor
from align.core.protocols import TreeWriter
from align.errors import MapError, UsageError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.convert.choose_names import ChosenNames, NameRequest
    from align.convert.optimizer_state import StateOptions, TorchStateFile
    from align.convert.parameter_order import LiveOrder
    from align.convert.plan_state import StatePlan
    from align.core.parameters import Checkpoint
    from align.core.protocols import CheckpointFormat

RECORDED = Form(
    {
        "type": "object",
        "properties": {
            "state": {
                "type": ["object", "null"],
                "required": ["optimizer", "port", "groups"],
                "properties": {
                    "steps": {"type": ["integer", "null"]},
                    "optimizer": {"type": "string"},
                    "port": {"type": "string"},
                    "groups": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["parameters", "settings"],
                            "properties": {
                                "parameters": {"type": "array", "items": {"type": "string"}},
                                "settings": {"type": "object"},
                            },
                        },
                    },
                },
            }
        },
    }
)


@dataclass(frozen=True, slots=True)
class StateTask:
    """A state that was found beside weights: what is left of the file and of the request once it is taken out."""

    checkpoint: Checkpoint
    request: NameRequest
    whole: Checkpoint
    saved: TorchStateFile | MindSporeStateFile
    live: LiveOrder | None
    options: StateOptions
    recorded: KnownGroups | None = None

    def plan(self, names: ChosenNames, plugin: CheckpointFormat) -> StatePlan:
        """Say what becomes of the state, once the names are chosen; raises UsageError where it cannot be written."""
        source = "mindspore" if isinstance(self.saved, MindSporeStateFile) else "torch"
        if source == names.framework:
            raise UsageError.of("optimizer_state.one_framework", path=self.whole.path, framework=source)
        if not isinstance(self.saved, MindSporeStateFile):
            saved, port = self.saved, choose_port(self.saved, self.options)
            order = order_parameters(saved.shapes(), saved.listed(), self.whole.tensors, self.live)
            return plan_for_mindspore(saved, order, port, names, self.whole.tensors)
        if not isinstance(plugin, TreeWriter):
            raise UsageError.of("optimizer_state.not_nested", format=plugin.name)
        targets = {pair.target: self.whole.tensors[pair.source] for pair in names.name_map.pairings}
        known = groups_from(self.live, self.recorded, targets)
        return plan_for_torch(self.saved, known, names, self.whole, plugin)


def find_state(checkpoint: Checkpoint, request: NameRequest, options: StateOptions) -> StateTask:
    """Find the state of an optimizer in or beside a checkpoint, with what tells the order of its parameters.

    Beside a map or a family, a model only tells that order. Raises what reading the state raises.
    """
    framework, _ = source_framework(checkpoint.metadata, checkpoint.tensors)
    decided = request.name_map is not None or request.family is not None
    if framework == "torch":
        saved = read_torch_state(checkpoint, options)
        live = read_live_order(request.source_model) if isinstance(request.source_model, str) else None
        if live is not None:
            request = replace(request, source_model=None if decided else live.side)
        return StateTask(without_state(checkpoint, saved), request, checkpoint, saved, live, options)
    recorded, port = _recorded(request.name_map)
    state = read_mindspore_state(checkpoint, options, port)
    live = read_live_order(request.target_model) if isinstance(request.target_model, str) else None
    if live is not None:
        request = replace(request, target_model=live.side if request.source_model and not decided else None)
    steps = state.steps
    if steps is not None:
        counted = np.array([steps], np.int64)
        since = steps - (recorded.steps if recorded and recorded.steps is not None else steps)
        request = replace(request, counts={STEPS: StoredTensor(STEPS, (1,), "int64", lambda: counted)}, since=since)
    return StateTask(without_state(checkpoint, state), request, checkpoint, state, live, options, recorded)


def _recorded(given: NameMap | Path | str | None) -> tuple[KnownGroups | None, str]:
    """The groups that the record of a conversion has, and MindSpore's optimizer; raises MapError for an odd record."""
    path = None if given is None or isinstance(given, NameMap) else existing_file(Path(given), "map file")
    if path is None or not is_record(path):
        return None, ""
    try:
        state = RECORDED.require(read_json(path)).get("state")
    except DocumentFault as error:
        raise MapError(path, [str(error)]) from error
    if state is None or not all(group["parameters"] for group in state["groups"]):
        return None, state["port"] if state else ""
    groups = tuple(tuple(group["parameters"]) for group in state["groups"])
    settings = tuple(
        {key: tuple(one) if isinstance(one, list) else one for key, one in group["settings"].items() if is_plain(one)}
        for group in state["groups"]
    )
    known = KnownGroups(
        groups, settings, sentence("state_order.record", path=str(path)), state["optimizer"], state.get("steps")
    )
    return known, state["port"]
