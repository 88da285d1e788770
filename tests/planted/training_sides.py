"""Optimizers, schedules and losses of both frameworks, as functions that `align lint` takes: right and wrong ones."""

from __future__ import annotations

from typing import Any

import mindspore
import numpy as np
import torch
from mindspore import mint
from mindspore import nn as mnn
from mindspore.experimental import optim as experimental
from torch import nn
from torch.optim import lr_scheduler

STEPS = 60


class TorchNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm, self.head = nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 2)


class PortNet(mnn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.scale, self.last = mnn.Dense(4, 5), mnn.LayerNorm((5,), epsilon=1e-5), mnn.Dense(5, 2)


def split(named: list[tuple[str, Any]], weights: float, rest: float) -> list[dict[str, Any]]:
    matrices = [one for name, one in named if name.endswith("weight") and one.ndim > 1]
    others = [one for name, one in named if not (name.endswith("weight") and one.ndim > 1)]
    return [{"params": matrices, "weight_decay": weights}, {"params": others, "weight_decay": rest}]


def torch_groups(weights: float, rest: float) -> list[dict[str, Any]]:
    return split(list(TorchNet().named_parameters()), weights, rest)


def port_groups(weights: float, rest: float) -> list[dict[str, Any]]:
    return split([(one.name, one) for one in PortNet().trainable_params()], weights, rest)


def trained() -> list[Any]:
    return list(PortNet().trainable_params())


def adamw() -> Any:
    return torch.optim.AdamW(torch_groups(0.1, 0.0), lr=1e-3)


def adamw_of_one_group() -> Any:
    return mint.optim.AdamW(trained(), lr=1e-3, weight_decay=0.1)


def adamw_port() -> Any:
    return mint.optim.AdamW(port_groups(0.1, 0.0)[::-1], lr=1e-3)


def sgd_groups() -> Any:
    return torch.optim.SGD(torch_groups(0.05, 0.1), lr=0.1, momentum=0.9)


def momentum_swapped() -> Any:
    return mnn.Momentum(port_groups(0.1, 0.05), 0.1, 0.9)


def momentum_groups() -> Any:
    return mnn.Momentum(port_groups(0.05, 0.1), 0.1, 0.9, loss_scale=1.0)


def momentum_groups_in_order() -> Any:
    net = PortNet()
    groups = split([(one.name, one) for one in net.trainable_params()], 0.05, 0.1)
    return mnn.Momentum([*groups, {"order_params": net.trainable_params()}], 0.1, 0.9)


def sgd() -> Any:
    return torch.optim.SGD(TorchNet().parameters(), lr=0.1, momentum=0.9)


def sgd_decayed() -> Any:
    return torch.optim.SGD(TorchNet().parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)


def momentum() -> Any:
    return mnn.Momentum(trained(), 0.1, 0.9)


def momentum_scaled() -> Any:
    return mnn.Momentum(trained(), 0.1, 0.9, loss_scale=1024)


def momentum_decayed() -> Any:
    """Without groups, MindSpore leaves gamma and beta out."""
    return mnn.Momentum(trained(), 0.1, 0.9, weight_decay=0.1)


def momentum_decayed_in_a_group() -> Any:
    return mnn.Momentum([{"params": trained()}], 0.1, 0.9, weight_decay=0.1, loss_scale=1.0)


def momentum_of_the_head() -> Any:
    net = PortNet()
    return net, mnn.Momentum([one for one in net.trainable_params() if "last" in one.name], 0.1, 0.9)


def cosine() -> Any:
    optimizer = sgd()
    return optimizer, lr_scheduler.CosineAnnealingLR(optimizer, STEPS)


def cosine_alone() -> Any:
    optimizer = sgd()
    lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    return optimizer


def cosine_of_epochs() -> Any:
    optimizer = sgd()
    return optimizer, lr_scheduler.CosineAnnealingLR(optimizer, STEPS // 10)


def warm_cosine() -> Any:
    optimizer = sgd()
    parts = [lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 10), lr_scheduler.CosineAnnealingLR(optimizer, STEPS - 10)]
    return optimizer, lr_scheduler.SequentialLR(optimizer, parts, [10])


def plateau() -> Any:
    optimizer = sgd()
    return optimizer, lr_scheduler.ReduceLROnPlateau(optimizer)


def one_cycle() -> Any:
    optimizer = sgd()
    return optimizer, lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=STEPS)


def stepped() -> Any:
    optimizer = sgd()
    return optimizer, lr_scheduler.StepLR(optimizer, 400)


def momentum_listed() -> Any:
    return mnn.Momentum(trained(), mnn.cosine_decay_lr(0.0, 0.1, STEPS, 1, STEPS), 0.9)


def momentum_listed_by_epoch() -> Any:
    return mnn.Momentum(trained(), mnn.cosine_decay_lr(0.0, 0.1, STEPS, 10, STEPS // 10), 0.9)


def momentum_cosine() -> Any:
    return mnn.Momentum(trained(), mnn.CosineDecayLR(0.0, 0.1, STEPS), 0.9)


def momentum_warm() -> Any:
    rates = [0.1 * (0.1 + 0.9 * step / 10) for step in range(10)]
    rates += [0.05 * (1 + float(np.cos(np.pi * step / (STEPS - 10)))) for step in range(STEPS - 10)]
    return mnn.Momentum(trained(), rates, 0.9)


def momentum_grouped_rates() -> Any:
    net = PortNet()
    head = [one for one in net.trainable_params() if "last" in one.name]
    rest = [one for one in net.trainable_params() if "last" not in one.name]
    return mnn.Momentum([{"params": rest}, {"params": head, "lr": 0.01}], 0.1, 0.9)


def torch_grouped_rates() -> Any:
    net = TorchNet()
    rest = [*net.fc.parameters(), *net.norm.parameters()]
    return torch.optim.SGD([{"params": net.head.parameters(), "lr": 0.01}, {"params": rest}], lr=0.1, momentum=0.9)


class Sign(torch.optim.Optimizer):
    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})


