"""Files of object storage, as local files while they are needed.

Offers local copies and destinations of a URL, and texts that name the URL in their place. Uses core, errors, words.
"""
