"""What a plugin offers: separate protocols to read and to run a model; and how long work tells how far it is."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Protocol, TypeAlias, runtime_checkable
from zlib import crc32

from align.core.thresholds import LONGEST_SETTING, SETTING_DEPTH
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    import pandas as pd

    from align.core.layer_scripts import ScriptForms
    from align.core.parameters import (
        Array,
        Checkpoint,
        EmulatedCalls,
        Emulation,
        Origin,
        ParameterSet,
        StoredTensor,
        TensorMemory,
    )
    from align.core.traces import CaptureSink, CodeSeen, ForeignDump, Influences

Model = Any
Batch: TypeAlias = "Mapping[str, Array]"
Inputs: TypeAlias = "Batch | Sequence[Batch]"
FrameworkName = Literal["torch", "mindspore"]


@runtime_checkable
class Plugin(Protocol):
    """What every plugin says of itself."""

    @property
    def name(self) -> str:
        """Unique among its kind; what the user types."""

    @property
    def summary(self) -> str:
        """One line for `align plugins`."""

    @property
    def requires(self) -> tuple[str, ...]:
        """Import names of the packages it needs; () if none."""


@runtime_checkable
class ModelReader(Plugin, Protocol):
    """Reads and fills the parameters of a live model."""

    def owns(self, model: Model) -> bool:
        """Tell whether the model is of this framework, without importing the framework."""

    def read_parameters(self, model: Model, label: str) -> ParameterSet:
        """Read names, shapes, dtypes, ties, layer classes and the module tree."""

    def read_values(self, model: Model) -> dict[str, Array]:
        """Copy all parameters and buffers out, by name, in their own dtype."""

    def load_values(self, model: Model, values: Mapping[str, Array]) -> None:
        """Fill the model; names and shapes must equal the model's exactly, or InputsError lists all that do not."""

    def environment(self) -> dict[str, str]:
        """Versions, device and thread count, for the record."""


@runtime_checkable
class ValueLender(Plugin, Protocol):
    """Lets the values of a live model be looked at and changed one by one, without a copy of all."""

    def live_values(self, model: Model) -> Mapping[str, Array]:
        """All parameters and buffers by name, as they are when each is read; nobody may write into them."""

    def put_values(self, model: Model, values: Mapping[str, Array]) -> None:
        """Fill those that are named, with values of their shapes."""


@runtime_checkable
class FileModels(Plugin, Protocol):
    """Runs models that are files, with no code of the user's."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """How such files end, with the dot."""

    def opened(self, path: Path) -> Model:
        """Read a file as a live model; raises MissingFileError, NotACheckpointError or UnsupportedCheckpointError."""


@runtime_checkable
class ModelExporter(Plugin, Protocol):
    """Writes a live model as an ONNX file."""

    def export_onnx(
        self, model: Model, inputs: Mapping[str, Array], path: Path, options: Mapping[str, str | int | None]
    ) -> None:
        """Write the model as it computes on these inputs, by the `exporter` and for the `opset` of the options.

        The model is left as it was. Raises FrameworkMissingError, and UserCodeError for what cannot be exported.
        """


@runtime_checkable
class OriginFollower(Plugin, Protocol):
    """Knows models that were exported from others, and have lost a part of what those knew."""

    def followed(self, model: Model, origin: Origin) -> Model:
        """A model over the same values, whose parameters are named and laid out as the origin's are."""


@runtime_checkable
class Preparer(Plugin, Protocol):
    """Sets its framework up before the user's code runs."""

    def prepare(self) -> None:
        """Make what can be set only before the first operation, importing nothing; called again, it does no harm."""


@runtime_checkable
class ModelCopier(Plugin, Protocol):
    """Tells two live models apart that share memory, and copies one."""

    def tensor_memory(self, model: Model) -> dict[str, TensorMemory]:
        """Where each parameter and buffer lies, by a name of its own; those without values are left out."""

    def copied(self, model: Model) -> Model:
        """Return a copy with tensors of its own, ties kept; raises whatever the model raises when it is copied."""


@runtime_checkable
class SettingsReader(Plugin, Protocol):
    """Reads how the layers of a live model, or a live optimizer, are set."""

    def is_optimizer(self, model: Model) -> bool:
        """Tell whether it is an optimizer of this framework, without importing the framework."""

    def read_settings(self, model: Model) -> list[LayerSettings]:
        """Read the settings of every module by its path as in ParameterSet, or of every group of an optimizer."""


