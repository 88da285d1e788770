"""The command line: one thin file for each command, which parses, calls a capability, and has the result shown.

Offers the program `align`. Uses checkpoints, convert, core, curves, evaluation, forward, lint, models, names, report,
rules, runs, traces, inside functions only, so that help is quick.
"""
