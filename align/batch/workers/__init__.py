"""Processes of this machine and workers of a Dask cluster, as `align.batch.open_workers` offers them."""
