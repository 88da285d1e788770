"""Columns of logs as they are printed: lines of one layout, texts at the same places, and the numbers in them."""
