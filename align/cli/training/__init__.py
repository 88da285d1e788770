"""The commands that compare training: its start, one step, the loss."""
