"""The reference's weights in the candidate, through the name map, for as long as a run takes."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from align.core.name_map import NameMap
from align.core.verdicts import Finding
from align.errors import NothingInCommonError
from align.names.map_file import read_map
from align.names.map_parameters import match_sides
from align.names.match_by_order import settle_by_order
from align.names.user_rules import NameRules, check_shapes
from align.traces.compare_weights import compare_weights, expected_weights
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.core.dtypes import Array
    from align.models.open_side import Side


class TransferredWeights:
    """What the candidate would hold with the reference's weights.

    `findings` are the paired parameters whose values differ. `problem` says why values could not be compared, or cannot
    be carried over, "" if they can. Made before the first run, in which a MindSpore cell may rename its parameters.
    `inputs` are those of a run whose order decides what names leave open.
    """

    def __init__(
        self, sides: tuple[Side, Side], name_map: NameMap | Path | str | None, inputs: Mapping[str, Array]
    ) -> None:
        self._candidate = sides[1]
        self._values: dict[str, Array] = {}
        self.findings: tuple[Finding, ...] = ()
        self.problem = ""
        source, target = (side.reader.read_values(side.model) for side in sides)
        try:
            paired = _paired(sides, name_map, inputs)
        except NothingInCommonError as error:
            if name_map is not None:
                raise
            self.problem = error.message
            return
        self.findings = compare_weights(source, target, paired)
        if self.findings:
            self._values = target | expected_weights(source, target, paired)
        left_open = [one.name for one in paired.unmatched]
        left_open += [name for group in paired.ambiguous for name in (*group.sources, *group.targets)]
        if left_open:
            self.problem = sentence("trace_finding.names_open", count=len(left_open), names=left_open)

    def report(self, label: str) -> Iterator[Finding]:
        """Warn of values that differ, and of those that are not known to be the same."""
        if self.findings:
            names = [finding.subject for finding in self.findings]
            message = sentence("trace_finding.other_weights", count=len(names), names=names)
            yield Finding("weights-differ", "warning", label, message)
        if self.problem:
            message = sentence("trace_finding.weights_unknown", problem=self.problem)
            yield Finding("weights-unknown", "warning", label, message)

    @property
    def exchangeable(self) -> bool:
        """Tell whether the candidate has weights of its own, and can take the reference's."""
        return bool(self.findings) and not self.problem

    @contextmanager
    def loaded(self) -> Iterator[None]:
        """Fill the candidate with the reference's weights, and give it its own back at the end."""
        reader, model = self._candidate.reader, self._candidate.model
        own = reader.read_values(model)
        reader.load_values(model, dict(zip(own, self._values.values(), strict=True)))
        try:
            yield
        finally:
            reader.load_values(model, own)


def _paired(sides: tuple[Side, Side], given: NameMap | Path | str | None, inputs: Mapping[str, Array]) -> NameMap:
    if isinstance(given, NameMap):
        return given
    source, target = (side.reader.read_parameters(side.model, side.label) for side in sides)
    if given is None:
        matched = match_sides(source, target, NameRules())
        if matched.complete:
            return matched
        return settle_by_order(matched, sides, (source, target), inputs, NameRules())[0]
    name_map = read_map(Path(given), source.names, target.names)
    check_shapes(name_map, source, target)
    return name_map
