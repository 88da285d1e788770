"""The mapper: which parameter of one side is which of the other, with how sure that is.

Offers `map_parameters`, `map_one_side`, `check_name_map`, the map file and its rename rules, ready families, order of
execution, results. Uses checkpoints, core, measure, models, rules,
words.
"""
