"""Checkpoints on disk: recognised, read lazily, inspected; never executed.

Offers opening (also trusted), inspecting, where a tensor's bytes lie, ties, wrapper prefixes, training state, whose
names a file has. Uses core and rules. The formats are plugins in `formats/`.
"""
