"""Optimizers with schedules that come to an end, that decay every so many steps, and that start anew."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from mindspore import nn as mnn
from torch import nn
from torch.optim import lr_scheduler


def original(make: Any = None, rates: tuple[float, float] = (0.1, 0.1)) -> Any:
    net = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 2))
    groups = [{"params": layer.parameters(), "lr": rate} for layer, rate in zip(net, rates, strict=True)]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    return (net, optimizer, make(optimizer)) if make else (net, optimizer)


def port(*rates: Any) -> Any:
    net = mnn.SequentialCell(mnn.Dense(4, 5), mnn.Dense(5, 2))
    own = [{"params": list(layer.trainable_params()), "lr": rate} for layer, rate in zip(net, rates, strict=False)]
    return net, mnn.SGD(own or list(net.trainable_params()), learning_rate=0.1)


def constant() -> Any:
    return original()


def stairs() -> Any:
    return original(lambda optimizer: lr_scheduler.StepLR(optimizer, 100, 0.9))


def late() -> Any:
    return original(lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [2000]))


def late_stairs() -> Any:
    return original(lambda optimizer: lr_scheduler.StepLR(optimizer, 2000))


def hidden(first: int, step: int) -> float:
    return 1.0 if step < first else 0.1


def late_function() -> Any:
    return original(lambda optimizer: lr_scheduler.LambdaLR(optimizer, partial(hidden, 2000)))


def late_part() -> Any:
    def make(optimizer: Any) -> Any:
        parts = [lr_scheduler.ConstantLR(optimizer, 1.0), lr_scheduler.ExponentialLR(optimizer, 0.9)]
        return lr_scheduler.SequentialLR(optimizer, parts, [1500])

    return original(make)


def restarts() -> Any:
    return original(lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 10))


def settled() -> Any:
    """A cosine that stays at zero behind its end."""

    def share(step: int) -> float:
        return (1 + math.cos(math.pi * min(step, 10) / 10)) / 2

    return original(lambda optimizer: lr_scheduler.LambdaLR(optimizer, share))


def one_decays() -> Any:
    lambdas = [lambda step: 0.9**step, lambda step: 1.0]
    return original(lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambdas), (0.1, 0.01))


def constant_port() -> Any:
    return port(0.1, 0.1)


def stairs_port() -> Any:
    rate = mnn.ExponentialDecayLR(0.1, 0.9, 100, is_stair=True)
    return port(rate, rate)


def inverse_port() -> Any:
    rate = mnn.InverseDecayLR(0.1, 0.5, 50, is_stair=True)
    return port(rate, rate)


def natural_port() -> Any:
    rate = mnn.NaturalExpDecayLR(0.1, 0.9, 40, is_stair=True)
    return port(rate, rate)


def late_port() -> Any:
    rate = mnn.ExponentialDecayLR(0.1, 0.1, 2000, is_stair=True)
    return port(rate, rate)


def cosine_port() -> Any:
    rate = mnn.CosineDecayLR(0.0, 0.1, 10)
    return port(rate, rate)


def one_decays_port() -> Any:
    return port(mnn.ExponentialDecayLR(0.1, 0.9, 1), 0.01)


def other_decays_port() -> Any:
    return port(0.1, mnn.ExponentialDecayLR(0.01, 0.9, 1))
