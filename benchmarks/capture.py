"""A forward with every layer's output captured to disk against the bare forward: ResNet-50 in torch and in MindSpore.

Ratios of the best of several runs taken in turn; also what a trace weighs. Nothing is asserted.
Run: python benchmarks/capture.py --runs 10
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import resnet50

from align.core.registry import model_readers
from align.runs.traces import TENSORS, TraceWriter

if TYPE_CHECKING:
    from collections.abc import Callable


class Nothing:
    """A sink that drops what it is given: what the hooks alone cost."""

    def add(self, capture: object, value: object) -> None:
        """Do nothing."""


def main() -> None:
    """Print the ratios of both frameworks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args().runs
    inputs = resnet50.inputs()
    for name, make in (("torch", resnet50.torch_model), ("mindspore", resnet50.mindspore_model)):
        with tempfile.TemporaryDirectory() as folder:
            report(name, make(), inputs, Path(folder), runs)


def report(name: str, model: Any, inputs: dict[str, Any], folder: Path, runs: int) -> None:
    """Time a bare forward, one with hooks, one with hooks and a trace folder."""
    adapter: Any = model_readers()[name]

    def capture() -> None:
        with TraceWriter(folder, {}) as writer:
            adapter.run(model, inputs, writer)

    ways = {
        "bare forward": bare(name, model, inputs),
        "with hooks": lambda: adapter.run(model, inputs, Nothing()),
        "captured to disk": capture,
    }
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(runs + 1):  # the first of each is a warm-up that hardly ever counts
        best = {way: min(best[way], seconds(call)) for way, call in ways.items()}
    weight = (folder / TENSORS).stat().st_size / 1e6
    for way, value in best.items():
        print(f"{name:10} {way:18} {value / best['bare forward']:5.2f} x")
    print(f"{name:10} the trace has {weight:.0f} MB")


def bare(name: str, model: Any, inputs: dict[str, Any]) -> Callable[[], object]:
    """Return a call of the model in evaluation mode without any of our code."""
    value = next(iter(inputs.values()))
    if name == "torch":
        import torch

        model.eval()
        tensor = torch.tensor(value)

        def forward() -> object:
            with torch.no_grad():
                return model(tensor)

        return forward
    import mindspore

    model.set_train(False)
    given = mindspore.Tensor(value)
    return lambda: model(given).asnumpy()


def seconds(call: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
