"""Memory of `align step` on a pair of large MLPs with Adam: the most that the process held of its own, against the bar.

The bar: both models with their gradients and the two moments of Adam, 8 times the parameters of one, plus 256 MiB. What
the process held once both frameworks were imported does not count, nor do pages of files, which the system takes back
when it needs them: tensors that lie on disk are mapped.

Run: python benchmarks/training_memory.py [--width N] [--layers N] [--steps N] [--faulty]
Linux only. 1 if the bar is exceeded.
"""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path

import numpy as np

import align

MIB = 1 << 20
SLACK = 256 * MIB
EVERY = 0.01  # seconds between two looks


class PeakMemory:
    """The most memory that is no page of a file, looked at from a thread; use it as a context manager. In bytes."""

    def __init__(self) -> None:
        self.first = self.most = own_memory()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while not self._stop.wait(EVERY):
            self.most = max(self.most, own_memory())

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()


def own_memory() -> int:
    """What the process holds now, without pages of files, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    found = {name: text for name, _, text in (line.partition(":") for line in lines)}
    return sum(int(found[name].split()[0]) * 1024 for name in ("RssAnon", "RssShmem"))


def main() -> int:
    """Compare, and print the peak against the bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=5000, metavar="N")
    parser.add_argument("--layers", type=int, default=4, metavar="N")
    parser.add_argument("--steps", type=int, default=2, metavar="N")
    parser.add_argument("--faulty", action="store_true", help="half the rate in the port")
    options = parser.parse_args()
    _import_both()
    batch = {
        "x": np.random.default_rng(0).standard_normal((4, options.width)).astype(np.float32),
        "label": [0, 1, 2, 3],
    }
    with PeakMemory() as memory:
        sides = torch_side(options.width, options.layers), mindspore_side(options.width, options.layers, options.faulty)
        count = sum(one.numel() for one in sides[0].model.parameters())
        result = align.compare_training_step(*sides, batch=batch, steps=options.steps)
    bar = 8 * 4 * count + SLACK
    peak = memory.most - memory.first
    print(f"{count / 1e6:.0f} M parameters a side: {result.verdict.outcome.value}; {peak / MIB:.0f} MiB at most,")
    print(
        f"bar {bar / MIB:.0f} MiB, {peak / bar:.2f} of it; {memory.first / MIB:.0f} MiB before either model was there"
    )
    return int(peak > bar)


def _import_both() -> None:
    import mindspore
    import torch

    torch.ones(1).sum()
    mindspore.ops.ones(1).sum().asnumpy()


def torch_side(width: int, layers: int) -> align.Training:
    """Linear layers of one width."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    parts = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(*parts, nn.Linear(width, 10))
    return align.Training(model, nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), 1e-3))


def mindspore_side(width: int, layers: int, faulty: bool) -> align.Training:
    """The port."""
    from mindspore import nn

    parts = [part for _ in range(layers) for part in (nn.Dense(width, width), nn.ReLU())]
    model = nn.SequentialCell(*parts, nn.Dense(width, 10))
    optimizer = nn.Adam(model.trainable_params(), 5e-4 if faulty else 1e-3)
    return align.Training(model, nn.CrossEntropyLoss(), optimizer)


if __name__ == "__main__":
    sys.exit(main())
