"""Models that cannot be had, run or compared, and their inputs and traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.errors.base import CannotRunError, as_lines
from align.errors.failures import ModelFailure, failure_hint, failure_kind, hint_in_model, what_happened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class SideError(CannotRunError):
    """A `module:function` or `file.py:function` that cannot be imported or is no model factory."""

    def __init__(self, side: str, reason: str) -> None:
        super().__init__(
            f"cannot build the model {side!r}: {reason}",
            "a side is `package.module:function` or `path/to/file.py:function`; "
            "the function takes no arguments and returns the model",
        )


class SharedModelError(CannotRunError):
    """Both sides are one model, or share tensors: what is done to the one would reach the other."""

    def __init__(
        self, sides: tuple[str, str], reason: str, hint: str = "let each function build a model of its own"
    ) -> None:
        super().__init__(f"{sides[0]} and {sides[1]} {reason}", hint)


class UserCodeError(CannotRunError):
    """The user's own code (a factory, a model) raised, or ended the program; `kind` is what went wrong with it."""

    def __init__(self, what: str, error: BaseException) -> None:
        self.kind = failure_kind(error)
        self.happened = what_happened(error)
        super().__init__(f"{what} failed: {self.happened}", failure_hint(self.kind))


class ModelFailedError(UserCodeError):
    """A model raised while it ran; `layer` is the innermost one that was running, `after` the last that returned.

    `class_name` is the layer's, `line` the `file:line` of the user's code that raised; "" where they are not known.
    """

    def __init__(self, what: str, failure: ModelFailure, inputs: Mapping[str, str], error: BaseException) -> None:
        given = ", ".join(f"{name} {what}" for name, what in inputs.items())
        super().__init__(f"the {what} model, {failure}on inputs {given},", error)
        self.layer, self.failure = failure.layer, failure
        self.hint = hint_in_model(self.kind, failure)


class UnreadableModelError(CannotRunError):
    """A live model that cannot be read as it stands; `lines` name all of its tensors that are the reason."""

    def __init__(self, reason: str, hint: str, lines: Sequence[str]) -> None:
        super().__init__(f"{reason}:{as_lines(lines)}", hint)
        self.lines = tuple(lines)


class FrameworkMissingError(CannotRunError):
    """A framework or optional package that is needed is not installed, or is broken."""

    def __init__(self, package: str, install: str, reason: str = "") -> None:
        state = f"is installed but cannot be imported ({reason})" if reason else "is not installed"
        super().__init__(f"{package} {state}", f"install it with: {install}")


class InputsError(CannotRunError):
    """Inputs that do not exist, cannot be read or do not fit the model; `faults` are all of several."""

    def __init__(self, message: str, hint: str, faults: Sequence[str] = ()) -> None:
        super().__init__(f"{message}{as_lines(faults)}", hint)
        self.faults = tuple(faults)


class NothingInCommonError(CannotRunError):
    """Two sides without a single pair to compare; `bare` is the one that has nothing of the kind."""

    def __init__(self, reference: str, candidate: str, what: str, bare: str = "") -> None:
        none = f": {bare} has none at all" if bare else ""
        hint = "check that both sides are the same architecture and size; --rules takes rename rules; --map takes a map"
        own = f"let {bare} keep its weights as parameters of its layers: tensors and plain attributes have no names"
        super().__init__(f"{reference} and {candidate} have no {what} in common{none}", own if bare else hint)


class UnlikeTracesError(CannotRunError):
    """Two traces that must not be compared; all reasons are listed."""

    def __init__(self, both: str, faults: Sequence[str], hint: str) -> None:
        super().__init__(f"the traces {both} cannot be compared: {as_lines(faults) if faults[1:] else faults[0]}", hint)
