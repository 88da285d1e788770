"""Prefixes that wrappers put before every name (`module.`, `_orig_mod.`), taken off and put back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from align.core.name_map import NameMap


def without_prefixes(names: Iterable[str], prefixes: Sequence[str]) -> dict[str, str]:
    """Names without the prefixes -> names as they were; of nested prefixes each is taken off once, in any order.

    A prefix is one or more whole parts of a path; the dot at its end may be left out. Raises UsageError for prefixes
    that no name has, and for names that would become equal.
    """
    return without_prefixes_of_all((names,), prefixes)[0]


def without_prefixes_of_all(sides: Sequence[Iterable[str]], prefixes: Sequence[str]) -> list[dict[str, str]]:
    """The same for several files: a prefix may be that of any of them."""
    wanted = [prefix if prefix.endswith(".") else f"{prefix}." for prefix in prefixes]
    used: set[str] = set()
    found: list[dict[str, list[str]]] = [{} for _ in sides]
    for names, new_names in zip(sides, found, strict=True):
        for name in names:
            new_names.setdefault(_stripped(name, wanted, used), []).append(name)
    faults = [f"no name starts with {prefix!r}" for prefix in wanted if prefix not in used]
    groups = [item for new_names in found for item in new_names.items()]
    faults += [f"{' and '.join(same)} would both be {new}" for new, same in groups if len(same) > 1]
    if faults:
        listed = "\n".join(f"  {fault}" for fault in faults)
        raise UsageError(f"--strip cannot be applied:\n{listed}", "`align inspect` lists the names of a file")
    return [{new: same[0] for new, same in new_names.items()} for new_names in found]


def shared_prefixes(names: Iterable[str]) -> list[str]:
    """Prefixes that all names share, the shortest first: `a.` and `a.b.` of `a.b.c` and `a.b.d`."""
    shared: list[str] = []
    for parts in zip(*(name.split(".")[:-1] for name in names), strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return [".".join(shared[: n + 1]) + "." for n in range(len(shared))]


def with_file_names(name_map: NameMap, names: Mapping[str, str]) -> NameMap:
    """The map with its sources named as in the file."""
    pairings = (replace(one, source=names.get(one.source, one.source)) for one in name_map.pairings)
    dropped = (
        replace(one, name=names.get(one.name, one.name)) if one.side == "source" else one for one in name_map.dropped
    )
    return replace(name_map, pairings=tuple(pairings), dropped=tuple(dropped))


def _stripped(name: str, prefixes: Sequence[str], used: set[str]) -> str:
    left = list(prefixes)
    while prefix := next((one for one in left if name.startswith(one)), ""):
        left.remove(prefix)
        used.add(prefix)
        name = name.removeprefix(prefix)
    return name
