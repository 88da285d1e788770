"""What readers of settings share: sources, nested values, literals, words of a shell."""
