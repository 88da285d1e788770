"""Points on the true global step, windows and skipped steps made alike."""
