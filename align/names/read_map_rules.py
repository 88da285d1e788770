"""The rules of a map: the file that the user gives for it, and what they wrote into the file that is made again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from align.errors import MapError
from align.names.kept_trial import KeptTrial, kept_trial
from align.names.map_export import is_editable
from align.names.map_file import KeptLines, kept_lines, read_users_rules
from align.names.user_rules import NameRules
from align.words.catalogue import say

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class MapRules:
    """All rules together, the user's lines of the file that is to be written, and what both files keep of trials."""

    rules: NameRules = field(default_factory=NameRules)
    kept: KeptLines | None = None
    tried: tuple[KeptTrial, ...] = ()


def read_map_rules(rules: Path | None, out: Path | None = None) -> MapRules:
    """Read both files, `out` only if it is an editable map that is there; those of `rules` come first.

    Only what the user said is a rule; what align found is found again.

    Raises MissingFileError, or MapError with all faults, among them names for which the two say different things.
    """
    if rules is not None and out is not None and out.exists() and rules.exists() and rules.samefile(out):
        rules = None
    tried = _tried(out, rules)
    given = read_users_rules(rules) if rules is not None else NameRules()
    if out is None or not is_editable(out):
        return MapRules(given, tried=tried)
    kept = kept_lines(out)
    if rules is None:
        return MapRules(kept.rules, kept, tried)
    unlike = {name: to for name, (to, _) in given.names.items() if kept.rules.names.get(name, (to,))[0] != to}
    if unlike:
        faults = [
            say(
                "rule_fault.says_otherwise",
                name=given.named(name),
                target=to,
                file=out,
                own=kept.rules.named(name),
                other=kept.rules.names[name][0],
            )
            for name, to in unlike.items()
        ]
        raise MapError(given.label, faults, say("names_reason.one_of_two_files", file=out))
    return MapRules(_both(given, kept.rules), kept, tried)


def _tried(*files: Path | None) -> tuple[KeptTrial, ...]:
    there = [file for file in files if file is not None and is_editable(file) and file.exists()]
    return tuple(found for file in there if (found := kept_trial(file)))


def _both(first: NameRules, second: NameRules) -> NameRules:
    return replace(
        first,
        label=first.label if not second.all_rules else f"{first.label} and {second.label}",
        names=second.names | first.names,
        further=dict(second.further) | dict(first.further),
        renames=(*first.renames, *(one for one in second.renames if one not in first.renames)),
        dropped_source=first.dropped_source | second.dropped_source,
        dropped_target=first.dropped_target | second.dropped_target,
        lines={} if second.all_rules else first.lines,
    )


def require_used(unused: tuple[str, ...], rules: NameRules) -> None:
    """Raise MapError listing the rules that matched nothing, with their lines."""
    if unused:
        faults = [say("rule_fault.unused", rule=rule, line=rules.lines.get(rule)) for rule in unused]
        raise MapError(rules.label, faults, say("names_reason.mend_rules"))
