"""Randomness: models whose own noise, or whose ways by dtype, would pass for rounding and widen the limits.

A model that differs from run to run can not be compared; what is drawn and of no consequence is no fault.
"""

from __future__ import annotations

import os
import random
import secrets
import time
import uuid
from typing import Any

import numpy as np
import torch

from ._nets import MINDSPORE, TORCH, dtype_of, mlp, mlp_layers, reference
from ._situation import ALIGNED, FAULTS_SEEN, REFUSED, WRONG, clean, faulty

AMOUNT = 1e-3
GENERATOR = np.random.default_rng()
OWN = torch.Generator()


def noisy(draw: Any, amount: float = AMOUNT) -> Any:
    """Inputs [..., 8] moved by what is drawn."""

    def code(net: Any, x: Any, f: Any) -> Any:
        drawn = np.asarray([draw() for _ in range(8)], np.float32) * amount
        return mlp(net, x + f.cast(f.const(drawn), dtype_of(x)), f)

    return code


def inputs_times(factor: float) -> Any:
    """A port that is off by little."""
    return lambda net, x, f: mlp(net, x * factor, f)


def from_own_generator() -> float:
    """PyTorch's generator of the module."""
    return float(torch.rand((), generator=OWN))


def from_seed_of_global() -> float:
    """A seed from the global generator, and a number from a generator with that seed."""
    seed = int(torch.randint(0, 1 << 30, ()))
    return float(torch.rand((), generator=torch.Generator().manual_seed(seed)))


def from_fixed_seed() -> float:
    """The same number each time."""
    return float(np.random.default_rng(3).standard_normal())


SOURCES = {
    "secrets": lambda: secrets.randbelow(1000) / 1000,
    "own torch.Generator": from_own_generator,
    "default_rng of the module": GENERATOR.standard_normal,
    "os.urandom": lambda: os.urandom(1)[0] / 256,
    "SystemRandom": random.SystemRandom().random,
    "the clock": lambda: time.perf_counter_ns() % 1000 / 1000,
    "uuid4": lambda: uuid.uuid4().int % 1000 / 1000,
    "a seed of torch's generator": from_seed_of_global,
    "numpy.random": np.random.rand,
    "random": random.random,
}


def by_source(name: str, draw: Any) -> list[Any]:
    """The reference draws: the fault of the port must not pass, and the right port can not be compared."""
    original = reference(TORCH, noisy(draw))
    return [
        faulty(f"draws from {name}", original, reference(MINDSPORE, inputs_times(1.003)), expected=FAULTS_SEEN),
        clean(f"draws from {name}", original, reference(MINDSPORE), expected=(REFUSED,)),
    ]


def by_dtype(factor: float) -> Any:
    """Another way in all dtypes but float32, such as a "safe" scale."""

    def code(net: Any, x: Any, f: Any) -> Any:
        return mlp(net, x if x.dtype == torch.float32 else x * factor, f)

    return code


def eps_of_dtype(net: Any, x: Any, f: Any) -> Any:
    """An epsilon by dtype, as many models have: no way of its own, for it is far below all values."""
    h = net.a(x)
    eps = torch.finfo(h.dtype).eps if f is TORCH else 1.1920929e-07
    return net.b(f.relu(net.n(h / (f.mean(f.abs(h), -1, True) + eps))))


def wrong_after_eps(net: Any, x: Any, f: Any) -> Any:
    """The same, off by 0.3 %."""
    return eps_of_dtype(net, x * 1.003, f)


def functional_dropout(net: Any, x: Any, f: Any) -> Any:
    """Dropout that is always on."""
    h = f.relu(net.n(net.a(x)))
    if f is TORCH:
        return net.b(torch.nn.functional.dropout(h, 0.1))
    from mindspore import ops

    return net.b(ops.dropout(h, p=0.1, training=True))


def with_dropout(f: Any) -> dict[str, Any]:
    """The layers, and a dropout module, which rests in evaluation mode."""
    if f is TORCH:
        return {**mlp_layers(f), "d": torch.nn.Dropout(0.5)}
    from mindspore import nn

    return {**mlp_layers(f), "d": nn.Dropout(p=0.5)}


def dropped(factor: float = 1.0) -> Any:
    """Through the dropout module."""
    return lambda net, x, f: net.b(net.d(f.relu(net.n(net.a(x))) * factor))


