"""Parts of the adapter for torch."""
