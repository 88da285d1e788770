"""What the numbers of one line stand for: its step, its epoch, its losses, its learning rate."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from align.curves.log_parts.table_reader import mapping_place, read_toml
from align.curves.thresholds import LONGEST_LINE, REMEMBERED_LINES
from align.errors import MappingRuleError
from align.words.catalogue import say

if TYPE_CHECKING:
    from pathlib import Path


Place = Literal["through", "named", "ratio", "first"]
# Where a line tells several counters of steps, the surest is taken.
_SUREST: tuple[Place, ...] = ("through", "named", "ratio", "first")
_OPEN_RATIO = re.compile(r"[\[(|]\s*$")
_FRONT = re.compile(r"[\s\x00]*\[\s*([0-9]+)\s*(?:,\s*([0-9]+)\s*)?[\]|]")
_EPOCHS = re.compile(r"(?i)\bepochs?[:\s]\s*[0-9]{1,3}%\|[^|]*\|\s*")
_BESIDE = re.compile(r"\]\s?\[\s*|\)\s?\(\s*")
_LIST, _NEXT = re.compile(r"[\[(]\s*$"), re.compile(r"\s*,\s*[-+]?\.?[0-9]")
_WORD = re.compile(r"[A-Za-z\u4e00-\u9fff]")


@dataclass(frozen=True, slots=True)
class LineRoles:
    """The numbers of a line by their role; `losses` of training, the surest first, with their ranks.

    `place` says how the step is known: by a name that counts through, by another, by a ratio without a name
    (`[20/5004]`), or by standing first in the line. `validation`: what it tells is of another phase.
    """

    number: int
    line: str
    step: NumberInLine | None
    place: Place | None
    epoch: NumberInLine | None
    losses: tuple[tuple[int, NumberInLine], ...]
    rate: NumberInLine | None
    validation: bool
    fields: int

    @property
    def counted(self) -> bool:
        """True if it tells a step or an epoch."""
        return self.step is not None or self.epoch is not None

    @property
    def loss(self) -> NumberInLine | None:
        """The surest loss of training; None if there is none."""
        return self.losses[0][1] if self.losses and not self.validation else None


@functools.lru_cache(maxsize=REMEMBERED_LINES)
def roles_of_line(
    line_number: int, line: str, *, bare: bool = False, fixed: frozenset[str] = frozenset(), metric: str = ""
) -> LineRoles:
    """Tell the roles of the numbers of a line; with `bare` a number after `train` alone is a loss.

    `fixed` names what is no counter, as it is the same in all lines, `metric` what alone is taken in place of a loss.
    """
    numbers = numbers_of_line(line)
    counts = [number for number in numbers if number.unit != "%"]
    step, place = _step(line, [number for number in counts if number.label not in fixed] if fixed else counts)
    epoch = next(
        (number for number in counts if number.whole and counter_kind(_counter_label(number)) == "epoch"), None
    )
    epoch = _bare_epoch(counts) if epoch is None else epoch
    if step is not None and place == "ratio" and epoch is None:
        bar = _EPOCHS.search(line)  # `Epochs:  11%|#   | 11/100 [...]`
        of_epochs = bar is not None and bar.end() == step.start
        epoch, step = (step, None) if of_epochs else _two_ratios(line, numbers, step)
    if step is None and epoch is None and (pair := _in_front(line, numbers)):
        step, place, epoch = pair[-1], "ratio", pair[0] if len(pair) > 1 else None
    # Of several numbers in a bracket any may be meant.
    usable = [
        number for number in numbers if not (_LIST.search(line[: number.start]) and _NEXT.match(line, number.end))
    ]
    losses = tuple((0, number) for number in usable if number.label == metric) if metric else _losses(usable, bare)
    rate = next((number for number in numbers if is_rate(number.label)), None)
    return LineRoles(
        line_number, line, step, place, epoch, losses, rate, _of_validation(line, numbers, losses), len(numbers)
    )


def _bare_epoch(found: list[NumberInLine]) -> NumberInLine | None:
    """Return the number after the name of the phase alone, if steps with their total follow."""
    names = log_words().names["epoch.bare"]
    for one, after in pairwise(found):
        if one.whole and after.total and not after.label and " ".join(words_of(one.label)) in names:
            return one
    return None


def _two_ratios(line: str, found: list[NumberInLine], first: NumberInLine) -> tuple[NumberInLine | None, NumberInLine]:
    """Return an epoch and a step where two ratios stand in brackets side by side, `[0/25][10/391]`; else the first."""
    after = next((one for one in found if one.after >= first.end and one.start > first.end), None)
    if after is None or not after.total or after.label or not _BESIDE.fullmatch(line[after.after : after.start]):
        return None, first
    return first, after


def _in_front(line: str, numbers: list[NumberInLine]) -> list[NumberInLine]:
    """Return a step, or an epoch and a step, in a bracket at the beginning of a line: `[2000]`, `[1,  2000]`."""
    front = _FRONT.match(masked(line))
    if front is None:
        return []
    inside = [number for number in numbers if number.end <= front.end() and number.whole]
    return inside if len(inside) == (2 if front[2] else 1) else []


def _counter_label(one: NumberInLine) -> str:
    """Return the label, or the name of a counter that stands behind: `1epoch`, `1-375batch`, `the 1 epoch's`."""
    return one.unit if counter_kind(one.unit) and not counter_kind(one.label) else one.label


def _step(line: str, found: list[NumberInLine]) -> tuple[NumberInLine | None, Place | None]:
    """Return the surest counter of steps."""
    places = {_place(line, found, index): one for index, one in reversed(list(enumerate(found))) if one.whole}
    place = next((one for one in _SUREST if one in places), None)
    return (None, None) if place is None else (places[place], place)


def _place(line: str, numbers: list[NumberInLine], index: int) -> Place | None:
    number = numbers[index]
    kind = counter_kind(_counter_label(number))
    if kind in ("through", "step"):
        return "through" if kind == "through" else "named"
    if _WORD.search(number.label) or number.unit:
        return None
    if number.total:
        behind_epoch = index > 0 and counter_kind(numbers[index - 1].label) == "epoch"
        return "ratio" if behind_epoch or _OPEN_RATIO.search(line[: number.start]) else None
    return (
        "first"
        if index == 0 and not line[: number.start].strip() and line[number.end : number.end + 1] == " "
        else None
    )


def _losses(found: list[NumberInLine], bare: bool) -> tuple[tuple[int, NumberInLine], ...]:
    names = log_words().names["loss.bare"] if bare else frozenset[str]()
    ranked = [(0 if one.label in names else loss_rank(one.label), one) for one in found if one.unit != "%"]
    return tuple(sorted([(rank, one) for rank, one in ranked if rank is not None], key=lambda pair: pair[0]))


def _of_validation(line: str, numbers: list[NumberInLine], losses: tuple[tuple[int, NumberInLine], ...]) -> bool:
    """Tell by the words in front of the loss, but for names of other numbers; without a loss by counters' names."""
    if not numbers:
        return is_validation(masked(line))
    if not losses:
        counters = [number.label for number in numbers if counter_kind(number.label)]
        begins = words_of(masked(line)[:80])[:1]
        return any(map(is_validation, (*counters, *begins))) or any(is_loss_name(number.label) for number in numbers)
    return is_validation(text_before(line, losses[0][1], numbers))


