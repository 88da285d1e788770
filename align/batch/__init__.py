"""Many comparisons and conversions as one job: in processes of this machine, or on a Dask cluster.

Imports `core` and what it runs in tasks. Offers the task and its outcome, and the places where tasks run.
"""
