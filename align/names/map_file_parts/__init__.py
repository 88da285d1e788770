"""The map file line by line: rules, ranges, faults."""
