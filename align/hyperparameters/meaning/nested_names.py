"""Names that no table knows and that stand at other depths.

`dataset_conf.filter_conf.max_length` is `dataset_conf.max_length` if no other name ends so, both stand under one part,
and both have as many numbers or words. `pitch.feature` is `audio.pitch.feature`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from align.hyperparameters.meaning.setting_values import as_number, listed_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.hyperparameters.settings_format import Setting

# Last parts that stand under many things and say nothing alone.
COMMON = frozenset(
    ("type", "name", "size", "value", "p", "prob", "scale", "dim", "num", "path", "factor", "enable", "enabled", "mode")
)


def with_nested_names(
    reference: Mapping[str, Setting], candidate: Mapping[str, Setting]
) -> tuple[dict[str, Setting], dict[str, Setting]]:
    """Both sides' settings, of which those of the candidate that have another depth are called as the reference's."""
    renamed = {**_by_last_part(reference, candidate), **_by_tail(reference, candidate)}
    return dict(reference), {renamed.get(name, name): setting for name, setting in candidate.items()}


def _by_tail(reference: Mapping[str, Setting], candidate: Mapping[str, Setting]) -> dict[str, str]:
    """Names of two parts or more that another name ends with: `pitch.feature` is `audio.pitch.feature`."""
    mine = [name for name in reference if "." in name and name not in candidate]
    theirs = [name for name in candidate if "." in name and name not in reference]
    longer = [(one, tail) for one in mine for tail in _tails(one) if tail in candidate and tail not in reference]
    longer += [
        (tail, other) for other in theirs for tail in _tails(other) if tail in reference and tail not in candidate
    ]
    counted = Counter(name for pair in longer for name in pair)
    return {other: one for one, other in longer if counted[one] == counted[other] == 1}


def _tails(name: str) -> Iterator[str]:
    """What a name ends with, of two parts or more, without its beginning."""
    parts = name.split(".")
    yield from (".".join(parts[begin:]) for begin in range(1, len(parts) - 1))


def _by_last_part(reference: Mapping[str, Setting], candidate: Mapping[str, Setting]) -> dict[str, str]:
    """Names whose last part is theirs alone, under a common part, with values of one form."""
    ends = _single_ends(reference, candidate), _single_ends(candidate, reference)
    return {
        ends[1][end]: name
        for end, name in ends[0].items()
        if end in ends[1]
        and set(name.split(".")[:-1]) & set(ends[1][end].split(".")[:-1])
        and _form(reference[name]) == _form(candidate[ends[1][end]])
    }


def _single_ends(names: Mapping[str, Setting], others: Mapping[str, Setting]) -> dict[str, str]:
    """The nested names by their last part, where that is theirs alone and the other side lacks the whole name."""
    counted = Counter(name.rpartition(".")[2] for name in names)
    nested = {name.rpartition(".")[2]: name for name in names if "." in name and name not in others}
    return {end: name for end, name in nested.items() if counted[end] == 1 and end not in COMMON and not end.isdigit()}


def _form(setting: Setting) -> tuple[bool, int]:
    """Whether a value is of numbers, and of how many."""
    listed = listed_values(setting.value)
    return all(as_number(one) is not None for one in listed), len(listed)
