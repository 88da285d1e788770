"""How far clean ports stay from their limits, and planted defects beyond them: the figures of docs/forward.md.

Both for the errors that gather when the models run on their own, and for each layer alone. Real pairs from
tests/planted/pairs.py, many seeds each. Run: python benchmarks/limits.py --seeds 40
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "planted"))

import pairs

from align.measure import limits

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
# With the cell of the port that each stands in: a defect of the code between layers shows at the next one.
DEFECTS = {
    "convolutions, 4 blocks": {
        "batch norm eps": "first_norm",
        "pool pad mode": "shrink",
        "activation": "layers.1.act",
        "max for average": "gather",
        "residual dropped": "layers.1.act",
    },
    "attention, 4 layers": {
        "layer norm eps": "stack.1.before",
        "gelu": "stack.1.act",
        "heads": "stack.1.merge",
        "scale forgotten": "stack.1.merge",
    },
}


def main() -> None:
    """Print clean pairs, then planted defects."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=40)
    seeds = range(parser.parse_args().seeds)
    ratios = watch_ratios()
    print(f"{'':24}{'':6}{'accumulated':>44}{'alone':>24}")
    print(f"{'clean':24}{'pairs':>6}{'outputs':>9}{'/ noise':>9}{'factor':>9}{'alarms':>8}"
          f"{'outputs':>9}{'factor':>9}{'inputs':>9}{'alarms':>8}")  # fmt: skip
    for name, make in CLEAN.items():
        ratios.clear()
        print(f"{name:24}{clean_row([compare(make, seed) for seed in seeds], ratios)}", flush=True)
    print(f"\n{'planted':24}{'pairs':>6}{'least factor':>14}{'least alone':>13}{'at its place':>14}{'others':>8}"
          f"{'confirmed':>11}")  # fmt: skip
    for name, defects in DEFECTS.items():
        for defect, place in defects.items():
            print(
                f"{defect:24}{planted_row([compare(CLEAN[name], seed, defect) for seed in seeds], place)}", flush=True
            )


def clean_row(results: list[Any], ratios: list[float]) -> str:
    """Largest factors and alarms of clean pairs, for what has gathered and for each layer alone."""
    layers = [layer for result in results for layer in result.layers]
    alone = [layer.isolated for layer in layers if layer.isolated and layer.isolated.factor is not None]
    alarms = sum(result.first_divergent is not None for result in results)
    inputs = max((one.inputs_factor for one in alone if one.inputs_factor is not None), default=0.0)
    row = f"{len(results):6}{len(layers):9}{max(ratios):9.1f}{max(map(pairs.largest_factor, results)):9.3f}{alarms:8}"
    culprits = sum(bool(result.culprits) for result in results)
    return row + f"{len(alone):9}{max(one.factor for one in alone):9.3f}{inputs:9.3f}{culprits:8}"


def planted_row(results: list[Any], place: str) -> str:
    """Smallest factors of a planted defect, how often it alone is named at its place, and its cause confirmed."""
    found = [[one for one in result.culprits if one.candidate == place] for result in results]
    others = sum(len(result.culprits) for result in results) - sum(map(len, found))
    gathered = min(pairs.first(result).factor for result in results)
    alone = min((one.factor for own in found for one in own), default=float("nan"))
    confirmed = sum(any(one.sureness == "confirmed" for one in own) for own in found)
    return f"{len(results):6}{gathered:14.1f}{alone:13.1f}{sum(map(bool, found)):14}{others:8}{confirmed:11}"


def compare(make: Any, seed: int, defect: str = "") -> Any:
    """Compare one pair."""
    reference, port, inputs = make(seed)
    return pairs.compare(reference, port, inputs, seed=seed, defect=defect)


def watch_ratios() -> list[float]:
    """Return a list that receives, for each layer with noise, the candidate's difference as a multiple of it."""
    ratios: list[float] = []
    limit_for = limits.limit_for

    def watching(measurement: Any, dtypes: Any, noise: Any, *coarser: str, alone: bool = False) -> Any:
        if noise is not None and noise.rmse and not alone:
            ratios.append(measurement.rmse / noise.rmse)
        return limit_for(measurement, dtypes, noise, *coarser, alone=alone)

    limits.limit_for = watching
    return ratios


if __name__ == "__main__":
    main()
