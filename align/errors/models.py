"""Models that cannot be had, run or compared, and their inputs and traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.errors.base import CannotRunError, as_lines

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    """The user's own code (a factory, a model) raised."""

    def __init__(self, what: str, error: BaseException) -> None:
        said = str(error).strip().partition("\n\n")[0]
        super().__init__(f"{what} failed: {type(error).__name__}: {said}", "add --debug to see your code's traceback")


class ModelFailedError(UserCodeError):
    """A model raised while it ran; `layer` is the innermost one that was running, `after` the last that returned."""

    def __init__(self, what: str, layer: str, inputs: dict[str, str], error: BaseException, after: str = "") -> None:
        given = ", ".join(f"{name} {what}" for name, what in inputs.items())
        where = (f"in layer {layer!r} " if layer else "") + (f"after layer {after!r} " if after else "")
        super().__init__(f"the {what} model, {where}on inputs {given},", error)
        self.layer = layer
        self.hint = f"check that the inputs have the names, shapes and dtypes that the model expects; {self.hint}"


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
    """Two sides without a single pair to compare."""

    def __init__(self, reference: str, candidate: str, what: str) -> None:
        super().__init__(
            f"{reference} and {candidate} have no {what} in common",
            "check that both sides are the same architecture and size; rename rules can be given with --rules",
        )


class UnlikeTracesError(CannotRunError):
    """Two traces that must not be compared; all reasons are listed."""

    def __init__(self, both: str, faults: Sequence[str], hint: str) -> None:
        super().__init__(f"the traces {both} cannot be compared: {as_lines(faults) if faults[1:] else faults[0]}", hint)
