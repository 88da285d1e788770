"""What `align.dump` costs a training step outside of the chosen iterations, and inside of them: ratios side by side.

Steps of ResNet of examples/ in torch, taken in turn: a plain loop, one inside of a dump that has not begun, and one
that dumps figures each time. Nothing is asserted. Run: python benchmarks/dump_in_training.py --runs 20
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import resnet

import align

if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--depth", type=int, default=18)
    options = parser.parse_args()
    model = resnet.torch_model(options.depth)
    step = training_step(model, options.batch)
    step()
    with tempfile.TemporaryDirectory() as folder:
        plain, outside, inside = [], [], []
        for number in range(options.runs):
            plain.append(timed(step))
            with align.dump(model, f"{folder}/{number}o", iterations="1000000-", tensors=["none"]) as dump:
                outside.append(timed(lambda dump=dump: (step(), dump.step())))
            with align.dump(model, f"{folder}/{number}i", iterations="0-", tensors=["none"]) as dump:
                inside.append(timed(lambda dump=dump: (step(), dump.step())))
    for name, times in (("outside of the iterations", outside), ("figures of all layers", inside)):
        pairs = [one / bare for one, bare in zip(times, plain, strict=True)]
        print(f"{name}: {min(times) / min(plain):.3f} x a plain step (best), {statistics.median(pairs):.3f} x (median)")


def training_step(model: Any, batch: int) -> Callable[[], None]:
    """A step on one fixed batch."""
    import torch

    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    values = torch.randn(batch, 3, 224, 224)
    target = torch.arange(batch) % 10

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(values).logits, target).backward()
        optimizer.step()

    model.train()
    return step


def timed(code: Callable[[], object]) -> float:
    """Seconds of one call."""
    begin = time.perf_counter()
    code()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
