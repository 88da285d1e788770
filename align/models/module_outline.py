"""What a model is made of, without the model: modules with their classes, settings, tensors, children and code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from align.core.protocols import Plugin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.layer_settings import Setting
    from align.core.parameters import Shape
    from align.core.protocols import Model

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
