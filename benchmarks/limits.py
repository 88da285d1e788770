"""How far clean ports stay from their limits, and planted defects beyond them: the figures of docs/forward.md.

Real pairs from tests/planted/pairs.py, many seeds each. Run: python benchmarks/limits.py --seeds 40
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "planted"))

import pairs

from align.steps import compare_traces

CLEAN: dict[str, Any] = {
    "convolutions, 4 blocks": lambda s: (
        pairs.TorchConvNet(16, 4), lambda **k: pairs.PortConvNet(16, 4, **k), pairs.images(s, size=24),
    ),
    "attention, 2 layers": lambda s: (pairs.TorchEncoder(), pairs.PortEncoder, pairs.tokens(s)),
    "attention, 4 layers": lambda s: (
        pairs.TorchEncoder(64, 4, 8), lambda **k: pairs.PortEncoder(64, 4, 8, **k), pairs.tokens(s, 4, 32),
    ),
    "LSTM, 3 layers": lambda s: (
        pairs.TorchReader(32, 3), lambda: pairs.PortReader(32, 3), pairs.tokens(s, 4, 20),
    ),
    "LSTM, 1 number out": lambda s: (pairs.TorchReader(), pairs.PortReader, pairs.tokens(s, batch=1)),
    "dense, 1 number out": lambda s: (
        pairs.torch_mlp(32, 4, 1), lambda: pairs.port_mlp(32, 4, 1), pairs.vectors(32, s),
    ),
    "dense, 2 numbers out": lambda s: (
        pairs.torch_mlp(32, 4, 2), lambda: pairs.port_mlp(32, 4, 2), pairs.vectors(32, s),
    ),
    "dense, 16 layers": lambda s: (
        pairs.torch_mlp(64, 16, 10), lambda: pairs.port_mlp(64, 16, 10), pairs.vectors(64, s, 4),
    ),
}  # fmt: skip
DEFECTS = {
    "convolutions, 4 blocks": ("batch norm eps", "pool pad mode", "activation", "max for average", "residual dropped"),
    "attention, 4 layers": ("layer norm eps", "gelu", "heads", "scale forgotten"),
}


def main() -> None:
    """Print clean pairs, then planted defects."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=40)
    seeds = range(parser.parse_args().seeds)
    ratios = watch_ratios()
    print(f"{'clean':24}{'pairs':>6}{'layers':>8}{'largest difference / noise':>28}{'largest factor':>16}{'alarms':>8}")
    for name, make in CLEAN.items():
        ratios.clear()
        results = [compare(make, seed) for seed in seeds]
        alarms = sum(result.first_divergent is not None for result in results)
        factor = max(pairs.largest_factor(result) for result in results)
        layers = sum(len(result.layers) for result in results)
        print(f"{name:24}{len(results):6}{layers:8}{max(ratios):28.1f}{factor:16.3f}{alarms:8}")
    print(f"\n{'planted':24}{'pairs':>6}{'smallest factor at the first divergent layer':>46}")
    for name, defects in DEFECTS.items():
        for defect in defects:
            factors = [pairs.first(compare(CLEAN[name], seed, defect)).factor for seed in seeds]
            print(f"{defect:24}{len(factors):6}{min(factors):46.1f}")


def compare(make: Any, seed: int, defect: str = "") -> Any:
    """Compare one pair."""
    reference, port, inputs = make(seed)
    return pairs.compare(reference, port, inputs, seed=seed, defect=defect)


def watch_ratios() -> list[float]:
    """Return a list that receives, for each layer with noise, the candidate's difference as a multiple of it."""
    ratios: list[float] = []
    limit_for = compare_traces.limit_for

    def watching(measurement: Any, dtypes: Any, noise: Any, coarser: str = "") -> Any:
        if noise is not None and noise.rmse:
            ratios.append(measurement.rmse / noise.rmse)
        return limit_for(measurement, dtypes, noise, coarser)

    compare_traces.limit_for = watching
    return ratios


if __name__ == "__main__":
    main()
