"""Pickles read as data: nothing is imported, looked up or called, whatever the pickle asks for."""

from __future__ import annotations

from align.formats._pickle.look import PickleTreeReader
from align.formats._pickle.machine import Persistent, mapping_of, read_pickle
from align.formats._pickle.opcodes import LONGEST_PICKLE
from align.formats._pickle.torch_tensors import (
    DTYPES,
    MOST_REPEATED,
    STORAGES,
    Storage,
    TensorView,
    UnsupportedTensorError,
    read_storage,
)

__all__ = [
    "DTYPES",
    "LONGEST_PICKLE",
    "MOST_REPEATED",
    "STORAGES",
    "Persistent",
    "PickleTreeReader",
    "Storage",
    "TensorView",
    "UnsupportedTensorError",
    "mapping_of",
    "read_pickle",
    "read_storage",
]