@runtime_checkable
class OptimizerReader(Plugin, Protocol):
    """Reads how optimizers treat their parameters."""

    def is_optimizer(self, model: Model) -> bool:
        """Tell whether it is an optimizer of this framework, without importing the framework."""

    def optimizer_of(self, scheduler: object) -> Model | None:
        """Return the optimizer whose learning rates a scheduler changes, None for what is no scheduler."""

    def keep_alive(self) -> AbstractContextManager[list[object]]:
        """Keep, in a list, the modules that are made meanwhile, so that an optimizer's can be found afterwards."""

    def model_of(self, optimizer: Model, kept: Sequence[object]) -> Model | None:
        """Return the model that holds all parameters of an optimizer, of what was kept or else of all that live."""

    def schedulers_of(self, optimizer: Model, kept: Sequence[object]) -> list[Any]:
        """Return the schedulers of an optimizer, of what was kept or else of all that live."""

    def read_groups(
        self, optimizer: Model, model: Model | None, schedulers: Sequence[object], steps: int
    ) -> list[ParameterGroup]:
        """Read the groups of an optimizer with the names that `model` has for parameters.

        The learning rates are those of the first `steps` steps, or of fewer where there are no more, if a scheduler is
        stepped once a step of the optimizer. Nothing of the live objects is changed for good. A schedule that fails
        raises UserCodeError.
        """


@runtime_checkable
class ModelRunner(Plugin, Protocol):
    """Runs a live model on fixed inputs."""

    def run(
        self, model: Model, inputs: Inputs, sink: CaptureSink, stand_ins: Mapping[str, Model] | None = None
    ) -> None:
        """Run one forward a batch in evaluation mode, giving each module's outputs to `sink`.

        Batches run one after another: what the model keeps of one is there in the next, and calls go on counting.
        `stand_ins` are modules by path that answer the calls of the model's own ones, on the same arguments.

        Inputs are passed by keyword where the model's signature has all the names, else by position. Each run draws
        the same random numbers. Modes, hooks, buffers and attributes of the model and all random states are left as
        they were; a trained parameter that the model itself writes to is not. A failure inside the model raises
        UserCodeError.
        """

    def widened(self, model: Model) -> Model | None:
        """A float64 copy of the model, or None where the framework cannot make one."""


@runtime_checkable
class OperatorRunner(ModelRunner, Protocol):
    """A ModelRunner whose `run` shows an `OperatorSink` every operator."""

    def shows_operators(self) -> bool:
        """Tell whether this version of the framework lets them be seen."""


@runtime_checkable
class PrecisionRunner(ModelRunner, Protocol):
    """Makes copies of a model that compute otherwise, to measure what rounding does to it.

    They are run, and not trained: large parameters may be the model's own, cast where they are used.
    """

    def widened_by_layer(self, model: Model) -> Model:
        """As `widened`, and only what is being used of it is in float64. Raises UserCodeError if there can be none."""

    def cast_copy(self, model: Model, dtype: str) -> Model:
        """A copy in another floating dtype; floating inputs follow it. Raises UserCodeError if there can be none."""

    def code_seen(self, model: Model) -> CodeSeen:
        """What the code of a `widened` model did in its runs so far."""

    def rounded_at_random(self, model: Model, seed: int) -> Model:
        """A copy of which every operation is off by one more unit in the last place, up or down; as `cast_copy`."""

    def with_functions(self, model: Model, functions: Mapping[str, Callable[[Array, Array], Array]]) -> Model:
        """A copy whose functions of single elements, by name (`tanh`), return something else; as `cast_copy`.

        Each of `functions` is given the argument and what the model's own function returned for it.
        """


@runtime_checkable
class ChipEmulator(ModelRunner, Protocol):
    """Makes copies of a model that compute as a chip does."""

    def emulated(self, model: Model, emulation: Emulation) -> Model:
        """A copy whose operators round as the chip's do; as `PrecisionRunner.cast_copy`."""

    def emulated_calls(self, model: Model) -> tuple[EmulatedCalls, ...]:
        """What an `emulated` model computed so in its runs so far, by module and operator."""


@runtime_checkable
class FunctionSource(Plugin, Protocol):
    """Offers its own functions of single elements, which may be off by more than rounding."""

    def functions(self) -> Mapping[str, Callable[[Array], Array]]:
        """By their usual names (`tanh`), for floating arrays; they return an array of the same shape and dtype."""


