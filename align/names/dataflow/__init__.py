"""Which parameter stands where in the flow of the data: what both models' operators take, matched by value."""
