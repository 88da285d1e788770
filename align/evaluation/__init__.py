"""One dataset and metric through both models, and generation token by token.

Offers `validate_models`, `compare_generation` and their results. Uses core, measure, models, traces, words.
"""
