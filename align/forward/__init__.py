"""Both models on the same inputs: which layer is at fault, why, and what to change.

Offers `compare_forward`, `compare_trace_folders`, `bisect_port`, `bisect_precision`, `export_repro`, `measure_power`,
allowances, and their results. Uses core, lint, measure, models, names, rules, traces,
words.
"""
