"""Many tasks in processes and on a Dask cluster: what a second worker brings, what a task costs, what is held.

    python benchmarks/batch.py [--ranks 1 8 64] [--repeat 3] [--empty 10000] [--folder DIR]

A rank is two dumps of 50 MB in msprobe's form. Eight ranks are written; further ones are links to their files, which
are warm. One worker and two run after one another, so that what else runs on the machine slows both. The wall clock
says little on a busy machine. `could be` is what two free cores would give: it compares the processor time that
a task needs beside another one with what it needs alone.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from dumps import SHAPE, write_dump

from align.batch.job import Task
from align.batch.open_workers import open_dask, open_pool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.batch.job import TaskOutcome
    from align.batch.open_workers import Workers

FUNCTION = "_batch_tasks:run_task"
LAYERS = 50  # of 1 MB
LARGE = (1536, 4096)  # 25 MB of float32: two of them are a rank too
DISTINCT = 8
MOST_PEAK = 256  # MiB that a task may take above an idle worker
MOST_COST = 10.0  # ms that an empty task may take
LEAST_GAIN = 1.7  # of two workers against one
MIB = 2**20


def main() -> None:
    """Print all figures and, at the end, what is held against a bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--empty", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, help="where the dumps are written (default: a temporary folder)")
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    measure_empty(arguments.empty)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        tasks = rank_tasks(Path(folder), max(arguments.ranks))
        large = rank_tasks(Path(folder, "large"), 1, 2, LARGE)
        measure_memory(tasks[:DISTINCT], "1 MB")
        measure_memory(large, "25 MB")
        for ranks in arguments.ranks:
            measure_ranks(tasks[:ranks], arguments.repeat)


def measure_empty(count: int) -> None:
    """What a task costs that does nothing, and what the parent holds."""
    tasks = [Task(f"empty{number}", "empty", (), {}) for number in range(count)]
    for workers in (1, 2):
        with open_pool(workers) as pool:
            show_cost(f"pool, {workers} workers", pool, tasks)
    with cluster() as address, open_dask(address) as dask:
        show_cost("Dask, 2 workers", dask, tasks)


def show_cost(place: str, workers: Workers, tasks: list[Task]) -> None:
    """Run the tasks, the first ones to warm up."""
    warm_up(workers)
    before, start = held(), Figures.now()
    done = sum(outcome.state == "done" for outcome in workers.run(tasks, FUNCTION))
    took, count = Figures.now().since(start), len(tasks)
    assert done == count, f"{count - done} tasks failed"
    print(
        f"{place}: {count} empty tasks in {took.wall:.1f} s, {1000 * took.wall / count:.2f} ms a task (at most"
        f" {MOST_COST:g}), of which the parent works {1000 * took.own / count:.2f} ms; it holds"
        f" {held() - before:+.1f} MiB"
    )


def measure_memory(tasks: list[Task], tensors: str) -> None:
    """The peak of a worker with a task, above what it holds with all imports and no task."""
    with open_pool(1) as pool:
        warm_up(pool, tasks[:1])
        (idle,) = pool.run([Task("idle", "empty", (), {})], FUNCTION)
        peaks = [outcome.peak_bytes for outcome in pool.run(tasks, FUNCTION)]
    if idle.peak_bytes is None or None in peaks:
        print("memory: this system does not tell")
        return
    most = max(peak for peak in peaks if peak is not None)
    above = (most - idle.peak_bytes) / MIB
    print(
        f"memory of a worker, tensors of {tensors}: {idle.peak_bytes / MIB:.0f} MiB idle,"
        f" {above:.0f} above it at most ({MOST_PEAK})"
    )


