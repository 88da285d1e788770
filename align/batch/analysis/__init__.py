"""What the outcomes of all tasks say together, over ranks and steps."""
