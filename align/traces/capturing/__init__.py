"""Calls written as they happen."""
