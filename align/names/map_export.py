"""A map result written for other programs, or as the editable map file: the suffix of the path tells.

As a table, CSV or JSON it has one row for each pair and each name that is not paired.
"""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import dataclass, field, replace
from itertools import pairwise, permutations
from typing import TYPE_CHECKING, Any

from align.core.atomic_files import write_text
from align.core.piece_transforms import Part, Slice
from align.core.transforms import IDENTITY, Identity, Permute
from align.errors import MapError, UsageError
from align.names.map_file import KeptLines, kept_lines, map_file_text, read_users_rules, rules_of_text, write_map
from align.names.map_result import refuse_doubled
from align.names.map_text import OURS, SCHEMA, rule_text, trial_text
from align.names.thresholds import MOST_LINES_OF_A_GROUP, MOST_ORDERED_PIECES, SUGGESTED_NAMES
from align.names.user_rules import NUMBER, NameRules, quote_ranges
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from align.core.parameters import Parameter, Shape
    from align.core.transforms import Transform
    from align.names.map_result import MapResult

    Shapes = tuple[Mapping[str, Shape], Mapping[str, Shape]]
    Group = tuple[tuple[str, ...], tuple[str, ...], str]  # sources, targets, reason


SUFFIXES = (".toml", ".csv", ".json")
COLUMNS = (
    "source", "target", "transform", "evidence", "confidence", "status", "source_shape", "target_shape",
    "source_dtype", "target_dtype", "note",
)  # fmt: skip


def check_suffix(path: Path) -> None:
    """Raise UsageError for a path that no form of a map goes with."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError.of("names_error.no_form_of_map", name=path.name, suffixes=[*SUFFIXES])


def is_editable(path: Path) -> bool:
    """Tell whether a path is that of an editable map file, which may hold lines of the user's."""
    return path.suffix.lower() == ".toml"


def write_map_file(path: Path, result: MapResult, kept: KeptLines | None = None, *, expand: bool = False) -> None:
    """Write a map as TOML, CSV or JSON, whole or not at all; the latter two have a row for each name.

    Raises UsageError for another suffix, DestinationError if it cannot be written, MapError for a target made twice.
    """
    check_suffix(path)
    refuse_doubled(result.name_map, path)
    if is_editable(path):
        choices = _choices(result)
        write_map(path, result.name_map, kept, expand=expand, tried=result.tried, choices=choices)
    else:
        write_text(path, _as_csv(result) if path.suffix.lower() == ".csv" else _as_json(result))


def _choices(result: MapResult) -> list[list[str]]:
    left, right = (
        {parameter.name: parameter.shape for parameter in side}
        for side in (result.source_parameters, result.target_parameters)
    )
    groups = ((item.sources, item.targets, item.reason) for item in result.name_map.ambiguous)
    unmatched = [(item.side, item.name, item.suggestions) for item in result.name_map.unmatched]
    lines = lines_for_unmatched(unmatched, (left, right))
    told = [say("map_file.may_pair", mark=OURS), *(f"{OURS}   {line}" for line in lines)]
    return [*(item.as_comments() for item in open_choices(groups, (left, right))), *([told] if lines else [])]


def _as_csv(result: MapResult) -> str:
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    table.writeheader()
    table.writerows(map_rows(result))
    return text.getvalue()


def _as_json(result: MapResult) -> str:
    sides = dict(zip(("source", "target"), result.name_map.frameworks, strict=True))
    return json.dumps({"schema": SCHEMA, **sides, "rows": map_rows(result)}, indent=1, ensure_ascii=False) + "\n"


def map_rows(result: MapResult) -> list[dict[str, Any]]:
    """Return the rows: pairs in the source's order, then what is ambiguous, unmatched and dropped.

    `status` is paired, ambiguous, unmatched or dropped. `source` or `target` is "" where there is none; `confidence` is
    None for what is not paired. Shapes read `2x3`, "" for a scalar; a transform is its table as JSON, "" for none.
    """
    sources = {parameter.name: parameter for parameter in result.source_parameters}
    targets = {parameter.name: parameter for parameter in result.target_parameters}
    return [{**row, **_facts(row, sources, targets)} for row in _rows(result)]


