"""What commands share on disk, the run folder and the project file; and the ladder over all commands.

Offers both, the hold of a command on its run folder, the climb of the ladder, and the writing of a project file. Its
sub-room `rungs/` holds one rung a module. Uses the lock of trace folders, the facts of the machine, and the readers of
the project file's tables and of checkpoints: checkpoints, core, curves, forward, lint, remote, traces, words.
"""
