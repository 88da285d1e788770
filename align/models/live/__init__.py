"""What is shared about live models: where calls come from, what is overwritten, the code of layers."""
