"""Ready maps of known model families: `mappings/models/NAME.toml`, found by looking into the folder.

A family says for every layer of one published implementation where it stands in the other and what kind of layer it is;
what layers of that kind call their parameters, the layer rules know. Paths are whole, so a family knows exactly which
names are its own: a model is recognised only if all of its names are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from align.errors import MappingRuleError, UsageError
from align.rules.layer_rules import layer_rules, mappings_folder, read_rules, rule_files
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    _Row = tuple[str, "Place | None", str]  # a name, its place, and why only its side has it

AS_IS = "as-is"  # a layer whose parameters have the same names on both sides
_NUMBER = re.compile(r"#([+-]\d+)?")
_SIDES = ("torch", "mindspore")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a layer or parameter stands on the other side: at several paths if it is cut into equal pieces on axis 0.

    `piece` says which of how many pieces of the one path it is.
    """

    rule: PlaceRule
    paths: tuple[str, ...]
    piece: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class PlaceRule:
    """Paths of a layer in torch and in MindSpore, of which one side may have several: the pieces of a fused layer.

    `#` stands for a number that both sides have, `#+1` for the next one; numbers stand in one order on both sides.
    `kind` is the kind or id of a layer rule; "" makes it the whole name of a parameter. `shapes` are those of such a
    parameter where they differ, 0 standing for an axis as it is.
    """

    torch: tuple[str, ...]
    mindspore: tuple[str, ...]
    kind: str = ""
    shapes: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    def without(self, prefixes: dict[str, str]) -> PlaceRule:
        """The rule where names lack the prefix of their side."""
        torch, mindspore = (
            tuple(path.removeprefix(prefixes.get(side, "")) for path in paths)
            for side, paths in zip(_SIDES, (self.torch, self.mindspore), strict=True)
        )
        return replace(self, torch=torch, mindspore=mindspore)

    def place(self, path: str, *, backwards: bool) -> Place | None:
        """The place of a path; None if the rule does not know it."""
        old, new = (self.mindspore, self.torch) if backwards else (self.torch, self.mindspore)
        for number, pattern in enumerate(old):
            if (values := _numbers(pattern, path)) is not None:
                written = [_written(other, values) for other in new]
                if None not in written:
                    return Place(self, tuple(filter(None, written)), (number, len(old)) if len(old) > 1 else None)
        return None


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """A family: `about` says which implementations it joins.

    `needs` are globs over torch's names without which nothing is recognised as a member, `lacks` those that none of its
    members has. `source` says where names were read that no model here could show. `dropped` maps for each side
    globs over names that only it has to the reason. `hits` are a path on each side, `misses` paths of other models.
    """

    name: str
    about: str
    needs: tuple[str, ...]
    rules: tuple[PlaceRule, ...]
    dropped: dict[str, dict[str, str]] = field(default_factory=dict)
    hits: tuple[tuple[str, str], ...] = ()
    misses: tuple[str, ...] = ()
    optional: dict[str, str] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()
    source: str = ""

    @property
    def forms(self) -> list[ModelFamily]:
        """The family with the optional prefixes, without both, and without one of them; the likelier first."""
        lacking = [{}, self.optional, *({side: prefix} for side, prefix in self.optional.items())]
        return [self._without(prefixes) for n, prefixes in enumerate(lacking) if prefixes not in lacking[:n]]

    def known_names(self, names: Collection[str], *, backwards: bool) -> Iterator[FamilyNames]:
        """Yield the names of a side as each form reads them that knows them all."""
        for form in self.forms:
            rows = list(takewhile(lambda row: row[1] or row[2], _rows(form, names, backwards=backwards)))
            if len(rows) == len(names):
                yield FamilyNames.of(form, rows)

    def read_names(self, names: Collection[str], *, backwards: bool) -> FamilyNames:
        """The names of a side as this form reads them, those that it does not know among them."""
        return FamilyNames.of(self, list(_rows(self, names, backwards=backwards)))

    def read_sides(
        self, source: Collection[str], target: Collection[str], *, backwards: bool
    ) -> list[tuple[FamilyNames, FamilyNames]]:
        """The names of both sides as each form reads them that knows all of the source; as this form if none does."""
        known = list(self.known_names(source, backwards=backwards)) or [self.read_names(source, backwards=backwards)]
        return [(own, own.family.read_names(target, backwards=not backwards)) for own in known]

    def reasons_to_drop(self, names: Iterable[str], *, backwards: bool) -> dict[str, str]:
        """Why names of a side have no counterpart, by name; those that should have one are left out."""
        drops = self.dropped[_SIDES[backwards]].items()
        found = {name: next((reason for glob, reason in drops if fnmatchcase(name, glob)), "") for name in names}
        return {name: reason for name, reason in found.items() if reason}

    def _without(self, prefixes: dict[str, str]) -> ModelFamily:
        return replace(
            self,
            needs=tuple(glob.removeprefix(prefixes.get("torch", "")) for glob in self.needs),
            rules=tuple(rule.without(prefixes) for rule in self.rules),
            dropped={
                side: {glob.removeprefix(prefixes.get(side, "")): reason for glob, reason in drops.items()}
                for side, drops in self.dropped.items()
            },
        )

    def place(self, name: str, *, backwards: bool) -> Place | None:
        """The place of a parameter by a rule of its own, or of its layer; the first rule that knows it counts.

        None if no rule does, or if what it leads to does not lead back.
        """
        for path, layers in ((name, False), (name.rpartition(".")[0], True)):
            if found := self._place(path, layers=layers, backwards=backwards):
                back = (self._place(other, layers=layers, backwards=not backwards) for other in found.paths)
                return found if all(one is not None and path in one.paths for one in back) else None
        return None

    def _place(self, path: str, *, layers: bool, backwards: bool) -> Place | None:
        rules = (rule for rule in self.rules if bool(rule.kind) == layers)
        return next((found for rule in rules if (found := rule.place(path, backwards=backwards))), None)


