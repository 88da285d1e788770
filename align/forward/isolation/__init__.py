"""Each layer of the port given the reference's inputs: which calls are at fault by themselves."""