def text_before(line: str, loss: NumberInLine, found: list[NumberInLine]) -> str:
    """Return what stands in front of a loss, without the names of numbers that count nothing: `Test: [3/9]` counts."""
    text = masked(line)[: loss.label_start]
    for one in found:
        if one.label_end <= len(text) and not counter_kind(one.label) and not one.total:
            text = text[: one.label_start] + " " * (one.label_end - one.label_start) + text[one.label_end :]
    return text


# What the numbers of training logs are called: `mappings/log_words.toml`, and what a label says by it.

_FILE = "log_words.toml"
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+|[\u4e00-\u9fff]+")
_OF_CRITIC = re.compile(r"\bvalue loss\b")  # `loss value` is the loss
CounterKind = Literal["through", "step", "epoch"]
MEAN_RANK = 10  # format: an order of labels, means behind single losses
PART_RANK = 100  # format: an order of labels, parts behind means


@dataclass(frozen=True, slots=True)
class LogWords:
    """The vocabulary by section and key, `loss.plain`: words, or names of several words parted by one space."""

    names: dict[str, frozenset[str]]

    def has(self, key: str, words: tuple[str, ...]) -> bool:
        """Tell whether one of these words is listed."""
        return not self.names[key].isdisjoint(words)


@cache
def log_words() -> LogWords:
    """Read the vocabulary; raises MappingRuleError if the installation lacks it or it is no table of lists."""
    return read_log_words(mapping_place(_FILE))


def read_log_words(path: Path) -> LogWords:
    """Read one file of words; raises MappingRuleError."""
    document = read_toml(path)
    if not all(isinstance(section, dict) for section in document.values()):
        raise MappingRuleError(path, say("rule_error.word_lists"))
    return LogWords(
        {f"{name}.{key}": frozenset(words) for name, section in document.items() for key, words in section.items()}
    )


@lru_cache(maxsize=4096)
def words_of(label: str) -> tuple[str, ...]:
    """Part a label into words in lower case: `trainLoss`, `train/loss` and `Train Loss` are alike."""
    return tuple(part for word in _PARTS.findall(label) for part in _unglued(word.lower()))


