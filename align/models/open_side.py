"""A side of a comparison: a live model, or `module:function` that makes one, with the adapter of its framework."""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from align.checkpoints.open_checkpoint import open_checkpoint, require_checkpoint
from align.checkpoints.training_state import state_beside_weights
from align.checkpoints.wrapper_prefixes import matched_without_wrappers, wrapper_words
from align.core.about import __version__
from align.core.import_user_code import import_user_code, require_file
from align.core.message_words import counted, first_few
from align.core.protocols import GraphRunner, ModelPlacer, ModelRunner, Preparer
from align.core.registry import check_packages, model_readers
from align.core.verdicts import Finding
from align.errors import CannotRunError, SideError, UsageError, UserCodeError
from align.models.live.call_sites import raised_at
from align.models.thresholds import SEED
from align.models.user_code import run_user_code
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from align.core.protocols import Model, ModelReader
    from align.errors import AlignError

DTYPES = ("float16", "bfloat16", "float32", "float64")
MODES = ("graph", "pynative")
_FOLDERS_AFTER_IMPORT: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Preparation:
    """What is done to a model once it is built: how it is filled, moved and cast; None: left as it was built."""

    checkpoint: Path | str | None = None
    device: str | None = None
    dtype: str | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """A live model with its label and the adapter that reads, fills and runs it; `prepared` is what was done to it.

    A `compiled` one runs past all hooks: its outputs are all that is seen. `copied` says why the model is a copy of
    the one that was built, "" if it is not; `unwrapped` what wrappers put into the names of the model or of its
    checkpoint, "" if these are equal; `not_loaded` what a training left in the checkpoint beside the weights.
    """

    label: str
    model: Model
    reader: ModelReader
    prepared: Preparation = Preparation()
    compiled: bool = False
    copied: str = ""
    unwrapped: str = ""
    not_loaded: str = ""

    @property
    def filled(self) -> bool:
        """Tell whether its values are those of a checkpoint."""
        return self.prepared.checkpoint is not None

    @property
    def runner(self) -> ModelRunner:
        """The adapter as a runner; raises CannotRunError if its framework cannot run models."""
        if isinstance(self.reader, ModelRunner):
            return self.reader
        raise CannotRunError(f"{self.reader.name} models cannot be run", "give a side that can: `align plugins`")


@dataclass(frozen=True, slots=True)
class SideRequest:
    """A side as it is asked for: what to build or take, and the options of `align.open_side`.

    >>> SideRequest("package.module:build", "weights.ckpt", dtype="float16").checkpoint
    'weights.ckpt'
    """

    side: str | Model | Side
    checkpoint: Path | str | None = None
    device: str | None = None
    dtype: str | None = None
    mode: str | None = None

    def check(self) -> None:
        """Raise UsageError for a dtype or mode that there is not, and MissingFileError, before anything is built."""
        check_dtype(self.dtype)
        if isinstance(self.side, str):
            require_file(self.side)
        if self.checkpoint is not None:
            require_checkpoint(self.checkpoint)
        if self.mode not in (None, *MODES):
            raise UsageError(f"there is no mode {self.mode!r}", f"give one of: {', '.join(MODES)}")


def open_side(
    side: str | Model | Side | SideRequest,
    checkpoint: Path | str | None = None,
    *,
    device: str | None = None,
    dtype: str | None = None,
    mode: str | None = None,
) -> Side:
    """Build (or take) a model and fill it from a checkpoint if one is given; then move and cast it, in place.

    `device` is the framework's name of one (`cuda:1`, `npu`, `Ascend`), `dtype` one of DTYPES, `mode` one of
    MODES, of MindSpore: in graph mode only the network's outputs are seen. Two sides of one comparison are better
    opened together, by `align.open_sides`. Raises SideError, UserCodeError or FrameworkMissingError for a model that
    cannot be had, InputsError for a checkpoint whose names or shapes are not the model's, UsageError or CannotRunError
    for a device, dtype or mode that there is not.

    >>> import numpy as np
    >>> from align.models.frameworks.arrays import ArrayLayer, ArrayModel
    >>> weights = {"weight": np.ones((2, 3), np.float32)}
    >>> model = ArrayModel((ArrayLayer("fc", "torch.nn.Linear", lambda x, weight: x @ weight.T, weights),))
    >>> open_side(model).reader.name
    'arrays'
    """
    request = side if isinstance(side, SideRequest) else SideRequest(side, checkpoint, device, dtype, mode)
    request.check()
    return prepare_side(build_side(request.side), request)


def build_side(side: str | Model | Side) -> Side:
    """Build (or take) a model, and do nothing to it."""
    if isinstance(side, Side):
        return side
    readers = model_readers()  # adapters first: they put things right that a framework does at exit
    model = load_function(side)() if isinstance(side, str) else side
    reader = next((reader for reader in readers.values() if reader.owns(model)), None)
    label = side if isinstance(side, str) else type(model).__name__
    if reader is None:
        expected = " or ".join(reader.summary for reader in readers.values())
        got = f"it returned a {type(model).__name__}" if isinstance(side, str) else f"it is a {type(model).__name__}"
        raise SideError(label, f"{got}, expected one of: {expected}")
    check_packages(reader)
    return Side(label, model, reader)


def prepare_side(side: Side, request: SideRequest) -> Side:
    """Fill, move and cast a model that was built, in place, as the request says."""
    if request == SideRequest(request.side):
        return side
    before = side.prepared
    if request.checkpoint is not None:
        side = _filled(side, request.checkpoint)
    prepared = Preparation(
        before.checkpoint if request.checkpoint is None else request.checkpoint,
        request.device or before.device,
        request.dtype or before.dtype,
    )
    return _placed(replace(side, prepared=prepared), request.device, request.dtype, request.mode)


