"""Criteria by name, and the noise that they are held against."""
