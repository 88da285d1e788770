"""Results as text, plots, a notebook and a page: tables of all of them are made here.

Offers `write_report`, `map_frame` and other frames, showing a result or a log, saving a plot. It reads the documents of
run folders. Uses core, loops, names, rules, runs, words.
"""
