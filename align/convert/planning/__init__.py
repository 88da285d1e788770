"""Which names, which direction, which transforms: the plan of a conversion, and what is to be warned of."""
