"""What shows that the tensors of a file are no weights by themselves (`mappings/stored_weights.toml`).

Weights in fewer bits, whose values are made with the scales beside them, by names and dtypes; and files that are a part
of one model, by their paths.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Literal, get_args

from align.rules.layer_rules import mappings_folder, read_rules

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Proof = Literal["beside", "name", "values"]


@dataclass(frozen=True, slots=True)
class PackedForm:
    """One way of storing a weight in fewer bits; the globs are as in the file, `misses` and `hits` name -> dtype."""

    id: str
    tensor: tuple[str, ...]
    dtypes: frozenset[str]
    beside: tuple[str, ...]
    beside_not: frozenset[str]
    more: tuple[str, ...]
    hits: tuple[Mapping[str, str], ...]
    misses: tuple[Mapping[str, str], ...]

    @property
    def key(self) -> str:
        """The id as words have it in their keys."""
        return self.id.replace("-", "_")

    @property
    def marks(self) -> set[str]:
        """For each glob over what stands beside a packed tensor, letters that a name must hold to fit it."""
        return {max(re.split(r"\{\w+\}|\[.*\]|[*?]", glob), key=len) for glob in self.beside}

    def companions(self, attribute: str, dtype: str, siblings: Mapping[str, str]) -> tuple[str, ...]:
        """What belongs to a packed tensor of this name in its module; () if it is none.

        `siblings` are the dtypes of what else is in that module and below, by the names from there on.
        """
        if dtype not in self.dtypes:
            return ()
        fits = next((one for one in self.tensor if fnmatchcase(attribute, one)), None)
        if fits is None:
            return ()
        stem = attribute.removesuffix(fits.lstrip("*")) if fits.startswith("*") and fits != "*" else attribute
        marks, more = _pattern(self.beside, attribute, stem), _pattern(self.more, attribute, stem)
        if not any(marks.match(name) and siblings[name] not in self.beside_not for name in siblings):
            return ()
        return tuple(name for name in siblings if marks.match(name) or more.match(name))


@dataclass(frozen=True, slots=True)
class PartForm:
    """One way of naming the files of one model's parts; each group of `path` is the number of a part.

    `from_zero`: parts are counted from 0, so that another number shows that there are several.
    """

    id: str
    path: re.Pattern[str]
    proof: Proof
    examples: tuple[str, str]
    from_zero: bool = False

    def later_number(self, path: Path) -> str:
        """The number in a path which shows by itself that there is an earlier part, "" if none does."""
        found = self.path.search(path.absolute().as_posix()) if self.from_zero else None
        return next((number for number in found.groups("0") if int(number) > 0), "") if found else ""

    @property
    def key(self) -> str:
        """The id as words have it in their keys."""
        return self.id.replace("-", "_")


@dataclass(frozen=True, slots=True)
class StoredWeightRules:
    """Both kinds of rules, in the order in which they count."""

    packed: tuple[PackedForm, ...]
    parts: tuple[PartForm, ...]


@cache
def stored_weight_rules() -> StoredWeightRules:
    """Read the file; raises MappingRuleError for a faulty one."""
    return read_rules(mappings_folder() / "stored_weights.toml", _rules)


def part_by_name(path: Path) -> str:
    """The key of the rule by which a file is a part of a model whatever lies beside it, "" if none says so."""
    form = part_of_model(path)
    return form.key if form is not None and form.proof == "name" else ""


def part_of_model(path: Path) -> PartForm | None:
    """The first rule that the path of a file fits, whatever else it takes to be a part of a model."""
    text = path.absolute().as_posix()
    return next((one for one in stored_weight_rules().parts if one.path.search(text)), None)


@lru_cache(maxsize=1024)
def _pattern(globs: tuple[str, ...], attribute: str, stem: str) -> re.Pattern[str]:
    """What any of the globs fits, of names in the module of the packed tensor."""
    places = {"name": attribute, "stem": stem, "module": ""}
    quoted = {key: re.sub(r"([*?[])", r"[\1]", place) for key, place in places.items()}
    return re.compile("|".join(translate(glob.format(**quoted)) for glob in globs) or r"(?!)")


def _rules(table: dict[str, Any]) -> StoredWeightRules:
    return StoredWeightRules(
        tuple(_packed(entry) for entry in table["packed"]), tuple(_part(entry) for entry in table["part"])
    )


def _packed(entry: dict[str, Any]) -> PackedForm:
    return PackedForm(
        entry["id"],
        tuple(entry["tensor"]),
        frozenset(entry["dtypes"]),
        tuple(entry["beside"]),
        frozenset(entry["beside_not"]),
        tuple(entry["more"]),
        tuple(entry["examples"]["hits"]),
        tuple(entry["examples"]["misses"]),
    )


def _part(entry: dict[str, Any]) -> PartForm:
    if entry["proof"] not in get_args(Proof):
        raise ValueError(f"{entry['id']}: proof {entry['proof']!r}")
    part, whole = entry["examples"]
    return PartForm(
        entry["id"], re.compile(entry["path"]), entry["proof"], (part, whole), entry.get("from_zero", False)
    )
