"""What lies in the place of a checkpoint and is none: a file that was not fetched, or one around the checkpoint itself.

Nothing is unpacked here: an archive may hold anything, and take any room. What it is and what to type is said.
"""

from __future__ import annotations

import shlex
import zlib
from typing import TYPE_CHECKING

from align.checkpoints.sound_records import TAR_BLOCK, ZIP_HEAD, is_tar, names_in_tar, zip_records
from align.errors import NotACheckpointError, UnsupportedCheckpointError
from align.words.catalogue import texts

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from align.errors import CannotRunError

# How what lies in the place of a checkpoint starts when it was not fetched.
NOT_FETCHED = {
    b"version https://git-lfs": "checkpoint_file.lfs_pointer",
    b"<!doctype html": "checkpoint_file.web_page",
    b"<html": "checkpoint_file.web_page",
}
GZIP = b"\x1f\x8b"
COMPRESSED = {
    GZIP: ("gzip", "gzip -dk"),
    b"BZh": ("bzip2", "bzip2 -dk"),
    b"\xfd7zXZ\0": ("xz", "xz -dk"),
    b"\x28\xb5\x2f\xfd": ("Zstandard", "zstd -d"),
}
TAR_SUFFIXES = (".tgz", ".tbz2", ".txz", ".nemo")
NEMO, NEMO_WEIGHTS = "model_config.yaml", "model_weights"  # format: what NeMo puts into its archives


def foreign_file(path: Path, head: bytes) -> CannotRunError | None:
    """What to say of a file that no format recognises; None where nothing is known of it."""
    for start, fault in NOT_FETCHED.items():
        if head.lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(start):
            reason, hint = texts(fault)
            return NotACheckpointError(path, reason, hint=hint)
    if names := names_in_tar(path, head):
        plain = sorted(name.removeprefix("./") for name in names)
        return _of_nemo(path, plain) if NEMO in plain else _around(path, "tar", "tar -xf", names)
    if head.startswith(ZIP_HEAD):
        return _around(path, "zip", "unzip", zip_records(path))
    for start, (name, command) in COMPRESSED.items():
        if head.startswith(start):
            line = shlex.join([*(["tar", "-xf"] if _holds_tar(path, head) else command.split()), str(path)])
            return UnsupportedCheckpointError(path, *texts("foreign_file.compressed", name=name, line=line))
    return None


def _holds_tar(path: Path, head: bytes) -> bool:
    if ".tar" in path.suffixes or path.suffix in TAR_SUFFIXES:
        return True
    try:
        return head.startswith(GZIP) and is_tar(zlib.decompressobj(wbits=31).decompress(head, TAR_BLOCK))
    except zlib.error:
        return False


def _of_nemo(path: Path, names: Iterable[str]) -> UnsupportedCheckpointError:
    """The weights are a file of torch, or the folder of a parallel training; they may stand behind other members."""
    first = {name.partition("/")[0] for name in names}
    weights = min(
        (name for name in first if name.startswith((NEMO_WEIGHTS, "mp_rank"))), default=f"{NEMO_WEIGHTS}.ckpt"
    )
    line = shlex.join(["tar", "-xf", str(path)])
    return UnsupportedCheckpointError(path, *texts("foreign_file.nemo", weights=weights, line=line))


def _around(path: Path, name: str, command: str, names: Iterable[str]) -> UnsupportedCheckpointError:
    shown = sorted(names)
    facts = {"name": name, "names": shown, "count": len(shown), "line": shlex.join([*command.split(), str(path)])}
    return UnsupportedCheckpointError(path, *texts("foreign_file.archive", **facts))
