"""What a function of the user's own puts into lists and variables, read off its source."""