def _unglued(word: str) -> tuple[str, ...]:
    """Part a word that ends in `loss`: `trainloss`, `softmaxcrossentropyloss`."""
    return (word.removesuffix("loss"), "loss") if word.endswith("loss") and word != "loss" else (word,)


@lru_cache(maxsize=4096)
def loss_rank(label: str) -> int | None:
    """Tell how surely a label names the training loss: 0 surest, from PART_RANK on a part of it; None if no loss."""
    words, known = words_of(label), log_words()
    others = [word for word in words if word not in known.names["loss.words"]]
    if len(others) == len(words) or known.has("loss.never", words) or is_validation(label):
        return None
    means = [word for word in others if word in known.names["loss.means"]]
    parts = [word for word in others if word not in known.names["loss.plain"] and word not in means]
    parts += _OF_CRITIC.findall(" ".join(words))
    return PART_RANK * bool(parts) + MEAN_RANK * bool(means) + len(dict.fromkeys(others))


@lru_cache(maxsize=4096)
def is_loss_name(label: str) -> bool:
    """Tell whether a label names a loss of any phase."""
    words, known = words_of(label), log_words()
    return known.has("loss.words", words) and not known.has("loss.never", words)


@lru_cache(maxsize=4096)
def is_validation(label: str) -> bool:
    """Tell whether a text has a word of another phase than training."""
    return log_words().has("validation.words", words_of(label))


@lru_cache(maxsize=4096)
def counter_kind(label: str) -> CounterKind | None:
    """Tell what a label counts: by its last name, unless a word in front says that it is a setting or a time."""
    known, tokens = log_words(), label.split()
    if not tokens:
        return None
    last, before = " ".join(words_of(tokens[-1])), words_of(" ".join(tokens[:-1]))
    whole = " ".join(words_of(label))
    if {last, whole} & known.names["step.through"]:
        return "through"
    if known.has("counter.never", before):
        return None
    if {last, whole} & known.names["step.names"]:
        return "step"
    return "epoch" if {last, whole} & known.names["epoch.names"] else None


@lru_cache(maxsize=4096)
def is_rate(label: str) -> bool:
    """Tell whether a label names the learning rate."""
    return " ".join(words_of(label)) in log_words().names["rate.names"]


# The numbers of a log line, each with what stands in front of it; times, dates and places in source code are none.
#
# A label goes back to a comma, a bracket, a colon, two spaces or the number before. Digits inside a name (`acc1`,
# `loss_bbox_0`) are part of it, but for a counter's (`epoch3`).

# Names glued to their number; and what may stand around one.
_GLUED = r"(?:[Ee]poch|EPOCH|[Ss]tep|[Ii]ter(?:ation)?|[Bb]atch|ep|it)s?"
_VALUE = (
    r"[-+]?(?:[0-9]+(?:\.(?!\.)[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|(?:[-+]?(?i:nan|inf(?:inity)?)|None|null)(?![\w])"
)
_NUMBER = re.compile(
    rf"(?:(?<![\w.])|(?<=[\u4e00-\u9fff]))(?P<glued>{_GLUED})?(?P<value>{_VALUE})"
    r"(?P<ratio>(?:[ ]*/[ ]*|\][ ]?/[ ]?\[|[ ]of[ ])(?P<total>[0-9]+)(?![.0-9]|,[0-9]{3}))?"
    r"(?P<unit>%|(?:[A-Za-zµ][A-Za-z]*(?:/[A-Za-z]+)?)|[ ]epoch(?='s)|[ ]?[轮步])?"
)
_CLOCK = r"[0-9]{1,3}:[0-9]{2}(?::[0-9]{2})?(?:[.,][0-9]+)?(?![\w.])"
_WEEKDAY = r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6},?[ ]+)?"
_DAY = _WEEKDAY + r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}[ ]+[0-9]{1,2},?[ ]+"
_NO_NUMBERS = re.compile(
    r"^[IWEF][0-9]{4} [0-9:.]+ +[0-9]+ [\w.]+:[0-9]+\]"
    r"|(?<![\w.])[0-9]{2,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}(?![\w/])(?:[ T_|]"
    + _CLOCK
    + r")?(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
    rf"|(?<!\w){_DAY}{_CLOCK}(?:[ ]+[A-Z]{{3,4}})?(?:[ ]+[0-9]{{4}}(?![\w.]))?"
    r"|(?<=\[)[0-9]{1,2}/[0-9]{1,2}(?= [0-9]{1,2}:)"
    r"|(?<![\w.])(?:[0-9]+ days?,? )?" + _CLOCK + r"|(?<![\w.])[0-9]+ days?, "
    r"|\([\w.]+:[0-9]+\)|(?<!\w)[A-Za-z_<][\w.<>]*:[A-Za-z_<][\w.<>]*:[0-9]+(?![\w.])|[\w./\\-]+\.(?:py|cpp|cc|cu|h|c|js|go|rs)(?!\w)(?::[0-9]+)?(?::\w+)?"
    r"|(?<![\w.])0x[0-9a-fA-F]+|(?<![\w.])[0-9]+(?:\.[0-9]+){2,}"
)
_BLANK = "\x00"
_WRAPPER = re.compile(
    r"(?:tensor|Tensor|array|float(?:16|32|64)?|np\.float(?:16|32|64))\($"
    r"|\(?Tensor\(shape=\[\], dtype=\w+, value=\s*$"
)
_BRACKETED = re.compile(r"\[[^\W\d]\w*\]$")
_QUALIFIER = re.compile(r"(?<=[^\W\d_])[ ]?\([^\W\d]\w{0,15}\)\Z")
_GLUE = re.compile(r"[\s:=\[(|\"'#~>：（-]*$")
_BOUNDARY = re.compile(r"[\x00,;|{}()\[\]<>\"'\t%*，；：（）。]|\s{2,}|[:=]|(?:^|\s)-+(?=\s)|->|…")
# The unit of the number before, apart from it: `speed 123 samples/s loss 2.3`.
_UNIT = re.compile(
    r"(?:[A-Za-z]+/(?:s|sec|second|step|it|iter|batch|img|image|sample|token|GPU|gpu)|ms|s|secs?|seconds?|min|mins|MB|GB|MiB|GiB)"
    r"[ ]+(?=[^\W\d_])"
)
_NO_METRIC = "pid"  # Ray puts the process in front of a line
_LETTER = re.compile(r"[^\W\d_]")


