"""Parts of the adapter for MindSpore."""
