"""Names that no table knows and that stand at other depths.

`dataset_conf.filter_conf.max_length` is `dataset_conf.max_length` if no other name ends so, both stand under one part,
and both have as many numbers or words. `pitch.feature` is `audio.pitch.feature`. Without a common part they are
`far`: equal ones are equal, and whether unlike ones mean the same is not known. Only ends of two words or more count
then, which say something by themselves: `mask_ratio`, and not `ratio`.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from align.hyperparameters.meaning.setting_values import as_number, listed_values, same_value
from align.hyperparameters.thresholds import LEAST_LETTERS_OF_A_NAME
from align.rules.hyperparameter_rules import hyperparameter_rules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.hyperparameters.settings_format import Setting

# Last parts that stand under many things and say nothing alone.
COMMON = frozenset(
    ("type", "name", "size", "value", "p", "prob", "scale", "dim", "num", "path", "factor", "enable", "enabled", "mode")
)


_COUNT = re.compile(r"^(num|n|nb)_(?=[a-z]{4})")


def with_nested_names(
    reference: Mapping[str, Setting], candidate: Mapping[str, Setting]
) -> tuple[dict[str, Setting], dict[str, Setting], set[str]]:
    """Both sides' settings, of which those of the candidate that have another depth are called as the reference's.

    Also the names of those that only their end pairs.
    """
    near = {**_by_last_part(reference, candidate), **_by_tail(reference, candidate)}
    taken = {*near.values()}
    far = {
        other: one
        for other, one in _by_last_part(reference, candidate, far=True).items()
        if other not in near and one not in taken
    }
    renamed = {**far, **near}
    called = {renamed.get(name, name): setting for name, setting in candidate.items()}
    return dict(reference), called, {*far.values()}


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


def _by_last_part(
    reference: Mapping[str, Setting], candidate: Mapping[str, Setting], *, far: bool = False
) -> dict[str, str]:
    """Names whose last part is theirs alone, with values of one form: under a common part, or `far` from each other."""
    ends = _single_ends(reference, candidate), _single_ends(candidate, reference)
    found = {}
    for end, name in ends[0].items():
        other = ends[1].get(end, "")
        common = ({*name.split(".")[:-1]} & {*other.split(".")[:-1]}) - hyperparameter_rules().neutral
        if (
            other
            and (_says_enough(end, name, other) if far else common)
            and _form(reference[name]) == _form(candidate[other])
        ):
            found[other] = name
    return found


def _plain_end(name: str) -> str:
    """The last part of a name without what says that it is a number: `num_factors` is `factors`."""
    return _COUNT.sub("", name.rpartition(".")[2])


def _says_enough(end: str, name: str, other: str) -> bool:
    """Tell an end that pairs names without a common part: two words, or a whole name of one side."""
    whole = any("." not in one for one in (name, other))
    return "_" in end or (whole and len(end) >= LEAST_LETTERS_OF_A_NAME)


def _single_ends(names: Mapping[str, Setting], others: Mapping[str, Setting]) -> dict[str, str]:
    """The names by their last part, where all that end so have one value, and the other side lacks the whole name."""
    ends: dict[str, list[str]] = {}
    for name in names:
        ends.setdefault(_plain_end(name), []).append(name)
    return {
        end: several[0]
        for end, several in ends.items()
        if end not in COMMON
        and not end.isdigit()
        and not any(name in others for name in several)
        and all(same_value(names[name].value, names[several[0]].value) for name in several)
    }


def _form(setting: Setting) -> tuple[bool, int]:
    """Whether a value is of numbers, and of how many; of texts there may be more or fewer."""
    listed = listed_values(setting.value)
    numbers = all(as_number(one) is not None for one in listed)
    return numbers, len(listed) if numbers else 0
