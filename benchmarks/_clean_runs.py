"""Clean pairs in bulk: random models, shapes, seeds and precisions, each right by construction; any alarm is false.

The truth is by construction: both sides hold the same values and run the same code, so that only rounding differs;
PyTorch against PyTorch adds in another order on one side.
Without an alarm in N runs the rate is below 3 / N with 95 % confidence (the rule of three); with alarms the bound is
that of Clopper and Pearson.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from _run_situations import run
from scipy.stats import beta
from situations._bodies import BODIES, inputs_of, sides_of
from situations._situation import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIDENCE = 0.95
# The share of pairs that may come to no verdict: in half of them a side is in low precision, where the outputs of small
# models with random weights depend on their inputs by less than the limit.
MOST_OTHERS = 0.1
# Dtypes of both sides, the framework of the candidate, and the dtype that the values were rounded to before.
PRECISIONS = {
    "float32": ("float32", "float32", "mindspore", "float32"),
    "float32 in PyTorch": ("float32", "float32", "torch", "float32"),
    "float16": ("float16", "float16", "mindspore", "float32"),
    "float16 port": ("float32", "float16", "mindspore", "float32"),
    "bfloat16 in PyTorch": ("bfloat16", "bfloat16", "torch", "float32"),
    "float32 port of bfloat16": ("bfloat16", "float32", "mindspore", "bfloat16"),
}
WEIGHTS = (6, 1, 2, 2, 1, 2)


@dataclass(frozen=True, slots=True)
class Draw:
    """What one seed stands for."""

    seed: int
    body: str
    precision: str
    sizes: dict[str, int]


def clean_runs(count: int, *, first_seed: int = 0, as_json: bool = False) -> int:
    """Compare `count` clean pairs; print those that are not aligned, and the bound; 1 if there is an alarm."""
    found = []
    for draw in draws(first_seed, count):
        found.append(compared(draw))
        if not as_json and found[-1]["got"] != "aligned":
            print(in_words(found[-1]), flush=True)
        if sys.stderr.isatty():
            print(f"\r{len(found)} of {count}", end="", file=sys.stderr)
    total = totals(found)
    print(json.dumps({"runs": found, "totals": total}, indent=1) if as_json else summary(total))
    return int(total["alarms"] > 0 or total["other"] > MOST_OTHERS * count)


def draws(first: int, count: int) -> Iterator[Draw]:
    """The pairs of `count` seeds from `first` on; a seed stands for one pair for ever."""
    for seed in range(first, first + count):
        dice = random.Random(seed)
        body = dice.choice(sorted(BODIES))
        (precision,) = dice.choices(list(PRECISIONS), WEIGHTS)
        sizes = {name: dice.choice(values) for name, values in BODIES[body].sizes.items()}
        yield Draw(seed, body, precision, sizes)


def compared(draw: Draw) -> dict[str, Any]:
    """What the comparison says of one pair."""
    begun = time.perf_counter()
    original, port = sides_of(draw.body, draw.sizes, draw.seed, PRECISIONS[draw.precision])
    inputs = inputs_of(draw.body, draw.sizes, np.random.default_rng(draw.seed))
    said = run(clean(draw.body, original, port, inputs=lambda: inputs))
    return {
        "seed": draw.seed,
        "body": draw.body,
        "precision": draw.precision,
        "sizes": draw.sizes,
        "got": said["got"],
        "said": said["said"],
        "factor": said["factor"],
        "figures": said["figures"] if said["got"] != "aligned" else [],
        "seconds": round(time.perf_counter() - begun, 2),
    }


def totals(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Alarms, what could not be compared, the bound on the rate of alarms, and the largest factors by kind."""
    alarms = [one["seed"] for one in found if one["got"] == "not aligned"]
    other = [one["seed"] for one in found if one["got"] not in ("aligned", "not aligned")]
    return {
        "runs": len(found),
        "alarms": len(alarms),
        "seeds of alarms": alarms,
        "other": len(other),
        "seeds of others": other,
        "rate below": bound(len(alarms), len(found) - len(other)),
        "by body": dict(sorted(Counter(one["body"] for one in found).items())),
        "by precision": dict(sorted(Counter(one["precision"] for one in found).items())),
        "largest factor": {name: largest(found, name) for name in sorted({one["precision"] for one in found})},
        "seconds": round(sum(one["seconds"] for one in found), 1),
    }


def bound(alarms: int, runs: int) -> float:
    """The rate that is not exceeded with CONFIDENCE: 1 - 0.05 ** (1 / n), about 3 / n, where there was no alarm."""
    return float(beta.ppf(CONFIDENCE, alarms + 1, runs - alarms)) if runs > alarms else 1.0


def largest(found: list[dict[str, Any]], precision: str) -> float:
    """The largest multiple of its limit at which any layer of a pair of this precision would have passed."""
    return max((one["factor"] for one in found if one["precision"] == precision), default=0.0)


def in_words(one: dict[str, Any]) -> str:
    """One pair that is not aligned."""
    sizes = ", ".join(f"{name} {value}" for name, value in one["sizes"].items())
    head = f"seed {one['seed']}: {one['body']} in {one['precision']} ({sizes}): {one['got']}: {one['said']}"
    return "\n".join([head, *(f"    {line}" for line in one["figures"])])


def summary(total: dict[str, Any]) -> str:
    """The totals in lines."""
    kinds = "\n".join(
        f"{title}: {', '.join(f'{name} {value:.3g}' for name, value in total[title].items())}"
        for title in ("by body", "by precision", "largest factor")
    )
    seeds = f" (seeds {total['seeds of alarms']})" if total["alarms"] else ""
    others = f", {total['other']} not compared (seeds {total['seeds of others']})" if total["other"] else ""
    rate = f"the rate is below {total['rate below']:.2%} with {CONFIDENCE:.0%} confidence"
    return (
        f"{kinds}\n{total['alarms']} alarms{seeds} in {total['runs']} clean runs{others}: {rate}; {total['seconds']} s"
    )
