"""Models that cannot be had, run or compared, and their inputs and traces.

What kind of failure it is that the user's code ended with is recognised by the words of Python and of the frameworks.
Each kind has a hint of its own: what to do about a missing kernel is not what to do about a wrong shape. Words that the
user's own `raise` says are not read so.
"""

from __future__ import annotations

import linecache
import re
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from align.errors.base import CannotRunError, noun, with_lines
from align.words.catalogue import say, sentence, texts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType


class SideError(CannotRunError):
    """A `module:function` or `file.py:function` that cannot be imported or is no model factory."""

    def __init__(self, side: str, reason: str, what: str = "model") -> None:
        if what != "model":
            super().__init__(*texts("model_error.cannot_take", what=noun(what), side=side, reason=reason))
            return
        super().__init__(*texts("model_error.cannot_build", side=side, reason=reason))


class SharedModelError(CannotRunError):
    """Both sides are one model, or share tensors: what is done to the one would reach the other."""

    def __init__(self, sides: tuple[str, str], reason: str, hint: str = "") -> None:
        message, usual = texts("model_error.shared", reference=sides[0], candidate=sides[1], reason=reason)
        super().__init__(message, hint or usual)


class UserCodeError(CannotRunError):
    """The user's own code (a factory, a model) raised, or ended the program; `kind` is what went wrong with it."""

    def __init__(self, what: str, error: BaseException) -> None:
        self.kind = failure_kind(error)
        self.happened = what_happened(error)
        super().__init__(say("model_error.failed", what=what, happened=self.happened), failure_hint(self.kind))


class ModelFailedError(UserCodeError):
    """A model raised while it ran; `layer` is the innermost one that was running, `after` the last that returned.

    `class_name` is the layer's, `line` the `file:line` of the user's code that raised; "" where they are not known.
    """

    def __init__(self, what: str, failure: ModelFailure, inputs: Mapping[str, str], error: BaseException) -> None:
        given = [f"{name} {form}" for name, form in inputs.items()]
        super().__init__(say("model_error.running", framework=what, where=failure.where, inputs=given), error)
        self.layer, self.failure = failure.layer, failure
        self.hint = hint_in_model(self.kind, failure)


class UnreadableModelError(CannotRunError):
    """A live model that cannot be read as it stands; `lines` name all of its tensors that are the reason."""

    def __init__(self, reason: str, hint: str, lines: Sequence[str]) -> None:
        super().__init__(with_lines(reason, lines, what="tensor"), hint)
        self.lines = tuple(lines)


class FrameworkMissingError(CannotRunError):
    """A framework or optional package that is needed is not installed, or is broken."""

    def __init__(self, package: str, install: str, reason: str = "") -> None:
        super().__init__(
            *texts("model_error.not_imported", package=package, install=install, reason=reason)
            if reason
            else texts("model_error.not_installed", package=package, install=install)
        )


class InputsError(CannotRunError):
    """Inputs that do not exist, cannot be read or do not fit the model; `faults` are all of several."""

    def __init__(self, message: str, hint: str, faults: Sequence[str] = ()) -> None:
        super().__init__(with_lines(message, faults) if faults else message, hint)
        self.faults = tuple(faults)


class NothingInCommonError(CannotRunError):
    """Two sides without a single pair to compare; `bare` is the one that has nothing of the kind."""

    def __init__(self, reference: str, candidate: str, what: str, bare: str = "") -> None:
        facts = {"reference": reference, "candidate": candidate, "what": noun(what)}
        super().__init__(
            *texts("model_error.one_is_bare", bare=bare, **facts)
            if bare
            else texts("model_error.nothing_in_common", **facts)
        )


class UnlikeTracesError(CannotRunError):
    """Two traces that must not be compared; all reasons are listed."""

    def __init__(self, both: str, faults: Sequence[str], hint: str) -> None:
        super().__init__(with_lines(say("model_error.unlike_traces", both=both), faults), hint)


FailureKind = Literal[
    "end",
    "command line",
    "import",
    "jit",
    "compiler",
    "memory order",
    "out of memory",
    "device",
    "one number",
    "batch of one",
    "state dict",
    "kernel",
    "arguments",
    "index",
    "dtype",
    "shape",
    "other",
]

