"""Tasks of a batch: what a worker costs, what two give over one, and ten thousand empty tasks.

Ranks are checkpoints of `--mb` each, compared with one reference; a few files stand for all ranks (hard links), so that
the disk is not what is measured. One and two workers run in turn. User and system time of the workers is given beside
the wall clock: a machine that others use shows in the difference. The cluster of Dask is a scheduler and two workers,
each a process of its own on this machine. Run: python benchmarks/batch.py --ranks 1 8 64 --runs 3 --empty 10000
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from align.batch.open_workers import Workers, open_dask, open_pool
from align.batch.task import Task

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES = 8  # that stand for all ranks
TENSORS = 16  # of a rank
HERE = Path(__file__).parent


def empty(task: Task) -> dict[str, Any]:  # noqa: ARG001 - what a task is
    """Do nothing."""
    return {}


def compare(task: Task) -> dict[str, Any]:
    """Compare two checkpoints; the figures are the outcome and what the process holds."""
    from align.convert.diff_checkpoints import diff_checkpoints

    diff = diff_checkpoints(*task.paths)
    return {"outcome": str(diff.verdict.outcome), "own_mib": own_mib()}


def idle(task: Task) -> dict[str, Any]:  # noqa: ARG001 - what a task is
    """Import what `compare` needs, and do nothing more."""
    import align.convert.diff_checkpoints  # noqa: F401

    return {"own_mib": own_mib()}


def main() -> None:
    """Print all figures."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--ranks", type=int, nargs="+", default=[1, 8, 64])
    options.add_argument("--mb", type=int, default=50)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--empty", type=int, default=10_000)
    chosen = options.parse_args()
    sys.path.insert(0, str(HERE))
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}")
    measure_empty(chosen.empty)
    with tempfile.TemporaryDirectory() as folder:
        pairs = write_ranks(Path(folder), max(chosen.ranks), chosen.mb)
        for ranks in chosen.ranks:
            measure_ranks(pairs[:ranks], chosen.runs)
    print(f"load at the end {os.getloadavg()[0]:.1f}")


def measure_ranks(pairs: list[tuple[str, str]], runs: int) -> None:
    """One and two workers in turn, whose processes are up and have imported what they need."""
    tasks = [Task(f"rank{place}", "diff", pair, {}) for place, pair in enumerate(pairs)]
    with open_pool(1) as one, open_pool(2) as two:
        for pool, count in ((one, 1), (two, 2)):
            before = [outcome.figures["own_mib"] for outcome in pool.run(tasks_of_all(count), "batch:idle")]
        found = [(timed(one, tasks), timed(two, tasks)) for _ in range(runs)]
    ratios = [first["wall"] / second["wall"] for first, second in found]
    for name, side in (("one worker", 0), ("two workers", 1)):
        wall = statistics.median(pair[side]["wall"] for pair in found)
        cpu = statistics.median(pair[side]["cpu"] for pair in found)
        print(f"{len(tasks)} ranks, {name}: {wall:.2f} s wall, {cpu:.2f} s user+system of the workers")
    own = max(pair[side]["own"] for pair in found for side in (0, 1))
    shown = " ".join(f"{ratio:.2f}" for ratio in ratios)
    print(
        f"  one / two: {shown}; own memory {own:.0f} MiB at the end of a task, {max(before):.0f} MiB idle", flush=True
    )


def tasks_of_all(count: int) -> list[Task]:
    """Enough tasks that each worker of a pool gets one."""
    return [Task(f"idle{place}", "idle", (), {}) for place in range(count * 4)]


def timed(pool: Workers, tasks: list[Task]) -> dict[str, float]:
    """Wall clock, processor time of the workers and the most that one held."""
    pids = [worker.process.pid for worker in pool.workers]  # type: ignore[attr-defined]
    start, cpu = time.monotonic(), sum(map(cpu_seconds, pids))
    outcomes = list(pool.run(tasks, "batch:compare"))
    wall = time.monotonic() - start
    assert {outcome.state for outcome in outcomes} == {"done"}
    own = max(outcome.figures["own_mib"] for outcome in outcomes)
    return {"wall": wall, "cpu": sum(map(cpu_seconds, pids)) - cpu, "own": own}


def measure_empty(count: int) -> None:
    """Empty tasks through the pool and a real scheduler."""
    tasks = [Task(f"e{place}", "none", (), {}) for place in range(count)]
    with open_pool(2) as pool:
        list(pool.run(tasks[:10], "batch:empty"))
        through(f"pool of 2, {count} empty tasks", pool, tasks)
    with cluster() as address, open_dask(address) as dask:
        list(dask.run(tasks[:10], "batch:empty"))
        through(f"Dask cluster of 2, {count} empty tasks", dask, tasks)


def through(name: str, workers: Workers, tasks: list[Task]) -> None:
    """Time a task, and what the parent holds more at the end of it."""
    start, held = time.monotonic(), own_mib()
    done = sum(outcome.state == "done" for outcome in workers.run(tasks, "batch:empty"))
    wall = time.monotonic() - start
    assert done == len(tasks)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{name}: {wall:.2f} s, {wall / done * 1000:.2f} ms a task; parent {own_mib() - held:+.1f} MiB, peak {peak:.0f}"
    )


@contextmanager
def cluster() -> Iterator[str]:
    """The address of a scheduler with two workers of one thread."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        file = Path(folder, "scheduler.json")
        shared = ["--no-dashboard", "--scheduler-file", str(file)]
        starts = [["dask_scheduler", "--port", "0"], *[["dask_worker", "--nthreads", "1", "--no-nanny"]] * 2]
        for name, *more in starts:
            command = [sys.executable, "-m", f"distributed.cli.{name}", *more, *shared]
            env = os.environ | {"PYTHONPATH": str(HERE)}
            process = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
        while not file.exists():
            time.sleep(0.1)
        time.sleep(5)  # until both workers are there
        yield json.loads(file.read_text(encoding="utf-8"))["address"]


def write_ranks(folder: Path, ranks: int, mb: int) -> list[tuple[str, str]]:
    """Paths of the reference and of each rank."""
    from safetensors.numpy import save_file

    random = np.random.default_rng(0)
    size = mb * 1_000_000 // 4 // TENSORS
    tensors = {f"layer{place}.weight": random.standard_normal(size, np.float32) for place in range(TENSORS)}
    reference = folder / "reference.safetensors"
    save_file(tensors, reference)
    for place in range(min(FILES, ranks)):
        tensors["layer0.weight"] = tensors["layer0.weight"] + np.float32(1e-6)
        save_file(tensors, folder / f"file{place}.safetensors")
    for rank in range(ranks):
        os.link(folder / f"file{rank % FILES}.safetensors", folder / f"rank{rank}.safetensors")
    return [(str(reference), str(folder / f"rank{rank}.safetensors")) for rank in range(ranks)]


def own_mib() -> float:
    """What this process holds that no other has, without mapped files."""
    _, resident, shared = Path("/proc/self/statm").read_text(encoding="ascii").split()[:3]
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE") / 2**20


def cpu_seconds(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
