"""What captures call facts of a run, and the names of settings that these are."""

from __future__ import annotations

OWN_NAMES = {
    "seed": "seed",
    "world size": "world_size",
    "dataset samples": "dataset_size",
    "dataset batches": "batches_per_epoch",
    "dataset batch_size": "batch_size",
}


def fact_name(fact: str) -> str:
    """The name of a fact of the run; a variable has that of one which a script exports.

    >>> fact_name("dataset samples"), fact_name("variable NCCL_ALGO")
    ('dataset_size', 'environment.NCCL_ALGO')
    """
    return OWN_NAMES.get(fact, f"environment.{fact.removeprefix('variable ')}")
