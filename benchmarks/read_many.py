"""Opening and writing files of many small tensors, in every format, against `json.loads` of as many entries.

Those are the header of a safetensors file of them: no reader in Python can be expected to be faster. The smallest of
several runs counts, taken in turn. Run: python benchmarks/read_many.py --tensors 50000 --runs 5
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from align.checkpoints.open_checkpoint import open_checkpoint
from align.core.load_code import checkpoint_formats
from align.core.parameters import StoredTensor

if TYPE_CHECKING:
    from collections.abc import Callable

VALUE = np.arange(8, dtype=np.float32).reshape(4, 2)


def main() -> None:
    """Write the files, open each several times and print a line for each."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tensors", type=int, default=50_000)
    options.add_argument("--runs", type=int, default=5)
    chosen = options.parse_args()
    names = [f"network.layers.{n}.attention.weight" for n in range(chosen.tensors)]
    header = json.dumps({name: {"dtype": "F32", "shape": [4, 2], "data_offsets": [0, 32]} for name in names})
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        writing = write_all(Path(folder), names)
        work: dict[str, Callable[[], object]] = {"json.loads": lambda: json.loads(header)}
        work |= {path.name: (lambda path=path: open_checkpoint(path)) for path in sorted(Path(folder).iterdir())}
        best = dict.fromkeys(work, float("inf"))
        for _ in range(chosen.runs):
            best = {name: min(best[name], seconds(job)) for name, job in work.items()}
    print(f"{chosen.tensors} tensors, best of {chosen.runs}")
    for name, value in best.items():
        written = f"   written in {writing[name]:5.2f} s" if name in writing else ""
        print(f"{name:20}{value:8.3f} s{value / best['json.loads']:8.1f} x json.loads{written}")


def write_all(folder: Path, names: list[str]) -> dict[str, float]:
    """One file of the tensors in every format that is written, and an ONNX model; the seconds of writing by name."""
    tensors = [StoredTensor(name, VALUE.shape, "float32", lambda: VALUE) for name in names]
    took = {}
    for plugin in checkpoint_formats().values():
        if not plugin.problems([], {}):
            path = folder / f"{plugin.name}{plugin.suffixes[0]}"
            with path.open("wb") as stream:
                took[path.name] = seconds(lambda plugin=plugin, stream=stream: plugin.write(stream, tensors, {}))
    write_onnx(folder / "onnx.onnx", names)
    return took


def write_onnx(path: Path, names: list[str]) -> None:
    """The model as the onnx package writes it."""
    from onnx import helper, numpy_helper

    graph = helper.make_graph([], "many", [], [], [numpy_helper.from_array(VALUE, name) for name in names])
    path.write_bytes(helper.make_model(graph).SerializeToString())


def seconds(job: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
