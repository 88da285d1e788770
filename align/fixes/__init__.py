"""Confirmed changes of a port as a patch of its source, applied to the project or to a copy of a package, and undone.

Offers `fix_port` and `undo_fix` with their result, and `plan_edits`. Uses core, forward, lint, models, runs,
words.
"""
