"""Settings of paired layers, optimizers and losses compared before any run.

Offers `lint_models` and the comparison of settings. Uses traces (calls in tree order), names, models, rules and core.
"""
