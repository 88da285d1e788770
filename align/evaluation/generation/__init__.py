"""Decoders and logits."""
