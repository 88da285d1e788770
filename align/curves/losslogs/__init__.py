"""Loss-log formats, one PLUGIN a file."""