@dataclass(frozen=True, slots=True)
class NumberInLine:
    """A number at text[start:end], its label at text[label_start:label_end]; `total` and `unit` are "" if absent.

    `after` is where the number before it ends, with its total and unit; -1 for the first of the line. `ratio` is what
    stands between a number and its total.
    """

    label: str
    text: str
    label_start: int
    label_end: int
    start: int
    end: int
    after: int
    total: str = ""
    unit: str = ""
    ratio: str = ""

    @property
    def whole(self) -> bool:
        """True if it is printed as a whole number without a sign."""
        return self.text.isdecimal()


def masked(line: str) -> str:
    """Blank what looks like a number and is none, each character for one."""
    return _NO_NUMBERS.sub(lambda found: _BLANK * len(found[0]), line[:LONGEST_LINE])


def numbers_of_line(line: str) -> list[NumberInLine]:
    """Return the numbers of a line in order."""
    text, numbers, after = masked(line), [], -1
    for match in _NUMBER.finditer(text):
        left = max(after, 0)
        start = match.start("value")
        label_end = start if match["glued"] else _glue_start(text, left, start)
        # A word in brackets may follow a name, `Loss(MSE)`; it stays part of the label.
        qualifier = _QUALIFIER.search(text, left, label_end)
        label_start = _label_start(text, left, qualifier.start() if qualifier else label_end)
        if after >= 0 and text[after:label_start].isspace() and (unit := _UNIT.match(text, label_start, label_end)):
            label_start = unit.end()
        if not _LETTER.search(text, label_start, label_end):
            label_start = label_end = start
        label, end, total = text[label_start:label_end], match.end("value"), match["total"] or ""
        ratio = text[end : match.start("total")] if total else ""
        places = (label_start, label_end, start, end, after)
        numbers.append(NumberInLine(label, match["value"], *places, total, match["unit"] or "", ratio))
        after = match.end()
    return numbers


def named_numbers(line: str) -> list[NumberInLine]:
    """Return the numbers of a line that have a name of their own, and count nothing; the first of each name."""
    by_label: dict[str, NumberInLine] = {}
    for number in numbers_of_line(line):
        named = number.label and not counter_kind(number.label) and number.label.split()[-1] != _NO_METRIC
        if named and not number.total and number.unit != "%":
            by_label.setdefault(number.label, number)
    return list(by_label.values())


def _glue_start(text: str, left: int, start: int) -> int:
    """Return where the signs between a label and its number begin, with the call that may wrap the number."""
    piece = text[left:start]
    if wrapper := _WRAPPER.search(piece):
        piece = piece[: wrapper.start()]
    glue = _GLUE.search(piece)
    at = glue.start() if glue else len(piece)
    bracketed = piece[at - 1 : at] == "]" and piece[at : at + 1] in (":", "=") and _BRACKETED.search(piece[:at])
    return left + at - bool(bracketed)


def _label_start(text: str, left: int, end: int) -> int:
    piece = text[left:end]
    last = max((match.end() for match in _BOUNDARY.finditer(piece)), default=0)
    return left + last + len(piece[last:]) - len(piece[last:].lstrip())
