"""Initial values of both sides: drawn, held against each other, and named."""
