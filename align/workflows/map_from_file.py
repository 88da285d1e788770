"""The name map that a checkpoint alone decides, or the list of what it leaves open and how to settle it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.core.mappings import layer_rules
from align.core.names import LayerChoice
from align.errors import OpenNamesError, UsageError
from align.steps.infer_names import InferredNames, OpenLayer, infer_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from align.core.checkpoints import StoredTensor
    from align.steps.translations import TargetFamily


def map_from_file(
    tensors: Mapping[str, StoredTensor],
    family: TargetFamily = "nn",
    layers: Iterable[str] = (),
    told: Mapping[str, Sequence[str]] | None = None,
) -> InferredNames:
    """Return the map to names of `mindspore.nn` or `mint.nn`, or from a MindSpore file's to those of torch.

    `layers` are the user's choices, each "PATTERN=KIND": PATTERN is a glob on the prefix of a layer, KIND the kind or
    id of a layer rule, or "as-is". `told` maps prefixes to kinds known otherwise. Raises OpenNamesError listing all
    that the file does not decide, and UsageError for choices that cannot be applied.

    >>> import numpy, tempfile
    >>> from pathlib import Path
    >>> from align.workflows.open_checkpoint import open_checkpoint
    >>> path = Path(tempfile.mkdtemp(), "torch.npz")
    >>> numpy.savez(path, **{"embed.weight": numpy.ones((5, 2))})
    >>> inferred = map_from_file(open_checkpoint(path).tensors, layers=["embed=embedding"])
    >>> inferred.name_map.pairings[0].target
    'embed.embedding_table'
    """
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    inferred = infer_names(shapes, layer_rules(), family, [_choice(text) for text in layers], told)
    if inferred.faults:
        listed = "\n".join(f"  {fault}" for fault in inferred.faults)
        raise UsageError(f"--layer cannot be applied:\n{listed}", "a choice reads 'PATTERN=KIND'")
    if inferred.open:
        raise OpenNamesError([_line(layer) for layer in inferred.open], _hint(inferred.open[0]))
    return inferred


def _choice(text: str) -> LayerChoice:
    pattern, equals, kind = text.rpartition("=")
    if not equals or not kind:
        raise UsageError(f"--layer {text!r} is no choice", "write 'PATTERN=KIND', for example 'embed=embedding'")
    return LayerChoice(pattern, kind)


def _line(layer: OpenLayer) -> str:
    shapes = ", ".join(f"{name} {shape}" for name, shape in layer.shapes.items())
    ways = "; ".join(f"{ids} -> {', '.join(names)}" for ids, names in layer.alternatives)
    return f"{layer.prefix or '(top level)'}{f' ({shapes})' if shapes else ''}: {ways}"


def _hint(layer: OpenLayer) -> str:
    kind = layer.alternatives[0][0].partition(",")[0]
    example = f"--layer '{layer.prefix}={kind}'" + ("" if layer.prefix else " for the top level")
    return (
        f"say what each is, for example {example} (patterns such as 'encoder.*' too), or give a map with --map "
        "or the model with --source-model"
    )
