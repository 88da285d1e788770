"""What kinds share, and the longer parts of one."""
