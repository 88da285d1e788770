"""One training step of a side, or of both, watched: which parameters it trains, and why others stay.

Offers `check_parameters`, `check_determinism` and their results. Uses core, measure, models, traces.
"""
