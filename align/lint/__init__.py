"""Settings of paired layers, optimizers and losses compared before any run.

Offers `lint_models` and the comparison of settings. Uses core, models, names, rules, traces, words.
"""
