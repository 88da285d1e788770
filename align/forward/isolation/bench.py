"""One run of a port with what the reference had in the place of what it makes itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.errors import UserCodeError
from align.forward.isolation.isolated_calls import IsolatedCall, Isolation, IsolationOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.protocols import Inputs, Model
    from align.forward.isolation.expected_calls import ExpectedCalls
    from align.models.open_side import Side
    from align.traces.module_calls import CallKey


@dataclass(frozen=True, slots=True)
class IsolatedRun:
    """The calls of one run of the port, and what kept it from its end, "" if nothing did."""

    calls: dict[CallKey, IsolatedCall]
    failed: str = ""


@dataclass(frozen=True, slots=True)
class Bench:
    """The port, to be run with what the reference had in the place of what it makes itself."""

    side: Side
    inputs: Inputs
    expected: ExpectedCalls

    def run(self, way: IsolationOptions, stand_ins: Mapping[str, Model] | None = None) -> IsolatedRun:
        """Run the port; if it fails on the reference's values, what was seen until then counts."""
        sink = Isolation(self.expected, way)
        try:
            self.side.runner.run(self.side.model, self.inputs, sink, stand_ins)
        except UserCodeError as error:
            ended = {key: call for key, call in sink.calls.items() if call.ended}
            return IsolatedRun(ended, error.message)
        return IsolatedRun(sink.calls)