def _rows(form: ModelFamily, names: Collection[str], *, backwards: bool) -> Iterator[_Row]:
    drops = form.reasons_to_drop(names, backwards=backwards)
    for name in names:
        yield name, form.place(name, backwards=backwards), drops.get(name, "")


@dataclass(frozen=True, slots=True)
class FamilyNames:
    """The names of a side as one form of a family reads them; each is looked up once.

    `places` has the names that lead somewhere, `dropped` those that only their side has, with the reason; a name may
    stand in both. `unknown` are all others.
    """

    family: ModelFamily
    places: dict[str, Place]
    dropped: dict[str, str]
    unknown: tuple[str, ...]

    @classmethod
    def of(cls, form: ModelFamily, rows: Sequence[_Row]) -> FamilyNames:
        """Sort what a form says of each name."""
        return cls(
            form,
            {name: place for name, place, _ in rows if place},
            {name: reason for name, _, reason in rows if reason},
            tuple(name for name, place, reason in rows if not place and not reason),
        )


def read_family(name: str) -> ModelFamily:
    """Read a family by its name; raises UsageError with the known ones, MappingRuleError for a faulty file."""
    files = _files()
    if name not in files:
        close = get_close_matches(name, files, 1)
        raise UsageError.of(
            "rule_name.no_family", name=name, close="".join(map(repr, close)), known=[*files] or ["none"]
        )
    return _read(files[name])


def model_families() -> list[ModelFamily]:
    """All families, sorted by name; raises MappingRuleError for a faulty file."""
    return [_read(path) for path in _files().values()]


def _files() -> dict[str, Path]:
    files: dict[str, Path] = {}
    for path in rule_files(mappings_folder() / "models"):
        if path.stem in files:
            raise MappingRuleError(path, say("rule_file.id_twice_in", name=path.stem, other=files[path.stem]))
        files[path.stem] = path
    return dict(sorted(files.items()))


@cache
def _read(path: Path) -> ModelFamily:
    return read_rules(path, lambda table: _family(path.stem, table), "rule_file.malformed_family")