def _rows(result: MapResult) -> Iterator[dict[str, Any]]:
    name_map = result.name_map
    for p in name_map.pairings:
        yield _row("paired", p.note, p.source, p.target) | {
            "transform": _as_text(p.transform), "evidence": p.evidence, "confidence": p.confidence
        }  # fmt: skip
    for group in name_map.ambiguous:
        for name in group.sources:
            yield _row("ambiguous", f"{group.reason}; one of: {', '.join(group.targets)}", name, "")
        for name in group.targets:
            yield _row("ambiguous", f"{group.reason}; one of: {', '.join(group.sources)}", "", name)
    for one in name_map.unmatched:
        close = f"; close: {', '.join(one.suggestions)}" if one.suggestions else ""
        yield _row("unmatched", one.reason + close, *_on_side(one.side, one.name))
    for drop in name_map.dropped:
        yield _row("dropped", drop.reason, *_on_side(drop.side, drop.name))


def _row(status: str, note: str, source: str, target: str) -> dict[str, Any]:
    filled = {"source": source, "target": target, "confidence": None, "status": status, "note": note}
    return dict.fromkeys(COLUMNS, "") | filled


def _on_side(side: str, name: str) -> tuple[str, str]:
    return (name, "") if side == "source" else ("", name)


def _as_text(transform: Transform) -> str:
    return "" if isinstance(transform, Identity) else json.dumps(transform.as_table())


def _facts(
    row: Mapping[str, Any], sources: Mapping[str, Parameter], targets: Mapping[str, Parameter]
) -> dict[str, str]:
    found = {"source": sources.get(row["source"]), "target": targets.get(row["target"])}
    shapes = {f"{side}_shape": shape_text(one.shape) if one else "" for side, one in found.items()}
    return shapes | {f"{side}_dtype": one.dtype if one else "" for side, one in found.items()}


def shape_text(shape: Shape) -> str:
    """`2x3` for (2, 3).

    >>> shape_text((2, 3)), shape_text(())
    ('2x3', '')
    """
    return "x".join(map(str, shape))


# For what stays open the lines to write into the map file, ready to paste; what repeats in each block is told once.
#
# Of a layer's parameters that with the most axes gets lines, since the others follow it. A line of a run `{0..11}`
# says the same of each block; what is wrong for one of them gets a line of its own beside it.


@dataclass(frozen=True, slots=True)
class OpenChoice:
    """Open names of both sides, in runs of all blocks that are alike, and the lines of which one settles them.

    No lines where others settle the same layers; `left_out` counts those that were too many.
    """

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    reason: str
    blocks: int
    lines: tuple[str, ...]
    left_out: int = 0

    def as_comments(self) -> list[str]:
        """What the map file says of it, in comments of align's."""
        return [
            say("map_file.ambiguous", mark=OURS, reason=self.reason),
            *(f"{OURS}   source {name}" for name in self.sources),
            *(f"{OURS}   target {name}" for name in self.targets),
            say("map_file.candidates" if self.lines else "map_file.settled_elsewhere", mark=OURS),
            *(f"{OURS}     {line}" for lines in self.lines for line in lines.split("\n")),
            *([say("map_file.more_candidates", mark=OURS, count=self.left_out)] if self.left_out else []),
        ]


def open_choices(groups: Iterable[Group], shapes: Shapes) -> list[OpenChoice]:
    """Return the choices that a map leaves open; `shapes` are those of the parameters of each side by name."""
    choices: list[OpenChoice] = []
    runs = list(_alike(list(groups), shapes))
    most = _with_most_axes(runs, shapes)
    for place, run in enumerate(runs):
        sources, targets, reason = run[0]
        texts = _in_runs([(*one, *other) for one, other, _ in run])
        names = dict(zip((*((0, name) for name in sources), *((1, name) for name in targets)), texts, strict=True))
        is_told = any(place == most[_owners(group)] for group in run)
        lines = list(dict.fromkeys(_lines(sources, targets, shapes, names))) if is_told else []
        shown, left = tuple(lines[:MOST_LINES_OF_A_GROUP]), max(0, len(lines) - MOST_LINES_OF_A_GROUP)
        count = len(sources)
        choices.append(OpenChoice(tuple(texts[:count]), tuple(texts[count:]), reason, len(run), shown, left))
    return choices


