"""Many comparisons and conversions as one job: in processes of this machine, or on a Dask cluster.

Offers the job file, its tasks and their outcomes, the places where tasks run, and what all of them say together. Uses
checkpoints, convert, core, forward, traces, words.
"""
