"""What a value is the mean of, in words: `mean of last 10`, `since last print`, as users and format files say it."""

from __future__ import annotations

import re

from align.curves.loss_log import EPOCH_MEAN, EPOCH_SO_FAR, RAW, SINCE_LAST_PRINT, Window
from align.errors import UsageError

_FIXED = {window.kind: window for window in (RAW, SINCE_LAST_PRINT, EPOCH_SO_FAR, EPOCH_MEAN)}
_OF_LAST = re.compile(r"(mean|median) of last ([1-9][0-9]{0,8})", re.ASCII)
_FORMS_HINT = ", ".join(f"'{form}'" for form in ("mean of last 10", "median of last 10", *_FIXED))


def find_window(text: str) -> Window:
    """Return what `mean of last 10`, `since last print` ... stand for; raises UsageError for another text."""
    words = " ".join(text.lower().split())
    if words in _FIXED:
        return _FIXED[words]
    of_last = _OF_LAST.fullmatch(words)
    if of_last is None:
        raise UsageError(f"a value of a log cannot be {text!r}", f"give one of {_FORMS_HINT}, with any number")
    length = int(of_last[2])
    if length == 1:
        return RAW
    return Window("mean of last" if of_last[1] == "mean" else "median of last", length)
