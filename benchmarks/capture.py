"""What a capture costs beside the bare forward: ResNet-50 at batch 1, in torch and in MindSpore.

Ratios of the best of several runs taken in turn, the growth of the process meanwhile, and what a trace weighs. Nothing
is asserted. Run: python benchmarks/capture.py --runs 10
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import resnet

from align.core.load_code import model_readers
from align.core.traces import KeptValues, TraceHead
from align.traces.capture_trace import CallWriter
from align.traces.manifest import MANIFEST, TENSORS

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPE = (1, 3, 224, 224)


class Nothing:
    """A sink that drops what it is given: what the hooks alone cost."""

    def add(self, capture: object, value: object) -> None:
        """Do nothing."""


def main() -> None:
    """Print the ratios of both frameworks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--only", choices=("torch", "mindspore"), help="leave the other one out")
    options = parser.parse_args()
    values = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    inputs = dict.fromkeys(resnet.inputs(), values)
    for name, make in (("torch", resnet.torch_model), ("mindspore", resnet.mindspore_model)):
        if options.only in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                report(name, make(50), inputs, Path(folder), options.runs)


def report(name: str, model: Any, inputs: dict[str, Any], folder: Path, runs: int) -> None:
    """Time a bare forward, one with hooks, and captures that keep figures only, a few elements and all tensors."""
    adapter: Any = model_readers()[name]

    def capture(kept: KeptValues) -> Callable[[], None]:
        def run() -> None:
            with CallWriter(folder, {}, TraceHead(name, name, {}, kept=kept)) as writer:
                adapter.run(model, inputs, writer)

        return run

    ways: dict[str, Callable[[], object]] = {
        "bare forward": bare(name, model, inputs),
        "with hooks": lambda: adapter.run(model, inputs, Nothing()),
        "statistics only": capture(KeptValues(globs=())),
        "first 100 elements": capture(KeptValues(elements=100)),
        "all tensors": capture(KeptValues()),
    }
    best = dict.fromkeys(ways, (float("inf"),) * 3)
    for _ in range(runs + 1):  # the first of each is a warm-up that hardly ever counts
        for way, call in ways.items():
            best[way] = tuple(map(min, best[way], cost(call)))
    bare_wall, bare_cpu, _ = best["bare forward"]
    for way, (wall, cpu, nbytes) in best.items():
        ratios = f"{wall / bare_wall:5.2f} x the time {cpu / bare_cpu:5.2f} x the CPU time"
        print(f"{name:10} {way:18} {ratios} {nbytes / 1e6:6.1f} MB more at most")
    tensors, lines = ((folder / file).stat().st_size / 1e6 for file in (TENSORS, MANIFEST))
    print(f"{name:10} the trace of all tensors has {tensors:.0f} MB, and {lines:.2f} MB of lines")


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


def cost(call: Callable[[], object]) -> tuple[float, float, float]:
    """Seconds of one call, CPU seconds, and by how many bytes the process grew at most (Linux tells; 0 elsewhere)."""
    reset, status = Path("/proc/self/clear_refs"), Path("/proc/self/status")
    if reset.exists():
        reset.write_text("5")  # forgets the peak
    before = resident(status, "VmRSS")
    start, cpu = time.perf_counter(), time.process_time()
    call()
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    return seconds, cpu, max(resident(status, "VmHWM") - before, 0.0)


def resident(status: Path, field: str) -> float:
    """Bytes in memory now (VmRSS) or at the peak (VmHWM)."""
    found = re.search(rf"{field}:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return 1024.0 * int(found[1]) if found else 0.0


if __name__ == "__main__":
    main()
