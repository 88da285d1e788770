"""Ways in which a case can be run: in half precision, on several batches, with a mask that hides positions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from _cases import Case, open_case
from _planters_code import plant_code
from _planters_settings import plant_settings
from _planters_state import plant_masks, plant_state
from _planters_weights import plant_weights
from _written_ports import is_written, open_written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from _planting import Mutation, Port

Batch = dict[str, np.ndarray]
Planter = "Callable[[Port], Iterator[Mutation]]"
EPSILONS = {"float32": float(np.finfo(np.float32).eps), "float16": 2.0**-10, "bfloat16": 2.0**-7}


class NoSuchWayError(Exception):
    """A case cannot be run in this way; the message says why."""


@dataclass(frozen=True)
class Way:
    """How a case is run, and what is planted in it; where it is `loud`, only what moves the output is asked for."""

    planters: tuple[Any, ...] = (plant_settings, plant_weights, plant_code)
    dtype: str = "float32"
    batches: int = 1
    mask: Literal["no", "if it can", "needed"] = "no"
    loud: bool = False

    def mutations(self, port: Port) -> Iterator[Mutation]:
        """All that can be planted."""
        return chain.from_iterable(plant(port) for plant in self.planters)


WAYS = {
    "plain": Way(),
    "float16": Way(dtype="float16", loud=True),
    "bfloat16": Way(dtype="bfloat16", loud=True),
    "batches": Way(batches=2, loud=True),
    "state": Way(planters=(plant_state,), batches=2, mask="if it can"),
    "masks": Way(planters=(plant_masks,), mask="needed"),
}


def open_in(way: Way, folder: Path, name: str) -> Case:
    """A case, repaired and ready to be run in a way. Raises NoSuchWayError where it cannot be."""
    if is_written(folder, name):
        return _open_written_in(way, folder, name)
    given: list[bool] = []
    alter = (lambda _module: None) if way.mask == "no" else lambda module: given.append(give_mask(name, module))
    case = open_case(folder, name, alter)
    if way.mask == "needed" and not any(given):
        raise NoSuchWayError("it takes no mask that is known here")
    case.repair()
    more = tuple(another_batch(case.inputs, seed) for seed in range(1, way.batches))
    case = replace(case, more=more, visible=any(given))
    return case if way.dtype == "float32" else narrowed(case, way.dtype)


def _open_written_in(way: Way, folder: Path, name: str) -> Case:
    if way.dtype != "float32" or way.mask == "needed":
        raise NoSuchWayError("a written port runs in float32, and its masks are its own")
    case = open_written(folder, name)
    return replace(case, more=tuple(another_batch(case.inputs, seed) for seed in range(1, way.batches)))


def another_batch(batch: Batch, seed: int) -> Batch:
    """Other values of the same shapes: floats of the same mean and spread, the same integers in another order."""
    drawn = np.random.default_rng(seed)

    def other(name: str, value: np.ndarray) -> np.ndarray:
        if "mask" in name:
            return np.ascontiguousarray(value[::-1])
        if value.dtype.kind != "f":
            return drawn.permuted(value)
        return (value.mean() + value.std() * drawn.standard_normal(value.shape)).astype(value.dtype)

    return {name: other(name, value) for name, value in batch.items()}


def narrowed(case: Case, dtype: str) -> Case:
    """Both sides in a half precision: parameters, what the port's cells call float32, and what is given."""
    import mindspore
    import torch

    case.model.to(getattr(torch, dtype))
    narrow = getattr(mindspore, dtype)
    for parameter in case.net.get_parameters():
        if parameter.dtype == mindspore.float32:
            parameter.set_dtype(narrow)
    for _, cell in case.net.cells_and_names():
        for name, value in list(vars(cell).items()):
            if type(value) is type(mindspore.float32) and value == mindspore.float32:
                setattr(cell, name, narrow)
    return replace(
        case, inputs=_rounded(case.inputs, dtype), more=tuple(_rounded(b, dtype) for b in case.more), dtype=dtype
    )


def _rounded(batch: Batch, dtype: str) -> Batch:
    """Floating inputs that the precision holds: as float16, and as float32 for bfloat16, which NumPy has not."""
    import torch

    def one(value: np.ndarray) -> np.ndarray:
        if value.dtype.kind != "f":
            return value
        rounded = torch.from_numpy(value).to(getattr(torch, dtype))
        return (rounded if dtype == "float16" else rounded.float()).numpy()

    return {name: one(value) for name, value in batch.items()}


def give_mask(name: str, module: Any) -> bool:
    """Let a case take a mask of padding with zeros in it; returns False where it is not known how."""
    given = module.inputs()
    if any("mask" in key and set(np.unique(value)) == {0, 1} for key, value in given.items()):
        return True
    masks = {}
    if getattr(module, "KWARGS", False) and "input_ids" in given:
        masks = {"attention_mask": given["input_ids"].shape}
    elif name in CALLS:
        masks = {mask: given[of].shape[:2] for mask, of in CALLS[name].masks.items()}
        module.torch_forward, module.mindspore_forward = CALLS[name].torch, CALLS[name].mindspore
    module.inputs = lambda: given | {mask: padding_mask(*shape) for mask, shape in masks.items()}
    return bool(masks)


def padding_mask(samples: int, positions: int) -> np.ndarray:
    """Ones, and zeros at the ends of all samples but the first, one more third in each."""
    hidden = np.minimum(np.arange(samples) * max(positions // 3, 1), positions - 2)
    return (np.arange(positions) < positions - hidden[:, None]).astype(np.int64)


@dataclass(frozen=True)
class Call:
    """The masks that a case can take, each with the input whose positions it hides, and how both models take them."""

    masks: dict[str, str]
    torch: Callable[[Any, Any], Any]
    mindspore: Callable[[Any, Any], Any]


def _encoder(model: Any, x: Any) -> Any:
    return model.body(x["x"], src_key_padding_mask=x["mask"] == 0)


def _attention(model: Any, x: Any) -> Any:
    y = x["x"]
    y = y + model.self_attn(y, y, y, key_padding_mask=x["mask"] == 0)[0]
    return model.cross(y, x["k"], x["v"], key_padding_mask=x["key_mask"] == 0)[0]


def _mf_gpt2(net: Any, x: Any) -> Any:
    ids, mask = (x[name].astype("int32") for name in ("input_ids", "attention_mask"))
    return net(ids, mask)[0].reshape((*ids.shape, -1))


def _mf_bert(net: Any, x: Any) -> Any:
    ids, mask = (x[name].astype("int32") for name in ("input_ids", "attention_mask"))
    return tuple(net(ids, ids * 0, mask)[:2])


CALLS = {
    "zoo_transformer_encoder": Call({"mask": "x"}, _encoder, _encoder),
    "zoo_mha": Call({"mask": "x", "key_mask": "k"}, _attention, _attention),
    "mf_gpt2": Call(
        {"attention_mask": "input_ids"},
        lambda m, x: m(x["input_ids"], attention_mask=x["attention_mask"]).logits,
        _mf_gpt2,
    ),
    "mf_bert": Call(
        {"attention_mask": "input_ids"},
        lambda m, x: tuple(m(x["input_ids"], attention_mask=x["attention_mask"])[:2]),
        _mf_bert,
    ),
}
