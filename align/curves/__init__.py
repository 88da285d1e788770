"""Loss curves: logs read, put on one axis, judged.

Offers `compare_losses`, presets and patterns of the project file, the values of logs and curves. What a log format has
to do stands at the top too, for the plugins in `losslogs/`. Uses core and words.
"""
