"""Halving: stretches of layers, and sets of layers in another precision."""
