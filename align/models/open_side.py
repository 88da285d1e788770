"""A side of a comparison: a live model, or `module:function` that makes one, with the adapter of its framework.

Both sides are opened together: whatever is done to the one must not reach the other. A factory may hand out one model
twice, and a port may hold layers or tensors of its original. That shows once both are built: filling, moving and
casting wait until then, and the candidate is copied where it must be.
"""

from __future__ import annotations

import os
import platform
import re
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np

from align.checkpoints.extents import require_unchanged
from align.checkpoints.inspect_checkpoint import unfinished_error
from align.checkpoints.names_in_file import matched_without_wrappers, state_beside_weights, wrapper_words
from align.checkpoints.open_checkpoint import open_checkpoint, require_checkpoint
from align.core.about import __version__
from align.core.atomic_files import existing_file
from align.core.load_code import check_packages, file_models, model_readers, require_file
from align.core.protocols import GraphRunner, ModelCopier, ModelPlacer, ModelRunner, Plugin, ValueLender
from align.core.verdicts import Finding
from align.errors import CannotRunError, InputsError, SharedModelError, SideError, UsageError
from align.models.source_lines import made_at
from align.models.thresholds import LONGEST_VARIABLE, SEED
from align.models.user_code import load_function, run_user_code
from align.words.catalogue import say, sentence, texts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from align.core.parameters import Array, Shape, TensorMemory
    from align.core.protocols import Model, ModelReader, Setting

DTYPES = ("float16", "bfloat16", "float32", "float64")
MODES = ("graph", "pynative")


@dataclass(frozen=True, slots=True)
class Preparation:
    """What is done to a model once it is built: how it is filled, moved and cast; None: left as it was built."""

    checkpoint: Path | str | None = None
    device: str | None = None
    dtype: str | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """A live model with its label and the adapter that reads, fills and runs it; `prepared` is what was done to it.

    A `compiled` one runs past all hooks: its outputs are all that is seen. `unwrapped` is what wrappers put into the
    names of the model or of its checkpoint, "" if these are equal; `not_loaded` what a training left in the checkpoint
    beside the weights; `copied_beside` the other side of a model that is a copy of the one that was built, and `shared`
    the tensors that were that side's too, "" for all.
    """

    label: str
    model: Model
    reader: ModelReader
    prepared: Preparation = Preparation()
    compiled: bool = False
    unwrapped: str = ""
    not_loaded: str = ""
    copied_beside: str = ""
    shared: str = ""

    @property
    def filled(self) -> bool:
        """Tell whether its values are those of a checkpoint."""
        return self.prepared.checkpoint is not None

    @property
    def copied(self) -> str:
        """Why the model is a copy of the one that was built, "" if it is not."""
        if not self.copied_beside:
            return ""
        if self.shared:
            return sentence("side_finding.shared", names=self.shared, side=self.copied_beside)
        return sentence("side_finding.one_object", side=self.copied_beside)

    @property
    def runner(self) -> ModelRunner:
        """The adapter as a runner; raises CannotRunError if its framework cannot run models."""
        if isinstance(self.reader, ModelRunner):
            return self.reader
        raise CannotRunError.of("model_fault.not_run", name=self.reader.name)


def live_values(side: Side) -> Mapping[str, Array]:
    """All values of a model by name, as they are when each is read, and copied only where that must be."""
    if isinstance(side.reader, ValueLender):
        return side.reader.live_values(side.model)
    return side.reader.read_values(side.model)


def put_values(side: Side, values: Mapping[str, Array], names: Sequence[str] | None = None) -> None:
    """Fill some of a model's values.

    They go by `names`, those of all its values at another time, in their order: a run may rename its parameters.
    """
    present = tuple(live_values(side))
    now = dict(zip(names or present, present, strict=True))
    renamed = {now[name]: value for name, value in values.items()}
    if isinstance(side.reader, ValueLender):
        side.reader.put_values(side.model, renamed)
    else:
        side.reader.load_values(side.model, {**side.reader.read_values(side.model), **renamed})


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
            if file_models(self.side) is not None:
                existing_file(Path(self.side), "model file")
        if self.checkpoint is not None:
            require_checkpoint(self.checkpoint)
        if self.mode not in (None, *MODES):
            raise UsageError.of("side_usage.no_such_mode", mode=self.mode, known=MODES)


Sides = tuple[Side, Side]
Purpose = Literal["comparison", "names", "trial"]
"""What for: a comparison of one object with itself would be a verdict about nothing, so it is refused.

Names may be those of one object: its map to itself is right, no value counts, and nothing is filled unless asked. A
trial fills both sides with values of its own: one object is copied.
"""


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


