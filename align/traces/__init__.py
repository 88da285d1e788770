"""What a run leaves: captured, kept in a folder, and paired call by call with another run.

Offers capturing, showing and opening traces, rounding noise, calls paired by the name map, weights carried over by it,
and the lock of a folder that a run works in.
Readers of other tools' dumps are plugins in `foreign/`. Uses checkpoints, core, measure, models, names, rules,
words.
"""
