"""The words of reports and tables, by key.

One catalogue a language, all with the same keys: code names a key and gives the facts, so that another language
is another file.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def say(key: str, **facts: object) -> str:
    """Return the text of a key such as `forward.title` with the facts filled in; raises KeyError for an unknown key."""
    section, _, name = key.partition(".")
    template: str = catalogue()[section][name]
    return template.format(**facts) if facts else template


def word(section: str, name: str) -> str:
    """Return the text of a word that comes from data (an outcome, a source of limits); the word itself if unknown."""
    return str(catalogue().get(section, {}).get(name.replace(" ", "_"), name))


@cache
def catalogue(language: str = "en") -> dict[str, dict[str, Any]]:
    """All texts of one language by section and name."""
    path = Path(__file__).with_name(f"texts_{language}.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))
