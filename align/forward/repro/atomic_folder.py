"""A folder written whole or not at all."""

from __future__ import annotations

import secrets
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from align.core.message_words import first_few
from align.errors import DestinationError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path


@contextmanager
def atomic_folder(destination: Path, own: Collection[str]) -> Iterator[Path]:
    """Yield a new folder, which takes the destination's place if the block ends without an error and goes otherwise.

    A folder that is there is replaced if it holds nothing but files called as in `own`. Raises DestinationError where
    it holds something else, or cannot be written.
    """
    part = destination.with_name(f".{destination.name}.{secrets.token_hex(4)}.part")
    try:
        strange = sorted(path.name for path in destination.iterdir()) if destination.exists() else []
        if strange := [name for name in strange if name not in own]:
            hint = "name a folder that does not exist yet"
            raise DestinationError(f"{destination} is there, and holds {first_few(strange)}", hint)
        part.mkdir(parents=True)
        yield part
        shutil.rmtree(destination, ignore_errors=True)
        part.rename(destination)
    except OSError as error:
        hint = "check the folder, its permissions and the free space"
        raise DestinationError(f"cannot write {destination}: {error.strerror or error}", hint) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
