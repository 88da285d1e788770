"""Dumps of another tool compared: processor time against reading the same files with NumPy, side by side.

    python benchmarks/dumps.py [--pairs 200] [--repeat 3]

Each dump is in msprobe's form: layers of one output each, 1 MB of float32, which differ by rounding. Files are warm.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import align

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPE = (64, 4096)  # 1 MB of float32
BAR = 4.0


def main() -> None:
    """Print each ratio, and the best and the worst."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sides = [Path(folder, name) for name in ("torch", "mindspore")]
        for side in sides:
            write_dump(side, arguments.pairs)
        files = [file for side in sides for file in sorted(side.rglob("*.npy"))]
        compare(sides)  # imports, and the compiled kernel
        ratios = [measured(files, sides) for _ in range(arguments.repeat)]
    print(f"{min(ratios):.2f} x reading with NumPy at best, {max(ratios):.2f} x at worst; the bar is {BAR:g}")


def measured(files: list[Path], sides: list[Path]) -> float:
    """Both after one another, so that what else runs on the machine slows both."""
    read, compared = processor_time(lambda: read_all(files)), processor_time(lambda: compare(sides))
    print(f"{len(files)} files: read {read:.2f} s, compared {compared:.2f} s, {compared / read:.2f} x")
    return compared / read


def read_all(files: list[Path]) -> float:
    """Read every element, and touch it."""
    return float(sum(np.load(file)[0, 0] for file in files))


def compare(sides: list[Path]) -> None:
    """Compare both dumps."""
    result = align.compare_trace_folders(*sides)
    assert result.verdict.outcome.value == "aligned", result.verdict


def processor_time(work: Callable[[], object]) -> float:
    """Seconds of all threads of this process."""
    start = time.process_time()
    work()
    return time.process_time() - start


def write_dump(folder: Path, pairs: int, shape: tuple[int, ...] = SHAPE) -> None:
    """A dump of one step and rank; those of MindSpore differ from torch's in the last place."""
    tensors = folder / "dump_tensor_data"
    tensors.mkdir(parents=True)
    torch = folder.name == "torch"
    kind, word = ("torch.Tensor", "Module") if torch else ("mindspore.Tensor", "Cell")
    data = {}
    for number in range(pairs):
        values = np.random.default_rng(number).standard_normal(shape).astype(np.float32)
        name = f"{word}.layers.{number}.ReLU.forward.0"
        np.save(tensors / f"{name}.output.0.npy", values if torch else np.nextafter(values, np.float32(9)))
        dtype = "torch.float32" if torch else "Float32"
        record = {"type": kind, "dtype": dtype, "shape": list(shape), "data_name": f"{name}.output.0.npy"}
        data[name] = {"input_args": [], "input_kwargs": {}, "output": [record], "parameters": {}}
    framework = "pytorch" if torch else "mindspore"
    document = {"task": "tensor", "level": "L0", "framework": framework, "dump_data_dir": "", "data": data}
    (folder / "dump.json").write_text(json.dumps(document), encoding="utf-8")


if __name__ == "__main__":
    main()
