"""`align convert` of a .pth to a .ckpt against `cp` + fsync of the file, and against a script with both frameworks.

Prints ratios of wall time, CPU time and peak memory, each the median of runs taken in turn, so that a busy machine
slows all sides alike. The file is made on the fly and removed. Run: python benchmarks/convert.py --mb 256 --runs 5
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import resource

COPY = """
import os, shutil, sys
shutil.copyfile(sys.argv[1], sys.argv[2])
file = os.open(sys.argv[2], os.O_RDONLY)
os.fsync(file)
"""
CONVERT = """
import sys
from align.cli.main import main
sys.exit(main(["convert", sys.argv[1], sys.argv[2], "--overwrite"]))
"""
FRAMEWORKS = """
import sys, torch, mindspore
state = torch.load(sys.argv[1], weights_only=True)
rows = [{"name": n, "data": mindspore.Parameter(mindspore.Tensor(t.numpy()), name=n)} for n, t in state.items()]
mindspore.save_checkpoint(rows, sys.argv[2])
"""
NOTHING = "import align.cli.main"
SIDES = {
    "cp + fsync": COPY,
    "align convert": CONVERT,
    "torch.load + save_checkpoint": FRAMEWORKS,
    "interpreter": NOTHING,
}


def main() -> None:
    """Make the file, run the sides in turn and print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--mb", type=int, default=256, help="size of the checkpoint in MiB")
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--without-frameworks", action="store_true", help="leave the slow script out")
    chosen = options.parse_args()
    sides = {name: code for name, code in SIDES.items() if not (chosen.without_frameworks and code is FRAMEWORKS)}
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        source = Path(folder, "model.pth")
        make_checkpoint(source, chosen.mb)
        figures: dict[str, list[tuple[float, float, float]]] = {name: [] for name in sides}
        for _ in range(chosen.runs):
            for name, code in sides.items():
                figures[name].append(measure(code, source, Path(folder, "out.ckpt")))
    print_table(
        {name: tuple(map(statistics.median, zip(*rows, strict=True))) for name, rows in figures.items()}, chosen
    )


def make_checkpoint(path: Path, mb: int) -> None:
    """Write a state dict of 4-D weights of 4 MiB each in a process of its own, so that this one stays small."""
    code = (
        "import sys, torch; torch.save({f'layers.{n}.weight': torch.randn(256, 4096, 1, 1) "
        "for n in range(int(sys.argv[2]) // 4)}, sys.argv[1])"
    )
    run([sys.executable, "-c", code, str(path), str(mb)])


def measure(code: str, source: Path, destination: Path) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and anonymous peak in MiB of one run of a script in a fresh process."""
    destination.unlink(missing_ok=True)
    started = time.perf_counter()
    usage = run([sys.executable, "-W", "ignore", "-c", code, str(source), str(destination)])
    return time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def run(command: list[str]) -> resource.struct_rusage:
    """Run a command with its output hidden and return what it used."""
    child = os.fork()
    if child == 0:
        hidden = os.open(os.devnull, os.O_WRONLY)
        os.dup2(hidden, 1)
        os.dup2(hidden, 2)
        os.execv(command[0], command)
    _, status, usage = os.wait4(child, 0)
    if status:
        raise SystemExit(f"failed: {' '.join(command[:3])} ...")
    return usage


def print_table(figures: dict[str, tuple[float, ...]], chosen: argparse.Namespace) -> None:
    """Print seconds and their ratio to `cp`; memory above the bare interpreter with align imported."""
    base = figures["cp + fsync"]
    floor = figures.pop("interpreter")[2]
    print(f"{chosen.mb} MiB, median of {chosen.runs}")
    print(f"{'':30}{'wall s':>9}{'x cp':>8}{'cpu s':>9}{'x cp':>8}{'peak MiB over interpreter':>28}")
    for name, (wall, cpu, peak) in figures.items():
        print(f"{name:30}{wall:9.2f}{wall / base[0]:8.2f}{cpu:9.2f}{cpu / base[1]:8.2f}{max(peak - floor, 0):28.0f}")


if __name__ == "__main__":
    main()