def _filled(side: Side, checkpoint: Path | str) -> Side:
    """Fill a model from a checkpoint, but for what is no weight there and no parameter of the model."""
    opened = open_checkpoint(Path(checkpoint))
    wanted = side.reader.read_parameters(side.model, side.label).names
    beside = [name for name in state_beside_weights(opened) if name not in wanted]
    tensors = {name: tensor for name, tensor in opened.tensors.items() if name not in beside}
    names = matched_without_wrappers(tensors, wanted)
    side.reader.load_values(side.model, {names[name]: tensor.load() for name, tensor in tensors.items()})
    left_out = f"{counted(len(beside), 'tensor')} ({first_few(beside)})" if beside else ""
    return replace(side, unwrapped=wrapper_words(names), not_loaded=left_out)


def check_dtype(dtype: str | None) -> None:
    """Raise UsageError, with the known names, for a dtype that no model computes in; None chooses none."""
    if dtype not in (None, *DTYPES):
        raise UsageError(f"no model computes in {dtype!r}", f"give one of: {', '.join(DTYPES)}")


def _placed(side: Side, device: str | None, dtype: str | None, mode: str | None) -> Side:
    if device is not None or dtype is not None:
        if not isinstance(side.reader, ModelPlacer):
            raise UsageError(f"{side.reader.name} models cannot be moved or cast", "leave its device and dtype out")
        side.reader.place(side.model, device, dtype)
    if mode is None:
        return side
    if not isinstance(side.reader, GraphRunner):
        raise UsageError(f"{side.reader.name} models have no mode to choose", "leave its mode out")
    return replace(side, reader=side.reader.in_graph_mode(), compiled=True) if mode == "graph" else side


def environments(reference: Side, candidate: Side) -> dict[str, dict[str, str]]:
    """The environments of two sides by framework; one of the same framework that differs is named by its side."""
    mine, theirs = ((one.reader.name, one.reader.environment()) for one in (reference, candidate))
    return named_environments(mine, theirs)


def describe_host() -> dict[str, str]:
    """Versions of what is beside the framework, the machine, and the seed that every run starts from."""
    versions = {"mindalign": __version__, "python": platform.python_version(), "numpy": np.__version__}
    return {**versions, "platform": platform.platform(), "seed": str(SEED)}


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


def load_function(side: str, what: str = "model file") -> Callable[[], Any]:
    """Return the function that `package.module:function` or `file.py:function` names; whatever it raises is wrapped.

    A model that stands there, which may be called as well, is what the function returns. `what` a file that is not
    there is called.
    """
    function = find_function(side, what)
    if any(reader.owns(function) for reader in model_readers().values()):
        return lambda: function
    return lambda: _guarded(side, function, _FOLDERS_AFTER_IMPORT.get(side.rpartition(":")[0], ""))


def find_function(side: str, what: str = "model file") -> Callable[..., Any]:
    """Return what `package.module:function` or `file.py:function` names, which can be called; raises SideError."""
    place, separator, name = side.rpartition(":")
    if not separator or not place or not name.isidentifier():
        raise SideError(side, "it is not of the form `module:function`")
    require_file(side, what)
    module = _guarded(side, lambda: _imported(place))
    function = getattr(module, name, None)
    if not callable(function):
        what = "is no function" if hasattr(module, name) else "does not exist"
        raise SideError(side, f"{name!r} {what} in {place}; functions there: {_functions(module) or 'none'}")
    found: Callable[..., Any] = function
    return found


def _imported(place: str) -> Any:
    """Import it, and keep the folder that its code went to, from which its functions may read files."""
    before = str(Path.cwd())
    module = import_user_code(place)
    if (after := str(Path.cwd())) != before:
        _FOLDERS_AFTER_IMPORT[place] = after
    return module


def _functions(module: Any) -> str:
    own = [n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == module.__name__]
    return ", ".join(sorted(name for name in own if not name.startswith("_")))


def _guarded(side: str, code: Callable[[], Any], folder: str = "") -> Any:
    def failed(error: BaseException) -> AlignError:
        if isinstance(error, ModuleNotFoundError):
            return _missing_module(side, error)
        return _with_line(_named_otherwise(UserCodeError(f"building {side}", error), side, error), error)

    for reader in model_readers().values():
        if isinstance(reader, Preparer):
            reader.prepare()
    return run_user_code(code, failed, folder)


def _with_line(failed: UserCodeError, error: BaseException) -> UserCodeError:
    """Say which line of the user's code raised."""
    if line := raised_at(error):
        failed.hint = f"look at {line}; {failed.hint}"
    return failed


def _named_otherwise(failed: UserCodeError, side: str, error: BaseException) -> UserCodeError:
    """Say of a relative import that leads nowhere how to name the side instead."""
    place, _, function = side.rpartition(":")
    if isinstance(error, ImportError) and "relative import" in str(error):
        if place.endswith(".py"):
            failed.hint = "no folder of a package has a dot in its name: rename it, or import by the whole name there"
        else:
            failed.hint = (
                f"give the file, or name the module as its packages do: {place.replace('.', '/')}.py:{function}"
            )
    return failed


def _missing_module(side: str, error: ModuleNotFoundError) -> CannotRunError:
    name = error.name or ""
    for reader in model_readers().values():
        if name.partition(".")[0] in reader.requires:
            check_packages(reader)
    if f"{side.rpartition(':')[0]}.".startswith(f"{name}."):
        return SideError(side, f"there is no module {name!r}")
    return UserCodeError(f"building {side}", error)
