"""Classes of trouble, with the evidence for each."""
