"""Dropout of both sides of a training step: their calls paired, masks replayed, what drops otherwise."""
