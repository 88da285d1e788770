"""Readers of other tools' dump folders, one PLUGIN a file."""