def measure_ranks(tasks: list[Task], repeat: int) -> None:
    """One worker and two, in turns."""
    found = {workers: [] for workers in (1, 2)}
    for turn in range(repeat):
        for workers in (1, 2) if turn % 2 else (2, 1):
            found[workers].append(run_ranks(tasks, workers))
    one, two = (([figures.wall for figures in found[w]], [figures.children for figures in found[w]]) for w in (1, 2))
    gains = [alone / both for alone, both in zip(one[0], two[0], strict=True)]
    could = 2 * median(one[1]) / median(two[1])
    print(
        f"{len(tasks)} ranks: {median(one[0]):.1f} s with 1 worker, {median(two[0]):.1f} s with 2:"
        f" {median(gains):.2f} x ({min(gains):.2f} to {max(gains):.2f}; at least {LEAST_GAIN});"
        f" processor {median(one[1]):.1f} and {median(two[1]):.1f} s, could be {could:.2f} x;"
        f" load {os.getloadavg()[0]:.1f}"
    )


def run_ranks(tasks: list[Task], workers: int) -> Figures:
    """Time from the first task to the last outcome; workers have their imports and compiled code."""
    with open_pool(workers) as pool:
        warm_up(pool, tasks[:1] * workers)
        before, start = children_seconds(pool), time.monotonic()
        outcomes = [check(outcome) for outcome in pool.run(tasks, FUNCTION)]
        took = Figures(time.monotonic() - start, 0.0, children_seconds(pool) - before)
    assert len(outcomes) == len(tasks)
    return took


def check(outcome: TaskOutcome) -> TaskOutcome:
    """Figures of a failed comparison are of no use."""
    assert outcome.figures.get("outcome") == "aligned", outcome
    return outcome


def warm_up(workers: Workers, tasks: list[Task] | None = None) -> None:
    """Start the workers, and let them import what the tasks need."""
    given = tasks or [Task("", "empty", (), {})] * 8
    for _ in workers.run([Task(f"warm{number}", "", task.paths, {}) for number, task in enumerate(given)], FUNCTION):
        pass


@dataclass(frozen=True)
class Figures:
    """Seconds of the clock, of this process and of its workers."""

    wall: float
    own: float
    children: float = 0.0

    @classmethod
    def now(cls) -> Figures:
        """The clocks as they stand."""
        return cls(time.monotonic(), time.process_time())

    def since(self, start: Figures) -> Figures:
        """What went by."""
        return Figures(self.wall - start.wall, self.own - start.own)


def children_seconds(pool: Workers) -> float:
    """Processor time of the workers that live: user and system."""
    ticks = os.sysconf("SC_CLK_TCK")
    stats = [Path(f"/proc/{worker.process.pid}/stat").read_text("ascii") for worker in pool.workers]
    return sum(sum(map(int, stat.rpartition(")")[2].split()[11:13])) for stat in stats) / ticks


def held() -> float:
    """MiB of this process, without what can be given back."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize() / MIB


def rank_tasks(folder: Path, ranks: int, layers: int = LAYERS, shape: tuple[int, ...] = SHAPE) -> list[Task]:
    """The dumps of all ranks: those after the first eight are hard links."""
    sides = ("torch", "mindspore")
    for rank in range(ranks):
        for side in sides:
            path = folder / f"rank{rank}" / side
            if rank < DISTINCT:
                write_dump(path, layers, shape)
            else:
                link_all(folder / f"rank{rank % DISTINCT}" / side, path)
    return [
        Task(f"rank{rank}", "forward", tuple(str(folder / f"rank{rank}" / side) for side in sides), {})
        for rank in range(ranks)
    ]


def link_all(source: Path, target: Path) -> None:
    """A tree of folders of its own, with files that are links."""
    for file in source.rglob("*"):
        if file.is_file():
            place = target / file.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.hardlink_to(file)


@contextmanager
def cluster() -> Iterator[str]:
    """The address of a Dask scheduler with two workers, each a process of its own."""
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "scheduler.json")
        stack.enter_context(started("dask_scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)))
        for _ in range(2):
            options = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--scheduler-file", str(file))
            stack.enter_context(started("dask_worker", *options))
        while not (file.exists() and "address" in file.read_text("utf-8")):
            time.sleep(0.1)
        yield json.loads(file.read_text("utf-8"))["address"]


@contextmanager
def started(name: str, *arguments: str) -> Iterator[None]:
    """A command of Dask, ended with the context."""
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-m", f"distributed.cli.{name}", *arguments]
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


if __name__ == "__main__":
    main()
