"""What is known of one side's parameters and modules, from a live model or from a file alone; and what fits them.

Frameworks' own loaders are too lenient with names and shapes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Literal

from align.errors import InputsError
from align.words.catalogue import say, texts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.dtypes import Array

Shape = tuple[int, ...]
Order = Literal["registration", "execution", "file"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter or buffer.

    `name` is the key in a checkpoint and need not equal the module's path; `module` is the path of the owning
    module ("" for the root) and `attribute` its name there. `tied_to` is the first name of the same tensor.
    `trainable` is None where a file cannot tell.
    """

    name: str
    shape: Shape
    dtype: str
    module: str
    attribute: str
    trainable: bool | None = None
    buffer: bool = False
    tied_to: str | None = None

    @property
    def count(self) -> int:
        """Number of elements; 1 for a 0-d tensor."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class TensorMemory:
    """Where the values of one live tensor lie, and what they are.

    `start` and `stop` are the addresses of the whole storage, which other tensors may share, on the `device`; equal
    where it has none. `content` is a checksum of some of its elements.
    """

    dtype: str
    device: str
    start: int
    stop: int
    content: int


@dataclass(frozen=True, slots=True)
class Module:
    """One module of the tree.

    `classes` holds the public names of the class and its bases, most derived first (`torch.nn.Conv2d`);
    it is empty where only a file is known. `inputs_first` tells whether a linear layer of a class that has a layout
    rule keeps its weight as (in, out), None where no rule knows the class. `ran` is False
    where a run did not show it. `merged_into` is the path of the module that does its work too: an exporter multiplies
    a norm into a convolution.
    """

    path: str
    classes: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    inputs_first: bool | None = None
    ran: bool = True
    merged_into: str = ""

    @property
    def class_name(self) -> str:
        """Name of the class without its package, or "" if unknown."""
        return self.classes[0].rpartition(".")[2] if self.classes else ""


@dataclass(frozen=True, slots=True)
class ParameterSet:
    """Parameters and modules of one side; modules stand in the order that `order` names.

    `shared` pairs a place in the tree with the one name under which a checkpoint has the tensor that is there too.
    """

    label: str
    framework: str | None
    parameters: tuple[Parameter, ...]
    modules: tuple[Module, ...] = ()
    order: Order = "registration"
    shared: tuple[tuple[str, str], ...] = ()
    by_name: dict[str, Parameter] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {p.name: p for p in self.parameters})

    @property
    def names(self) -> tuple[str, ...]:
        """Names in registration order."""
        return tuple(p.name for p in self.parameters)


@dataclass(frozen=True, slots=True)
class ParameterSummary:
    """The counts of one side: tensors, elements, trainable elements, buffers, ties, dtypes."""

    label: str
    framework: str | None
    tensors: int
    elements: int
    trainable_elements: int | None
    buffers: int
    ties: tuple[tuple[str, str], ...]
    dtypes: dict[str, int]


def summarize_parameters(side: ParameterSet) -> ParameterSummary:
    """Count a side's parameters; elements of tied tensors and of buffers are counted apart.

    `elements` covers parameters proper (no buffers, each tied tensor once), as `sum(p.numel() for p in
    model.parameters())` does in torch.
    """
    own = [p for p in side.parameters if not p.buffer and p.tied_to is None]
    known = all(p.trainable is not None for p in own)
    dtypes: dict[str, int] = {}
    for parameter in side.parameters:
        dtypes[parameter.dtype] = dtypes.get(parameter.dtype, 0) + 1
    return ParameterSummary(
        label=side.label,
        framework=side.framework,
        tensors=len(side.parameters),
        elements=sum(p.count for p in own),
        trainable_elements=sum(p.count for p in own if p.trainable) if known else None,
        buffers=sum(p.buffer for p in side.parameters),
        ties=(*((p.name, p.tied_to) for p in side.parameters if p.tied_to is not None), *side.shared),
        dtypes=dtypes,
    )


def check_state_dict(shapes: Mapping[str, Shape], values: Mapping[str, Array], what: str) -> None:
    """Raise InputsError listing every missing and unexpected name and every shape that differs.

    MindSpore's loader takes a parameter by its suffix, and even when strict a (2, 3, 1, 1) array for a (2, 3) one.
    """
    faults = state_dict_faults(shapes, {name: tuple(value.shape) for name, value in values.items()})
    if faults:
        raise InputsError(*texts("model_fault.other_weights", what=what), faults=faults)


def state_dict_faults(shapes: Mapping[str, Shape], given: Mapping[str, Shape]) -> list[str]:
    """Every name that is missing or unexpected among the given ones, and every shape that differs."""
    faults = [f"missing: {name} {list(shape)}" for name, shape in shapes.items() if name not in given]
    faults += [f"unexpected: {name} {list(shape)}" for name, shape in given.items() if name not in shapes]
    return faults + [
        say("model_fault.other_shape", name=name, given=list(given[name]), shape=str(list(shape)))
        for name, shape in shapes.items()
        if name in given and tuple(given[name]) != tuple(shape)
    ]


@dataclass(frozen=True, slots=True)
class OriginNorm:
    """A BatchNorm of a model that was exported: `parameters` are the names there, by torch's attributes."""

    path: str
    epsilon: float
    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Origin:
    """What an exported model is told of the one that it may have been exported from: a file does not say it all.

    `values` are those of its `parameters`, `norms` stand in their order.
    `paired` leads from a parameter's name in the exported model to the origin's; `biases` from the origin's name of a
    weight to that of the bias beside it. `usual` are the parameters of layers that compute with them as they are.
    `same_values` tells whether the exported model is meant to have these values.
    """

    parameters: ParameterSet
    values: Mapping[str, Array] = field(repr=False)
    norms: tuple[OriginNorm, ...]
    paired: Mapping[str, str]
    biases: Mapping[str, str]
    usual: frozenset[str] = frozenset()
    same_values: bool = True
