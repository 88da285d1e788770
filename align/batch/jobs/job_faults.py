"""What is wrong with a job file before any pattern is followed: keys, values and placeholders, each with its line."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from align.batch.jobs.job_keys import OF_JOB, OF_TABLE, OPTIONS, PATHS, RANKS, value_fault
from align.batch.jobs.match_paths import NUMBERS, PLACEHOLDERS, placeholders
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TABLES = ("defaults", "ranks")
_BEGINS = re.compile(r"\s*(?:\[\[?\s*([^\]]*?)\s*\]|([^\s=\[][^=]*?)\s*=)")


def job_faults(document: Mapping[str, Any], text: str) -> Iterator[str]:
    """Name each fault of a parsed job file."""
    for name, value in document.items():
        line = line_of(text, name, 0)
        if name in PATHS:
            yield from _faults_of_tables(name, value, text)
        elif name in OF_JOB:
            yield from _faults_of_keys({name: value}, OF_JOB, "", line)
        elif name not in _TABLES:
            yield say("job_fault.unknown", line=line, name=name, allowed=[*PATHS, *_TABLES, *OF_JOB])
        elif not isinstance(value, dict):
            yield say("job_fault.no_table", line=line, table=name)
        elif name == "ranks":
            yield from _faults_of_keys(value, RANKS, "ranks", line)
        else:
            yield from _faults_of_defaults(value, text)


def line_of(text: str, table: str, index: int) -> int:
    """The line of a file on which the table of a name begins, or the key; 1 if it cannot be told."""
    found = _beginnings(text).get(table, ())
    return found[index] if index < len(found) else 1


@lru_cache(maxsize=1)
def _beginnings(text: str) -> dict[str, list[int]]:
    """The lines on which each table and key begins."""
    found: dict[str, list[int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if name := _BEGINS.match(line):
            found.setdefault(name[1] or name[2], []).append(number)
    return found


def _faults_of_defaults(defaults: Mapping[str, Any], text: str) -> Iterator[str]:
    for action, own in defaults.items():
        name, line = f"defaults.{action}", line_of(text, f"defaults.{action}", 0)
        if action not in OPTIONS:
            yield say("job_fault.unknown", line=line, name=name, allowed=[*OPTIONS])
        elif not isinstance(own, dict):
            yield say("job_fault.no_table", line=line, table=name)
        else:
            yield from _faults_of_keys(own, OPTIONS[action] | OF_JOB, name, line)


def _faults_of_tables(action: str, tables: Any, text: str) -> Iterator[str]:
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        yield say("job_fault.no_list", line=line_of(text, action, 0), table=action)
        return
    known = {**dict.fromkeys(PATHS[action], "text"), **OF_TABLE, **OPTIONS[action]}
    for index, table in enumerate(tables):
        line = line_of(text, action, index)
        yield from _faults_of_keys(table, known, action, line)
        if lacking := [key for key in PATHS[action] if key not in table]:
            yield say("job_fault.lacking", line=line, table=action, keys=lacking)
        elif all(isinstance(table[key], str) for key in PATHS[action]):
            yield from _faults_of_patterns(table, action, line)


def _faults_of_keys(table: Mapping[str, Any], known: Mapping[str, str], name: str, line: int) -> Iterator[str]:
    for key, value in table.items():
        full = f"{name}.{key}" if name else key
        if key not in known:
            yield say("job_fault.unknown", line=line, name=full, allowed=[*known])
        elif wanted := value_fault(known[key], value):
            yield say("job_fault.value", line=line, name=full, wanted=wanted, value=repr(value))


def _faults_of_patterns(table: Mapping[str, Any], action: str, line: int) -> Iterator[str]:
    patterns = [table[key] for key in PATHS[action]]
    named = [set(placeholders(pattern)) for pattern in patterns]
    if strange := sorted(set().union(*named) - set(PLACEHOLDERS)):
        spelled, allowed = ([f"{{{name}}}" for name in names] for names in (strange, PLACEHOLDERS))
        yield say("job_fault.placeholder", line=line, names=spelled, allowed=allowed)
    elif any(own != named[0] for own in named):
        yield say("job_fault.unlike_patterns", line=line, table=action, patterns=patterns)
    for number in NUMBERS:
        if f"{number}s" in table and number not in set().union(*named):
            yield say("job_fault.no_placeholder", line=line, name=f"{action}.{number}s", number=f"{{{number}}}")
