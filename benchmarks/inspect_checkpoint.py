"""`align inspect` of a file of each format: seconds against an empty interpreter and `cp`, and bytes read from disk.

Ratios are medians of runs taken in turn. For the bytes, the file is dropped from the page cache first and the system's
count for the process is read, which covers maps into memory and read-ahead; what an inspection of a tiny file reads,
its modules, is taken off. Run: python benchmarks/inspect_checkpoint.py --mb 1024 --runs 5
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SUFFIXES = (".pth", ".safetensors", ".ckpt", ".npz")
WRITE = """
import sys
from pathlib import Path
import numpy as np
from align.core.parameters import StoredTensor
from align.core.load_code import checkpoint_formats
value = np.random.default_rng(0).standard_normal((1024, 1024), np.float32)
tensors = [StoredTensor(f"layers.{n}.weight", value.shape, "float32", lambda: value) for n in range(int(sys.argv[2]))]
path = Path(sys.argv[1])
plugin = next(plugin for plugin in checkpoint_formats().values() if path.suffix in plugin.suffixes)
with path.open("xb") as stream:
    plugin.write(stream, tensors, {"format": "ms"})
"""
INSPECT = """
import sys
from align.cli.main import main
code = main(["inspect", sys.argv[1]])
print("READ", dict(line.split(": ") for line in open("/proc/self/io"))["read_bytes"])
sys.exit(code)
"""


def main() -> None:
    """Make the files one by one, measure, and print a line for each."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its byte code
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--mb", type=int, default=1024, help="size of each file in MiB")
    options.add_argument("--runs", type=int, default=5)
    chosen = options.parse_args()
    print(f"{chosen.mb} MiB of 4 MiB tensors, median of {chosen.runs}, page cache warm")
    print(f"{'':14}{'seconds':>9}{'x empty start':>15}{'x cp':>8}{'KiB read, cache cold':>22}")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        for suffix in SUFFIXES:
            large, tiny = Path(folder, f"large{suffix}"), Path(folder, f"tiny{suffix}")
            python(WRITE, large, chosen.mb // 4)
            python(WRITE, tiny, 1)
            measure(large, tiny, chosen.runs)
            large.unlink()


def measure(large: Path, tiny: Path, runs: int) -> None:
    """Print the line of one format."""
    sides = {
        "inspect": lambda: python(INSPECT, large),
        "nothing": lambda: python("pass"),
        "cp": lambda: shutil.copyfile(large, large.with_suffix(".copy")),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(runs):
        for name, side in sides.items():
            started = time.perf_counter()
            side()
            seconds[name].append(time.perf_counter() - started)
    large.with_suffix(".copy").unlink()
    inspect, nothing, copy = (statistics.median(seconds[name]) for name in ("inspect", "nothing", "cp"))
    fewest = [min(read_from_disk(path) for _ in range(3)) for path in (large, tiny)]  # others' reads only add
    kib = (fewest[0] - fewest[1]) / 1024
    print(f"{large.suffix:14}{inspect:9.3f}{inspect / nothing:15.1f}{inspect / copy:8.3f}{kib:22,.0f}")


def read_from_disk(path: Path) -> int:
    """Bytes that an inspection makes the system read, with the file out of the page cache."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return int(python(INSPECT, path).rpartition("READ ")[2])


def python(code: str, *arguments: object) -> str:
    """Run a script in a fresh interpreter and return what it prints."""
    command = [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
