"""What values settle: equal tensors of two files, or a trial with distinct values."""