@runtime_checkable
class ModelCaller(ModelRunner, Protocol):
    """Lets other code call a live model, with tensors of its framework: a decoder calls it token by token."""

    def evaluating(self, model: Model, *, restores: bool = True) -> AbstractContextManager[None]:
        """Evaluation mode without gradients, for as many calls as it takes; all is left as it was, as by `run`.

        Unless it `restores`, buffers and attributes stay as the calls left them: see `restoring`.
        """

    def restoring(self, model: Model) -> AbstractContextManager[None]:
        """Put buffers and attributes back at the end, whatever calls did to them in between."""

    def as_tensor(self, value: Array, model: Model) -> Any:
        """Make a tensor on the model's device, of the model's dtype if both are floating."""

    def as_array(self, value: Any) -> Array | None:
        """Return a tensor's values, None for anything else."""


@runtime_checkable
class ModelPlacer(ModelRunner, Protocol):
    """Chooses where and in which precision a model, or one layer of it, computes."""

    def place(self, model: Model, device: str | None, dtype: str | None) -> None:
        """Move and cast a model in place, or leave it where None; raises CannotRunError for a device not there."""

    def placed_layer(self, model: Model, path: str, device: str | None, dtype: str | None) -> Callable[..., Any]:
        """Return a stand-in for a layer: a copy of it there, whose outputs come back as the layer's own."""


@runtime_checkable
class GraphRunner(ModelRunner, Protocol):
    """Can run models compiled, past all hooks."""

    def in_graph_mode(self) -> ModelReader:
        """Return an adapter that runs them so: its sinks see the model's own inputs and outputs only."""

    def jitted_code(self, model: Model) -> tuple[str, ...]:
        """Name what the user's code compiles of a model; outside of graph mode it is run uncompiled."""


@runtime_checkable
class BackwardRunner(ModelRunner, Protocol):
    """Runs a live model forward and back."""

    def run_backward(self, model: Model, inputs: Mapping[str, Array], sink: CaptureSink) -> None:
        """Give `sink` the gradient of a fixed mix of the outputs with respect to each tensor that a module returned.

        In evaluation mode, in the order in which gradients arrive; tensors to which none arrives are left out. The
        model is left as it was, its gradients too. Raises UserCodeError where it fails.
        """


@runtime_checkable
class LayerRebuilder(Plugin, Protocol):
    """Rebuilds a layer of a live model with other settings."""

    def rebuilt(self, model: Model, path: str, changes: Mapping[str, Setting]) -> Model | None:
        """Return a copy of the layer at `path`, in evaluation mode, with other arguments of its constructor.

        It holds the same values; parameters that only the changed layer has start as the constructor makes them. None
        where the layer cannot be rebuilt truthfully: its class does not take the argument, or it is not what its
        constructor makes of what it keeps, or a weight would get another shape. Of a user's own class, attributes that
        it keeps are changed on a copy. The model and all random states are left as they were.
        """

    def built(self, class_name: str, arguments: Mapping[str, Setting]) -> Model | None:
        """Return a new layer of a public class (`torch.nn.ReLU`), in evaluation mode; None where it refuses these."""


@runtime_checkable
class LayerScripter(ModelReader, SettingsReader, ModelCaller, ModelPlacer, LayerRebuilder, Protocol):
    """Knows how a script runs a layer alone."""

    @property
    def script_forms(self) -> ScriptForms:
        """How code of this framework is written."""


@runtime_checkable
class Differentiator(ModelRunner, Protocol):
    """Runs a live model backwards."""

    def influences(self, model: Model, inputs: Mapping[str, Array]) -> Influences | None:
        """How much the outputs depend on each parameter, by one backward pass of a copy in evaluation mode.

        A parameter to which no gradient arrives has 0. None where nothing is known: the model has no copy, or its
        backward pass fails, as after operations in place.
        """

    def gradients(
        self, model: Model, inputs: Inputs, scales: Mapping[str, float], take: Callable[[str, Array], None]
    ) -> None:
        """Hand on the gradient of each parameter of a mix of what modules return, by one backward pass of a copy.

        The mix is the sum over tensors of (tensor * standard normal) / scale, with the `scales` of those that count, by
        `Capture.key`: the expected square of a gradient is then the sum of squares of what a change of that element by
        1 moves, in units of the scales. A parameter to which no gradient arrives has zeros. Raises UserCodeError where
        the model has no copy, or its backward pass fails.
        """


