"""Training steps of both sides: recorded, measured, and each layer's way back alone."""
