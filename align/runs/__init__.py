"""What commands share on disk: the run folder and the project file.

Offers both, and the hold of a command on its run folder. The ladder over all commands will stand here. Uses the lock of
trace folders, and the readers of the project file's tables: core, curves, forward, traces.
"""
