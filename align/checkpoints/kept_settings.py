"""Settings that `torch.save` kept, such as training_args.bin: the pickle is looked at and never run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.checkpoints.format_parts.pickle.interpreter import Made, mapping_of, read_pickle
from align.checkpoints.format_parts.zip_records import ZIP_HEAD, read_record, zip_records
from align.checkpoints.thresholds import LONGEST_PICKLE_BYTES
from align.errors import NotACheckpointError
from align.words.catalogue import say

if TYPE_CHECKING:
    from pathlib import Path

PICKLE = "data.pkl"
PLAIN = (str, int, float, bool, type(None))


def is_kept_by_torch(head: bytes) -> bool:
    """Tell the beginning of a file of `torch.save`."""
    return head.startswith(ZIP_HEAD)


def read_kept_settings(path: Path) -> dict[str, Any]:
    """The fields of the one object that the file holds: plain values, lists of such, and values of enums.

    Raises NotACheckpointError for a file that holds something else, or is damaged.
    """
    records = zip_records(path)
    found = next((record for name, record in records.items() if name.rpartition("/")[2] == PICKLE), None)
    if found is None:
        raise NotACheckpointError(path, say("settings_fault.no_object"))
    value = read_pickle(path, read_record(found, LONGEST_PICKLE_BYTES)).value
    fields = value.state if isinstance(value, Made) else mapping_of(value)
    if isinstance(fields, tuple):
        fields = next((one for one in fields if isinstance(one, dict)), None)
    if not isinstance(fields, dict):
        raise NotACheckpointError(path, say("settings_fault.no_object"))
    plain = {str(name): _plain(one) for name, one in fields.items()}
    return {name: one for name, one in plain.items() if one is not NotImplemented}


def _plain(value: Any) -> Any:
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, (list, tuple)) and all(isinstance(one, PLAIN) for one in value):
        return tuple(value)
    if (
        isinstance(value, Made) and isinstance(value.arguments, tuple) and len(value.arguments) == 1
    ):  # a value of an enum
        return value.arguments[0] if isinstance(value.arguments[0], PLAIN) else NotImplemented
    return NotImplemented
