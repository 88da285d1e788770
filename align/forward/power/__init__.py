"""Whether the inputs could have shown a fault at all."""