@runtime_checkable
class CheckpointFormat(Plugin, Protocol):
    """Reads a checkpoint lazily and writes one as a stream."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """File suffixes, with the dot, the usual one first."""

    @property
    def framework(self) -> FrameworkName | None:
        """Whose parameter names a file of this format holds: "torch" or "mindspore"; None where it can be either."""

    def recognizes(self, path: Path, head: bytes) -> bool:
        """Tell by the first 512 bytes (and, if it must, by more of the file) whether this format can read it."""

    def read(self, path: Path, key: str | None = None) -> Checkpoint:
        """Read the header; no tensor is loaded. Raises NotACheckpointError for a damaged or hostile file.

        `key` names the entry of a nested file that is meant, as `Checkpoint.entries` lists them. A nested file of which
        several could be meant raises SeveralEntriesError, a key that there is not MissingEntryError.
        """

    def problems(self, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> list[str]:
        """Say, one line a tensor, what this format cannot hold; called before anything is written."""

    def write(self, stream: BinaryIO, tensors: Sequence[StoredTensor], metadata: Mapping[str, str]) -> None:
        """Write the tensors in blocks, so that none needs memory; `metadata` names the flavour (`format`: pt or ms)."""


@runtime_checkable
class FolderFormat(Plugin, Protocol):
    """A format in which the ranks of a training write one checkpoint in parts, read as one without joining them."""

    @property
    def file_names(self) -> tuple[str, ...]:
        """Names of files that stand for their folder."""

    def find(self, path: Path) -> Path | None:
        """What stands for the whole: a file or a folder, for what the user named; None for another format's."""

    def read(self, path: Path, key: str | None = None) -> Checkpoint:
        """Read the headers of all parts, at what `find` gave; no tensor is loaded.

        Raises ShardsError for parts that are missing or do not belong together, and what `CheckpointFormat.read` does.
        """


@runtime_checkable
class TensorFile(Plugin, Protocol):
    """A format in which a file may hold one tensor without a name."""

    def recognizes(self, path: Path, head: bytes) -> bool:
        """Tell whether the file is of this format."""

    def read_tensor(self, path: Path) -> StoredTensor:
        """Look at the header, and place the tensor; raises NotACheckpointError or UnsupportedCheckpointError."""

    def write_tensor(self, stream: BinaryIO, tensor: StoredTensor) -> None:
        """Write a file with this tensor alone."""


@runtime_checkable
class NestedFile(Plugin, Protocol):
    """A format in which a file may hold tensors in dicts and lists, beside numbers and texts."""

    def recognizes(self, path: Path, head: bytes) -> bool:
        """Tell whether the file is of this format."""

    def read_tree(self, path: Path) -> Any:
        """All that a file holds, each tensor as a StoredTensor; what has no plain form is an OddTensor that names it.

        Raises NotACheckpointError or UnsupportedCheckpointError.
        """


@runtime_checkable
class TreeWriter(NestedFile, Protocol):
    """A format in which such a file can be written."""

    def write_tree(self, stream: BinaryIO, tree: Any) -> None:
        """Write dicts, lists, tuples, numbers and texts, with StoredTensors among them."""


@runtime_checkable
class DumpReader(Plugin, Protocol):
    """Reads what another tool dumped of a run."""

    @property
    def tried_with(self) -> str:
        """Name and version of the tool whose dumps were read when this was written."""

    @property
    def last_resort(self) -> bool:
        """Tell whether it takes what may be any tool's, and is asked after all others."""

    def recognizes(self, path: Path) -> bool:
        """Tell whether a folder or file is such a dump, by names and first bytes; nothing is raised."""

    def read(self, path: Path) -> ForeignDump:
        """Read all but the values of tensors; raises an AlignError for a dump that is damaged or not understood."""


@runtime_checkable
class TrustedLoader(Plugin, Protocol):
    """Loads a pickled file by running the code that it names."""

    def load_trusted(self, path: Path) -> Any:
        """Return dicts and lists with tensors in memory as StoredTensor or OddTensor; all else as it came.

        Whole modules become their state_dict. What the file's code raises is raised as UserCodeError, a class that
        cannot be imported as MissingClassError.
        """


