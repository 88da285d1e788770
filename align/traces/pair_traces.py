"""The layers of two traces paired: the name map that is given or made, the order of the runs where it is open."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from align.core.name_map import NameMap
from align.core.verdicts import Finding
from align.errors import NothingInCommonError
from align.names.map_file import read_map
from align.names.map_parameters import match_sides
from align.names.match_by_order import CallOrder, in_execution_order, match_by_order
from align.names.user_rules import NameRules, check_shapes
from align.traces.module_calls import CalledModules
from align.traces.pair_calls import pair_calls
from align.traces.pairing.pair_fused_layers import pair_fused_layers
from align.traces.returned_parts import comparable_captures, left_out_parts, parts_of
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.core.parameters import ParameterSet
    from align.core.traces import Trace
    from align.traces.module_calls import CallPairs

Traces = tuple["Trace", "Trace"]
Parameters = tuple["ParameterSet", "ParameterSet"]


def choose_map(given: NameMap | Path | str | None, sides: Parameters) -> NameMap:
    """Return the map that is given, read from its file if need be, or match the names of the two sides."""
    if isinstance(given, NameMap):
        return given
    source, target = sides
    if given is None:
        return match_sides(source, target, NameRules())
    name_map = read_map(Path(given), source.names, target.names)
    check_shapes(name_map, source, target)
    return name_map


def map_in_order(traces: Traces, sides: Parameters, name_map: NameMap) -> NameMap:
    """Match what a map leaves open, with the order of the two runs as evidence."""
    orders = [CallOrder({one.module: one.order for one in reversed(trace.captures)}) for trace in traces]
    source, target = (in_execution_order(side, order) for side, order in zip(sides, orders, strict=True))
    return match_by_order(name_map, source, target, NameRules())


def pair_traces(traces: Traces, sides: Parameters, name_map: NameMap) -> CallPairs:
    """Pair the calls of two runs, by their values too if all were kept; raises NothingInCommonError if none pairs."""
    captures = traces[0].captures, traces[1].captures
    mine, theirs = comparable_captures(captures, [parts_of(trace) for trace in traces])
    left = CalledModules(mine, sides[0], name_map, "source")
    right = CalledModules(theirs, sides[1], name_map, "target")
    calls = pair_calls(left, right)
    if not calls.pairs:
        raise NothingInCommonError(sides[0].label, sides[1].label, "called layer")
    whole = all(trace.holds(one) for trace in traces for one in trace.captures)
    return pair_fused_layers(calls, *traces) if whole else calls


def left_out(traces: Traces, labels: Sequence[str]) -> Iterator[Finding]:
    """Warn of what the models returned and was not compared."""
    captures = traces[0].captures, traces[1].captures
    yield from left_out_parts(captures, [parts_of(trace) for trace in traces], labels)


def open_names(name_map: NameMap) -> Iterator[Finding]:
    """Warn of parameters whose values were not compared, because nothing says which they are on the other side."""
    sides = {
        side: [one.name for one in name_map.unmatched if one.side == side]
        + [name for group in name_map.ambiguous for name in getattr(group, f"{side}s")]
        for side in ("source", "target")
    }
    for side, label in (("source", name_map.source), ("target", name_map.target)):
        if names := sides[side]:
            message = sentence("trace_finding.names_open", count=len(names), names=names)
            yield Finding("names-open", "warning", label, message)
