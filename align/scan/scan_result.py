"""What of a torch model MindSpore has: every call with its counterpart, where it stands, and what to write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from align.core.verdicts import ShownResult

if TYPE_CHECKING:
    from align.core.verdicts import Finding
    from align.models.api_calls import CallKind
    from align.rules.api_table import OtherDefault, Status

SeenBy = Literal["run", "source"]


@dataclass(frozen=True, slots=True)
class CallPlace:
    """A place that calls: `line` as `file.py:12` ("" where none can be told), `module` the path of the layer.

    For a layer, `line` makes it and `module` is its own path; for others, `line` calls and `module` is what runs then.
    By source, `calls` counts the places, for nothing is run.
    """

    line: str
    module: str
    calls: int


@dataclass(frozen=True, slots=True)
class ScannedCall:
    """All calls of one name, `api` (`torch.nn.functional.gelu`), and what the table says of it.

    `counterpart` is "" where there is none, or none is known; `write` is what to write there instead, `settings` are
    those that differ by default. `certainty` says how sure this is, `source` where it can be read. `chip` is what an
    Ascend chip does with it, "" for nothing that is known.
    """

    api: str
    kind: CallKind
    status: Status
    calls: int
    places: tuple[CallPlace, ...]
    counterpart: str = ""
    settings: tuple[OtherDefault, ...] = ()
    write: str = ""
    certainty: str = ""
    source: str = ""
    chip: str = ""


@dataclass(frozen=True, slots=True)
class ScanResult(ShownResult):
    """All calls of a model, those that need most work first; `counts` are calls by status.

    They were seen in a `run`, or found in the `source`, which does not show what code of other files does. `findings`
    are what the source tells besides.
    """

    result_kind = "scan"
    model: str
    target: str
    seen_by: SeenBy
    calls: tuple[ScannedCall, ...]
    counts: dict[str, int]
    findings: tuple[Finding, ...]
    inputs: dict[str, dict[str, object]]
    environment: dict[str, dict[str, str]]

    @property
    def exit_code(self) -> int:
        """0 if all calls have a counterpart on the target; 1 if one has none, no kernel there, or is not known."""
        return int(any(self.counts.get(status) for status in ("no counterpart", "no kernel", "unknown")))
