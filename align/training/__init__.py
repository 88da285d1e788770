"""One training step of a side, or of both, watched; and the values that training starts from.

Offers `check_parameters`, `check_determinism`, `compare_initial_values` and their results. Uses core, measure, models,
rules, traces.
"""
