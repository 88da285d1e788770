"""The one boundary where every exception is caught: behind it runs code that is not ours."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, TypeVar

from align.errors import AlignError
from align.models.kept_process import kept_process

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def run_user_code(code: Callable[[], T], failed: Callable[[BaseException], AlignError], folder: str = "") -> T:
    """Return what the user's code returns; whatever it raises, or a call that ends the program, is `failed(error)`.

    An AlignError passes: it comes from our own code that the user's code called, a sink or a reader. What the code
    prints goes to standard error, since standard output is for results. It starts in `folder`, by default the current
    one, and sees no arguments of the command line; folder and arguments are put back.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr), kept_process(folder):
            return code()
    except AlignError:
        raise
    except (Exception, SystemExit) as error:
        raise failed(error) from error
