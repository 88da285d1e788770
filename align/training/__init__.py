"""One training step of a side, or of both, watched: which parameters it trains, and why others stay.

Offers `check_parameters` and its result. Uses core, models, traces.
"""
