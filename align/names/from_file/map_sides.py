"""A side of a name map: a live model, or a checkpoint, of which only the headers are read until values are needed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from align.checkpoints.framework_of_names import declared_framework, source_framework
from align.checkpoints.open_checkpoint import open_checkpoint
from align.checkpoints.training_state import state_beside_weights
from align.core.checkpoints import StoredTensor
from align.core.dtypes import dtype_name
from align.errors import CannotRunError, SideError
from align.models.open_side import Side, SideRequest, open_side
from align.models.open_sides import open_sides
from align.names.from_file.file_parameters import parameters_of_file
from align.rules.layer_rules import layer_rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from align.core.parameters import ParameterSet
    from align.core.protocols import Model


@dataclass(frozen=True, slots=True)
class MapSide:
    """The parameters of one side; `live` is its model if it is one, `tensors` are those of its checkpoint.

    `left_out` are tensors of a checkpoint that are no parameters (the state of an optimizer), with the reason.
    """

    parameters: ParameterSet
    live: Side | None = None
    tensors: Mapping[str, StoredTensor] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def values(self) -> Mapping[str, StoredTensor]:
        """The values by name, none of a model that was filled from no checkpoint: fresh ones tell nothing."""
        if self.live is None or not self.live.filled:
            return self.tensors
        arrays = self.live.reader.read_values(self.live.model)
        return {
            name: StoredTensor(name, array.shape, dtype_name(array.dtype), lambda array=array: array)  # type: ignore[misc]
            for name, array in arrays.items()
        }


def open_map_side(side: str | Path | Model | Side | SideRequest) -> MapSide:
    """Read a checkpoint's headers, or build (or take) a model.

    A text that names a file or folder which is there, and is no Python file, is a checkpoint. Raises what opening
    either raises.
    """
    if isinstance(side, (str, Path)) and _is_file(side):
        return _read_checkpoint(Path(side))
    return _live_side(open_side(side))


def open_map_sides(
    reference: str | Path | Model | Side | SideRequest,
    candidate: str | Path | Model | Side | SideRequest,
    *,
    trial: bool = False,
) -> tuple[MapSide, MapSide]:
    """Open both sides of a map; two models are told apart as `open_sides` does, for a trial if there will be one."""
    if _is_file(reference) or _is_file(candidate):
        for side in (reference, candidate):
            if not _is_file(side):
                (side if isinstance(side, SideRequest) else SideRequest(side)).check()
        return open_map_side(reference), open_map_side(candidate)
    first, second = open_sides(reference, candidate, "trial" if trial else "names")
    return _live_side(first), _live_side(second)


def _is_file(side: str | Path | Model | Side | SideRequest) -> bool:
    return isinstance(side, Path) or (isinstance(side, str) and is_checkpoint(side))


def _live_side(side: Side) -> MapSide:
    return MapSide(side.reader.read_parameters(side.model, side.label), side)


def require_parameters(sides: Iterable[MapSide]) -> None:
    """Raise CannotRunError naming the sides that have no parameters."""
    if empty := [side.parameters.label for side in sides if not side.parameters.parameters]:
        said = f"there is nothing to map: no parameter in {' and '.join(empty)}"
        raise CannotRunError(said, "check that the function returns the model, or that the file holds its weights")


def is_checkpoint(side: str) -> bool:
    """Tell whether a side is a path to a checkpoint; raises SideError for what can be neither that nor a model."""
    if Path(side).exists() and Path(side).suffix != ".py":
        return True
    if ":" not in side:
        raise SideError(side, "it is neither a checkpoint that is there nor of the form `module:function`")
    return False


def _read_checkpoint(path: Path) -> MapSide:
    """Read as torch's names where neither file nor names tell; the map then does not say whose they are."""
    checkpoint = open_checkpoint(path)
    framework, _ = source_framework(checkpoint.metadata, checkpoint.tensors)
    told = declared_framework(checkpoint.metadata) or (framework if framework == "mindspore" else None)
    state = state_beside_weights(checkpoint)
    tensors = {name: tensor for name, tensor in checkpoint.tensors.items() if name not in state}
    parameters = parameters_of_file(str(path), framework, tensors, layer_rules())
    return MapSide(replace(parameters, framework=told), None, tensors, state)
