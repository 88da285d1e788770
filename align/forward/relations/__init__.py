"""Relations between two tensors that name a cause: permuted, scaled, another activation, other weights."""
