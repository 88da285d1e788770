"""Two data pipelines compared: the order of the samples, what is missing, and why their values differ.

Offers `compare_data`, its result, and `limit`. Uses core, models, rules, words.
"""
