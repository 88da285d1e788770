"""A unified diff of one file, byte for byte what `git apply` and `patch -p1` read, whatever its line ends are."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_UNENDED_AS_PRINTED = "\n\\ No newline at end of file\n"


def unified_diff(name: str, before: str, after: str) -> str:
    r"""Return the diff of a file whose name in the patch is `name`; "" if both are equal.

    >>> print(unified_diff("port.py", "a = 1\n", "a = 2\n"), end="")
    --- a/port.py
    +++ b/port.py
    @@ -1 +1 @@
    -a = 1
    +a = 2
    """
    end = "\t" if " " in name else ""  # else both programs take what is in front of the space for the name
    return "".join(_lines(f"a/{name}{end}", f"b/{name}{end}", before, after))


def _lines(first: str, second: str, before: str, after: str) -> Iterator[str]:
    lines = difflib.unified_diff(_LINE.findall(before), _LINE.findall(after), first, second)
    for number, line in enumerate(lines):
        if number < len(("---", "+++")):
            yield line.rstrip("\n").removesuffix("\t") + ("\t\n" if first.endswith("\t") else "\n")
        else:
            yield line if line.endswith("\n") else line + _UNENDED_AS_PRINTED
