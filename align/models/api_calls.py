"""Calls of a framework's public names, as a run or the source of a model shows them, and the adapter that sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from align.core.protocols import ModelRunner

if TYPE_CHECKING:
    from align.core.protocols import Model

CallKind = Literal["layer", "function", "method"]


@dataclass(frozen=True, slots=True)
class ApiCall:
    """Calls of one name from one place: so many `calls`, from `line` (`file.py:12`, "" if not known), in a module.

    Of a layer `module` is its own path, and `line` is "": what calls a layer may stand far from what makes it.
    """

    api: str
    kind: CallKind
    module: str
    line: str
    calls: int


@runtime_checkable
class CallWatcher(ModelRunner, Protocol):
    """Makes copies of a model whose calls of the framework's public names are seen."""

    def watched(self, model: Model) -> Model:
        """A copy that is watched; as `PrecisionRunner.cast_copy`."""

    def watched_calls(self, model: Model) -> tuple[ApiCall, ...]:
        """What a `watched` model called in its runs so far, in the order of the first calls."""

    def called_layers(self, model: Model) -> tuple[ApiCall, ...]:
        """The framework's layers that a model has, each as one call, without what these work with inside."""

    def public_name(self, value: object) -> str:
        """The name that users call a class or function by, "" for what is not the framework's."""

    def tensor_methods(self) -> frozenset[str]:
        """Names of the methods and attributes of a tensor."""
