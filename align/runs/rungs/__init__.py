"""The rungs of the ladder, one module each with one `PLUGIN`."""
