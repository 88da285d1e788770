"""Pickles read as data: nothing is imported, looked up or called, whatever the pickle asks for."""

from __future__ import annotations

from align.checkpoints.format_parts.pickle.interpreter import Persistent, mapping_of, read_pickle
from align.checkpoints.format_parts.pickle.torch_tensors import (
    DTYPES,
    STORAGES,
    Storage,
    TensorView,
    UnsupportedTensorError,
    read_storage,
)
from align.checkpoints.format_parts.pickle.tree_reader import PickleTreeReader

__all__ = [
    "DTYPES",
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
