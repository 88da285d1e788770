"""What wrappers put into names (`module.`, `_orig_mod.`), in front or in the middle, taken off and put back.

`torch.compile`, FSDP and activation checkpointing use words that nobody else does. DistributedDataParallel and
DataParallel say `module`, as models of users may: it is a wrapper's where it stands alone in front of all names, or
where another side without it has the same names.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from align.errors import UsageError
from align.words.catalogue import say
from align.words.message_words import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from align.core.name_map import Fill, NameMap


WRAPPERS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
PARALLEL = "module"
_OWN = "*"  # stands for what a module owns
_COUNTERS = frozenset({"n_averaged", "steps"})  # of averaged models, beside `module`


def without_wrappers(names: Iterable[str], *, inner: bool = False) -> dict[str, str]:
    """Names as they are -> names without the parts that wrappers put there; names that would become equal stay.

    With `inner`, `module` goes wherever it is all that stands in a place, and not only in front of all names.

    >>> without_wrappers(["module.encoder._orig_mod.fc.weight", "module.head.weight"])
    {'module.encoder._orig_mod.fc.weight': 'encoder.fc.weight', 'module.head.weight': 'head.weight'}
    """
    known = list(dict.fromkeys(names))
    if not _has_wrappers(known):
        return {name: name for name in known}
    children = _children(known)
    found = {name: _unwrapped(name, children, inner=inner) for name in known}
    taken = Counter(found.values())
    return {name: new if taken[new] == 1 else name for name, new in found.items()}


def paths_without_wrappers(paths: Iterable[str], holders: Iterable[str], *, inner: bool) -> dict[str, str]:
    """The same for paths of modules, of which `holders` own parameters; a wrapper gets the path of what it holds."""
    paths = list(paths)
    if not _has_wrappers(paths):
        return {path: path for path in paths}
    children = _children(f"{path}.{_OWN}" for path in holders)
    below = {path: _unwrapped(f"{path}.{_OWN}" if path else _OWN, children, inner=inner) for path in paths}
    return {path: new.removesuffix(_OWN).removesuffix(".") for path, new in below.items()}


def matched_without_wrappers(names: Iterable[str], wanted: Iterable[str]) -> dict[str, str]:
    """Names -> those wanted that are the same but for what wrappers put into either.

    Nothing changes unless more names meet so than as they are; those that meet nothing stay.
    """
    names, wanted = list(names), list(wanted)
    best, most = {name: name for name in names}, len(set(names) & set(wanted))
    for inner in (False, True):
        known = {bare: name for name, bare in without_wrappers(wanted, inner=inner).items()}
        found = {name: known.get(bare, name) for name, bare in without_wrappers(names, inner=inner).items()}
        meeting = len(set(found.values()) & set(wanted))
        if meeting > most and len(set(found.values())) == len(names):
            best, most = found, meeting
    return best


def targets_without_wrappers(name_map: NameMap, fills: Sequence[Fill] = ()) -> tuple[NameMap, tuple[Fill, ...], str]:
    """The map and fills with targets named without what wrappers put there, and in words what that was."""
    ends = [one.target for one in name_map.pairings]
    ends += [one.name for one in name_map.dropped if one.side == "target"] + [fill.name for fill in fills]
    names = without_wrappers(ends)
    pairings = tuple(replace(one, target=names[one.target]) for one in name_map.pairings)
    dropped = tuple(replace(one, name=names[one.name]) if one.side == "target" else one for one in name_map.dropped)
    named = tuple(replace(fill, name=names[fill.name]) for fill in fills)
    return replace(name_map, pairings=pairings, dropped=dropped), named, wrapper_words(names)


def wrapper_words(renamed: Mapping[str, str]) -> str:
    """The parts that wrappers put into either of each two names, in words; "" if there are none."""
    pairs = [(was.split("."), new.split(".")) for was, new in renamed.items() if was != new]
    parts = [part for was, new in pairs for part in ((Counter(was) - Counter(new)) + (Counter(new) - Counter(was)))]
    listed = ", ".join(f"{part}." for part in dict.fromkeys(parts))
    return f"{listed} in {counted(len(pairs), 'name')}" if listed else ""


def _has_wrappers(names: Iterable[str]) -> bool:
    """Tell whether a name may have a part that a wrapper put there: nearly no model has, and this is soon seen."""
    together = "\n".join(names)
    return any(word in together for word in (*WRAPPERS, PARALLEL))


def _children(names: Iterable[str]) -> dict[tuple[str, ...], set[str]]:
    """What stands in each place of the tree."""
    children: dict[tuple[str, ...], set[str]] = {}
    for name in names:
        parts = tuple(name.split("."))
        for place in range(len(parts)):
            children.setdefault(parts[:place], set()).add(parts[place])
    return children


def _unwrapped(name: str, children: Mapping[tuple[str, ...], set[str]], *, inner: bool) -> str:
    parts = tuple(name.split("."))
    kept: list[str] = []
    for place, part in enumerate(parts):
        alone = children.get(parts[:place], set()) - _COUNTERS == {PARALLEL} and (inner or not kept)
        if place == len(parts) - 1 or not (part in WRAPPERS or (part == PARALLEL and alone)):
            kept.append(part)
    return ".".join(kept)


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
    faults = [say("naming_usage.no_such_prefix", prefix=prefix) for prefix in wanted if prefix not in used]
    groups = [item for new_names in found for item in new_names.items()]
    faults += [say("naming_usage.same_names", same=same, new=new) for new, same in groups if len(same) > 1]
    if faults:
        raise UsageError.of("naming_usage.strip", faults=faults)
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
