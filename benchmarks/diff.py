"""`align diff` of two checkpoints, whole process, against `cmp` of two identical files of that size.

Two safetensors files of float32 whose values differ everywhere, made in a temporary folder and read once beforehand;
wall times are ratios to `cmp` in the same round, the median of several; peak memory is the process's own, with all
that it has imported. `fused` loads the compiled kernel while NumPy begins; its code was compiled before.
Run: python benchmarks/diff.py --gb 1 --rounds 5   (--gb 1 8 needs 24 GB of disk and of memory for the page cache)
Bars, of 1 GB files: 3.5 x with NumPy, 2 x with the `fast` extra, 160 MB. Both need two processors that are free.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

TENSOR = 1 << 24  # elements
KERNELS = {"NumPy": "numpy", "NumPy, then fused": ""}
DIFF = """
import sys
from pathlib import Path
from align.cli.main import main
code = main(["diff", *sys.argv[1:]])
# Not ru_maxrss: of a child it begins with the parent's, which is this script's with its arrays.
print(*(line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line), file=sys.stderr)
sys.exit(code)
"""


def main() -> None:
    """Print one line a size and kernel."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its byte code
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=int, nargs="+", default=[1])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where to make the files; the system's temporary folder by default")
    arguments = parser.parse_args()
    for size in arguments.gb:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            reference, candidate, twin = (Path(folder, f"{name}.safetensors") for name in ("a", "b", "twin"))
            write(reference, size, 0.0)
            write(candidate, size, 1e-6)
            write(twin, size, 0.0)
            compare(size, (reference, candidate, twin), arguments.rounds)


def compare(size: int, files: tuple[Path, Path, Path], rounds: int) -> None:
    """Run all ways in turn; the first round, which compiles and fills the page cache, does not count."""
    reference, candidate, twin = map(str, files)
    ratios: dict[str, list[float]] = {name: [] for name in KERNELS}
    peaks = dict.fromkeys(KERNELS, 0.0)
    bases = []
    for index in range(rounds + 1):
        base, _ = run(["cmp", reference, twin])
        for name, kernel in KERNELS.items():
            wall, peak = run([sys.executable, "-c", DIFF, reference, candidate], ALIGN_KERNEL=kernel)
            if index:
                ratios[name].append(wall / base)
                peaks[name] = max(peaks[name], peak)
        bases.append(base)
    print(f"{size} GB, cmp {statistics.median(bases):.2f} s, load {os.getloadavg()[0]:.1f}")
    for name, found in ratios.items():
        print(f"  {name:18} {statistics.median(found):5.2f} x cmp (best {min(found):.2f})   {peaks[name]:4.0f} MB")


def run(command: list[str], **environment: str) -> tuple[float, float]:
    """Wall time in seconds and, of a diff, peak memory in MB of one process."""
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    wall = time.perf_counter() - start
    if done.returncode > 1:
        raise SystemExit(done.stderr)
    return wall, int(done.stderr.split()[-2]) / 1024 if done.stderr else 0.0


def write(path: Path, size: int, drift: float) -> None:
    """Write `size` GB of normal numbers, each moved by a share of up to twice `drift`."""
    header = {
        f"layers.{i}.weight": {
            "dtype": "F32", "shape": [TENSOR // 4096, 4096], "data_offsets": [4 * TENSOR * i, 4 * TENSOR * (i + 1)],
        }
        for i in range(size << 28 >> 24)
    }  # fmt: skip
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    values, moves = np.random.default_rng(0), np.random.default_rng(1)
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for _ in header:
            block = values.standard_normal(TENSOR, dtype=np.float32)
            if drift:
                block *= 1 + np.float32(drift) * (1 + moves.random(TENSOR, dtype=np.float32))
            stream.write(block.data)


if __name__ == "__main__":
    main()
