"""Two checkpoints tensor by tensor."""
