"""What other comparison tools were seen to fail at, and the tests here that hold us to it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
TRAPS = {
    "NaN on one side, on both, equal infinities": [
        "test_nan_on_one_side_is_not_aligned",
        "test_nan_on_both_sides_is_a_stated_exception",
        "test_nan_on_both_sides_and_equal_infinities_are_alike",
    ],
    "permuted rows of equal mean": ["test_permuted_rows_are_found", "test_permuted_rows_of_equal_mean_differ"],
    "an error that a later layer cancels": ["test_a_scale_that_a_later_norm_cancels_is_still_found"],
    "a missing or extra tensor, output or step": [
        "test_a_missing_or_extra_output_is_never_passed_over",
        "test_a_layer_that_the_port_lacks_is_all_that_is_missing",
        "test_a_missing_step_in_the_middle_fails_and_is_told",
    ],
    "a missing name with a stranger of its shape": [
        "test_a_missing_name_is_not_filled_by_a_stranger_of_equal_shape",
        "test_a_missing_name_is_not_taken_from_an_auxiliary_head_or_a_copy",
        "test_a_stranger_of_the_same_name_and_shape_is_not_paired",
    ],
    "broadcastable but unequal shapes; a scalar against one element": [
        "test_a_broadcastable_shape_is_not_aligned",
        "test_a_scalar_is_not_a_tensor_of_one_element",
        "test_unequal_shapes_are_never_broadcast",
    ],
    "weights that a loader reshapes without a word": [
        "test_the_axis_that_conv1d_inserts_gives_a_reshape",
        "test_a_strict_load_misses_nothing_that_was_not_said",
    ],
    "arithmetic that wraps or overflows": [
        "test_integers_from_end_to_end_of_their_range_do_not_wrap",
        "test_a_million_halves_overflow_no_figure",
    ],
    "an all-zero reference, a cosine of 0/0": [
        "test_an_all_zero_reference_has_no_relative_figures_and_no_cosine",
        "test_an_all_zero_reference_allows_nothing_but_zero",
    ],
    "empty and 0-d tensors, structured outputs, a module called twice": [
        "test_empty_and_0d_tensors_have_figures",
        "test_an_empty_output_is_not_comparable",
        "test_outputs_of_equal_names_are_compared_by_name_in_any_order",
        "test_a_module_called_several_times_pairs_call_by_call",
    ],
    "buffers, num_batches_tracked, ties": [
        "test_ties_buffers_and_frozen_parameters_are_told",
        "test_num_batches_tracked_is_dropped_with_the_rules_reason_for_nn_and_paired_for_mint",
        "test_tied_weights_are_written_under_each_name_and_recorded",
    ],
    "step_2 against step_10; only the first step compared": [
        "test_step_10_comes_after_step_2_and_all_steps_are_compared"
    ],
    "a failing plot that changes the verdict": ["test_a_failing_plot_is_shown_as_a_failed_plot"],
    "no common step, no line read": [
        "test_no_common_step_could_not_be_compared",
        "test_logs_without_a_common_step_end_with_2",
    ],
    "a skipped check reported as passed": [
        "test_a_rung_that_was_not_run_is_not_run_and_never_aligned",
        "test_nothing_compared_is_never_aligned",
    ],
    "a square weight transposed, same-shape siblings, conv1x1 against dense": [
        "test_a_transposed_square_weight_is_found_and_named",
        "test_a_square_weight_is_not_transposed_and_swapped_siblings_stay_apart",
        "test_two_swapped_weights_of_one_shape_are_found_and_named",
    ],
    "tensors larger than memory": [
        "test_a_large_tensor_is_never_held_in_memory",
        "test_memory_stays_bounded_for_mapped_files",
    ],
    "pickles from strangers": [
        "test_a_whole_pickled_module_is_named_and_refused",
        "test_a_pickle_that_uses_what_it_never_made_is_refused",
    ],
    "dropped NaN lines that shift the rest of a log": ["test_a_nan_line_shifts_nothing_and_is_found"],
}


@pytest.fixture(scope="module")
def known() -> set[str]:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in TESTS.rglob("test_*.py")]
    return {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("trap", TRAPS)
def test_a_trap_is_held_by_tests_that_exist(trap: str, known: set[str]) -> None:
    assert TRAPS[trap]
    assert set(TRAPS[trap]) - known == set()
