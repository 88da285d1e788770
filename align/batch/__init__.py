"""Many comparisons and conversions as one job: in processes of this machine, or on a Dask cluster.

Offers the task and its outcome, and the places where tasks run. Uses words.
"""