def _family(name: str, table: dict[str, Any]) -> ModelFamily:
    dropped, examples, optional = table.get("dropped", {}), table["examples"], table.get("optional", {})
    _check_keys("family", table, "about", "source", "needs", "lacks", "group", "dropped", "examples", "optional")
    _check_keys("[dropped]", dropped, *_SIDES)
    _check_keys("optional", optional, *_SIDES)
    _check_keys("[examples]", examples, "hits", "misses")
    return ModelFamily(
        name,
        str(table["about"]),
        tuple(map(str, table["needs"])),
        tuple(rule for group in table["group"] for rule in _rules(group)),
        {side: {glob: str(reason) for glob, reason in dropped.get(side, {}).items()} for side in _SIDES},
        tuple((str(torch), str(mindspore)) for torch, mindspore in examples["hits"]),
        tuple(map(str, examples["misses"])),
        {side: f"{prefix}." for side, prefix in optional.items()},
        tuple(map(str, table.get("lacks", ()))),
        str(table.get("source", "")),
    )


def _check_keys(what: str, table: dict[str, Any], *known: str) -> None:
    if unknown := sorted(table.keys() - set(known)):
        raise ValueError(say("rule_file.unknown_keys", keys=unknown, what=what, known=known))


def _rules(group: dict[str, Any]) -> Iterator[PlaceRule]:
    _check_keys("[[group]]", group, "at", "layers", "same", "parameters")
    for torch, mindspore in group.get("at", [["", ""]]):
        for old, new, kind in [*group.get("layers", []), *((path, path, AS_IS) for path in group.get("same", []))]:
            yield _rule(_below(torch, old), _below(mindspore, new), _kind(kind))
        for old, new, *shapes in group.get("parameters", []):
            yield _rule(_below(torch, old), _below(mindspore, new), "", _shapes(*shapes) if shapes else None)


def _below(at: str, paths: str | list[str]) -> tuple[str, ...]:
    return tuple(f"{at}.{path}".strip(".") for path in ([paths] if isinstance(paths, str) else paths))


def _rule(
    torch: tuple[str, ...], mindspore: tuple[str, ...], kind: str, shapes: tuple[tuple[int, ...], ...] | None = None
) -> PlaceRule:
    rule = PlaceRule(torch, mindspore, kind, (shapes[0], shapes[1]) if shapes else None)
    if min(len(torch), len(mindspore)) != 1:
        raise ValueError(say("rule_file.two_splits", torch=str(torch), mindspore=str(mindspore)))
    if len({len(_NUMBER.findall(path)) for path in (*torch, *mindspore)}) != 1:
        raise ValueError(say("rule_file.other_numbers", torch=str(torch), mindspore=str(mindspore)))
    return rule


def _kind(kind: str) -> str:
    if kind != AS_IS and not any(kind in (rule.kind, rule.id) for rule in layer_rules()):
        raise ValueError(say("rule_file.no_such_kind", kind=kind))
    return kind


def _shapes(torch: list[int], mindspore: list[int]) -> tuple[tuple[int, ...], ...]:
    return tuple(map(int, torch)), tuple(map(int, mindspore))


@cache
def _pattern(path: str) -> tuple[re.Pattern[str], tuple[int, ...]]:
    """An expression with a group for each number, and what is added to each."""
    plain = [re.escape(text) for text in _NUMBER.split(path)[::2]]
    return re.compile(r"(0|[1-9]\d*)".join(plain)), tuple(int(added or 0) for added in _NUMBER.findall(path))


def _numbers(pattern: str, path: str) -> list[int] | None:
    expression, added = _pattern(pattern)
    match = expression.fullmatch(path)
    return None if match is None else [int(n) - more for n, more in zip(match.groups(), added, strict=True)]


def _written(pattern: str, values: list[int]) -> str | None:
    """The path with its numbers; None if one of them would be below zero."""
    numbers = [value + more for value, more in zip(values, _pattern(pattern)[1], strict=True)]
    left = iter(numbers)
    return None if min(numbers, default=0) < 0 else _NUMBER.sub(lambda _: str(next(left)), pattern)
