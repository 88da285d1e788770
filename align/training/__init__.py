"""One training step of a side, or of both, watched: which parameters it trains, and why others stay.

Offers `check_parameters` and `explain_updates` with their results: what a step did to parameters, and what explains
that two optimizers did otherwise under the same gradients. Uses core, models, rules, traces.
"""
