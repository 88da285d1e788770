"""Losses of the four small pairs, trained on digits without the tool: they fall, and the port's follow the original's.

Both sides begin from the same values, take 30 steps on batches of 32 of the 512 digits, and go on from their own
weights; dropout is off. So the pairs of training_mutations.py are right in what a user sees, and their steps are steps
of a training that works.

Run: python benchmarks/training_digits.py [--steps N] [--only PATTERN]
Bars: the mean of the last five losses is at most 0.99 of that of the first five, on both sides, and no loss of the port
is farther than 2 % from the original's; 1 if one is missed.
"""

from __future__ import annotations

import argparse
import re
import sys
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from _planted_fault import fill, take_step
from training_mutations import step_nets

from align.traces.pair_traces import choose_map
from align.training.open_training import freeze, open_trainings
from align.training.steps.both_steps import carried_over

if TYPE_CHECKING:
    from collections.abc import Iterator

    import align

OPTIMIZERS = ("momentum", "adam")
SAMPLES, DIGITS = 32, 512
FALLEN, APART, ENDS = 0.99, 0.02, 5
RATE = 1e-2


def main() -> int:
    """Train all pairs; print one line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30, metavar="N")
    parser.add_argument("--only", default="", metavar="PATTERN")
    options = parser.parse_args()
    nets, missed = step_nets(), 0
    for net in nets.NETS:
        for optimizer in OPTIMIZERS:
            if not re.search(options.only, f"{net} {optimizer}"):
                continue
            losses = np.array([*_trained(nets, (net, optimizer), options.steps)])
            fallen = losses[-ENDS:].mean(axis=0) / losses[:ENDS].mean(axis=0)
            apart = float(np.max(np.abs(losses[:, 1] / losses[:, 0] - 1)))
            missed += bool(fallen.max() > FALLEN or not apart <= APART)
            ends = " and ".join(f"{first:.4f} -> {last:.4f}" for first, last in zip(losses[0], losses[-1], strict=True))
            print(f"{net:8s} {optimizer:9s} {ends}; at most {apart:.1e} apart", flush=True)
    return int(missed > 0)


def _trained(nets: Any, which: tuple[str, str], steps: int) -> Iterator[tuple[float, float]]:
    """The losses of both sides, step by step."""
    sides = _sides(nets, *which)
    fill(sides[1], _carried(sides))
    with ExitStack() as stack:
        for side in sides:
            stack.enter_context(freeze(side.model, batchnorm=False))
        for step in range(steps):
            batch = nets.batch(SAMPLES, start=SAMPLES * step % DIGITS)
            yield take_step(sides[0], batch), take_step(sides[1], batch)


def _sides(nets: Any, net: str, optimizer: str) -> tuple[align.Training, align.Training]:
    """A pair of the tests; Adam with ten times its rate, so that 30 steps show."""
    sides = nets.torch_side(net, optimizer), nets.mindspore_side(net, optimizer)
    if optimizer != "adam":
        return sides
    import torch
    from mindspore import nn

    own = torch.optim.Adam(sides[0].model.parameters(), RATE), nn.Adam(sides[1].model.trainable_params(), RATE)
    return replace(sides[0], optimizer=own[0]), replace(sides[1], optimizer=own[1])


def _carried(sides: tuple[align.Training, align.Training]) -> Any:
    """The reference's values under the port's names."""
    opened = open_trainings(*sides)
    parameters = [one.side.reader.read_parameters(one.side.model, one.label) for one in opened]
    names = choose_map(None, (parameters[0], parameters[1]))
    return carried_over(names, *(one.side.reader.read_values(one.side.model) for one in opened))


if __name__ == "__main__":
    sys.exit(main())