def lines_for_unmatched(unmatched: Iterable[tuple[str, str, Sequence[str]]], shapes: Shapes) -> list[str]:
    """Return lines that pair names without counterpart with what fits of those left on the other side.

    Each of `unmatched` is its side, its name and the names that come closest. These count where their shape fits; else
    what alone fits, if that is little. It is a guess that a user makes: nothing speaks for it but names and shapes.
    """
    left: dict[object, list[str]] = {}
    rows = list(unmatched)
    for side, name, _ in rows:
        if side == "target":
            left.setdefault(_lengths(shapes[1].get(name, ())), []).append(name)
    groups: list[Group] = []
    for name, close in ((name, close) for side, name, close in rows if side == "source"):
        shape = shapes[0].get(name, ())
        others = left.get(_lengths(shape), [])
        for few in (close, others if len(others) <= SUGGESTED_NAMES else []):
            if fitting := [one for one in few if any(_changes(shape, shapes[1].get(one, ()), either=False))]:
                groups.append(((name,), tuple(fitting), ""))
                break
    return [line for choice in open_choices(groups, shapes) for line in choice.lines]


def _lengths(shape: Shape) -> tuple[int, ...]:
    """The lengths of a shape in any order: a matrix may be turned, a kernel of one be none."""
    return tuple(sorted(length for length in shape if length != 1))


def _with_most_axes(runs: Sequence[Sequence[Group]], shapes: Shapes) -> dict[object, int]:
    """The run that tells of the same layers as others, and whose tensors have the most axes."""
    most_axes: dict[object, tuple[int, int]] = {}
    for place, run in enumerate(runs):
        axes = max((len(shapes[0].get(name, ())) for name in run[0][0]), default=0)
        for group in run:
            key = _owners(group)
            most_axes[key] = max(most_axes.get(key, (-1, 0)), (axes, -place))
    return {key: -place for key, (_, place) in most_axes.items()}


def _owners(group: Group) -> tuple[frozenset[str], frozenset[str]]:
    left, right = (frozenset(name.rpartition(".")[0] for name in names) for names in group[:2])
    return left, right


def _alike(groups: Sequence[Group], shapes: Shapes) -> Iterator[list[Group]]:
    """Yield groups that are one but for numbers which all grow by 1 from each to the next."""
    likes: dict[object, list[Group]] = {}
    for group in groups:
        sources, targets, reason = group
        held = *(shapes[0].get(name) for name in sources), *(shapes[1].get(name) for name in targets)
        words = tuple(NUMBER.sub("#", name) for name in sources), tuple(NUMBER.sub("#", name) for name in targets)
        likes.setdefault((words, held, reason), []).append(group)
    for own in likes.values():
        run = own[:1]
        for before, group in pairwise(own):
            if _follows(before, group, run):
                run.append(group)
            else:
                yield run
                run = [group]
        yield run


def _steps(before: Group, group: Group) -> list[int]:
    return [after - number for number, after in zip(_numbers(before), _numbers(group), strict=True)]


def _numbers(group: Group) -> list[int]:
    return [int(number) for name in (*group[0], *group[1]) for number in NUMBER.findall(name)]


def _follows(before: Group, group: Group, run: Sequence[Group]) -> bool:
    """Tell whether the numbers that change within a run, one of each name, are greater by 1."""
    if any("{" in name or "}" in name for name in (*group[0], *group[1])):
        return False
    steps = _steps(before, group)
    known = _steps(run[0], run[1]) if run[1:] else steps
    return steps == known and set(steps) <= {0, 1} and all(own.count(1) == 1 for own in _by_name(group, steps))


def _by_name(group: Group, numbers: Sequence[int]) -> Iterator[list[int]]:
    start = 0
    for name in (*group[0], *group[1]):
        count = len(NUMBER.findall(name))
        yield list(numbers[start : start + count])
        start += count


