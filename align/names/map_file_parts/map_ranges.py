"""The rules of a map file with every range `{0..11}` written out, and the two rules for one name that this may show.

Where a line of the user's and one that align wrote speak of one name, the user's counts: to change one layer of a run,
one writes a line for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.names.number_ranges import RANGE, expand_ranges

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.names.map_file_parts.map_faults import Faults


def expand_table(name: str, table: Mapping[str, Any], faults: Faults) -> dict[str, Any]:
    """Return the table `[name]` with one key for each name that its keys stand for."""
    found: dict[str, tuple[Any, str]] = {}
    for key, value in table.items():
        rule = f"[{name}] {key}"
        for one, expanded in _expanded(rule, key, value, faults):
            before = found.get(one, (None, ""))[1]
            if before and faults.is_ours(before) == faults.is_ours(rule):
                faults.at(rule, f"{one} has a rule already, {faults.place(before)}")
            elif not before or faults.is_ours(before):
                found[one] = expanded, rule
                faults.stands(f"[{name}] {one}", rule)
    return {one: value for one, (value, _) in found.items()}


def _expanded(rule: str, key: str, value: Any, faults: Faults) -> Iterator[tuple[str, Any]]:
    targets = [] if rule.startswith("[dropped") else [one for one in _targets(value) if isinstance(one, str)]
    if not any(RANGE.search(text) for text in (key, *targets)):
        yield key, value
        return
    try:
        for source, *names in expand_ranges([key, *targets]):
            yield source, _with_targets(value, iter(names)) if targets else value
    except ValueError as error:
        faults.at(rule, str(error))


def _targets(value: Any) -> list[Any]:
    """The target names in a value: a name, a table with `to`, or a list of these."""
    if isinstance(value, list):
        return [target for one in value for target in _targets(one)]
    return [value.get("to")] if isinstance(value, dict) else [value]


def _with_targets(value: Any, names: Iterator[str]) -> Any:
    if isinstance(value, list):
        return [_with_targets(one, names) for one in value]
    if isinstance(value, dict):
        return {**value, "to": next(names)} if isinstance(value.get("to"), str) else value
    return next(names) if isinstance(value, str) else value