def open_sides(
    reference: str | Model | Side | SideRequest,
    candidate: str | Model | Side | SideRequest,
    purpose: Purpose = "comparison",
) -> Sides:
    """Build (or take) both models, see to it that they share nothing, then fill, move and cast each as asked.

    A side is what `open_side` takes, or a SideRequest with its options. Raises SharedModelError for a model that would
    be compared with itself, and for models that share tensors where the candidate cannot be copied, or where one was
    filled, moved or cast before; and what `open_side` raises.

    >>> import numpy as np
    >>> from align.models.frameworks.arrays import ArrayLayer, ArrayModel
    >>> def model(path, weight):
    ...     layer = ArrayLayer(path, "torch.nn.Linear", lambda x, weight: x @ weight.T, {"weight": weight})
    ...     return ArrayModel((layer,))
    >>> weight = np.ones((2, 3), np.float32)
    >>> open_sides(model("fc", weight), model("head", weight))[1].copied
    'it was copied before anything was done to it, since it shared 1 tensor (head.weight) with ArrayModel'
    """
    requests = _request(reference), _request(candidate)
    for request in requests:
        request.check()
    built = _built(requests)
    asked = _wanted(built[0], requests[0]), _wanted(built[1], requests[1])
    apart = _apart(built, asked, purpose)
    opened = prepare_side(apart[0], requests[0]), prepare_side(apart[1], requests[1])
    if built[0].model is built[1].model and purpose == "comparison" and _differ_in_place_only(asked):
        _refuse_alike(opened)
    return opened


def refuse_one_object(sides: Sides) -> None:
    """Raise SharedModelError if both sides are one object."""
    if sides[0].model is sides[1].model:
        raise SharedModelError(_labels(sides), say("shared_model.itself"))


def refuse_shared(sides: Sides) -> None:
    """Raise SharedModelError if both sides are one object, or share tensors."""
    refuse_one_object(sides)
    if shared := shared_tensors(_memory(sides[0]), _memory(sides[1])):
        raise SharedModelError(_labels(sides), say("shared_model.tensors", names=_named(shared)))


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What makes a side another than its model as it was built."""

    checkpoint: Path | None = None
    device: str | None = None
    dtype: str | None = None
    compiled: bool = False


def _request(side: str | Model | Side | SideRequest) -> SideRequest:
    return side if isinstance(side, SideRequest) else SideRequest(side)


def _wanted(side: Side, request: SideRequest) -> _Wanted:
    before = side.prepared
    checkpoint = request.checkpoint or before.checkpoint
    return _Wanted(
        None if checkpoint is None else Path(checkpoint).resolve(),
        request.device or before.device,
        request.dtype or before.dtype,
        side.compiled or request.mode == "graph",
    )


def _built(requests: tuple[SideRequest, SideRequest]) -> Sides:
    """Build both; raises SharedModelError if the second's function changes the first's model."""
    first = build_side(requests[0].side)
    before = _memory(first) if isinstance(requests[1].side, str) else None
    sides = first, build_side(requests[1].side)
    if before is not None and (changed := changed_tensors(before, _memory(first))):
        raise SharedModelError(_labels(sides), say("shared_model.changed", names=_named(changed)))
    return sides


def _apart(sides: Sides, wanted: tuple[_Wanted, _Wanted], purpose: Purpose) -> Sides:
    """Both sides as two models that share no tensor."""
    untouched = purpose == "names" and wanted == (_Wanted(), _Wanted())
    if sides[0].model is not sides[1].model:
        shared = [] if untouched else shared_tensors(_memory(sides[0]), _memory(sides[1]))
        return _with_copy(sides, _named(shared)) if shared else sides
    if untouched:
        return sides
    if purpose != "trial" and wanted[0] == wanted[1]:
        refuse_one_object(sides)
    return _with_copy(sides, "")


def _with_copy(sides: Sides, shared: str) -> Sides:
    """The candidate copied, of which tensors are `shared`, or "" for one object.

    Raises SharedModelError where it cannot be copied, or was filled, moved or cast before.
    """
    first, second = sides
    sharing = say("shared_model.shared", names=shared) if shared else say("shared_model.one_object")
    if first.prepared != second.prepared or (second.prepared != Preparation() and first.model is not second.model):
        raise SharedModelError(_labels(sides), *texts("shared_model.prepared", sharing=sharing))

    def uncopied(error: BaseException) -> SharedModelError:
        facts = {"kind": type(error).__name__, "said": str(error).strip().partition("\n")[0]}
        return SharedModelError(_labels(sides), say("shared_model.not_copied", sharing=sharing, **facts))

    model = run_user_code(lambda: _copied(second), uncopied)
    copied = replace(second, model=model, copied_beside=first.label, shared=shared)
    if left := shared_tensors(_memory(first), _memory(copied)):
        raise SharedModelError(_labels(sides), say("shared_model.copy", names=_named(left)))
    return first, copied


def _copied(side: Side) -> Model:
    if isinstance(side.reader, ModelCopier):
        return side.reader.copied(side.model)
    raise CannotRunError(say("shared_model.no_copies", label=side.label, name=side.reader.name))


def _differ_in_place_only(asked: tuple[_Wanted, _Wanted]) -> bool:
    mine, theirs = asked
    return (mine.checkpoint, mine.compiled) == (theirs.checkpoint, theirs.compiled)


def _refuse_alike(sides: Sides) -> None:
    """Raise SharedModelError for an object and its copy where neither device nor dtype differs after all."""
    mine, theirs = ([(one.device, one.dtype) for one in _memory(side).values()] for side in sides)
    if mine == theirs:
        raise SharedModelError(_labels(sides), say("shared_model.on_the_device"))


def _memory(side: Side) -> dict[str, TensorMemory]:
    return side.reader.tensor_memory(side.model) if isinstance(side.reader, ModelCopier) else {}


def _labels(sides: Sides) -> tuple[str, str]:
    return sides[0].label, sides[1].label


def _named(names: Sequence[str]) -> str:
    return say("shared_model.names", count=len(names), names=[*names])


def shared_tensors(first: Mapping[str, TensorMemory], second: Mapping[str, TensorMemory]) -> list[str]:
    """Names of the second model's tensors that lie in memory of the first, whole or in part."""
    spans = sorted((one.device, one.start, one.stop) for one in first.values() if one.start < one.stop)
    ends = list(accumulate(((device, stop) for device, _, stop in spans), max))  # the farthest end so far
    return [name for name, one in second.items() if one.start < one.stop and _overlaps(spans, ends, one)]


