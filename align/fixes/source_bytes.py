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


def whole_text(raw: bytes) -> str:
    """A file's text; a mark of the encoding, if it has one, is its first character, since a diff shows lines whole."""
    return raw.decode(_without_mark(raw))


def as_in_file(text: str, like: bytes) -> bytes:
    """What `whole_text` returned, or a part of it, as bytes again."""
    return text.encode(_without_mark(like))


def encoded(text: str, like: bytes) -> bytes:
    """A text in the encoding of another content of the same file, with its mark if that has one."""
    return text.removeprefix(BOM).encode(encoding_of(like))


def _without_mark(raw: bytes) -> str:
    return encoding_of(raw).removesuffix("-sig")
