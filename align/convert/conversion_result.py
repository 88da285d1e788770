"""What a conversion did, tensor by tensor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from align.core.parameters import Shape
    from align.core.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class ConvertedTensor:
    """One tensor as written: its source, what was done, and the SHA-256 of its bytes where it was read back.

    `source` is "" for a tensor that the source lacks and the target needs.
    """

    source: str
    target: str
    shape: Shape
    dtype: str
    transform: dict[str, object]
    sha256: str | None
    source_shape: Shape
    source_dtype: str


@dataclass(frozen=True, slots=True)
class DroppedValue:
    """The value of a small tensor that was left out: its bytes (little-endian, C order) as hexadecimal digits."""

    dtype: str
    shape: Shape
    data: str


@dataclass(frozen=True, slots=True)
class ConversionRecord:
    """What a conversion did. `verified` says whether what was written was read back and compared bit for bit.

    `files` are the files written, none in a dry run; `key` is the entry that was taken of a nested file. `names` says
    where the map comes from, `framework` whose names the target has. `content_sha256` covers names, dtypes, shapes and
    values of all tensors, not how a file holds them; it is None without verification. `left_out` names what
    the source holds beside its tensors, and what it is. `source_framework` is whose names the source has, None where
    nothing says so. `dropped_target` are those of `dropped` that only the target has.
    """

    result_kind = "convert"
    source: str
    destination: str
    files: tuple[str, ...]
    source_format: str
    destination_format: str
    key: str
    names: str
    framework: Literal["torch", "mindspore"]
    content_sha256: str | None
    tensors: tuple[ConvertedTensor, ...]
    dropped: dict[str, str]
    dropped_values: dict[str, DroppedValue]
    ties: tuple[tuple[str, ...], ...]
    warnings: tuple[str, ...]
    verified: bool
    versions: dict[str, str]
    verdict: Verdict
    left_out: dict[str, str] = field(default_factory=dict)
    source_framework: Literal["torch", "mindspore"] | None = None
    dropped_target: tuple[str, ...] = ()
