"""What a job file says, and which files its patterns find; and what a run folder keeps of a job."""
