"""The page of a run folder: one file that loads nothing, made straight from the results."""
