"""What a worker does for one task: the comparison, conversion or check, as figures that are plain and small."""
