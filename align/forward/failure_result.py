"""What ended the run of a port, as a value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PortFailure:
    """Where the candidate raised: the innermost layer ("" in the model's own code), its class, `file:line`; and what.

    `after` is the layer that returned last, `kind` what sort of failure it is, `hint` what to do about it.
    """

    layer: str
    class_name: str
    after: str
    line: str
    kind: str
    raised: str
    hint: str
