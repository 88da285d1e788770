"""What trials run and see: both sides with distinct values, and what is kept of the tensors of a run."""
