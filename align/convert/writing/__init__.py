"""The plan carried out: shards, whole files or none, read back, with a record."""
