"""Checkpoints of the small Llama of `examples/`, and of a net with norms, with one fault in the port's, and clean ones.

The reference is a file of torch.save; the candidate is its conversion, changed, and written by MindSpore itself, or
another file of torch. Which tensors a fault is planted in, and what is right to name there, stands beside it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import align

EXAMPLES = Path(__file__).parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))
import tiny_llama  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray[Any, Any]
Values = dict[str, Array]
LAYERS = range(tiny_llama.LAYERS)


@dataclass(frozen=True)
class WeightCase:
    """A case by name: the framework that writes the candidate, the change, and what names it ("" of a clean one)."""

    name: str
    framework: str
    relation: str
    change: Callable[[Values], Values]


def diffed(case: WeightCase, folder: Path) -> align.CheckpointDiff:
    """What `align diff` says of both files."""
    reference, candidate = folder / "torch.pth", folder / ("port.ckpt" if case.framework == "mindspore" else "port.pth")
    torch.save(weights(), reference)
    if case.framework == "mindspore":
        import mindspore

        align.convert_checkpoint(reference, folder / "made.ckpt", family="mf-llama")
        made = mindspore.load_checkpoint(str(folder / "made.ckpt"))
        changed = case.change({name: value.asnumpy() for name, value in made.items()})
        listed = [{"name": name, "data": mindspore.Tensor(np.ascontiguousarray(v))} for name, v in changed.items()]
        mindspore.save_checkpoint(listed, str(candidate))
    else:
        own = case.change({name: value.numpy().copy() for name, value in weights().items()})
        torch.save({name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in own.items()}, candidate)
    return align.diff_checkpoints(reference, candidate)


def weights() -> dict[str, torch.Tensor]:
    """The weights of the model, with norms that are not all ones, as after a training."""
    state = tiny_llama.build().state_dict()
    generator = torch.Generator().manual_seed(1)
    return {
        name: value + 0.05 * torch.randn(value.shape, generator=generator) if "norm" in name else value
        for name, value in state.items()
    }


def of_names(part: str, change: Callable[[Array], Array]) -> Callable[[Values], Values]:
    """The tensors whose names have this part are changed."""
    return lambda values: {name: change(value) if part in name else value for name, value in values.items()}


def exchanged(one: str, other: str) -> Callable[[Values], Values]:
    """Two tensors in each other's place."""
    return lambda values: {**values, one: values[other], other: values[one]}


def rotary(value: Array) -> Array:
    """The rows of each head as pairs, where they were halves."""
    size = tiny_llama.WIDTH // tiny_llama.HEADS
    return value.reshape(-1, 2, size // 2, value.shape[1]).swapaxes(1, 2).reshape(value.shape)


def by_heads(value: Array) -> Array:
    """Heads in another order."""
    size = tiny_llama.WIDTH // tiny_llama.HEADS
    order = np.roll(np.arange(len(value) // size), 1)
    return value.reshape(-1, size, value.shape[1])[order].reshape(value.shape)


def quantized(value: Array) -> Array:
    """Eight bits and back, with a scale for each row."""
    scale = np.abs(value).max(1, keepdims=True) / 127
    return (np.rint(value / scale) * scale).astype(np.float32)


def padded(value: Array) -> Array:
    """A vocabulary that is a multiple of 16."""
    return np.concatenate([value, np.zeros((-len(value) % 16, value.shape[1]), value.dtype)])


def zero_rows(value: Array) -> Array:
    """The last rows of a table that were never written."""
    return np.concatenate([value[:-5], 0 * value[-5:]])


def noisy(scale: float) -> Callable[[Values], Values]:
    """All tensors trained on, or rounded otherwise."""

    def change(values: Values) -> Values:
        draw = np.random.default_rng(0).standard_normal
        return {name: (value * (1 + scale * draw(value.shape))).astype(np.float32) for name, value in values.items()}

    return change


def as_constants(values: Values) -> Values:
    """Norms that were never loaded: ones, which any tensor of ones is like."""
    return {name: np.ones_like(value) if "norm" in name else value for name, value in values.items()}


def drawn_anew(values: Values) -> Values:
    """A model that was never given its weights."""
    draw = np.random.default_rng(3).standard_normal
    return {name: (0.3 * draw(value.shape)).astype(np.float32) for name, value in values.items()}


def shuffled_norms(values: Values) -> Values:
    """Norms of few levels, as of bfloat16, drawn anew: many of them are an order of each other."""
    draw = np.random.default_rng(4).integers
    return {n: (1 + draw(-1, 2, v.shape) / 128).astype(np.float32) if "norm" in n else v for n, v in values.items()}


MS, PT = "mindspore", "torch"
O_PROJ = [f"model.layers.{n}.attention.wo.weight" for n in LAYERS]
PLANTED_WEIGHTS = [
    WeightCase("pairs for halves (rotary)", MS, "interleaved", of_names("attention.wq", rotary)),
    WeightCase("pairs for halves (rotary)", PT, "interleaved", of_names("q_proj", rotary)),
    WeightCase("heads in another order", MS, "permuted", of_names("attention.wq", by_heads)),
    WeightCase("square matrices transposed", MS, "transposed", of_names("attention.wo", np.transpose)),
    WeightCase("matrices transposed", PT, "transposed", of_names("down_proj", np.transpose)),
    WeightCase("two layers exchanged", MS, "another-tensor", exchanged(*O_PROJ)),
    WeightCase(
        "gate and up exchanged",
        PT,
        "another-tensor",
        exchanged("model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight"),
    ),
    WeightCase("1 + w for w", MS, "shifted", of_names("norm", lambda value: 1 + value)),
    WeightCase("a scale multiplied in", PT, "scaled", of_names("q_proj", lambda value: value / np.float32(np.sqrt(8)))),
    WeightCase(
        "cast through half", MS, "rounded", of_names("feed", lambda value: value.astype(np.float16).astype(np.float32))
    ),
    WeightCase("eight bits and back", MS, "quantized", of_names("feed", quantized)),
    WeightCase("a padded vocabulary", PT, "padded", of_names("embed_tokens", padded)),
    WeightCase("rows of a table are zero", MS, "zero-rows", of_names("tok_embeddings", zero_rows)),
]
CLEAN_WEIGHTS = [
    WeightCase("rounding noise", MS, "", noisy(1e-7)),
    WeightCase("trained on a little", MS, "", noisy(1e-4)),
    WeightCase("trained on", PT, "", noisy(1e-1)),
    WeightCase("norms are ones", MS, "", as_constants),
    WeightCase("other random weights", PT, "", drawn_anew),
    WeightCase("norms of few levels", PT, "", shuffled_norms),
    WeightCase("equal", MS, "", dict),
]