def sign() -> Any:
    return Sign(TorchNet().parameters())


def torch_adam() -> Any:
    return torch.optim.Adam(TorchNet().parameters(), lr=0.1)


def adam_looking_ahead() -> Any:
    return mnn.Adam(trained(), 0.1, use_nesterov=True)


def momentum_centralised() -> Any:
    return mnn.Momentum([{"params": trained(), "grad_centralization": True}], 0.1, 0.9)


def momentum_decay_by_step() -> Any:
    return mnn.Momentum(trained(), 0.1, 0.9, weight_decay=mnn.ExponentialDecayLR(0.1, 0.9, 10))


def step_of_training() -> Any:
    net = PortNet()
    return mnn.TrainOneStepCell(mnn.WithLossCell(net, mnn.MSELoss()), mnn.Momentum(net.trainable_params(), 0.1, 0.9))


def adam() -> Any:
    return mnn.Adam(trained(), 0.1)


WEIGHTS = [1.0, 2.0, 3.0]


def smoothed() -> Any:
    return nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=0)


def weighted() -> Any:
    return nn.CrossEntropyLoss(weight=torch.tensor(WEIGHTS))


def plain() -> Any:
    return nn.CrossEntropyLoss()


def softmax_port() -> Any:
    return mnn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")


def smoothed_port() -> Any:
    return mnn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=0)


def weighted_port() -> Any:
    return mnn.CrossEntropyLoss(weight=mindspore.Tensor(WEIGHTS))


def squared_port() -> Any:
    return mnn.MSELoss()


def positive() -> Any:
    return nn.BCEWithLogitsLoss(pos_weight=torch.tensor([3.0]))


def logits_port() -> Any:
    return mnn.BCEWithLogitsLoss()


class Focal(nn.Module):
    def __init__(self, gamma: float = 2.0) -> None:
        super().__init__()
        self.gamma = gamma


class FocalLoss(Focal):
    pass


def focal() -> Any:
    return FocalLoss()


def unnamed_loss() -> Any:
    """A loss whose name does not say so."""
    return Focal()


def trained_with_focal() -> Any:
    net = TorchNet()
    return Focal(), net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


class FocalCell(mnn.Cell):
    def __init__(self, gamma: float = 2.0) -> None:
        super().__init__()
        self.gamma = gamma


def unnamed_loss_port() -> Any:
    return FocalCell()


def trained_with_focal_port() -> Any:
    net = PortNet()
    return net, mnn.Momentum(net.trainable_params(), 0.1, 0.9), FocalCell()


def kl_summed_port() -> Any:
    return mnn.KLDivLoss(reduction="sum")


def kl() -> Any:
    return nn.KLDivLoss(reduction="batchmean")


def kl_port() -> Any:
    return mnn.KLDivLoss(reduction="batchmean")


def positive_port() -> Any:
    return mnn.BCEWithLogitsLoss(pos_weight=mindspore.Tensor([3.0]))


class Weighted(nn.CrossEntropyLoss):
    def forward(self, inputs: Any, target: Any) -> Any:
        return 2 * super().forward(inputs, target)


class Named(nn.CrossEntropyLoss):
    """Nothing but a name."""


def plain_weighted() -> Any:
    return Weighted()


def plain_named() -> Any:
    return Named()


def adagrad() -> Any:
    return torch.optim.Adagrad(TorchNet().parameters(), lr=0.1)


def adagrad_default() -> Any:
    return mnn.Adagrad(trained(), learning_rate=0.1)


def adagrad_port() -> Any:
    return mnn.Adagrad(trained(), accum=0.0, learning_rate=0.1)


def rms() -> Any:
    return torch.optim.RMSprop(TorchNet().parameters(), lr=0.1, momentum=0.9, centered=True)


def rms_port() -> Any:
    return experimental.RMSprop(trained(), lr=0.1, momentum=0.9, centered=True)


def rms_uncentered() -> Any:
    return experimental.RMSprop(trained(), lr=0.1, momentum=0.9)


class Clipped(mnn.Momentum):
    def construct(self, gradients: Any) -> Any:
        return super().construct(tuple(mindspore.ops.clip_by_value(one, -1, 1) for one in gradients))


class Preset(mnn.Momentum):
    """Settings of its own, and the step of its base."""

    def __init__(self, params: Any, momentum: float = 0.9, **others: Any) -> None:
        super().__init__(params, 0.1, momentum, **others)


def momentum_clipped() -> Any:
    return Clipped(trained(), 0.1, 0.9)


def momentum_preset() -> Any:
    return Preset(trained())


def momentum_preset_wrong() -> Any:
    return Preset(trained(), momentum=0.5)


class PresetAdam(mnn.Adam):
    def __init__(self, params: Any) -> None:
        super().__init__(params, 0.1, use_nesterov=True)


def adam_preset() -> Any:
    return PresetAdam(trained())


class ClippedTorch(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        torch.nn.utils.clip_grad_norm_(self.param_groups[0]["params"], 1.0)
        return super().step(closure)


class PresetTorch(torch.optim.SGD):
    def __init__(self, params: Any) -> None:
        super().__init__(params, lr=0.1, momentum=0.9)


def sgd_clipped() -> Any:
    return ClippedTorch(TorchNet().parameters(), lr=0.1, momentum=0.9)


def sgd_preset() -> Any:
    return PresetTorch(TorchNet().parameters())
