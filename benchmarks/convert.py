"""`align convert` of a .pth to a .ckpt against `cp` + fsync of the file, and against a script with both frameworks.

Prints wall time and CPU time as ratios to `cp` + fsync, and peak memory above that of an empty interpreter, each the
median of runs taken in turn, so that a busy machine slows all sides alike; start-up is included everywhere. The files
are made on the fly and removed. Run: python benchmarks/convert.py --gb 1 8 --runs 5. With --shards 8 the source is a
folder that so many ranks of torch.distributed.checkpoint wrote, each weight cut by rows or by columns.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import resource

FRAMEWORKS = """
import sys, torch, mindspore
state = torch.load(sys.argv[1], weights_only=True)
rows = [{"name": n, "data": mindspore.Parameter(mindspore.Tensor(t.numpy()), name=n)} for n, t in state.items()]
mindspore.save_checkpoint(rows, sys.argv[2])
"""
RANKS = """
import os, sys
count, folder, number = int(sys.argv[3]), sys.argv[1], int(float(sys.argv[2]) * 1e9) >> 26
rank = next((rank for rank in range(1, count) if not os.fork()), 0)
import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.tensor import DTensor, Shard, init_device_mesh
torch.set_num_threads(1)
dist.init_process_group("gloo", store=dist.FileStore(folder + ".store", count), rank=rank, world_size=count)
mesh = init_device_mesh("cpu", (count,))
piece = {0: torch.randn(4096 // count, 4096), 1: torch.randn(4096, 4096 // count)}
state = {f"layers.{n}.weight": DTensor.from_local(piece[n % 2] + n, mesh, [Shard(n % 2)]) for n in range(number)}
dcp.save(state, checkpoint_id=folder)
dist.barrier()
dist.destroy_process_group()
os._exit(0) if rank else [os.wait() for _ in range(count - 1)]
"""
PYTHON = [sys.executable, "-W", "ignore"]
ALIGN = [*PYTHON, "-c", "from align.cli.main import run; run()", "convert"]
SAME_NAMES = ["--target", "torch"]  # of a folder of ranks into .safetensors
BASE, SCRIPT, EMPTY = "cp + fsync", "torch.load + save_checkpoint", "an empty interpreter"
SIDES = {
    BASE: ["sh", "-c", 'cp -r "$0" "$1" && sync $(find "$1" -type f)'],
    "align convert": ALIGN,
    "align convert --no-verify": [*ALIGN, "--no-verify"],
    SCRIPT: [*PYTHON, "-c", FRAMEWORKS],
    EMPTY: [*PYTHON, "-c", "pass"],
}


def main() -> None:
    """For each size make the file, run the sides in turn and print the table."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its byte code
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--gb", type=float, nargs="+", default=[1.0], help="sizes of the checkpoint in GB")
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--shards", type=int, default=0, help="ranks of torch.distributed.checkpoint; 0: one .pth")
    options.add_argument("--without-frameworks", action="store_true", help="leave the slow script out")
    chosen = options.parse_args()
    left_out = {SCRIPT} if chosen.without_frameworks or chosen.shards else set()
    more = SAME_NAMES if chosen.shards else []
    sides = {name: [*command, *(more if name.startswith("align") else [])] for name, command in SIDES.items()}
    sides = {name: command for name, command in sides.items() if name not in left_out}
    for gb in chosen.gb:
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            source = Path(folder, "ranks" if chosen.shards else "model.pth")
            if chosen.shards:
                run([sys.executable, "-W", "ignore", "-c", RANKS, str(source), str(gb), str(chosen.shards)])
            else:
                make_checkpoint(source, gb)
            figures: dict[str, list[tuple[float, float, float]]] = {name: [] for name in sides}
            for number in range(chosen.runs + 1):
                for name, command in sides.items():
                    row = measure(command, source, Path(folder, "out.safetensors" if chosen.shards else "out.ckpt"))
                    figures[name] += [row] if number else []  # the first round fills caches
        print(f"{gb} GB, median of {chosen.runs}")
        print_table({name: tuple(map(statistics.median, zip(*rows, strict=True))) for name, rows in figures.items()})


def make_checkpoint(path: Path, gb: float) -> None:
    """Write a state dict of 4-D weights of 4 MiB each in a process of its own, so that this one stays small."""
    code = (
        "import sys, torch; torch.save({f'layers.{n}.weight': torch.randn(256, 4096, 1, 1) "
        "for n in range(int(float(sys.argv[2]) * 1e9) >> 22)}, sys.argv[1])"
    )
    run([sys.executable, "-c", code, str(path), str(gb)])


def measure(command: list[str], source: Path, destination: Path) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and peak memory in MiB of one run in a fresh process."""
    shutil.rmtree(destination) if destination.is_dir() else destination.unlink(missing_ok=True)
    started = time.perf_counter()
    usage = run([*command, str(source), str(destination)])
    return time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def run(command: list[str]) -> resource.struct_rusage:
    """Run a command with its output hidden and return what it and its children used."""
    child = os.fork()
    if child == 0:
        hidden = os.open(os.devnull, os.O_WRONLY)
        os.dup2(hidden, 1)
        os.dup2(hidden, 2)
        os.execvp(command[0], command)
    _, status, usage = os.wait4(child, 0)
    if status:
        raise SystemExit(f"failed: {' '.join(command[:3])} ...")
    return usage


def print_table(figures: dict[str, tuple[float, ...]]) -> None:
    """Print seconds with their ratio to `cp`, and memory above the empty interpreter."""
    base, floor = figures[BASE], figures.pop(EMPTY)[2]
    print(f"{'':30}{'wall s':>9}{'x cp':>8}{'cpu s':>9}{'x cp':>8}{'peak MiB over interpreter':>28}")
    for name, (wall, cpu, peak) in figures.items():
        print(f"{name:30}{wall:9.2f}{wall / base[0]:8.2f}{cpu:9.2f}{cpu / base[1]:8.2f}{max(peak - floor, 0):28.0f}")


if __name__ == "__main__":
    main()
