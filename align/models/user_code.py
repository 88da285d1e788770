"""The one boundary where every exception is caught: behind it runs code that is not ours."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, TypeVar

from align.errors import AlignError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def run_user_code(code: Callable[[], T], failed: Callable[[BaseException], AlignError]) -> T:
    """Return what the user's code returns; whatever it raises, or a call of `sys.exit`, is raised as `failed(error)`.

    An AlignError passes: it comes from our own code that the user's code called, a sink or a reader. What the code
    prints goes to standard error, since standard output is for results.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return code()
    except AlignError:
        raise
    except (Exception, SystemExit) as error:
        raise failed(error) from error
