"""Loss curves: logs read, put on one axis, judged.

Offers `compare_losses`, presets and patterns of the project file, the values of logs and curves. The log formats are
plugins in `losslogs/`. Uses core only.
"""
