"""Clean trainings in torch that look odd: masks of -inf, loss scalers that skip, layers that start at zero."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 14


def _train(model: nn.Module, loss: Callable[[Any], Any], optimizer: Any, steps: int = STEPS) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()


def scaler() -> None:
    """Float16 by autocast with a scale that is too large at first: the scaler skips steps."""
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4))
    optimizer, scaling = torch.optim.SGD(model.parameters(), 0.01), torch.amp.GradScaler("cpu", init_scale=2.0**24)
    for _ in range(STEPS + 10):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            value = nn.functional.mse_loss(model(torch.randn(6, 8)), torch.randn(6, 4))
        scaling.scale(value).backward()
        scaling.step(optimizer)
        scaling.update()


def accumulated() -> None:
    """Gradients of three batches to an update, evaluation in between."""
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for step in range(STEPS * 3):
        (model(torch.randn(5, 8)).square().mean() / 3).backward()
        if step % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()
            model.eval()
            with torch.no_grad():
                torch.log(model(torch.zeros(4, 8)) * 0)
            model.train()


def zero_start() -> None:
    """The last layer, and an adapter, start at zero."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))
    nn.init.zeros_(model[4].weight)  # type: ignore[arg-type]
    nn.init.zeros_(model[2].weight)  # type: ignore[arg-type]
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    _train(model, lambda net: nn.functional.cross_entropy(net(torch.randn(8, 8)), torch.randint(0, 3, (8,))), optimizer)


def dropped_log() -> None:
    """`where` drops what log makes of a safe argument, and an infinite mask is added."""
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    mask = torch.full((8, 8), float("-inf")).triu(1)

    def loss(net: nn.Module) -> Any:
        y = net(torch.randn(8, 8))
        p = torch.softmax(y + mask, -1)
        return torch.where(p > 0, p * torch.log(torch.where(p > 0, p, 1.0)), 0.0).sum() + y.square().mean()

    _train(model, loss, optimizer)


def attention() -> None:
    """The framework's own attention, with its masks."""
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    _train(model, lambda net: net(torch.randn(3, 5, 16), mask=mask).square().mean(), optimizer)


def recurrent() -> None:
    """An LSTM over an embedding, clipped."""
    table, cells, head = nn.Embedding(20, 8), nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 20)
    parts = nn.ModuleList([table, cells, head])
    optimizer = torch.optim.RMSprop(parts.parameters(), 1e-3)
    for _ in range(STEPS):
        tokens = torch.randint(0, 20, (4, 7))
        value = nn.functional.cross_entropy(head(cells(table(tokens))[0]).flatten(0, 1), tokens.flatten())
        optimizer.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(parts.parameters(), 1.0)
        optimizer.step()


def adversarial() -> None:
    """Two optimizers, in turn."""
    maker, judge = nn.Linear(4, 8), nn.Linear(8, 1)
    first, second = torch.optim.Adam(maker.parameters(), 1e-3), torch.optim.Adam(judge.parameters(), 1e-3)
    entropy = nn.BCEWithLogitsLoss()
    for _ in range(STEPS):
        second.zero_grad()
        fake = maker(torch.randn(6, 4))
        (
            entropy(judge(fake.detach()), torch.zeros(6, 1)) + entropy(judge(torch.randn(6, 8)), torch.ones(6, 1))
        ).backward()
        second.step()
        first.zero_grad()
        entropy(judge(fake), torch.ones(6, 1)).backward()
        first.step()


def warmed_up() -> None:
    """A convolution net whose rate grows by ten thousand."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(288, 5))
    optimizer = torch.optim.SGD(model.parameters(), 1e-5)
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = 1e-5 * 2**step
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(torch.randn(4, 3, 8, 8)), torch.randint(0, 5, (4,))).backward()
        optimizer.step()


def checkpointed() -> None:
    """Layers that run again on the way back."""
    from torch.utils.checkpoint import checkpoint

    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    head = nn.Linear(8, 2)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], 0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        head(checkpoint(model, torch.randn(4, 8), use_reentrant=False)).square().mean().backward()
        optimizer.step()


def fitted() -> None:
    """A regression that comes to its end: gradients fall to nearly nothing."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.3)
    x = torch.randn(16, 4)
    y = x.sum(1, keepdim=True)
    _train(model, lambda net: nn.functional.mse_loss(net(x), y), optimizer, 60)


CLEAN = (
    scaler, accumulated, zero_start, dropped_log, attention, recurrent, adversarial, warmed_up, checkpointed, fitted
)  # fmt: skip
