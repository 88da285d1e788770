"""Limits of jobs of many tasks. Each says why it is there, and where its number comes from."""

from __future__ import annotations

from typing import Final

MOST_ATTEMPTS: Final = 2
"""Attempts at a task before it has failed.
Choice: a first failure may be chance (a full disk cache, a killed process), a second one seldom is."""
MEMORY_SHARE: Final = 0.8
"""The share of the memory that is available at the start which all workers may take together.
Choice: the rest is the parent's and the file cache's."""
LEAST_MEMORY: Final = 512 * 2**20
"""Bytes that a worker may take at least, by default.
Choice: a framework that is imported takes most of it; with less, no task would run."""
MEMORY_CHECK_SECONDS: Final = 0.05
"""Time between two looks at the memory of the workers.
Choice: a process cannot fill much in it, and a look reads one short line of /proc for each worker."""
MOST_FAILED_STARTS: Final = 3
"""Workers that die before their first task, one after another, before the job is ended.
Choice: what kills three of them kills the next."""
END_SECONDS: Final = 2.0
"""Time that a worker has to leave when its line is closed, before it is killed.
Choice: one without a task leaves within milliseconds."""
LAST_WORDS_BYTES: Final = 2000
"""Bytes of what a dead worker printed in which its last line is looked for.
Choice: a longer line says no more in a message."""
CONNECT_SECONDS: Final = 10
"""Seconds that a Dask scheduler has to answer.
Choice: one that is there answers within milliseconds, through a slow tunnel within a second or two."""
WORKERS_SECONDS: Final = 30
"""Time that a Dask cluster may be without any worker.
Choice: a worker starts in 1 to 3 seconds, and a nanny replaces a dead one as fast."""
CLUSTER_LOOK_SECONDS: Final = 1.0
"""Time between two looks at whether the scheduler and its workers are there, while no task ends.
Choice: a person does not notice it, and it costs nothing."""
TASKS_A_THREAD: Final = 4
"""Tasks that are given to the scheduler at a time for each thread of the cluster.
Choice: no thread is idle until the next are sent, which is when half of them are done."""
LEAST_IN_FLIGHT: Final = 64
"""Tasks that are given to the scheduler at a time at least.
Choice: sent one by one, empty tasks cost the scheduler several times as much; it holds them back from slow workers."""
LEAST_RANKS: Final = 3
"""Ranks from which on most of them say what a tensor should be.
Choice: of two that differ neither is the odd one."""
MOST_LAYERS: Final = 200
"""Layers by rank that a result keeps for its picture.
Choice: more lines than a screen has pixels for are no picture; all that depart come first."""
ALIKE_FACTOR: Final = 10.0
"""The factor between the amounts of two ranks, next to each other in size, from which on they do not depart alike.
Choice: ranks see other data, which moves what a fault does by a small factor; a bad card is wrong by powers of ten."""
LEAST_MOVED: Final = 2
"""Ranks of the candidate that hold another rank's shards, from which on both sides number their ranks otherwise.
Choice: two that change places are the least; a single one has been given another's file."""
