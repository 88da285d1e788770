"""What the log formats share: records of lines, tables, event files, numbers as printed."""
