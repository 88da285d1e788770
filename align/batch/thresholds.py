"""Limits of the room, each with why and by what it was measured."""

from __future__ import annotations

from typing import Final

MOST_ATTEMPTS: Final = 2  # a task that failed is tried once more: a second failure is seldom chance
MEMORY_SHARE: Final = 0.8  # of what is available at the start; the rest is the parent's and the file cache's
LEAST_MEMORY: Final = 512 * 2**20  # a worker's; torch and MindSpore imported take about 400 MB
MEMORY_CHECK_SECONDS: Final = 0.05  # between two looks at the workers' memory; a process fills about 100 MB in it
MOST_FAILED_STARTS: Final = 3  # workers that die before their first task, one after another: the next would too
END_SECONDS: Final = 2.0  # that a worker has to leave when it is told to
LAST_WORDS_BYTES: Final = 2000  # of what a dead worker printed, that are looked at for its last line

CONNECT_SECONDS: Final = 10  # that a Dask scheduler has to answer: it does so in milliseconds when it is there
WORKERS_SECONDS: Final = 30  # that a cluster may be without any worker; a worker starts in 1 to 3 seconds
TASKS_A_THREAD: Final = 2  # given to the scheduler for each thread: one runs, one waits; slow workers hold few
LEAST_IN_FLIGHT: Final = 8  # so that a cluster that grows has something to do
