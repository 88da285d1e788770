"""What a comparison could have shown, and the states in which it shows more."""
