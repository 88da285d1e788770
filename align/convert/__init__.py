"""Checkpoints converted by a name map, verified, and compared tensor by tensor.

Offers `convert_checkpoint`, `diff_checkpoints`, `diff_updates` and their results. Uses checkpoints, core, measure,
models, names, rules, words.
"""
