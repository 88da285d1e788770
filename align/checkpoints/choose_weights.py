"""Which of several weights of one file are meant: the live ones or their average, one entry or the parts of a model.

A training may keep the weights twice, in two entries (`state_dict`, `state_dict_ema`) or side by side under two names,
and a model in parts (`encoder`, `decoder`). Which are meant, only the user knows: nothing is taken unasked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from align.checkpoints.names_in_file import AVERAGED, REPLACED, averaged_copies
from align.checkpoints.open_checkpoint import open_checkpoint, open_trusted
from align.errors import SeveralEntriesError, UsageError, WholeModuleError
from align.rules.training_rules import training_state_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from align.core.parameters import Checkpoint, StoredTensor

    Opened = Callable[[str | None], Checkpoint]

Preference = Literal["live", "ema"]
PREFERENCES: tuple[Preference, ...] = ("live", "ema")
ALL = "all"  # asks for every part


@dataclass(frozen=True, slots=True)
class WeightsRequest:
    """What the user said of the weights that are meant: an entry, the parts, which of live and averaged ones."""

    key: str | None = None
    parts: tuple[str, ...] = ()
    prefer: Preference | None = None


def open_weights(path: Path, request: WeightsRequest, *, trust_pickle: bool = False) -> Checkpoint:
    """Open a checkpoint at the entry that is meant, or at several parts, whose names then begin with their key.

    Raises UsageError for parts or averages that the file does not have, and what opening it raises: SeveralEntriesError
    where nothing says which entry is meant.
    """
    opened: Opened = partial(open_trusted if trust_pickle else open_checkpoint, path)
    if request.parts:
        if request.key is not None:
            raise UsageError.of("convert_usage.parts_and_key", path=path)
        return _joined_parts(path, _part_keys(path, request.parts, opened), opened)
    if request.prefer is None or request.key is not None:
        return opened(request.key)
    try:
        checkpoint = opened(None)
    except (SeveralEntriesError, WholeModuleError) as error:
        key = _preferred_key(error.keys, request.prefer)
        if key is None:
            raise
        return opened(key)
    copies = averaged_copies(checkpoint.tensors, training_state_rules())
    averaged = [one.key for one in checkpoint.entries if one.key != checkpoint.key and _is_averaged(one.key)]
    return opened(averaged[0]) if request.prefer == "ema" and not copies and len(averaged) == 1 else checkpoint


def prefer_weights(
    checkpoint: Checkpoint, names: Mapping[str, str], prefer: Preference | None
) -> tuple[dict[str, str], dict[str, str]]:
    """Names to use -> names in the file, with the copies in the place of their weights where they are preferred.

    And the reason for every name of the file that is left out so. Raises UsageError where averages are preferred and
    there are none.
    """
    averages = averaged_copies(checkpoint.tensors, training_state_rules())
    copies = {name: weight for name, weight in averages.items() if weight}
    if prefer is None or not copies:
        if prefer == "ema" and not _is_averaged(checkpoint.key):
            raise UsageError.of("convert_usage.no_copies", path=checkpoint.path)
        return {**names}, {}
    left_out = dict.fromkeys(averages, AVERAGED)
    if prefer == "live":
        return {name: was for name, was in names.items() if was not in averages}, left_out
    of_weight = {weight: name for name, weight in copies.items()}
    chosen = {name: of_weight.get(was, was) for name, was in names.items() if was not in averages}
    return chosen, {name: reason for name, reason in left_out.items() if name not in copies} | dict.fromkeys(
        of_weight, REPLACED
    )


def require_preference(checkpoint: Checkpoint, paired: Iterable[str], dropped: Iterable[str]) -> None:
    """Raise UsageError where weights are converted whose averaged copies nobody spoke of: one is as likely meant.

    `paired` and `dropped` are names of the file, as a map or a model has them.
    """
    copies, paired = averaged_copies(checkpoint.tensors, training_state_rules()), {*paired}
    spoken_of = {*paired, *dropped}
    open_ones = {name: weight for name, weight in copies.items() if weight in paired and name not in spoken_of}
    if open_ones:
        name, weight = next(iter(open_ones.items()))
        facts = {"path": checkpoint.path, "count": len(open_ones), "copy": name, "weight": weight}
        raise UsageError.of("convert_usage.which_weights", **facts)


def _is_averaged(key: str) -> bool:
    """Whether an entry is called one of averages: `state_dict_ema`, `model_ema`, `ema.module`, `params_ema`."""
    return not {*re.split(r"[._]", key.lower())}.isdisjoint(training_state_rules().averaged)


def _preferred_key(keys: Sequence[str], prefer: Preference) -> str | None:
    averaged = [key for key in keys if _is_averaged(key)]
    wanted = averaged if prefer == "ema" else [key for key in keys if key not in averaged]
    return wanted[0] if averaged and len(wanted) == 1 else None


def _part_keys(path: Path, parts: Sequence[str], opened: Opened) -> list[str]:
    if [*parts] != [ALL]:
        return [*dict.fromkeys(parts)]
    try:
        opened(None)
    except SeveralEntriesError as error:
        return [*error.keys]
    raise UsageError.of("convert_usage.no_parts", path=path)


def _joined_parts(path: Path, keys: Sequence[str], opened: Opened) -> Checkpoint:
    """One checkpoint of all parts; what lies beside them is what lies beside each of them."""
    parts = {key: opened(key) for key in keys}
    named = [
        (f"{key}.{name}" if key else name, one) for key, part in parts.items() for name, one in part.tensors.items()
    ]
    tensors: dict[str, StoredTensor] = {name: replace(one, name=name) for name, one in named}
    if len(tensors) < len(named):
        raise SeveralEntriesError(path, keys)
    other = {name: words for part in parts.values() for name, words in part.other.items() if name not in parts}
    counts = {name: n for part in parts.values() for name, n in part.other_tensors.items() if name in other}
    return replace(
        parts[keys[0]], tensors=tensors, other=other, other_tensors=counts, key=", ".join(keys), told_shapes={}
    )
