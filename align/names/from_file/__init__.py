"""What the names of one file alone tell: its layers, their target names, and what stays open."""
