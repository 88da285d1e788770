"""What two trainings are set to, compared by meaning: names, units and defaults of their trainers.

Offers `compare_hyperparameters` and its result. Formats of files are plugins in `readers/`. Uses core, checkpoints,
rules, traces, words.
"""
