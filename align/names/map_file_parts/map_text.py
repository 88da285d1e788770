"""A name map as the text of an editable file: runs of pairs on one line each, and the user's lines as they are.

The user's lines of a table stand before align's, in their order; what they settle is not written again. They are never
overruled, so a file can be corrected by hand and made again in place.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from align.core.documents import parse_toml
from align.core.transforms import Identity
from align.names.fold_names import as_literal, expand_ranges, fold_ranges, quote_ranges
from align.names.map_file_parts.map_lines import OURS, Section, marked, sections, table_of, users_text
from align.names.user_rules import NameRules
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from align.core.name_map import NameMap, Pairing, SideName, Unmatched
    from align.core.transforms import Transform

SCHEMA = "mindalign.names/1"
SIDES: tuple[SideName, SideName] = ("source", "target")
_OWN_KEYS = ("schema", *SIDES)
_OWN_TABLES = ("names", *(f"dropped.{side}" for side in SIDES))
# A line that gives a name and a target, and nothing else.
_TEXT = r"""\"(?:[^\"\\]|\\.)*\"|'[^']*'"""
_PAIR = re.compile(rf"(?P<head>\s*(?:{_TEXT}|[\w-]+)\s*=\s*)(?:{_TEXT})(?P<tail>\s*(?:#.*)?)")


