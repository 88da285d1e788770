"""Names and shapes weighed against each other, stage by stage, until what is left is open."""
