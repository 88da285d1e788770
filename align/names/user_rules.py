"""Rules that a user gives by hand: exact names, rename patterns with capture groups, and drops with a reason.

They come first and are never overruled. Exact names win over drops, drops over patterns; of several patterns the first
that matches the whole name is taken.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import translate
from typing import TYPE_CHECKING, Any

from align.core.thresholds import PATTERN_SECONDS
from align.core.transforms import IDENTITY, Transform
from align.core.user_patterns import MatchTimeoutError, first_match
from align.errors import MapError
from align.names.fold_names import WILD

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.name_map import Frameworks, SideName


@dataclass(frozen=True, slots=True)
class Rename:
    """A regular expression over the whole source name, and the target as a template of its groups.

    `back` is the same for the way back: an expression over the whole target name, and the source as a template.
    """

    pattern: re.Pattern[str]
    to: str
    transform: Transform = IDENTITY
    back: tuple[re.Pattern[str], str] | None = None


@dataclass(frozen=True, slots=True)
class NameRules:
    """All rules of one file. `dropped_source` and `dropped_target` map a name or glob to the reason.

    A rule is called by its table and its text: `[names] fc.weight`. `frameworks` says whose names both sides have.
    `further` holds the other targets of a name under [names] that is cut into several.
    `lines` tells on which line of its file a rule stands, where that is known.
    """

    label: str = "no rules"
    names: dict[str, tuple[str, Transform]] = field(default_factory=dict)
    renames: tuple[Rename, ...] = ()
    dropped_source: dict[str, str] = field(default_factory=dict)
    dropped_target: dict[str, str] = field(default_factory=dict)
    frameworks: Frameworks = (None, None)
    further: Mapping[str, tuple[tuple[str, Transform], ...]] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)
    _drops: dict[SideName, _Drops] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sides: dict[SideName, _Drops] = {"source": _Drops(self.dropped_source), "target": _Drops(self.dropped_target)}
        object.__setattr__(self, "_drops", sides)

    def target_of(self, source: str) -> tuple[str, Transform, str] | None:
        """Target, transform and the rule's name for a source name, None if no rule pairs it."""
        if source in self.names:
            target, transform = self.names[source]
            return target, transform, _named(source)
        found = self.matched([rename.pattern for rename in self.renames], source)
        if found is None:
            return None
        rename = self.renames[found[0]]
        return found[1].expand(rename.to), rename.transform, renaming(rename.pattern)

    def matched(self, patterns: Sequence[re.Pattern[str]], name: str) -> tuple[int, Any] | None:
        """Index and match of the first pattern that matches a name; raises MapError for one that takes for ever."""
        try:
            return first_match(patterns, name)
        except MatchTimeoutError as error:
            rule = renaming(patterns[error.index])
            line = f"line {self.lines[rule]}: " if rule in self.lines else ""
            fault = f"{line}{rule}: still at {name!r} after {PATTERN_SECONDS} seconds, which no sound pattern is"
            raise MapError(
                self.label, [fault], "take out repeats that can match nothing, or stand in a repeat"
            ) from None

    def targets_of(self, source: str) -> tuple[tuple[str, Transform, str], ...]:
        """All that `target_of` says of a source name: several entries for one that is cut, none if no rule pairs it."""
        first = self.target_of(source)
        further = self.further.get(source, ()) if source in self.names else ()
        return () if first is None else (first, *((target, transform, first[2]) for target, transform in further))

    @property
    def all_names(self) -> tuple[tuple[str, str, Transform], ...]:
        """Source, target and transform of all exact names."""
        return tuple((name, to, change) for name in self.names for to, change, _ in self.targets_of(name))

    def drop_of(self, side: SideName, name: str) -> tuple[str, str] | None:
        """Reason and name of the first drop that covers a name, exact names before globs; None if none does."""
        drops = self._drops[side]
        glob = drops.covering(name)
        return None if glob is None else (drops.reasons[glob], _dropping(side, glob))

    def drops_exactly(self, side: SideName, name: str) -> bool:
        """Tell whether a drop names this very name."""
        return name in self._drops[side].reasons or name in self._drops[side].literals

    def named(self, source: str) -> str:
        """A source name with the line of the rule that pairs it, for messages."""
        found = self.target_of(source)
        line = self.lines.get(found[2]) if found else None
        return f"{source} (line {line})" if line else source

    @property
    def all_rules(self) -> tuple[str, ...]:
        """The name of every rule, table by table."""
        return tuple(self._called())

    def _called(self) -> Iterator[str]:
        yield from map(_named, self.names)
        yield from (renaming(rename.pattern) for rename in self.renames)
        for side, drops in self._drops.items():
            yield from (_dropping(side, glob) for glob in drops.reasons)


class _Drops:
    """The drops of one side; only those that are patterns are tried one after the other."""

    def __init__(self, reasons: dict[str, str]) -> None:
        self.reasons = reasons
        self.literals = {name: glob for glob in reasons if (name := literal_name(glob)) is not None}
        self.patterns = [(re.compile(translate(glob)), glob) for glob in reasons if literal_name(glob) is None]

    def covering(self, name: str) -> str | None:
        """The first drop that covers a name, exact names before globs."""
        if name in self.reasons:
            return name
        if name in self.literals:
            return self.literals[name]
        return next((glob for pattern, glob in self.patterns if pattern.match(name)), None)


_QUOTED = re.compile(r"\[([*?\[])\]")


def literal_name(glob: str) -> str | None:
    """The one name that a glob covers; None for a pattern."""
    return None if WILD.search(_QUOTED.sub("", glob)) else _QUOTED.sub(r"\1", glob)


def _named(source: str) -> str:
    return f"[names] {source}"


def renaming(pattern: re.Pattern[str]) -> str:
    """What a rename is called, by its pattern or that of its way back."""
    return f"[[rename]] {pattern.pattern}"


def _dropping(side: SideName, glob: str) -> str:
    return f"[dropped.{side}] {glob}"
