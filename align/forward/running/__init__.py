"""Both models run, and the reference's own rounding noise."""
