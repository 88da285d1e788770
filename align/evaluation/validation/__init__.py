"""Batches, metrics, samples that differ, and parts exchanged until the cause is alone."""
