"""What the adapters share, and their longer parts, a folder a framework."""
