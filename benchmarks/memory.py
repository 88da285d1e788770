"""The peak that `align memory` tells beside the counter of torch's allocator, and what the tracing costs.

Four models; of each the ratio of the peaks, and of the processor's time of a traced step to that of a bare one, taken
in turn. Nothing is asserted. Run: python benchmarks/memory.py --runs 3
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

import numpy as np

import align
from align.core.memory import MemoryTracer
from align.memory.read_trace import peak_of
from align.training.open_training import open_training

if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> None:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    print(f"{'model':24}{'told, MB':>10}{'counted':>10}{'ratio':>8}{'time':>8}")
    for name, (make, inputs, targets) in MODELS.items():
        model = make()
        told, counted, times = measured(model, inputs, targets, runs)
        print(f"{name:24}{told / 1e6:10.1f}{counted / 1e6:10.1f}{told / counted:8.3f}{times:7.1f}x", flush=True)


def measured(model: Any, inputs: tuple[int, ...], targets: tuple[int, ...], runs: int) -> tuple[int, int, float]:
    """The peak as told and as counted, and how many times as long a traced step takes."""
    import torch

    loss, optimizer = torch.nn.MSELoss(), torch.optim.AdamW(model.parameters())
    generator = np.random.default_rng(0)
    batch = {"input": generator.standard_normal(inputs).astype(np.float32), "target": np.zeros(targets, np.float32)}
    opened = open_training(align.Training(model, loss, optimizer))
    tracer = opened.side.reader
    assert isinstance(tracer, MemoryTracer)
    x, y = (torch.from_numpy(one) for one in batch.values())

    def step() -> None:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()

    step()
    bare = min(seconds(step) for _ in range(runs))
    traces: list[Any] = []
    # Two steps are taken, of which one is traced.
    both = min(seconds(lambda: traces.append(tracer.trace_memory(opened.training, batch))) for _ in range(runs))
    optimizer.zero_grad()
    there = [*model.parameters(), *model.buffers(), x, y]
    there += [value for state in optimizer.state.values() for value in state.values()]
    counted = sum(one.untyped_storage().nbytes() for one in there) + allocator_peak(step)
    return peak_of(traces[-1]), counted, (both - bare) / bare


def seconds(run: Callable[[], object]) -> float:
    """The processor's time of a run."""
    begin = time.process_time()
    run()
    return time.process_time() - begin


def allocator_peak(step: Callable[[], None]) -> int:
    """What a step takes at most beyond what was there, by the events of torch's profiler."""
    from torch.autograd.profiler import profile

    with profile(profile_memory=True) as profiler:
        step()
    events = [one for one in profiler.kineto_results.events() if one.name() == "[memory]"]
    now = most = 0
    for event in sorted(events, key=lambda one: one.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most


def cnn() -> Any:
    """Convolutions, norms, in-place activations, pooling and dropout."""
    from torch import nn

    sizes = [(3, 32), (32, 64), (64, 64), (64, 128)]
    layers: list[Any] = []
    for given, made in sizes:
        layers += [nn.Conv2d(given, made, 3, padding=1), nn.BatchNorm2d(made), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.1), nn.Linear(2048, 10))


def transformer() -> Any:
    """Encoder layers with attention, norms and dropout."""
    from torch import nn

    layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)


def perceptron() -> Any:
    """Wide layers, whose weights and state are more than what they keep."""
    from torch import nn

    return nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.LayerNorm(2048), nn.Linear(2048, 512))


def recurrent() -> Any:
    """An LSTM and its head."""
    from torch import nn

    class Net(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.cells, self.head = nn.LSTM(64, 128, 2, batch_first=True), nn.Linear(128, 8)

        def forward(self, x: Any) -> Any:
            return self.head(self.cells(x)[0])

    return Net()


MODELS: dict[str, tuple[Callable[[], Any], tuple[int, ...], tuple[int, ...]]] = {
    "CNN": (cnn, (16, 3, 64, 64), (16, 10)),
    "Transformer": (transformer, (8, 128, 128), (8, 128, 128)),
    "MLP": (perceptron, (64, 512), (64, 512)),
    "LSTM": (recurrent, (16, 64, 64), (16, 64, 8)),
}

if __name__ == "__main__":
    main()
