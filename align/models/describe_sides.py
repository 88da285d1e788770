"""What a report says of the sides beside their layers: where they ran, what is not seen, what was done to them.

Layers that a model holds and its framework does not see stand in a Python list, tuple or dict: their parameters are in
no checkpoint, and no optimizer trains them. Some models keep another one so on purpose (a teacher), so it is worth a
word only where parameters lack a counterpart.
"""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np

from align.core.about import __version__
from align.core.protocols import GraphRunner, Plugin
from align.core.verdicts import Finding
from align.models.source_lines import made_at
from align.models.thresholds import LONGEST_VARIABLE, SEED
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from align.core.parameters import Shape
    from align.core.protocols import Model, Setting
    from align.models.open_side import Side


VARIABLES = (
    "ASCEND_", "ACL_", "ATB_", "CUBLAS_", "CUDA_", "CUDNN_", "DNNL_", "FLAGS_", "HCCL_", "KMP_", "LCCL_", "MINDSPORE_",
    "MKL_", "MS_", "NCCL_", "NPU_", "NVIDIA_TF32", "OMP_", "ONEDNN_", "PYTHONHASHSEED", "PYTORCH_", "TASK_QUEUE_",
    "TORCH_",
)  # fmt: skip
COUNTS_OF_PROCESSES = ("WORLD_SIZE", "RANK_SIZE", "MS_WORKER_NUM", "OMPI_COMM_WORLD_SIZE")
SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|(^|_)KEY(_|$)", re.IGNORECASE)
WALKS = {"torch": "named_modules", "mindspore": "cells_and_names"}
LISTS = {
    "torch": ("nn.ModuleList([...])", "nn.ModuleDict({...})"),
    "mindspore": ("nn.CellList([...])", "nn.CellDict({...})"),
}


def environments(reference: Side, candidate: Side) -> dict[str, dict[str, str]]:
    """The environments of two sides by framework; one of the same framework that differs is named by its side."""
    mine, theirs = ((one.reader.name, one.reader.environment()) for one in (reference, candidate))
    return named_environments(mine, theirs)


def describe_host() -> dict[str, str]:
    """Versions of what is beside the framework, the machine, and the seed that every run starts from."""
    versions = {"mindalign": __version__, "python": platform.python_version(), "numpy": np.__version__}
    return {**versions, "platform": platform.platform(), "seed": str(SEED)}


def describe_launch() -> dict[str, str]:
    """The same, with what the shell or the launcher has set, for runs that are compared later."""
    return {**describe_host(), **launch_settings(os.environ)}


