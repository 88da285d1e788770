"""Checkpoint formats, one PLUGIN a file: read lazily, written streaming."""