# The first pattern that fits decides: a missing kernel is often named by the dtypes that it lacks, and words about
# memory, devices and single numbers name sizes and elements that are not the matter.
_PATTERNS: dict[FailureKind, str] = {
    "memory order": r"view size is not compatible|(not|non|un)[ -]?contiguous|(must|should|to) be contiguous",
    "out of memory": r"out of memory|(can't|cannot|fail\w*( to)?) alloc\w*|memory.{0,20}not enough|not enough memory",
    "device": (
        r"(same|different|two) devices?\b|not on the expected device|on device \S+ .{0,40}expected"
        r"|torch\.cuda\.\w*tensor\b.{0,60}torch\.\w*tensor|torch\.\w*tensor\b.{0,60}torch\.cuda\.\w*tensor"
    ),
    "one number": (
        r"converted to (a )?(python )?scalar|value of (a )?tensor with more than one|only one element tensors"
        r"|should have only one element"
    ),
    "batch of one": r"expected more than 1 (value per channel|spatial element) when training",
    "state dict": r"error\(s\) in loading state_dict",
    "kernel": (
        r"unregistered|kernel.{0,80}(not|un)[ -]?(registered|supported|found|implemented)|kernel select"
        r"|create kernelmod"
        r"|select (cpu |gpu )?(kernel|operator)|not implemented for '|could not run '\w+::|unsupported op\b"
        r"|dtypes? not supported|not (yet )?support.{0,60}\b(on|by|in) (the )?(cpu|gpu|ascend|this device)"
        r"|no kernel image|only supports? (ascend|gpu|cuda|npu)|(target|platform|device).{0,40}not support"
    ),
    "arguments": r"(missing|takes|got (an unexpected|multiple|some positional)).{0,60}argument",
    "index": (
        r"^(?!axis|dimension).*out of (range|bounds)|should be in the range"
        r"|index.{0,40}must be (less|in the range|in \[)"
    ),
    "dtype": (
        r"\bdtypes?\b|scalar types?|data[ _]type|input types? |tensor\w*type|type of .{0,60}(must|should|not)|same type"
        r"|must be (a )?type|used as indices must be|expected object of|expected (m1|mat1)"
        r"|should be (float|int|uint|bool|bfloat)\d*\b.{0,20}\bbut got"
    ),
    "shape": (
        r"shape|size|dimension|\bdims?\b|\brank\b|broadcast|channels|\bndim|elements|\baxis\b|\baxes\b|expected \dd"
        r"|values to unpack|cannot be multiplied|must match|the row of the input"
    ),
}
_COMPILED = {kind: re.compile(pattern, re.IGNORECASE) for kind, pattern in _PATTERNS.items()}
_BY_FRAMEWORKS = (RuntimeError, TypeError, ValueError, IndexError)
_FRAMEWORKS = ("torch", "mindspore")
_JITTED = "staging_specialize"  # what `mindspore.jit` makes of a function, whether it is compiled then or not
_COMPILER = "compile"


@dataclass(frozen=True, slots=True)
class ModelFailure:
    """Where a model raised, as far as it is known: the layer, its class, the one that returned last, `file:line`."""

    __module__ = "align.errors"

    layer: str = ""
    class_name: str = ""
    after: str = ""
    line: str = ""

    @property
    def where(self) -> str:
        """`in layer 'head' (Dense) after layer 'norm' at port.py:12`; "" if nothing is known."""
        parts = []
        if self.layer:
            parts.append(sentence("model_error.in_layer", layer=self.layer, class_name=self.class_name))
        if self.after:
            parts.append(sentence("model_error.after_layer", layer=self.after))
        if self.line:
            parts.append(sentence("model_error.at_line", line=self.line))
        return sentence("model_error.where", parts=parts)


def failure_kind(error: BaseException) -> FailureKind:
    """Tell what kind of failure an exception is, by its class, its words and where it was raised."""
    places = _places(error)
    if isinstance(error, SystemExit):
        return "command line" if any(module == "argparse" for module, _ in places) else "end"
    if isinstance(error, ImportError):
        return "import"
    kind = _kind_by_words(error)
    if kind in ("kernel", "other"):
        called = {function for module, function in places if module.partition(".")[0] == "mindspore"}
        return "compiler" if _COMPILER in called else "jit" if _JITTED in called else kind
    return kind


def failure_hint(kind: FailureKind) -> str:
    """What to do about a failure of this kind, and how to see more of it."""
    return _hints(*(() if kind == "other" else (kind.replace(" ", "_"),)))


def hint_in_model(kind: FailureKind, failure: ModelFailure) -> str:
    """The hint for a model that failed; inputs are doubted last, and never where its own line outside of layers did."""
    if kind == "arguments" and not (failure.layer or failure.line):
        return _hints("inputs")
    own_line = failure.line and not failure.layer
    if kind in ("shape", "dtype") and not failure.after and not own_line:
        return _hints(kind, "unfit_inputs")
    return failure_hint(kind)


def _hints(*names: str) -> str:
    return say("model_error.hints", hints=[say(f"failure_hint.{name}") for name in (*names, "debug")])


def what_happened(error: BaseException) -> str:
    """The exception's class and words; of an end of the program, what the code called."""
    if not isinstance(error, SystemExit):
        return f"{type(error).__name__}: {_message(error)}"
    call = getattr(error, "call", f"sys.exit({'' if error.code is None else repr(error.code)})")
    return say("model_error.ends", parser=failure_kind(error) == "command line", call=call)


def _kind_by_words(error: BaseException) -> FailureKind:
    if not isinstance(error, _BY_FRAMEWORKS) or _is_users_own(error.__traceback__):
        return "other"
    message = _message(error)
    return next((kind for kind, pattern in _COMPILED.items() if pattern.search(message)), "other")


def _is_users_own(trace: TracebackType | None) -> bool:
    """Tell whether the innermost line is a `raise` outside of the frameworks."""
    frames = [*traceback.walk_tb(trace)]
    if not frames:
        return False
    frame, line = frames[-1]
    text = linecache.getline(frame.f_code.co_filename, line, frame.f_globals)
    module = str(frame.f_globals.get("__name__", ""))
    return text.strip().startswith("raise") and module.partition(".")[0] not in _FRAMEWORKS


def _message(error: BaseException) -> str:
    """What an exception says, as far as the first empty line: MindSpore adds its C++ stack behind it."""
    return str(error).strip().partition("\n\n")[0]


def _places(error: BaseException) -> list[tuple[str, str]]:
    """The modules and functions that were running, innermost last."""
    frames = traceback.walk_tb(error.__traceback__)
    return [(str(frame.f_globals.get("__name__", "")), frame.f_code.co_name) for frame, _ in frames]


class DumpError(CannotRunError):
    """What another tool dumped, and cannot be read, or not as one run."""