class ResultViews(Protocol):
    """How results look in a notebook and as a frame; one module offers it."""

    def result_html(self, result: Any) -> str:
        """Return HTML that reads well on a dark and on a light page."""

    def result_frame(self, result: Any) -> pd.DataFrame:
        """Return the rows of a result."""


# The settings of live layers and optimizers: what was chosen when they were built, as plain values.
#
# An optimizer treats its parameters in groups, each with settings and with learning rates step by step.

Setting: TypeAlias = "bool | int | float | str | tuple[Setting, ...] | None"


@dataclass(frozen=True, slots=True)
class LayerSettings:
    """One layer or optimizer: its path, its public classes as in Module, and its public attributes of plain types.

    A tensor stands as True; what is no plain value (a function, another layer) is left out. A setting that only an
    operator inside the layer keeps has the operator's name before it: `elu.alpha`.
    """

    path: str
    classes: tuple[str, ...]
    values: dict[str, Setting] = field(default_factory=dict)

    @property
    def class_name(self) -> str:
        """Name of the class without its package, or "" if unknown."""
        return self.classes[0].rpartition(".")[2] if self.classes else ""


@dataclass(frozen=True, slots=True)
class LearningRates:
    """The rate at each of the first steps, a single one if it stays.

    `steps` is for how many steps the schedule was made, None if it has no end; `reach` is the largest number of steps
    that it names, 0 if none. `problem` is why the rates could not be had, `by` the class of what changes them.
    """

    values: tuple[float, ...] = ()
    steps: int | None = None
    problem: str = ""
    by: str = ""
    reach: int = 0

    @property
    def scheduled(self) -> bool:
        """Tell whether the rate is changed from step to step, or may be."""
        return bool(self.by or self.problem)

    def at(self, step: int) -> float:
        """The rate of a step, counted from 0; a single one holds for all."""
        return self.values[step if len(self.values) > 1 else 0]


@dataclass(frozen=True, slots=True)
class ParameterGroup:
    """Parameters that are trained alike: the settings that are in force for them, and their learning rates.

    `names` are as in ParameterSet, None where no model is known that holds them; frozen parameters, which no step
    moves, are left out. `count` is their number all the same. `problems` say what of the settings could not be read.
    """

    settings: LayerSettings
    names: tuple[str, ...] | None
    count: int
    rates: LearningRates = field(default_factory=LearningRates)
    problems: tuple[str, ...] = ()


def group_paths(count: int) -> tuple[str, ...]:
    """Names of so many groups: "" for a single one, that is the optimizer itself."""
    return tuple(f"group {number}" for number in range(count)) if count > 1 else ("",) * count


def plain_settings(attributes: Mapping[str, object]) -> dict[str, Setting]:
    """Return the public attributes that are plain, lists as tuples; long and deep lists are no settings."""
    public = {name: value for name, value in attributes.items() if not name.startswith("_")}
    return {name: _plain(value) for name, value in public.items() if _is_plain(value)}


def weights_as_setting(numbers: Array | None) -> Setting:
    """Weights of classes as a setting: the numbers, or of more than LONGEST_SETTING how many and a checksum."""
    if numbers is None:
        return None
    flat = numbers.astype("float32").reshape(-1)
    if len(flat) <= LONGEST_SETTING:
        return tuple(float(f"{number:.7g}") for number in flat)
    return sentence("setting_note.checksum", count=len(flat), checksum=crc32(flat.tobytes()))


def _is_plain(value: object, depth: int = SETTING_DEPTH) -> bool:
    if isinstance(value, (list, tuple)):
        return depth > 0 and len(value) <= LONGEST_SETTING and all(_is_plain(item, depth - 1) for item in value)
    return value is None or isinstance(value, (bool, int, float, str))


def _plain(value: object) -> Setting:
    return tuple(map(_plain, value)) if isinstance(value, (list, tuple)) else value  # type: ignore[return-value]


# Long work: it calls a `Progress`, which the command line draws, and may spare itself the search for cycles.


class Progress(Protocol):
    """Called now and then with what is being done and how far it is, in any unit; `done == total` ends that task."""

    def __call__(self, what: str, done: int, total: int) -> None:
        """Take note."""


def silent(what: str, done: int, total: int) -> None:
    """Show nothing."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the garbage collector from walking a growing tree of records again and again: a third of the time."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
