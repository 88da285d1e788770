"""Results turned into text, JSON, notebook, HTML and plots."""
