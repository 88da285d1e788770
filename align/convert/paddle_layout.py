"""A checkpoint of Paddle as torch would have it: the weight of a Linear turned, statistics under torch's names.

Paddle keeps the weight of a Linear as (in, out), and so does nothing else that has a bias of its last axis. A matrix
without a bias may be that of an Embedding, which stands as in torch: only the user knows.
"""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from align.core.parameters import StoredTensor
from align.errors import UsageError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.convert.choose_names import NameRequest
    from align.core.parameters import Checkpoint
    from align.core.protocols import FrameworkName

PADDLE = "paddle"  # what its reader calls the format
ATTRIBUTES = {"_mean": "running_mean", "_variance": "running_var", "_weight": "weight"}  # of norms, and of PReLU
LINEAR = "linear"


def as_torch_has_it(
    checkpoint: Checkpoint, request: NameRequest, destination: FrameworkName | None
) -> tuple[Checkpoint, NameRequest]:
    """Paddle's checkpoint under torch's names and in its layout, and what of the request is still to be done.

    Raises UsageError naming each matrix of which nothing says whether it is a Linear's.
    """
    turned, open_ones = list[str](), list[str]()
    for name, tensor in checkpoint.tensors.items():
        module, _, attribute = name.rpartition(".")
        if attribute == "weight" and len(tensor.shape) == 2:
            kind = _kind(module, request.layers) or _shown_kind(module, tensor, checkpoint.tensors)
            (turned if kind == LINEAR else open_ones if kind is None else []).append(name)
    if open_ones:
        raise UsageError.of("paddle_usage.open", path=checkpoint.path, names=open_ones, count=len(open_ones))
    tensors = {_torch_name(name): _turned(one) if name in turned else one for name, one in checkpoint.tensors.items()}
    tensors = {name: replace(one, name=name) for name, one in tensors.items()}
    renamed = sum(name not in checkpoint.tensors for name in tensors)
    note = sentence("checkpoint_note.from_paddle", turned=len(turned), renamed=renamed)
    stays = "torch" in (request.target, destination)  # the layers say nothing of names that stay now
    made = replace(checkpoint, tensors=tensors, notes=(note,), metadata={"format": "pt"})
    return made, replace(request, layers=()) if stays else request


def _kind(module: str, layers: Sequence[str]) -> str | None:
    """What the user says that a layer is; the last word counts."""
    said = [text.rpartition("=") for text in layers]
    return next((kind for pattern, _, kind in reversed(said) if fnmatchcase(module, pattern)), None)


def _shown_kind(module: str, weight: StoredTensor, tensors: Mapping[str, StoredTensor]) -> str | None:
    bias = tensors.get(f"{module}.bias" if module else "bias")
    return LINEAR if bias is not None and bias.shape == weight.shape[1:] else None


def _torch_name(name: str) -> str:
    module, dot, attribute = name.rpartition(".")
    return module + dot + ATTRIBUTES.get(attribute, attribute)


def _turned(tensor: StoredTensor) -> StoredTensor:
    return StoredTensor(tensor.name, tensor.shape[::-1], tensor.dtype, lambda: tensor.load().T)
