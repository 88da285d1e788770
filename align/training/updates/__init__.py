"""What an optimizer did under given gradients: its rule, recomputed, and what would explain another.

Pure NumPy: arrays in, causes out. Uses core and rules.
"""