def launch_settings(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables of the environment that frameworks, their libraries and launchers read, and the number of processes.

    What may hold a secret is left out.

    >>> launch_settings({"WORLD_SIZE": "8", "NCCL_ALGO": "Ring", "HOME": "/root", "MS_TOKEN": "x"})
    {'world size': '8', 'variable NCCL_ALGO': 'Ring', 'variable WORLD_SIZE': '8'}
    """
    known = {
        f"variable {name}": value[:LONGEST_VARIABLE]
        for name, value in sorted(variables.items())
        if (name in COUNTS_OF_PROCESSES or name.startswith(VARIABLES)) and not SECRET.search(name)
    }
    size = next((variables[name] for name in COUNTS_OF_PROCESSES if variables.get(name, "").isdigit()), None)
    return known if size is None else {"world size": size, **known}


def named_environments(
    reference: tuple[str, Mapping[str, str]], candidate: tuple[str, Mapping[str, str]]
) -> dict[str, dict[str, str]]:
    """The same of sides that are known by framework and environment only."""
    same = reference[0] == candidate[0] and reference[1] != candidate[1]
    return {reference[0]: {**reference[1]}, candidate[0] + (" (candidate)" if same else ""): {**candidate[1]}}


def unseen_layers(*sides: Side) -> Iterator[Finding]:
    """Note the sides whose layers cannot be seen, and those whose compiled code is run uncompiled so that they can."""
    for side in sides:
        jitted = side.reader.jitted_code(side.model) if isinstance(side.reader, GraphRunner) else ()
        if jitted and not side.compiled:
            message = sentence("side_finding.jit_uncompiled", names=[*jitted])
            yield Finding("jit-uncompiled", "note", side.label, message)
        if side.compiled:
            yield Finding("outputs-only", "note", side.label, sentence("side_finding.outputs_only"))


def copied_sides(*sides: Side) -> Iterator[Finding]:
    """Note the sides whose model is a copy of one that shared tensors, has a wrapper's names, or left state unread."""
    for side in sides:
        if side.unwrapped:
            message = sentence("side_finding.names_unwrapped", words=side.unwrapped)
            yield Finding("names-unwrapped", "note", side.label, message)
        if side.not_loaded:
            message = sentence("side_finding.not_loaded", names=side.not_loaded)
            yield Finding("training-state-not-loaded", "note", side.label, message)
        if side.copied:
            yield Finding("side-copied", "note", side.label, side.copied)


@dataclass(frozen=True, slots=True)
class UnregisteredLayers:
    """A container at `path` with layers of a class, how many, the line that makes it ("" if unknown), what to write."""

    path: str
    container: str
    class_name: str
    count: int
    line: str
    change: str


def unregistered_layers(side: Side) -> tuple[UnregisteredLayers, ...]:
    """Find the containers of a live model that hold layers which the framework has not registered.

    Only attributes of registered layers are looked at, and one level of a container; models of frameworks without such
    a register have none.
    """
    model, framework = side.model, side.reader.name
    walk = WALKS.get(framework, "")
    if not hasattr(model, walk):
        return ()
    registered = dict(getattr(model, walk)())
    known = {id(layer) for layer in registered.values()}
    return tuple(
        _found(model, framework, f"{path}.{name}".lstrip("."), value, own)
        for path, layer in registered.items()
        for name, value in vars(layer).items()
        if (own := [one for one in _items(value) if hasattr(one, walk) and id(one) not in known])
    )


def _items(value: object) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        yield from value
    elif isinstance(value, dict):
        yield from value.values()


def _found(model: Model, framework: str, path: str, value: object, own: list[Any]) -> UnregisteredLayers:
    change = LISTS[framework][isinstance(value, dict)]
    return UnregisteredLayers(path, type(value).__name__, type(own[0]).__name__, len(own), made_at(model, path), change)


CHANGES = {"torch": "nn.Parameter(...)", "mindspore": "Parameter(...)"}


@dataclass(frozen=True, slots=True)
class UnregisteredTensor:
    """A tensor at `path` of a shape, the line that makes it ("" if unknown), and what to write."""

    path: str
    shape: Shape
    line: str
    change: str


def unregistered_tensors(model: Model, framework: str, shapes: Collection[Shape]) -> tuple[UnregisteredTensor, ...]:
    """Find tensors of these shapes that layers of a live model hold and their framework has not registered.

    Models of frameworks without such a register have none.
    """
    walk = WALKS.get(framework, "")
    if not hasattr(model, walk):
        return ()
    return tuple(
        UnregisteredTensor(full_name, shape, made_at(model, full_name), CHANGES[framework])
        for path, layer in getattr(model, walk)()
        for name, shape in _tensors(layer, framework)
        if shape in shapes
        for full_name in [f"{path}.{name}".lstrip(".")]
    )


def _tensors(layer: Any, framework: str) -> Iterator[tuple[str, Shape]]:
    """The attributes of one layer that are tensors of the framework and none of its parameters or buffers."""
    for name, value in vars(layer).items():
        kinds = [(kind.__module__.partition(".")[0], kind.__name__) for kind in type(value).__mro__]
        if (framework, "Tensor") in kinds and (framework, "Parameter") not in kinds:
            yield name, tuple(int(size) for size in value.shape)


# What a model is made of, without the model: modules with their classes, settings, tensors, children and code.

ModuleKind = Literal["layer", "derived", "sequence", "list", "dict", "own"]


@dataclass(frozen=True, slots=True)
class OutlinedTensor:
    """A parameter or a buffer that a module itself holds; `kept` tells whether checkpoints have it."""

    name: str
    shape: Shape
    dtype: str
    trainable: bool
    kept: bool = True


@dataclass(frozen=True, slots=True)
class ModuleOutline:
    """A module under the `name` that its parent gives it.

    A `layer` is the framework's own; a `derived` one has code of its own around it; `sequence`, `list` and `dict` only
    hold others. `arguments` build a layer, `settings` are its attributes. `forward` is the source of its code and
    `takes` what that takes, as written. `same_as` is the path of a module that stands here again, "" for another one.
    """

    name: str
    kind: ModuleKind
    classes: tuple[str, ...]
    settings: Mapping[str, Setting] = field(default_factory=dict)
    arguments: Mapping[str, Setting] = field(default_factory=dict)
    tensors: tuple[OutlinedTensor, ...] = ()
    children: tuple[ModuleOutline, ...] = ()
    forward: str = ""
    takes: str = ""
    line: str = ""
    same_as: str = ""

    @property
    def class_name(self) -> str:
        """The last part of the class's name."""
        return self.classes[0].rpartition(".")[2] if self.classes else "Module"


@runtime_checkable
class ModelOutliner(Plugin, Protocol):
    """Tells what a model is made of."""

    def outline(self, model: Model) -> ModuleOutline:
        """The model itself, with all that it holds."""

    def ties(self, model: Model) -> tuple[tuple[str, str], ...]:
        """Names of tensors that are one, the first name last: `(decoder.weight, embedding.weight)`."""
