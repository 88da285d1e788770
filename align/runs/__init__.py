"""What commands share on disk: the run folder and the project file.

Offers both. The ladder over all commands will stand here. Uses the readers of the project file's tables: core, curves,
forward.
"""
