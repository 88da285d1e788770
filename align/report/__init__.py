"""Results as text, plots, a notebook and a page: besides `cli/`, the only room that makes sentences.

Offers `write_report`, `map_frame`, showing a result or a log, saving a plot. It reads the documents of run folders.
Uses core, names, rules, runs.
"""
