"""Why a training is slow, from logs and profiles.

Offers `advise` with its result: what costs most, the line that shows it, and what to write instead. Forms of files are
plugins in `readers/`. Uses core, curves, lint, loops, rules, words.
"""
