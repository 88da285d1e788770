"""What commands share on disk, the run folder and the project file; and the ladder over all commands.

Offers both, what a command compares as both say, the hold of a command on its run folder, the climb of the ladder,
the writing of a project file, and the check of a user's own rules and plugins. Its sub-room `rungs/` holds the rungs,
which call the capabilities. Uses advice, checkpoints, convert, core, curves, evaluation, forward, lint, models, names,
rules, traces, training, words.
"""
