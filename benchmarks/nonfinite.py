"""How well `align.watch_nonfinite` names planted faults, how often it cries without one, and what it costs.

`python benchmarks/nonfinite.py [plants] [clean] [cost]`, by default all. 1 is returned where fewer than 95 % of the
plants are named at their step and layer, a clean training raises an alarm, or a watched step costs more than 1.3.
"""

from __future__ import annotations

import contextlib
import io
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "examples")]

import align  # noqa: E402

PLANTS = ("log", "softmax", "parameter", "sample", "half forward", "half backward", "root", "optimizer", "explosion")
SEEDS = {"_nonfinite_torch": 4, "_nonfinite_mindspore": 3}
ENOUGH, MOST = 0.95, 1.3
BATCH, ROUNDS = 8, 5


def main(asked: list[str]) -> int:
    """Measure what is asked for."""
    measures = {"plants": plants, "clean": clean, "cost": cost}
    results = [measures[name]() for name in asked or measures]
    return int(not all(results))


def plants() -> bool:
    """Plant each fault in trainings of both frameworks."""
    right = total = 0
    for module, seeds in SEEDS.items():
        trainings = __import__(module)
        for plant in PLANTS:
            for seed in range(seeds):
                at = 5 + seed if plant == "explosion" else seed
                training = trainings.Training(seed, plant, at, seed)
                event = _watched(lambda training=training, at=at: training.run(at + 2)).event
                found = event and (event.step, (event.layer, event.direction)) == (at, training.expected())
                right, total = right + bool(found), total + 1
                if not found:
                    print(f"missed: {module[11:]} {plant} {seed}: {event}")
        print(f"{module[11:]}: {right} of {total} so far", flush=True)
    print(f"plants: {right} of {total} at their step and layer")
    return right >= ENOUGH * total


def clean() -> bool:
    """Fifty trainings without a fault."""
    import torch
    from _nonfinite_clean import CLEAN

    alarms = []
    runs: list[tuple[str, Any]] = []
    for one in CLEAN:
        again = (lambda one=one, seed=seed: (torch.manual_seed(seed), one()) for seed in (0, 1))
        runs += [(one.__name__, run) for run in again]
    for module, count in (("_nonfinite_torch", 18), ("_nonfinite_mindspore", 12)):
        for seed in range(count):
            kind = ("adam", "adamw", "sgd")[seed % 3]
            made = __import__(module).Training(100 + seed, "", 0, seed, kind)
            runs.append((f"{module} {seed} {kind}", lambda made=made: made.run(12)))
    for name, run in runs:
        result = _watched(run)
        if result.event is not None:
            alarms.append(name)
            print(f"alarm: {name}: {result.verdict.reason}", flush=True)
    print(f"clean: {len(alarms)} alarms on {len(runs)} trainings")
    return not alarms


def cost() -> bool:
    """A step of ResNet-50 at batch 8, watched and not, side by side in both frameworks."""
    ratios = {"torch": _ratio(_torch_step()), "mindspore": _ratio(_mindspore_step())}
    for name, (ratio, plain) in ratios.items():
        print(f"cost: {name}: a watched step takes {ratio:.3f} of {plain:.2f} s (median of {ROUNDS} rounds)")
    return all(ratio <= MOST for ratio, _ in ratios.values())


def _ratio(step: Any) -> tuple[float, float]:
    """The median ratio of rounds that take both, and the median of the plain ones."""
    step()
    ratios, plain = [], []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        step()
        middle = time.perf_counter()
        with _quiet(), align.watch_nonfinite():
            step()  # its hooks go on
            watched = time.perf_counter()
            step()
            end = time.perf_counter()
        ratios.append((end - watched) / (middle - begin))
        plain.append(middle - begin)
    return float(np.median(ratios)), float(np.median(plain))


def _torch_step() -> Any:
    import resnet
    import torch

    model = resnet.torch_model(50).train()
    optimizer = torch.optim.SGD(model.parameters(), 1e-4, momentum=0.9)
    images, labels = torch.randn(BATCH, 3, 224, 224), torch.randint(0, 1000, (BATCH,))

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images).logits, labels).backward()
        optimizer.step()

    return step


def _mindspore_step() -> Any:
    import mindspore
    import resnet
    from mindspore import nn

    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    model = resnet.mindspore_model(50).set_train()
    optimizer, entropy = nn.Momentum(model.trainable_params(), 1e-4, 0.9), nn.CrossEntropyLoss()
    random = np.random.default_rng(0)
    images = mindspore.Tensor(random.standard_normal((BATCH, 3, 224, 224)).astype(np.float32))
    labels = mindspore.Tensor(random.integers(0, 1000, BATCH), mindspore.int32)
    gradients = mindspore.value_and_grad(lambda x, y: entropy(model(x), y), None, model.trainable_params())

    def step() -> None:
        loss, found = gradients(images, labels)
        optimizer(found)
        loss.asnumpy()

    return step


def _watched(run: Any) -> Any:
    with _quiet(), align.watch_nonfinite() as watch:
        run()
    return watch.result


def _quiet() -> Any:
    return contextlib.redirect_stderr(io.StringIO())


if __name__ == "__main__":
    import mindspore  # noqa: F401 - both are watched
    import torch  # noqa: F401

    sys.exit(main(sys.argv[1:]))
