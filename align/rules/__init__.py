"""Rules as data: the files of `mappings/`, which say how layers, settings and names of two frameworks correspond.

Offers layer rules (gamma is weight), model families, pitfalls of settings, optimizer state, linear layouts, constants
that a layer computes. Uses core, words.
"""
