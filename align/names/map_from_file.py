"""The name map that a checkpoint alone decides, or the list of what it leaves open and how to settle it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.checkpoints.wrapper_prefixes import targets_without_wrappers
from align.core.name_map import LayerChoice
from align.errors import UsageError, as_lines
from align.names.infer_names import InferredNames, infer_names
from align.names.judging.open_names_text import open_names_error
from align.rules.layer_rules import layer_rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from align.core.checkpoints import StoredTensor
    from align.core.parameters import Parameter
    from align.rules.directed_rules import TargetFamily

CHOICE = (
    "a choice reads 'PATTERN=KIND': PATTERN is the path of a layer, without its parameter, or a glob over such paths"
)


def map_from_file(
    tensors: Mapping[str, StoredTensor | Parameter],
    family: TargetFamily = "nn",
    layers: Iterable[str] = (),
    told: Mapping[str, Sequence[str]] | None = None,
) -> InferredNames:
    """Return the map to names of `mindspore.nn` or `mint.nn`, or from a MindSpore file's to those of torch.

    What a wrapper such as DistributedDataParallel put into the names is in no target's, and a warning says so.
    `layers` are the user's choices, each "PATTERN=KIND": PATTERN is a glob on the prefix of a layer, KIND the kind or
    id of a layer rule, or "as-is". `told` maps prefixes to kinds known otherwise. Raises OpenNamesError listing all
    that the file does not decide, and UsageError for choices that cannot be applied.

    >>> import numpy, tempfile
    >>> from pathlib import Path
    >>> from align.checkpoints.open_checkpoint import open_checkpoint
    >>> path = Path(tempfile.mkdtemp(), "torch.npz")
    >>> numpy.savez(path, **{"embed.weight": numpy.ones((5, 2))})
    >>> inferred = map_from_file(open_checkpoint(path).tensors, layers=["embed=embedding"])
    >>> inferred.name_map.pairings[0].target
    'embed.embedding_table'
    """
    inferred = infer_from_file(tensors, family, layers, told)
    if inferred.open:
        raise open_names_error(inferred.open)
    return inferred


def infer_from_file(
    tensors: Mapping[str, StoredTensor | Parameter],
    family: TargetFamily,
    layers: Iterable[str] = (),
    told: Mapping[str, Sequence[str]] | None = None,
) -> InferredNames:
    """Return what `map_from_file` does, with what is open; raises UsageError for choices that cannot be applied."""
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    inferred = infer_names(shapes, layer_rules(), family, [_choice(text) for text in layers], told)
    if inferred.faults:
        raise UsageError(f"--layer cannot be applied:{as_lines(inferred.faults)}", CHOICE)
    name_map, fills, words = targets_without_wrappers(inferred.name_map, inferred.fills)
    if not words:
        return inferred
    said = f"taken off the names, since a wrapper put it there: {words}; a map (--map) keeps it"
    return replace(inferred, name_map=name_map, fills=fills, warnings=(*inferred.warnings, said))


def _choice(text: str) -> LayerChoice:
    pattern, equals, kind = text.rpartition("=")
    if not equals or not kind:
        raise UsageError(f"--layer {text!r} is no choice", "write 'PATTERN=KIND', for example 'embed=embedding'")
    return LayerChoice(pattern, kind)
