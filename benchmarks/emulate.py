"""What it costs to compute as a chip does: an emulated forward against a plain one, side by side.

Processor time, which other work on the machine changes little; the median of the ratios of neighbouring runs. Run:
python benchmarks/emulate.py --rounds 7, or with models of one's own: --model file.py:build --inputs file.py:batch
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from align.models.inputs import read_inputs
from align.models.open_side import open_side
from align.rules.ascend_rules import ascend_target

if TYPE_CHECKING:
    from collections.abc import Callable

TARGETS = ("ascend:310p", "ascend:910b")
MOST = 4.0  # no limit: the ratio that was promised


def main() -> None:
    """Print a ratio for each model and chip."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--model")
    parser.add_argument("--inputs")
    options = parser.parse_args()
    models = own_models() if options.model is None else {options.model: lambda: given(options.model, options.inputs)}
    for title, make in models.items():
        model, args, kwargs = make()
        for target in TARGETS:
            ratio = ratio_of(model.eval(), args, kwargs, target, options.rounds)
            print(f"{title:24} {target:12} {ratio:5.2f} x the plain forward{'' if ratio <= MOST else '  TOO MUCH'}")


def ratio_of(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], target: str, rounds: int) -> float:
    """The median of the ratios of an emulated run to the plain one before it."""
    side = open_side(model)
    emulated = side.runner.emulated(model, ascend_target(target).emulation())  # type: ignore[attr-defined]
    with torch.no_grad():
        spent(lambda: (model(*args, **kwargs), emulated(*args, **kwargs)))  # the first run of each chooses kernels
        ratios = []
        for _ in range(rounds):
            plain = spent(lambda: model(*args, **kwargs))
            ratios.append(spent(lambda: emulated(*args, **kwargs)) / plain)
    return statistics.median(ratios)


def spent(work: Callable[[], Any]) -> float:
    """Processor time of all threads."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def own_models() -> dict[str, Callable[[], tuple[Any, tuple[Any, ...], dict[str, Any]]]]:
    """Models of three kinds that need nothing but torch."""
    torch.manual_seed(0)
    block = [nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
    net = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3), nn.MaxPool2d(3, 2, 1), *(block * 8))
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    return {
        "convolutions": lambda: (net, (torch.randn(4, 3, 160, 160),), {}),
        "attention": lambda: (nn.TransformerEncoder(layer, 6), (torch.randn(4, 128, 256),), {}),
        "LSTM, 3 layers": lambda: (nn.LSTM(128, 256, 3), (torch.randn(64, 16, 128),), {}),
    }


def given(model: str, inputs: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """A model of the user's own, and its inputs by name where it has these names, else by position."""
    from align.models.record_calls import bind_inputs

    opened = open_side(model).model
    tensors = {name: torch.from_numpy(value) for name, value in read_inputs(inputs).items()}
    return opened, *bind_inputs(opened.forward, tensors)


if __name__ == "__main__":
    main()
