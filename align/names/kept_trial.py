"""What a map file keeps of a trial: the pairs that it found, and a comment that says what it was made of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.names.map_file import map_file_text, rules_of_text
from align.names.map_file_parts.map_lines import OURS, trial_text

if TYPE_CHECKING:
    from pathlib import Path

    from align.core.transforms import Transform


_LINE = re.compile(
    rf"{OURS} TRIED (?P<made_of>[0-9a-f]+) (?P<whole>whole|part) (?P<found>\d+)(?P<rules>(?: [0-9a-f]+)*)(?:: .*)?"
)


@dataclass(frozen=True, slots=True)
class KeptTrial:
    """What a map file keeps of a trial: what it was made of, a sum of each rule that it had, and what it found.

    `whole` says that nothing was left open, unsure or unseen, and that no line is missing. `names` are the sources with
    their targets; those in `flow` were found by the flow of the data.
    """

    made_of: str
    rules: tuple[str, ...]
    whole: bool
    names: tuple[tuple[str, str, Transform], ...] = ()
    file: str = ""
    flow: frozenset[tuple[str, str]] = frozenset()


def kept_trial(path: Path) -> KeptTrial | None:
    """What a map file keeps of a trial; None if it keeps nothing. Raises MapError with all faults."""
    text = map_file_text(path)
    found = next(filter(None, map(_LINE.fullmatch, text.split("\n"))), None)
    if found is None:
        return None
    rules = tuple(found["rules"].split())
    names = rules_of_text(trial_text(text, "trial", "dataflow"), path).all_names
    flow = frozenset(one[:2] for one in rules_of_text(trial_text(text, "dataflow"), path).all_names)
    whole = found["whole"] == "whole" and len(names) == int(found["found"])
    return KeptTrial(found["made_of"], rules, whole, names, path.name, flow)
