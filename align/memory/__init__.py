"""What a training takes of memory: by layer and phase of a step, and whether it grows from step to step.

Offers `measure_memory`, a step of one side or of both, and `follow_logged_memory`, the growth in a loss log or in a
record of a watched training. The adapters of frameworks trace the step. Uses core, curves, lint, loops, models,
traces, training, words.
"""
