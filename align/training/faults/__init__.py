"""What of the steps of a port is wrong by itself, and why: the loss, layers and code, the loop, the optimizer."""
