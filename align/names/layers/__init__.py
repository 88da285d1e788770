"""Layers as the matcher sees them: roles, blocks, numbered lists, neighbours, and the evidence of their words."""