def _overlaps(spans: list[tuple[str, int, int]], ends: list[tuple[str, int]], one: TensorMemory) -> bool:
    before = bisect_left(spans, (one.device, one.stop, 0))  # all that start in front of its end
    return before > 0 and ends[before - 1] > (one.device, one.start)


def changed_tensors(before: Mapping[str, TensorMemory], after: Mapping[str, TensorMemory]) -> list[str]:
    """Names of tensors that are gone, or have other values, or another dtype or device.

    Held against each other in their order: a MindSpore network that is built of another's cells may rename them.
    """
    if len(before) != len(after):
        return sorted(before.keys() ^ after.keys()) or [*before]
    pairs = zip(before.items(), after.values(), strict=True)
    return [name for (name, one), other in pairs if _held(one) != _held(other)]


def _held(one: TensorMemory) -> tuple[Any, ...]:
    return one.dtype, one.device, one.content


def build_side(side: str | Model | Side) -> Side:
    """Build (or take) a model, and do nothing to it."""
    if isinstance(side, Side):
        return side
    readers = model_readers()  # adapters first: they put things right that a framework does at exit
    model = _model(side)
    reader = next((reader for reader in readers.values() if reader.owns(model)), None)
    label = str(side) if isinstance(side, (str, Path)) else type(model).__name__
    if reader is None:
        expected = " or ".join(reader.summary for reader in readers.values())
        fault = "side_usage.returned_other" if isinstance(side, str) else "side_usage.is_other"
        raise SideError(label, say(fault, kind=type(model).__name__, expected=expected))
    check_packages(reader)
    return Side(label, model, reader, Preparation(str(side)) if file_models(side) else Preparation())


def _model(side: str | Path | Model) -> Model:
    """What a side names; a function may also return the path of a model that is a file."""
    found = load_function(side)() if isinstance(side, str) and file_models(side) is None else side
    opener = file_models(found)
    return found if opener is None else opener.opened(Path(found))


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
    try:
        side.reader.load_values(side.model, {names[name]: tensor.load() for name, tensor in tensors.items()})
    except InputsError as error:
        if (unfinished := unfinished_error(opened)) is not None:
            raise unfinished from error
        told = texts("model_fault.other_checkpoint", path=checkpoint, label=side.label)
        raise InputsError(*told, faults=error.faults) from error
    require_unchanged(opened)
    left_out = sentence("shared_model.names", count=len(beside), names=beside) if beside else ""
    return replace(side, unwrapped=wrapper_words(names), not_loaded=left_out)


def check_dtype(dtype: str | None) -> None:
    """Raise UsageError, with the known names, for a dtype that no model computes in; None chooses none."""
    if dtype not in (None, *DTYPES):
        raise UsageError.of("side_usage.no_such_dtype", dtype=dtype, known=DTYPES)


def _placed(side: Side, device: str | None, dtype: str | None, mode: str | None) -> Side:
    if device is not None or dtype is not None:
        if not isinstance(side.reader, ModelPlacer):
            raise UsageError.of("side_usage.not_moved", name=side.reader.name)
        side.reader.place(side.model, device, dtype)
    if mode is None:
        return side
    if not isinstance(side.reader, GraphRunner):
        raise UsageError.of("side_usage.no_modes", name=side.reader.name)
    return replace(side, reader=side.reader.in_graph_mode(), compiled=True) if mode == "graph" else side


# What a report says of the sides beside their layers: where they ran, what is not seen, what was done to them.

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
