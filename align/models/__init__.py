"""Models of users: opened, filled, run, watched, rebuilt, by adapters of their frameworks.

Offers sides (`module:function`), inputs, recorded calls, the user's code behind one boundary, states put back, source
lines, rebuilt layers, `align.probe`. The adapters are plugins in `frameworks/`. Uses checkpoints, core, measure,
rules, words.
"""
