"""Whether a map is whole and in place, and the verdict."""
