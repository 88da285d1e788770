"""The numbers of a log line, each with what stands in front of it; times, dates and places in source code are none.

A label goes back to a comma, a bracket, a colon, two spaces or the number before. Digits inside a name (`acc1`,
`loss_bbox_0`) are part of it, but for a counter's (`epoch3`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from align.curves.line_formats.log_words import counter_kind
from align.curves.thresholds import LONGEST_LINE

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
    text, found, after = masked(line), [], -1
    for match in _NUMBER.finditer(text):
        left = max(after, 0)
        start = match.start("value")
        label_end = start if match["glued"] else _glue_start(text, left, start)
        label_start = _label_start(text, left, _without_qualifier(text, left, label_end))
        if after >= 0 and text[after:label_start].isspace() and (unit := _UNIT.match(text, label_start, label_end)):
            label_start = unit.end()
        if not _LETTER.search(text, label_start, label_end):
            label_start = label_end = start
        found.append(
            NumberInLine(
                text[label_start:label_end],
                match["value"],
                label_start,
                label_end,
                start,
                match.end("value"),
                after,
                match["total"] or "",
                match["unit"] or "",
                text[match.end("value") : match.start("total")] if match["total"] else "",
            )
        )
        after = match.end()
    return found


def named_numbers(line: str) -> list[NumberInLine]:
    """Return the numbers of a line that have a name of their own, and count nothing; the first of each name."""
    found: dict[str, NumberInLine] = {}
    for one in numbers_of_line(line):
        if (
            one.label
            and not one.total
            and one.unit != "%"
            and not counter_kind(one.label)
            and one.label.split()[-1] != _NO_METRIC
        ):
            found.setdefault(one.label, one)
    return list(found.values())


def _glue_start(text: str, left: int, start: int) -> int:
    """Return where the signs between a label and its number begin, with the call that may wrap the number."""
    piece = text[left:start]
    if wrapper := _WRAPPER.search(piece):
        piece = piece[: wrapper.start()]
    glue = _GLUE.search(piece)
    at = glue.start() if glue else len(piece)
    bracketed = piece[at - 1 : at] == "]" and piece[at : at + 1] in (":", "=") and _BRACKETED.search(piece[:at])
    return left + at - bool(bracketed)


def _without_qualifier(text: str, left: int, end: int) -> int:
    """Return where a name ends that a word in brackets follows, `Loss(MSE)`; the word stays part of the label."""
    found = _QUALIFIER.search(text, left, end)
    return end if found is None else found.start()


def _label_start(text: str, left: int, end: int) -> int:
    piece = text[left:end]
    last = max((match.end() for match in _BOUNDARY.finditer(piece)), default=0)
    return left + last + len(piece[last:]) - len(piece[last:].lstrip())
