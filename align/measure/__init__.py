"""Figures of two arrays, and what they may be.

Offers one pass that measures all figures, the limits by dtype and noise, statistics and samples of tensors, relations
of weights, layouts in which two tensors would agree. Kernels and sums for tensors that are read block by block, too;
the compiled kernel is its own. Uses core, words.
"""
