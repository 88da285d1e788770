"""The notebook and the page of a run folder."""
