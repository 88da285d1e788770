"""`align loss` of two logs of a million points each, whole process, against pandas reading the same numbers.

Two logs a format, made in a temporary folder and read once beforehand: the same curve with other noise. pandas reads
two CSV files with a step and a loss column in a process of its own, in the same round; times are ratios to that, the
median of several rounds. Peak memory is the process's own, with all that it has imported.
Run: python benchmarks/loss_logs.py --points 1000000 --rounds 3
Bars: csv and jsonl 4 times pandas, other formats 5 times, lines that no format knows 10 times; 500 MB.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from _log_writers import WRITERS, csv

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PANDAS = """
import sys
import pandas
for log in sys.argv[1:]:
    pandas.read_csv(log)
"""
LOSS = """
import sys
from pathlib import Path
from align.cli.main import main
code = main(["loss", *sys.argv[1:], "--json"])
# Not ru_maxrss: of a child it begins with the parent's, which is this script's with its arrays.
print(*(line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line), file=sys.stderr)
sys.exit(code)
"""


def main() -> None:
    """Print one line a format."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its byte code
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--formats", nargs="+", choices=WRITERS, default=list(WRITERS))
    parser.add_argument("--folder", type=Path, help="where to make the files; the system's temporary folder by default")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        numbers = written(Path(folder), "numbers", csv, arguments.points)
        for name in arguments.formats:
            compare(name, written(Path(folder), name, WRITERS[name], arguments.points), numbers, arguments.rounds)


def written(folder: Path, name: str, write: Callable[[list[float]], Iterator[str]], points: int) -> tuple[Path, Path]:
    """Write two logs of a curve that descends, with noise of their own."""
    paths = folder / f"{name}_reference.log", folder / f"{name}_candidate.log"
    for seed, path in enumerate(paths):
        noise = np.random.default_rng(seed).normal(0.0, 0.01, points)
        losses = 2.0 + np.exp(-np.arange(points) / points) + noise
        with path.open("w", encoding="utf-8") as stream:
            stream.writelines(write(losses.astype(np.float32).astype(float).tolist()))
    return paths


def compare(name: str, logs: tuple[Path, Path], numbers: tuple[Path, Path], rounds: int) -> None:
    """Run both in turn; the first round, which compiles and fills the page cache, does not count."""
    walls, bases, works, peak = [], [], [], 0.0
    for index in range(rounds + 1):
        base, _, _ = run(["-c", PANDAS, *map(str, numbers)])
        wall, work, used = run(["-c", LOSS, *map(str, logs)])
        if index:
            walls.append(wall)
            bases.append(base)
            works.append(work)
            peak = max(peak, used)
    ratio = statistics.median(wall / base for wall, base in zip(walls, bases, strict=True))
    size = sum(log.stat().st_size for log in logs) / 1e6
    print(
        f"{name:12} {size:4.0f} MB {statistics.median(walls):6.2f} s (processor time {min(works):.2f}), "
        f"{ratio:.1f} x pandas ({statistics.median(bases):.2f} s), {peak:4.0f} MB, load {os.getloadavg()[0]:.1f}"
    )


def run(arguments: list[str]) -> tuple[float, float, float]:
    """Wall and processor time in seconds and, of `align loss`, peak memory in MB of one process."""
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode > 1:
        raise SystemExit(done.stderr)
    work = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, work, int(done.stderr.split()[-2]) / 1024 if "VmHWM" in done.stderr else 0.0


if __name__ == "__main__":
    main()
