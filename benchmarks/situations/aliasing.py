"""Aliasing: what both sides share, so that a change of one changes the other, or both are one.

The factories of this module stand for files of users: some build anew, some return one object again and again.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import mindspore
import numpy as np
import torch

import align

from ._nets import MINDSPORE, TORCH, TorchNet, deep_copy, dtype_of, make, mlp, one_batch, reference
from ._situation import ALIGNED, FAULTS_SEEN, REFUSED, clean, faulty

HERE = "situations.aliasing"
MAY_REFUSE = (ALIGNED, REFUSED)


def fresh() -> Any:
    """A model of its own each time."""
    return make(TORCH)


def fresh_port() -> Any:
    """A cell of its own each time."""
    return make(MINDSPORE)


@lru_cache
def cached() -> Any:
    """One model for all who ask."""
    return make(TORCH)


@lru_cache
def cached_port() -> Any:
    """One cell for all who ask."""
    return make(MINDSPORE)


model = make(TORCH)
kept: dict[str, Any] = {}


def from_registry() -> Any:
    """A new shell around layers that are kept in a table of the module."""
    if not kept:
        kept.update(make(TORCH).named_children())
    return TorchNet(dict(kept), mlp)


def shared_values() -> Any:
    """A new model whose parameters are those of the one at the module's level."""
    other = make(TORCH)
    for mine, theirs in zip(other.modules(), model.modules(), strict=True):
        mine._parameters.update(theirs._parameters)  # noqa: SLF001 - as careless code does
    return other


@lru_cache
def changed() -> Any:
    """One model for `scaled_in_place`."""
    return make(TORCH)


def scaled_in_place() -> Any:
    """The one model, with a layer changed on the way out."""
    with torch.no_grad():
        changed().b.weight.mul_(1.01)
    return changed()


@lru_cache
def to_be_cast() -> Any:
    """One model, which is cast for one side."""
    return make(TORCH)


@lru_cache
def folder() -> Path:
    """Where the checkpoints lie until the process ends."""
    made = Path(tempfile.mkdtemp(prefix="situations-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


@lru_cache
def checkpoint(factor: float, kind: str) -> str:
    """A file with the right values, but for one weight times `factor`."""
    path = folder() / f"times-{factor}.{kind}"
    whole = make(TORCH if kind == "pth" else MINDSPORE)
    if kind == "pth":
        with torch.no_grad():
            whole.b.weight.mul_(factor)
        torch.save(whole.state_dict(), path)
    else:
        whole.b.weight.set_data(whole.b.weight * factor)
        mindspore.save_checkpoint(whole, str(path))
    return str(path)


def filled(factory: str, factor: float = 1.0, kind: str = "pth", **more: Any) -> Any:
    """A factory of this module as a side, with a checkpoint."""
    return lambda: align.open_side(f"{HERE}:{factory}", checkpoint(factor, kind), **more)


def by_name(factory: str) -> Any:
    """A factory of this module as a user names it."""
    return lambda: f"{HERE}:{factory}"


def two_checkpoints(name: str, factory: str, kind: str = "pth", alone: str = "fresh") -> list[Any]:
    """One factory, two checkpoints, of which the second is wrong; the clean twin builds twice."""
    return [
        clean(f"{name}, two checkpoints", filled(alone, 1.0, kind), filled(alone, 1.0, kind)),
        faulty(f"{name}, two builds", filled(alone, 1.0, kind), filled(alone, 1.5, kind)),
        faulty(
            f"{name}, two checkpoints",
            filled(factory, 1.0, kind),
            filled(factory, 1.5, kind),
            expected=FAULTS_SEEN,
        ),
        clean(f"{name}, one checkpoint", filled(factory, 1.0, kind), filled(factory, 1.0, kind), expected=MAY_REFUSE),
    ]


def wrapped(factor: float, original: Any) -> Any:
    """A port made of the modules of the original, with code of its own."""
    layers = {name: getattr(original, name) for name in ("a", "n", "b")}
    return TorchNet(layers, lambda net, x, f: mlp(net, x, f) if factor == 1.0 else mlp(net, x * factor, f))


def around_one(factor: float) -> tuple[Any, Any]:
    """Factories of a model and of a port around its very modules."""
    one = lru_cache(partial(make, TORCH))
    return one, lambda: wrapped(factor, one())


def doubled_in_place(net: Any, x: Any, f: Any) -> Any:
    """The input itself is written to."""
    x.mul_(2.0)
    return mlp(net, x, f)


def written_later(net: Any, x: Any, f: Any) -> Any:
    """What the first layer returned is written to after it was taken down."""
    h = net.a(x)
    h.mul_(f.cast(f.const(SLOPE), dtype_of(x)))
    return mlp_tail(net, h, f)


def sloped(net: Any, x: Any, f: Any) -> Any:
    """The same without writing to anything."""
    return mlp_tail(net, net.a(x) * f.const(SLOPE), f)


def mlp_tail(net: Any, h: Any, f: Any) -> Any:
    """What follows the first layer."""
    return net.b(f.relu(net.n(h)))


def one_array() -> dict[str, Any]:
    """The same array object each time."""
    return {"x": SHARED}


SHARED = one_batch()["x"]
SLOPE = np.linspace(0.5, 1.5, 16, dtype=np.float32)
WRAPS_CLEAN, WRAPS_FAULTY = around_one(1.0), around_one(1.01)

SITUATIONS = [
    *two_checkpoints("cached factory", "cached"),
    *two_checkpoints("model of the module", "model"),
    *two_checkpoints("shell around kept layers", "from_registry"),
    *two_checkpoints("shared parameters", "shared_values"),
    *two_checkpoints("cached cell", "cached_port", "ckpt", "fresh_port"),
    clean("one model, no checkpoint", by_name("model"), by_name("model"), expected=(REFUSED,)),
    clean("one cached model, no checkpoint", by_name("cached"), by_name("cached"), expected=(REFUSED,)),
    clean("one live model", lambda: model, lambda: model, expected=(REFUSED,)),
    clean("two builds, no checkpoint", by_name("fresh"), by_name("fresh")),
    faulty("one model changed in place", by_name("changed"), by_name("scaled_in_place"), expected=FAULTS_SEEN),
    clean("port around a copy", fresh, lambda: wrapped(1.0, deep_copy(fresh()))),
    faulty("port around a copy", fresh, lambda: wrapped(1.01, deep_copy(fresh()))),
    clean("port around the original", *WRAPS_CLEAN, expected=MAY_REFUSE),
    faulty("port around the original", *WRAPS_FAULTY, expected=FAULTS_SEEN),
    clean(
        "cast candidate of a cached factory",
        by_name("to_be_cast"),
        lambda: align.open_side(f"{HERE}:to_be_cast", dtype="float16"),
        expected=MAY_REFUSE,
    ),
    clean("input written to", reference(TORCH, doubled_in_place), reference(
        MINDSPORE, lambda net, x, f: mlp(net, x * 2.0, f)), inputs=one_array),
    faulty("input written to", reference(TORCH, doubled_in_place), reference(MINDSPORE), inputs=one_array),
    clean("output written to", reference(TORCH, written_later), reference(MINDSPORE, sloped)),
    faulty("output written to", reference(TORCH, written_later), reference(MINDSPORE)),
]  # fmt: skip
