"""The faults of a map file, each with the line of the rule that it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.names.map_file_parts.map_lines import is_ours, rule_lines, sections, table_of

if TYPE_CHECKING:
    from collections.abc import Mapping


class Faults(list[str]):
    """All faults found so far; rules are called as `map_lines.rule_lines` calls them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._lines = text.split("\n")
        self._written = rule_lines(text)
        for lines in self._written.values():
            self._overrule(lines)
        self._stands: dict[str, str] = {}

    @property
    def text(self) -> str:
        """The text without the lines of align's that one of the user's overrules, which TOML would refuse."""
        return "\n".join(self._lines)

    def at(self, rule: str, fault: str) -> None:
        """Add a fault of a rule."""
        place = self.place(rule)
        self.append(f"{place}: {rule}: {fault}" if place else f"{rule}: {fault}")

    def place(self, rule: str) -> str:
        """Where a rule stands, `line 3`, or `lines 3 and 7`; "" where that was not found."""
        lines = self._written.get(rule) or self._written.get(self._stands.get(rule, ""), [])
        return f"line{'s' * (len(lines) > 1)} {' and '.join(map(str, lines))}" if lines else ""

    def stands(self, rule: str, written: str) -> None:
        """Say that a rule is written as (or in the range of) another."""
        if rule != written:
            self._stands[rule] = written

    def is_ours(self, rule: str) -> bool:
        """Tell whether align wrote the line of a rule, and nobody changed it since."""
        return any(is_ours(self._lines[line - 1]) for line in self._written.get(rule, ()))

    @property
    def lines(self) -> Mapping[str, int]:
        """The first line of each rule."""
        known = {rule: lines[0] for rule, lines in self._written.items()}
        return known | {rule: known[written] for rule, written in self._stands.items() if written in known}

    def _overrule(self, lines: list[int]) -> None:
        ours = [line for line in lines if is_ours(self._lines[line - 1])] if len(lines) > 1 else []
        if len(ours) < len(lines):
            for line in ours:
                self._lines[line - 1] = ""
                lines.remove(line)

    def mended(self) -> str:
        """The text without the second of what TOML refuses if it stands twice; each is a fault. Tables are joined."""
        is_table_twice = False
        for rule, lines in self._written.items():
            if len(lines) > 1:
                is_table = rule == f"[{table_of(rule)}]"
                is_table_twice |= is_table
                self.append(f"{self.place(rule)}: {rule} {'stands more than once' if is_table else 'has two rules'}")
                for line in lines[1:] if not is_table else ():
                    self._lines[line - 1] = ""
        return _joined_tables(self.text) if is_table_twice else self.text


def _joined_tables(text: str) -> str:
    tables: dict[str, list[str]] = {}
    for number, (_, header, lines) in enumerate(sections(text)):
        name = f"{number}" if header.lstrip().startswith("[[") else table_of(header)
        tables.setdefault(name, [header]).extend(lines)
    return "\n".join(line for lines in tables.values() for line in lines)