def map_text(
    name_map: NameMap,
    kept: str = "",
    rules: NameRules | None = None,
    *,
    expand: bool = False,
    tried: str = "",
    choices: Sequence[list[str]] = (),
) -> str:
    """Return the text of the file; `kept` is a file as it was, and `rules` what its user's lines say.

    `tried` is the line that says what a trial was made of, `choices` are the blocks of lines that say what
    would settle each ambiguous group.
    """
    rules = rules or NameRules()
    written = sections(users_text(kept))
    users = {table_of(section.header): section for section in written}
    frameworks = [f'{side} = "{name}"' for side, name in zip(SIDES, name_map.frameworks, strict=True) if name]
    top = [line for line in users[""].lines if line.partition("=")[0].strip() not in _OWN_KEYS]
    blocks = [
        [
            *say("map_file.head", mark=OURS).splitlines(),
            *([tried] if tried else []),
            f'schema = "{SCHEMA}"',
            *frameworks,
        ],
        _stripped(top),
        _table("names", users, _pair_lines(name_map, rules, expand), name_map) or ["[names]"],
        *([*one.above, one.header, *_stripped(one.lines)] for one in written if _is_foreign(one)),
        *(_table(f"dropped.{side}", users, _drop_lines(name_map, side, rules, expand), name_map) for side in SIDES),
        *([*map(_printable, block)] for block in _open_blocks(name_map, choices)),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _is_foreign(section: Section) -> bool:
    return table_of(section.header) not in ("", *_OWN_TABLES)


def _table(name: str, users: Mapping[str, Section], lines: Iterator[str], name_map: NameMap) -> list[str]:
    """A table that holds lines of both, nothing if there are none."""
    section = users.get(name, Section([], f"[{name}]", []))
    own = _stripped(section.lines)
    both = [*(_completed(own, name_map) if name == "names" else own), *lines]
    return [*section.above, section.header, *both] if both else []


def _stripped(lines: Sequence[str]) -> list[str]:
    """The lines without empty ones at both ends, and without those in between that align's lines left."""
    kept = "\n".join(lines).strip("\n")
    while "\n\n\n" in kept:
        kept = kept.replace("\n\n\n", "\n\n")
    return kept.split("\n") if kept.strip() else []


def _completed(lines: Sequence[str], name_map: NameMap) -> Iterator[str]:
    """Yield the user's lines, with the target's own name and the transform where they state neither.

    A checkpoint is converted without the models that tell them.
    """
    for line in lines:
        found = _PAIR.fullmatch(line)
        changed = _changed_value(*parse_toml(line).popitem(), name_map) if found else ""
        yield f"{found['head']}{changed}{found['tail']}" if found and changed else line


def _changed_value(key: str, stated: str, name_map: NameMap) -> str:
    """What a line should say instead of the `stated` target, "" if that is all."""
    run = [name_map.by_source[name] for (name,) in expand_ranges([key]) if name in name_map.by_source]
    runs = fold_ranges([((p.source, p.target), _change(p)) for p in run])
    if len(runs) != 1 or runs[0][0][0] != key or any(p.evidence != "user" for p in run):
        return ""
    target = runs[0][0][1]
    return _value(target, run[0].transform) if _change(run[0]) or target != stated else ""


def _pair_lines(name_map: NameMap, rules: NameRules, expand: bool) -> Iterator[str]:
    groups: dict[str, list[Pairing]] = {}
    for pairing in name_map.pairings:
        if pairing.source not in rules.names:
            groups.setdefault(pairing.source, []).append(pairing)
    found = list(groups.values())
    rows = [((own[0].source, *(p.target for p in own)), tuple((p.evidence, _change(p)) for p in own)) for own in found]
    for (source, *targets), places in _fold(rows, expand):
        said = rule_text(source, [(to, p.transform) for to, p in zip(targets, found[places[0]], strict=True)])
        yield marked(said, _why([pairing for place in places for pairing in found[place]]))


def rule_text(source: str, targets: Sequence[tuple[str, Transform]]) -> str:
    """The line that pairs a source, or a run of them, with its targets."""
    values = [_value(target, change) for target, change in targets]
    return f"{_quote(source)} = {values[0] if len(values) == 1 else '[' + ', '.join(values) + ']'}"


def _fold(rows: Sequence[tuple[tuple[str, ...], Hashable]], expand: bool) -> list[tuple[tuple[str, ...], list[int]]]:
    if expand:
        return [(tuple(map(quote_ranges, names)), [place]) for place, (names, _) in enumerate(rows)]
    return fold_ranges(rows)


def _why(run: Sequence[Pairing]) -> str:
    """Evidence, and the lowest confidence of a run."""
    return f"{run[0].evidence} {min(pairing.confidence for pairing in run):.2f}"


def _change(pairing: Pairing) -> str:
    return "" if isinstance(pairing.transform, Identity) else _inline(pairing.transform.as_table())


def _value(target: str, change: Transform) -> str:
    if isinstance(change, Identity):
        return _quote(target)
    return _inline({"to": target, **change.as_table()})


def _drop_lines(name_map: NameMap, side: SideName, rules: NameRules, expand: bool) -> Iterator[str]:
    drops = [drop for drop in name_map.dropped if drop.side == side and rules.drop_of(side, drop.name) is None]
    for (text,), places in _fold([((as_literal(drop.name),), drop.reason) for drop in drops], expand):
        yield marked(f"{_quote(text)} = {_quote(drops[places[0]].reason)}", "dropped")


def _open_blocks(name_map: NameMap, choices: Sequence[list[str]]) -> Iterator[list[str]]:
    """Yield what the user has to settle, as comments."""
    yield from choices
    for group in name_map.ambiguous if not choices else ():
        yield [
            say("map_file.ambiguous", mark=OURS, reason=group.reason),
            *(f"{OURS}   source {text}" for (text,), _ in fold_ranges([((name,), None) for name in group.sources])),
            *(f"{OURS}   target {text}" for (text,), _ in fold_ranges([((name,), None) for name in group.targets])),
        ]
    if name_map.unmatched:
        rows = [((one.name,), (one.side, one.reason, one.suggestions)) for one in name_map.unmatched]
        yield [
            say("map_file.unmatched", mark=OURS),
            *(_open_line(text, name_map.unmatched[places[0]]) for (text,), places in fold_ranges(rows)),
        ]


def _open_line(name: str, one: Unmatched) -> str:
    close = f"; close: {', '.join(one.suggestions)}" if one.suggestions else ""
    return f"{OURS}   {one.side} {name} ({one.reason}{close})"


def _inline(value: object) -> str:
    """A transform's table as TOML on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_inline(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return _quote(value) if isinstance(value, str) else str(value)


def _quote(text: str) -> str:
    return '"' + _printable(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else f"\\U{ord(c):08X}" for c in text)
