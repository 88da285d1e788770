"""Checkpoints on disk: recognised, read lazily, inspected; never executed.

Offers opening (also trusted), inspecting, where a tensor's bytes lie, ties, wrapper prefixes, training state, whose
names a file has. The formats are plugins in `formats/`. Uses core, rules, words.
"""
