"""Every call of a torch model against a table of what MindSpore has for it, before a line of the port is written.

Offers `scan_model` and `write_skeleton`. Uses core, models, rules, words.
"""
