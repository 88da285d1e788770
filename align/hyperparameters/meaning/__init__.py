"""What a setting means: the parameter of its name, its value in one unit, defaults, derived values, and their order."""
