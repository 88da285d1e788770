"""Rules that a user gives by hand: exact names, rename patterns with capture groups, and drops with a reason.

They come first and are never overruled. Exact names win over patterns; of several patterns the first that matches the
whole name is taken.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from align.core.transforms import IDENTITY, Transform

if TYPE_CHECKING:
    import re


@dataclass(frozen=True, slots=True)
class Rename:
    """A regular expression over the whole source name, and the target as a template of its groups."""

    pattern: re.Pattern[str]
    to: str
    transform: Transform = IDENTITY


@dataclass(frozen=True, slots=True)
class NameRules:
    """All rules of one file. `dropped_source` and `dropped_target` map a name or glob to the reason."""

    label: str = "no rules"
    names: dict[str, tuple[str, Transform]] = field(default_factory=dict)
    renames: tuple[Rename, ...] = ()
    dropped_source: dict[str, str] = field(default_factory=dict)
    dropped_target: dict[str, str] = field(default_factory=dict)

    def target_of(self, source: str) -> tuple[str, Transform, str] | None:
        """Target, transform and the rule's text for a source name, None if no rule speaks of it."""
        if source in self.names:
            target, transform = self.names[source]
            return target, transform, source
        for rename in self.renames:
            if match := rename.pattern.fullmatch(source):
                return match.expand(rename.to), rename.transform, rename.pattern.pattern
        return None

    @staticmethod
    def drop_reason(drops: dict[str, str], name: str) -> tuple[str, str] | None:
        """Reason and rule of the first drop that covers a name, exact names before globs."""
        if name in drops:
            return drops[name], name
        return next(((reason, glob) for glob, reason in drops.items() if fnmatchcase(name, glob)), None)

    @property
    def all_rules(self) -> tuple[str, ...]:
        """The text of every rule, in file order."""
        patterns = [rename.pattern.pattern for rename in self.renames]
        return (*self.names, *patterns, *self.dropped_source, *self.dropped_target)
