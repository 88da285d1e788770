"""Criteria, troubles and speed together: the verdict on two curves."""
