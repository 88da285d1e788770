"""The command line: one thin file for each command, which parses, calls a capability, and has the result shown.

Offers the program `align`. What a command needs is imported when it runs, so that help is quick. Uses batch,
checkpoints, convert, core, curves, evaluation, fixes, forward, hyperparameters, lint, models, names, remote, report,
rules, runs, scan, traces, training, watch, words.
"""
