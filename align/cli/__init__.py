"""The command line: one thin file for each command, which parses, calls a capability, and has the result shown.

Offers the program `align`. What a command needs is imported when it runs, so that help is quick. Uses advice,
batch, checkpoints, convert, core, curves, data, evaluation, fixes, forward, hyperparameters, lint, loops, memory,
models, names, report, rules, runs, scan, tokens, traces, training, words.
"""
