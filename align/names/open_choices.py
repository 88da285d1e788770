"""For what stays open the lines to write into the map file, ready to paste; what repeats in each block is told once.

Of a layer's parameters that with the most axes gets lines, since the others follow it. A line of a run `{0..11}` says
the same of each block; what is wrong for one of them gets a line of its own beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, permutations
from typing import TYPE_CHECKING

from align.core.piece_transforms import Part, Slice
from align.core.transforms import IDENTITY, Permute
from align.names.fold_names import NUMBER, quote_ranges
from align.names.map_file_parts.map_lines import OURS
from align.names.map_file_parts.map_text import rule_text
from align.names.thresholds import MOST_LINES_OF_A_GROUP, MOST_ORDERED_PIECES, SUGGESTED_NAMES
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.core.parameters import Shape
    from align.core.transforms import Transform

    Shapes = tuple[Mapping[str, Shape], Mapping[str, Shape]]
    Group = tuple[tuple[str, ...], tuple[str, ...], str]  # sources, targets, reason


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
    found: list[OpenChoice] = []
    runs = list(_alike(list(groups), shapes))
    most = _with_most_axes(runs, shapes)
    for place, alike in enumerate(runs):
        sources, targets, reason = alike[0]
        texts = _in_runs([(*one, *other) for one, other, _ in alike])
        names = dict(zip((*((0, name) for name in sources), *((1, name) for name in targets)), texts, strict=True))
        is_told = any(place == most[_owners(group)] for group in alike)
        lines = list(dict.fromkeys(_lines(sources, targets, shapes, names))) if is_told else []
        shown, left = tuple(lines[:MOST_LINES_OF_A_GROUP]), max(0, len(lines) - MOST_LINES_OF_A_GROUP)
        count = len(sources)
        found.append(OpenChoice(tuple(texts[:count]), tuple(texts[count:]), reason, len(alike), shown, left))
    return found


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
    found: dict[object, tuple[int, int]] = {}
    for place, run in enumerate(runs):
        axes = max((len(shapes[0].get(name, ())) for name in run[0][0]), default=0)
        for group in run:
            key = _owners(group)
            found[key] = max(found.get(key, (-1, 0)), (axes, -place))
    return {key: -place for key, (_, place) in found.items()}


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
    found = False
    for source in sources:
        for target in targets:
            one_to_one = len(sources) == len(targets) == 1
            for change in _changes(shapes[0].get(source, ()), shapes[1].get(target, ()), either=one_to_one):
                found = True
                yield rule_text(names[0, source], [(names[1, target], change)])
    if not found:
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