def _in_runs(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """The names of all rows as one row of texts, with runs where numbers change."""
    if len(rows) == 1:
        return list(map(quote_ranges, rows[0]))
    texts = []
    for first, last in zip(rows[0], rows[-1], strict=True):
        ends = iter(zip(NUMBER.findall(first), NUMBER.findall(last), strict=True))
        texts.append(NUMBER.sub(lambda _, ends=ends: _run(*next(ends)), first))  # type: ignore[misc]
    return texts


def _run(first: str, last: str) -> str:
    return first if first == last else f"{{{first}..{last}}}"


def _lines(
    sources: Sequence[str], targets: Sequence[str], shapes: Shapes, names: Mapping[tuple[int, str], str]
) -> Iterator[str]:
    """Yield the line of each candidate: a pair that fits as it is or turned, else pieces in every order."""
    is_written = False
    for source in sources:
        for target in targets:
            one_to_one = len(sources) == len(targets) == 1
            for change in _changes(shapes[0].get(source, ()), shapes[1].get(target, ()), either=one_to_one):
                is_written = True
                yield rule_text(names[0, source], [(names[1, target], change)])
    if not is_written:
        yield from _pieces(sources, targets, shapes, names)


def _changes(source: Shape, target: Shape, *, either: bool) -> Iterator[Transform]:
    """What may become of a value; of a square matrix that alone may be another, `either` way round."""
    lengths = [[length for length in shape if length != 1] for shape in (source, target)]
    if source == target or lengths[0] == lengths[1]:
        yield IDENTITY
    if len(source) == 2 and source[::-1] == target and (source != target or either):
        yield Permute((1, 0))


def _pieces(
    sources: Sequence[str], targets: Sequence[str], shapes: Shapes, names: Mapping[tuple[int, str], str]
) -> Iterator[str]:
    """Yield the lines that cut one source into the targets, or join the sources in one target, in every order."""
    cut = len(sources) == 1
    whole, pieces, side = (sources[0], targets, 1) if cut else (targets[0], sources, 0)
    of_whole = shapes[1 - side].get(whole, ())
    of_pieces = [shapes[side].get(name, ()) for name in pieces]
    joined = of_whole and all(one[1:] == of_whole[1:] for one in of_pieces)
    if not (cut or len(targets) == 1) or not joined or sum(one[0] for one in of_pieces) != of_whole[0]:
        return
    orders = permutations(pieces) if len(pieces) <= MOST_ORDERED_PIECES else [tuple(pieces)]
    for order in orders:
        placed, start = [], 0
        for name in order:
            stop = start + shapes[side][name][0]
            step = Slice(0, start, stop, of_whole) if cut else Part(0, start, stop, of_whole)
            placed.append((name, step))
            start = stop
        if cut:
            yield rule_text(names[0, whole], [(names[1, name], step) for name, step in placed])
        else:
            yield "\n".join(rule_text(names[0, name], [(names[1, whole], step)]) for name, step in placed)


# The rules of a map: the file that the user gives for it, and what they wrote into the file that is made again.


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


# What a map file keeps of a trial: the pairs that it found, and a comment that says what it was made of.

_LINE = re.compile(
    rf"{OURS} TRIED (?P<made_of>[0-9a-f]+) (?P<whole>whole|part) (?P<found>\d+)(?P<rules>(?: [0-9a-f]+)*)(?:: .*)?"
)


@dataclass(frozen=True, slots=True)
class KeptTrial:
    """What a map file keeps of a trial: what it was made of, a sum of each rule that it had, and what it found.

    `whole` says that nothing was left open, unsure or unseen, and that no line is missing. `names` are the sources with
    their targets; those in `flow` were found by the flow of the data.
    """

    made_of: str
    rules: tuple[str, ...]
    whole: bool
    names: tuple[tuple[str, str, Transform], ...] = ()
    file: str = ""
    flow: frozenset[tuple[str, str]] = frozenset()


def kept_trial(path: Path) -> KeptTrial | None:
    """What a map file keeps of a trial; None if it keeps nothing. Raises MapError with all faults."""
    text = map_file_text(path)
    line = next(filter(None, map(_LINE.fullmatch, text.split("\n"))), None)
    if line is None:
        return None
    rules = tuple(line["rules"].split())
    names = rules_of_text(trial_text(text, "trial", "dataflow"), path).all_names
    flow = frozenset(one[:2] for one in rules_of_text(trial_text(text, "dataflow"), path).all_names)
    whole = line["whole"] == "whole" and len(names) == int(line["found"])
    return KeptTrial(line["made_of"], rules, whole, names, path.name, flow)
