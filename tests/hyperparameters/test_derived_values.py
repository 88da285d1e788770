"""Batches, durations and warm-ups follow from several settings, and say how."""

from __future__ import annotations

import pytest

from align.hyperparameters.named_parameters import Meaning, batch_quantity, duration_quantity, warmup_quantity
from align.hyperparameters.setting_values import Held


def meaning(**numbers: float) -> Meaning:
    return Meaning(None, {name: Held(float(value), str(value), "x:1") for name, value in numbers.items()})


def test_the_global_batch_is_micro_batch_times_accumulation_times_ranks() -> None:
    found = batch_quantity(meaning(micro_batch=2, accumulation=4, nodes=2, ranks_per_node=8, tensor_parallel=4)).forms
    assert found["batch"].value == 32
    assert found["batch"].how == "2 × 4 × 4 (4 = 16 / 4)"
    assert found["batch of a rank"].value == 8


def test_a_given_global_batch_counts() -> None:
    assert batch_quantity(meaning(global_batch=64, micro_batch=2, data_parallel=8)).forms["batch"].value == 64


def test_epochs_are_steps_where_batch_and_dataset_are_known() -> None:
    found = duration_quantity(meaning(epochs=3, global_batch=10, samples=105)).forms
    assert (found["steps"].value, found["steps"].how) == (30, "3 × (105 // 10)")
    assert "steps" not in duration_quantity(meaning(epochs=3, samples=105)).forms


def test_a_warm_up_in_all_its_forms() -> None:
    found = warmup_quantity(meaning(warmup_samples=100, global_batch=10, max_steps=50)).forms
    assert (found["steps"].value, found["share"].value) == (10, pytest.approx(0.2))
    assert warmup_quantity(meaning(warmup_ratio=0.03, max_steps=1000)).forms["steps"].value == 30
    assert "nothing" in warmup_quantity(meaning(warmup_steps=0)).forms
    assert warmup_quantity(meaning(warmup_steps=0, warmup_ratio=0.1)).first == Held(0.1, "0.1", "x:1")
