"""One file for each thing a user does: read, call the steps, return a result."""
