"""Memory and time of `align forward` on large models, as ratios: against both models, and against two bare forwards.

A model like Llama or like ViT is made in torch, with a port of it in torch or MindSpore that holds the same weights.
Memory is what the process held of its own at most, without the pages of files, which the system takes back when it
needs them; what it held before either model was there does not count. The bar is both models as they are, the largest
layer in float64 and 512 MiB. Time is that of the processor: wall clocks of a shared machine say little. With `--faulty`
a layer of the port is given an epsilon of its own.

Run: python benchmarks/large.py [--like llama|vit] [--billions B] [--dtype D] [--port torch|mindspore] [--faulty]
Linux only. 1 if a bar is exceeded.
"""

from __future__ import annotations

import argparse
import importlib
import resource
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from _large_torch import HEAD, WORDS
from training_memory import MIB, PeakMemory, own_memory

import align

if TYPE_CHECKING:
    from collections.abc import Callable

SLACK = 512 * MIB
MOST_TIMES, MOST_TIMES_WITH_FAULTS = 8.0, 15.0
TOKENS, IMAGE = 128, 224


def main() -> int:
    """Compare, and print both ratios."""
    options = read_options()
    for name in {"torch", options.port}:
        importlib.import_module(name)
    first = own_memory()
    with PeakMemory() as memory:
        sides, inputs = both_sides(options), inputs_of(options.like)
        weights, layer = bytes_of(sides[0].model)
        bare = sum(seconds_of(lambda side=side: run_bare(side, inputs)) for side in sides)
        both = own_memory() - first
        compared: list[Any] = []
        spent = seconds_of(lambda: compared.append(align.compare_forward(*sides, inputs=inputs)), runs=1)
    verdict = compared[0].verdict
    peak, bar = memory.most - first, max(both, 2 * weights) + layer + SLACK
    most = MOST_TIMES_WITH_FAULTS if options.faulty else MOST_TIMES
    print(
        f"{options.like} {options.dtype}, port in {options.port}, {'faulty' if options.faulty else 'right'}: ", end=""
    )
    print(f"{weights / MIB:.0f} MiB of weights a side; {verdict.outcome.value}")
    print(f"  memory: {peak / MIB:.0f} MiB at most, {peak / (2 * weights):.2f} x both weights, ", end="")
    print(f"{peak / bar:.2f} of the bar")
    print(f"  time: {spent:.1f} s of the processor, {spent / bare:.1f} x both bare forwards (bar {most:.0f})")
    return int(peak > bar or spent > most * bare)


def read_options() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--like", choices=("llama", "vit"), default="llama")
    parser.add_argument("--billions", type=float, default=0.1, metavar="B", help="parameters of a side")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--port", choices=("torch", "mindspore"), default="torch")
    parser.add_argument("--faulty", action="store_true", help="a layer of the port is wrong")
    return parser.parse_args()


def seconds_of(work: Callable[[], object], runs: int = 3) -> float:
    """Time of the processor, of all threads; the median of some runs."""
    spent = []
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_SELF)
        work()
        after = resource.getrusage(resource.RUSAGE_SELF)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return float(np.median(spent))


def run_bare(side: align.Side, inputs: dict[str, np.ndarray]) -> None:
    """Run a model as its user would."""
    with side.reader.evaluating(side.model):  # type: ignore[attr-defined]
        side.model(*(side.reader.as_tensor(one, side.model) for one in inputs.values()))  # type: ignore[attr-defined]


def bytes_of(model: Any) -> tuple[int, int]:
    """Bytes of the parameters, and of those of the largest layer in float64."""
    counts = [sum(one.numel() for one in part.parameters(recurse=False)) for part in model.modules()]
    return sum(one.nbytes for one in model.parameters()), 8 * max(counts)


def inputs_of(like: str) -> dict[str, np.ndarray]:
    """One batch of words, or of an image."""
    generator = np.random.default_rng(0)
    if like == "llama":
        return {"words": generator.integers(0, WORDS, (1, TOKENS)).astype(np.int32)}
    return {"image": generator.standard_normal((1, 3, IMAGE, IMAGE)).astype(np.float32)}


def both_sides(options: argparse.Namespace) -> tuple[align.Side, align.Side]:
    """The original and its port, with the same weights; no value of them hides what is made of it."""
    width = HEAD * max(4, round((options.billions * 1e9 / 12 / 16) ** 0.5 / HEAD))
    depth = max(2, round(options.billions * 1e9 / (12 * width * width)))
    form = options.like == "llama", width, depth
    ports = importlib.import_module(f"_large_{options.port}")
    epsilon = 1e-3 if options.faulty else 1e-5
    reference = align.open_side(importlib.import_module("_large_torch").Model(*form), dtype=options.dtype)
    _fill(reference)
    port = align.open_side(ports.Model(*form, epsilon), dtype=options.dtype)
    values, tensors = iter(reference.model.state_dict().values()), port.reader
    if options.port == "torch":
        port.model.load_state_dict(reference.model.state_dict())
    else:
        for parameter in port.model.get_parameters():
            parameter.set_data(tensors.as_tensor(next(values).float().numpy(), port.model).astype(parameter.dtype))  # type: ignore[attr-defined]
    return reference, port


def _fill(side: align.Side) -> None:
    import torch

    torch.manual_seed(0)
    with torch.no_grad():
        for name, value in side.model.named_parameters():
            spread = 0.1 if value.ndim == 1 else (value.numel() / value.shape[0]) ** -0.5
            value.normal_(1.0 if "norm" in name and value.ndim == 1 else 0.0, spread)


if __name__ == "__main__":
    sys.exit(main())
