"""Training steps of both sides: recorded, each layer's way back alone, what is at fault."""
