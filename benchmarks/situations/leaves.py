"""Leaves: what models return beside tensors. What cannot be compared must be told, and never be dropped in silence."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from enum import Enum
from types import SimpleNamespace
from typing import Any

import numpy as np

from ._nets import MINDSPORE, TORCH, mlp, reference
from ._situation import ALIGNED, FAULTS_SEEN, REFUSED, WRONG, clean, faulty

Pair = namedtuple("Pair", "logits hidden")


@dataclass
class Output:
    """As libraries of models return."""

    logits: Any
    hidden: Any = None
    name: str = "right"


class Detections:
    """An object of the user's own."""

    def __init__(self, boxes: Any, scores: Any) -> None:
        self.boxes = boxes
        self.scores = scores


class Slotted:
    """One without a __dict__."""

    __slots__ = ("boxes",)

    def __init__(self, boxes: Any) -> None:
        self.boxes = boxes


class Cache:
    """Keys and values by layer, as caches of transformers are."""

    def __init__(self, *layers: Any) -> None:
        self.layers = [SimpleNamespace(keys=key, values=value) for key, value in layers]


class Label(Enum):
    """What a classifier may return."""

    CAT = 1
    DOG = 2


def beside(make: Any, factor: float = 1.0) -> Any:
    """The logits, and something made of them and of a factor."""

    def code(net: Any, x: Any, f: Any) -> Any:
        y = mlp(net, x, f)
        return {"logits": y, "more": make(y, f, factor)}

    return code


def alone(make: Any, factor: float = 1.0) -> Any:
    """Only what is made of the logits."""
    return lambda net, x, f: make(mlp(net, x, f), f, factor)


def number(y: Any, f: Any) -> float:
    """A number of both frameworks."""
    return float(f.array(y).sum())


KINDS: dict[str, Any] = {
    "NumPy array": lambda y, f, k: f.array(y) * np.float32(2 * k),
    "NumPy scalar": lambda y, f, k: np.float32(f.array(y).sum() * k),
    "number": lambda y, f, k: number(y, f) * k,
    "count": lambda y, f, k: int((f.array(y) > 0).sum()) + (k != 1),
    "flag": lambda y, f, k: bool(number(y, f) > -1e9) == (k == 1),
    "text": lambda y, f, k: "cat" if k == 1 else "dog",
    "bytes": lambda y, f, k: b"cat" if k == 1 else b"dog",
    "Enum": lambda y, f, k: Label.CAT if k == 1 else Label.DOG,
    "list of indexes": lambda y, f, k: [int(one) + (k != 1) for one in f.array(y).argmax(-1).ravel()],
    "nested list": lambda y, f, k: [[float(one) * k for one in row] for row in f.array(y)[0]],
    "list of texts": lambda y, f, k: ["cat", "dog" if k == 1 else "cow"],
    "NumPy texts": lambda y, f, k: np.array(["cat", "dog" if k == 1 else "cow"]),
    "NumPy booleans": lambda y, f, k: f.array(y) > (0 if k == 1 else 0.5),
    "set of indexes": lambda y, f, k: {1, 2, 3 if k == 1 else 4},
    "range": lambda y, f, k: range(4 if k == 1 else 5),
    "complex number": lambda y, f, k: complex(number(y, f), 1.0 * k),
}
HOLDERS: dict[str, Any] = {
    "object": lambda y, f, k: Detections(y * (2 * k), y > 0),
    "object with slots": lambda y, f, k: Slotted(y * k),
    "SimpleNamespace": lambda y, f, k: SimpleNamespace(boxes=y * k),
    "cache": lambda y, f, k: Cache((y * k, y + 1), (y - 1, y * 3)),
    "list of objects": lambda y, f, k: [Detections(y[0] * k, y[0]), Detections(y[1], y[1])],
    "generator": lambda y, f, k: (one * k for one in (y, y + 1)),
    "function": lambda y, f, k: lambda: y * k,
}
CONTAINERS: dict[str, Any] = {
    "dataclass": lambda y, f, k: Output(y, y * (2 * k)),
    "dataclass with a text": lambda y, f, k: Output(y, None, "right" if k == 1 else "wrong"),
    "named tuple": lambda y, f, k: Pair(y, y * (2 * k)),
    "OrderedDict": lambda y, f, k: OrderedDict(a=y, b=y * k),
    "dict with None": lambda y, f, k: {"a": None, "b": (y, None, [y * k, {"c": None}])},
    "dict with numbers as keys": lambda y, f, k: {0: y, 1: y * k},
    "None for a tensor": lambda y, f, k: {"a": y, "b": y if k == 1 else None},
    "tensor for None": lambda y, f, k: {"a": y, "b": None if k == 1 else y},
    "key missing": lambda y, f, k: {"a": y, "b": y + 1} if k == 1 else {"a": y},
    "other key": lambda y, f, k: {"a": y, "b": y + 1} if k == 1 else {"a": y, "c": y + 2},
    "tuple in another order": lambda y, f, k: (y, y + 1) if k == 1 else (y + 1, y),
    "list one longer": lambda y, f, k: [y, y + 1] if k == 1 else [y, y + 1, y + 2],
}


def kinds_twins(name: str, make: Any, wrong: tuple[str, ...] = (WRONG,), told: tuple[str, ...] = ()) -> list[Any]:
    """Beside the logits; the fault is outside of the logits. `told` are the words of an aligned verdict over it."""
    original = reference(TORCH, beside(make))
    return [
        clean(name, original, reference(MINDSPORE, beside(make))),
        faulty(name, original, reference(MINDSPORE, beside(make, 1.5)), expected=wrong, caveat=told),
    ]


def only_twins(name: str, make: Any) -> list[Any]:
    """Nothing but this is returned."""
    original = reference(TORCH, alone(make))
    return [
        clean(f"{name} alone", original, reference(MINDSPORE, alone(make)), expected=(ALIGNED, REFUSED)),
        faulty(f"{name} alone", original, reference(MINDSPORE, alone(make, 1.5)), expected=FAULTS_SEEN),
    ]


SITUATIONS = [
    *(one for name, make in KINDS.items() for one in kinds_twins(name, make, FAULTS_SEEN)),
    *(one for name, make in HOLDERS.items() for one in kinds_twins(name, make, (*FAULTS_SEEN, ALIGNED), ("more",))),
    *(one for name, make in CONTAINERS.items() for one in kinds_twins(name, make, FAULTS_SEEN)),
    *only_twins("NumPy array", KINDS["NumPy array"]),
    *only_twins("number", KINDS["number"]),
    *only_twins("list of indexes", KINDS["list of indexes"]),
    *only_twins("object", HOLDERS["object"]),
]