def port_noise(net: Any, x: Any, f: Any) -> Any:
    """Noise of MindSpore's own."""
    from mindspore import ops

    return mlp(net, x, f) + ops.rand(8) * AMOUNT


def shuffled(factor: float = 1.0) -> Any:
    """Samples in a random order and back: the result does not depend on it."""

    def code(net: Any, x: Any, f: Any) -> Any:
        if f is not TORCH:
            return mlp(net, x * factor, f)
        order = torch.randperm(x.shape[0])
        return mlp(net, x[order], f)[torch.argsort(order)]

    return code


def features(factor: float = 1.0) -> Any:
    """Random features from a seed that is fixed in the code."""

    def code(net: Any, x: Any, f: Any) -> Any:
        drawn = np.random.default_rng(7).standard_normal((8, 8)).astype(np.float32) * np.float32(factor)
        return mlp(net, f.matmul(x, f.cast(f.const(drawn), dtype_of(x))), f)

    return code


SITUATIONS = [
    *(one for name, draw in SOURCES.items() for one in by_source(name, draw)),
    faulty("both draw from default_rng", reference(TORCH, noisy(GENERATOR.standard_normal)),
           reference(MINDSPORE, noisy(GENERATOR.standard_normal)), expected=(REFUSED,)),
    faulty("port draws from default_rng", reference(TORCH),
           reference(MINDSPORE, noisy(GENERATOR.standard_normal)), expected=FAULTS_SEEN),
    faulty("port draws from MindSpore", reference(TORCH), reference(MINDSPORE, port_noise), expected=FAULTS_SEEN),
    clean("drawn, times zero", reference(TORCH, noisy(GENERATOR.standard_normal, 0.0)), reference(MINDSPORE)),
    faulty("drawn, times zero", reference(TORCH, noisy(GENERATOR.standard_normal, 0.0)),
           reference(MINDSPORE, inputs_times(1.003))),
    clean("drawn from a fixed seed", reference(TORCH, noisy(from_fixed_seed)),
          reference(MINDSPORE, noisy(from_fixed_seed))),
    faulty("drawn from a fixed seed", reference(TORCH, noisy(from_fixed_seed)), reference(MINDSPORE)),
    clean("random features, fixed seed", reference(TORCH, features()), reference(MINDSPORE, features())),
    faulty("random features, fixed seed", reference(TORCH, features()), reference(MINDSPORE, features(1.003))),
    clean("order of samples drawn", reference(TORCH, shuffled()), reference(MINDSPORE, shuffled()),
          expected=(ALIGNED, REFUSED)),
    faulty("order of samples drawn", reference(TORCH, shuffled()), reference(MINDSPORE, shuffled(1.003)),
           expected=FAULTS_SEEN),
    clean("no randomness", reference(TORCH), reference(MINDSPORE)),
    faulty("no randomness", reference(TORCH), reference(MINDSPORE, inputs_times(1.003))),
    faulty("dropout on in the reference", reference(TORCH, functional_dropout), reference(MINDSPORE),
           expected=FAULTS_SEEN),
    faulty("dropout on in the port", reference(TORCH), reference(MINDSPORE, functional_dropout), expected=FAULTS_SEEN),
    faulty("dropout on in both", reference(TORCH, functional_dropout), reference(MINDSPORE, functional_dropout),
           expected=(REFUSED,)),
    clean("dropout module", reference(TORCH, dropped(), with_dropout), reference(MINDSPORE, dropped(), with_dropout)),
    faulty("dropout module", reference(TORCH, dropped(), with_dropout),
           reference(MINDSPORE, dropped(1.003), with_dropout)),
    faulty("another way by dtype, 1 %", reference(TORCH, by_dtype(1.01)), reference(MINDSPORE, inputs_times(1.003)),
           expected=FAULTS_SEEN),
    faulty("another way by dtype, 10 %", reference(TORCH, by_dtype(1.1)), reference(MINDSPORE, inputs_times(1.05)),
           expected=FAULTS_SEEN),
    clean("epsilon by dtype", reference(TORCH, eps_of_dtype), reference(MINDSPORE, eps_of_dtype)),
    faulty("epsilon by dtype", reference(TORCH, eps_of_dtype), reference(MINDSPORE, wrong_after_eps),
           expected=(WRONG,)),
]  # fmt: skip
