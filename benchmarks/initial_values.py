"""False alarms of `align initial` over reseeded clean pairs, and how often planted deviations are found.

Each pair is a small net built anew from other seeds: torch against torch, MindSpore against MindSpore, and the one
against the other, in turn. Then each planted change of the port, over fewer pairs.
Run: python benchmarks/initial_values.py --pairs 200 --planted 10
Bars: fewer than 1 % of the clean pairs with a false alarm; every change of the list found each time.
"""

from __future__ import annotations

import argparse
from functools import partial
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import align
from align.core.verdicts import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

APART = 1000  # seeds between two pairs


def main() -> None:
    """Print the share of false alarms, then a line for each planted change."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--planted", type=int, default=10)
    arguments = parser.parse_args()
    kinds = [(original, original), (port, port), (original, port)]
    pairs = list(islice(cycle(kinds), arguments.pairs))
    alarms, tests, nearest = 0, 0, 1.0
    for number, (one, other) in enumerate(pairs):
        result = align.compare_initial_values(one, other, first_seed=APART * number)
        alarms += result.verdict.outcome is not Outcome.ALIGNED
        tests += result.tests
        nearest = min([nearest, *(row.p_value for row in result.parameters if row.p_value is not None)])
    told = f"{alarms} false alarms over {len(pairs)} clean pairs, {tests} tests, smallest p-value {nearest:.2g}"
    print(f"{told} (level {result.level:.2g})")
    for name, change in planted().items():
        found = [_finds(partial(port, change), APART * number) for number in range(arguments.planted)]
        print(f"{name:32} found in {sum(found)} of {len(found)}")


def _finds(candidate: Callable[[], Any], seed: int) -> bool:
    result = align.compare_initial_values(original, candidate, first_seed=seed)
    return [row.candidate for row in result.parameters if row.outcome != "same"] == ["1.weight"]


def original() -> Any:
    """The torch net."""
    from torch import nn

    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.Linear(64, 40), nn.BatchNorm2d(16))


def port(change: Callable[[], Any] | None = None) -> Any:
    """The same in MindSpore; `change` draws the weight of its linear layer otherwise."""
    from mindspore import nn

    dense = nn.Dense(64, 40) if change is None else nn.Dense(64, 40, weight_init=change())
    return nn.SequentialCell(nn.Conv2d(3, 16, 3, has_bias=True), dense, nn.BatchNorm2d(16))


def planted() -> dict[str, Callable[[], Any]]:
    """Initializers for the linear layer, which is He uniform with a = sqrt(5): a bound of 0.125."""
    from mindspore.common import initializer as init

    return {
        "scale x 1.1": lambda: init.Uniform(0.1375),
        "scale x 0.95": lambda: init.Uniform(0.11875),
        "Xavier uniform": init.XavierUniform,
        "He uniform, a = 0": init.HeUniform,
        "normal of the same width": lambda: init.Normal(0.0722),
        "normal(0.02)": lambda: init.Normal(0.02),
        "orthogonal": init.Orthogonal,
        "zeros": init.Zero,
    }


if __name__ == "__main__":
    main()
