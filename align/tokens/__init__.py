"""Log-probabilities that two engines or trainers give to the same tokens, and text that is garbled.

Offers `compare_tokens` and its result. A side is a file of an engine, of a trainer or of a generation, or a live model.
Uses checkpoints, core, evaluation, models, words.
"""
