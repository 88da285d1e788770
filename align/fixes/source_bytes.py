"""Source as bytes and as text: its encoding is the one that Python would read it in, its line ends are kept."""

from __future__ import annotations

import io
import tokenize

BOM = "\ufeff"


def encoding_of(raw: bytes) -> str:
    """The encoding that a file's mark or first lines name, else UTF-8; raises SyntaxError for one that there is not."""
    return tokenize.detect_encoding(io.BytesIO(raw).readline)[0]


def decoded(raw: bytes) -> str:
    """A file's text with its own line ends, without a mark of the encoding."""
    return raw.decode(encoding_of(raw))


def encoded(text: str, like: bytes) -> bytes:
    """A text in the encoding of another content of the same file, with its mark if that has one."""
    return text.removeprefix(BOM).encode(encoding_of(like))
