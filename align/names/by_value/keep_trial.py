"""What an earlier trial found is kept: with new rules only what they touch is tried again.

Where models, inputs or values have changed, or a rule is gone, nothing is kept: what was found beside it may be wrong.
What was left open is tried again, since a new rule may be all that it lacked.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.core.about import __version__
from align.core.import_user_code import user_files
from align.core.name_map import Pairing
from align.errors import UsageError
from align.names.by_value.settle_by_trial import UNSEEN, map_by_trial, with_settled
from align.names.map_file_parts.map_lines import OURS
from align.names.thresholds import DIGITS_OF_A_RULE, DIGITS_OF_A_TRIAL
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.name_map import NameMap
    from align.core.parameters import ParameterSet
    from align.core.progress import Progress
    from align.models.open_side import Side
    from align.names.kept_trial import KeptTrial
    from align.names.user_rules import NameRules
    from align.words.catalogue import Note


@dataclass(frozen=True, slots=True)
class Trial:
    """What a trial is made of, and what earlier ones keep."""

    parameters: tuple[ParameterSet, ParameterSet]
    rules: NameRules
    tried: Sequence[KeptTrial] = ()


@dataclass(frozen=True, slots=True)
class TriedMap:
    """The map after a trial, why that proves it not, the line that its file keeps, and a note on what was kept."""

    name_map: NameMap
    unproven: str
    line: str
    notes: tuple[Note, ...]


def map_by_kept_trial(
    sides: tuple[Side, Side] | None,
    trial: Trial,
    name_map: NameMap,
    inputs: Mapping[str, Array] | None,
    progress: Progress,
) -> TriedMap:
    """Try what no earlier trial has found; `name_map` is what rules and names say. Raises as `map_by_trial`."""
    if inputs is None or sides is None:
        raise UsageError.of("names_error.trial_without_inputs")
    made_of = trial_digest(sides, trial.parameters, inputs)
    kept = _kept_pairs(trial, made_of, name_map)
    if kept.pairings:
        name_map = with_settled(name_map, kept.pairings, trial.parameters[0].names)
    found, unproven, told = map_by_trial(sides, trial.parameters, name_map, inputs, progress, done=kept.done)
    facts = {"count": len(kept.pairings), "file": kept.file, "done": kept.done}
    notes: tuple[Note, ...] = (("map_warning.trial_kept", facts),) if kept.pairings or kept.done else ()
    return TriedMap(found, unproven, "" if unproven else _line(made_of, trial.rules, found), (*notes, *told))


def trial_digest(sides: tuple[Side, Side], parameters: Sequence[ParameterSet], inputs: Mapping[str, Array]) -> str:
    """A sum of all that a trial depends on but rules: sources, names and shapes, inputs, values of checkpoints.

    "" where code was typed into an interpreter, so that no file holds it.
    """
    if not getattr(sys.modules["__main__"], "__file__", None):
        return ""
    found = hashlib.sha256(__version__.encode())
    for file in user_files():
        found.update(file.read_bytes())
    for side, own in zip(sides, parameters, strict=True):
        found.update(repr((own.parameters, own.modules, sorted(side.reader.environment().items()))).encode())
        for name, value in sorted(side.reader.read_values(side.model).items() if side.filled else ()):
            found.update(name.encode() + value.tobytes())
    for name, value in sorted(inputs.items()):
        found.update(repr((name, value.shape, str(value.dtype))).encode() + value.tobytes())
    return found.hexdigest()[:DIGITS_OF_A_TRIAL]


@dataclass(frozen=True, slots=True)
class _KeptPairs:
    """Pairings of an earlier trial, and the file that kept them; `done` says that there is nothing left to try."""

    pairings: tuple[Pairing, ...] = ()
    file: str = ""
    done: bool = False


def _kept_pairs(trial: Trial, made_of: str, name_map: NameMap) -> _KeptPairs:
    """What of earlier trials still holds beside these rules."""
    sums = _sums(trial.rules)
    like = (one for one in trial.tried if made_of and made_of == one.made_of and set(one.rules) <= set(sums))
    kept = next(like, None)
    if kept is None:
        return _KeptPairs()
    said = [pair for pair in name_map.pairings if pair.evidence == "user"]
    touched = {_owner(pair.source) for pair in said}, {_owner(pair.target) for pair in said}
    for drop in name_map.dropped:
        touched[drop.side == "target"].add(drop.name)
    left = tuple(_untouched(kept, touched))
    done = kept.whole and set(kept.rules) == set(sums) and len(left) == len(kept.names)
    return _KeptPairs(left, kept.file, done)


def _untouched(kept: KeptTrial, touched: tuple[set[str], set[str]]) -> Iterator[Pairing]:
    for source, target, change in kept.names:
        if touched[0].isdisjoint((source, _owner(source))) and touched[1].isdisjoint((target, _owner(target))):
            yield Pairing(source, target, "dataflow" if (source, target) in kept.flow else "trial", 1.0, change)


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


def _line(made_of: str, rules: NameRules, name_map: NameMap) -> str:
    """The comment that says what a trial was made of; "" where that is not known."""
    whole = name_map.complete and all(pair.sure and UNSEEN not in pair.note for pair in name_map.pairings)
    found = sum(pair.evidence in ("trial", "dataflow") for pair in name_map.pairings)
    record = " ".join([made_of, f"{'whole' if whole else 'part'} {found}", *_sums(rules)])
    return say("map_file.tried", mark=OURS, record=record) if made_of else ""


def _sums(rules: NameRules) -> list[str]:
    """A short sum of each rule, with what it says."""
    said: list[object] = [*rules.all_names, *((one.pattern.pattern, one.to, one.transform) for one in rules.renames)]
    said += [(side, glob) for side in ("source", "target") for glob in getattr(rules, f"dropped_{side}")]
    return sorted({hashlib.sha256(repr(one).encode()).hexdigest()[:DIGITS_OF_A_RULE] for one in said})
