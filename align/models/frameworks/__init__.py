"""Adapters of the frameworks, one PLUGIN a module; they import their framework inside functions only."""
