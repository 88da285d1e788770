"""Dumps compared: figures without tensors, parameters and their gradients, layers at fault, the verdict."""
