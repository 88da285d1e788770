"""All texts that people read, by key: one folder of catalogues a language, all with the same keys.

Offers the text of a key with its facts filled in, sentences that keep both, so that they can be made anew in another
language, and the words that messages share. Uses no other room.
"""
