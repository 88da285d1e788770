"""Paired outputs against their limits: each layer's outcome, the first divergent one, accepted deviations."""
