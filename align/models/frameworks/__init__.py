"""Adapters of the frameworks, one PLUGIN a file."""
