"""How often the divergent step is within its interval, and how often noise alone is told to have one.

Differences of 400 points are made in units of their limit: noise of several kinds, with and without a difference that
sets in at a step. Prints, for each, how often one is found, how often the step lies in the interval, and its width.
Run: python benchmarks/change_points.py --runs 400
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import numpy as np
from scipy.signal import lfilter

from align.curves.change_test import find_onset, find_stretch

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.curves.change_test import Onset

POINTS = 400
DONE = np.arange(POINTS) / POINTS


def correlated(source: np.random.Generator, kept: float) -> np.ndarray:
    """Return noise of variance 1 that keeps that part of itself from point to point."""
    return lfilter([np.sqrt(1.0 - kept**2)], [1.0, -kept], source.standard_normal(POINTS + 300))[300:]


NOISES: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "white": lambda source: source.standard_normal(POINTS),
    "heavy tails (t, 2)": lambda source: source.standard_t(2, POINTS),
    "rounded": lambda source: np.round(0.7 * source.standard_normal(POINTS)) / 0.7,
    "shrinking 20 times": lambda source: 3.0 * source.standard_normal(POINTS) * np.exp(-3.0 * DONE),
    "means of 10, each step": lambda source: np.convolve(
        source.standard_normal(POINTS + 9), np.full(10, 0.1**0.5), "valid"
    ),
    "growing 20 times": lambda source: source.standard_normal(POINTS) * np.exp(3.0 * (DONE - 1.0)),
    "correlated, 0.5": lambda source: correlated(source, 0.5),
    "correlated, 0.9": lambda source: correlated(source, 0.9),
}
SHAPES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "at once": lambda since: 3.0 * (since > 0.0),
    "along a line": lambda since: 3.0 * since,
    "ever faster": lambda since: 3.0 * since**2,
    "towards a level": lambda since: 3.0 * (1.0 - np.exp(-10.0 * since)),
}


def main() -> None:
    """Print one line a kind of noise, and one for each shape in it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--noise", nargs="+", choices=NOISES, default=list(NOISES))
    parser.add_argument("--steps", type=int, nargs="+", default=[200], help="where the difference sets in, from 1")
    parser.add_argument("--sizes", type=float, nargs="+", default=[0.3, 1.0], help="of the noise, in limits")
    parser.add_argument("--alone", action="store_true", help="noise alone only")
    parser.add_argument("--before", type=float, default=1.0, help="noise before the step, as a part of what follows it")
    arguments = parser.parse_args()
    for name in arguments.noise:
        for size in arguments.sizes:
            alarms = sum(found is not None for found in simulate(name, size, np.zeros(POINTS), arguments.runs))
            print(f"{name}, {size:g} limits, alone: {alarms / arguments.runs:.2%} false alarms", flush=True)
            for step in [] if arguments.alone else arguments.steps:
                for shape in SHAPES:
                    tell(name, size, shape, step, arguments.runs, arguments.before)


def tell(name: str, size: float, shape: str, step: int, runs: int, before: float) -> None:
    """Simulate a difference that sets in at a step, and print how it is found."""
    since = np.clip(np.arange(2, POINTS + 2) - step, 0, None) / (POINTS + 1 - step)
    sizes = np.where(since > 0.0, size, size * before)
    found = [one for one in simulate(name, sizes, SHAPES[shape](since), runs) if one is not None]
    held = sum(one.first + 1 - one.gradual <= step <= one.last + 1 for one in found)
    width = np.median([one.last - one.first + 1 + one.gradual for one in found]) if found else float("nan")
    print(f"{name}, {size:g} limits, {shape} from step {step}: found {len(found) / runs:.0%},", end=" ")
    print(f"within the interval {held / max(len(found), 1):.1%}, median width {width:g}", flush=True)


def simulate(name: str, size: float | np.ndarray, planted: np.ndarray, runs: int) -> list[Onset | None]:
    """Look for the onset in so many differences."""
    limit, found = np.ones(POINTS), []
    for seed in range(runs):
        difference = planted + size * NOISES[name](np.random.default_rng(seed))
        found.append(find_onset(difference, limit, find_stretch(difference, limit, np.abs(difference) < limit)))
    return found


if __name__ == "__main__":
    main()
