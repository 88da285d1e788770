"""Readers of logs and profiles, one form of files each; `align/advice/evidence.py` says what a reader offers."""
