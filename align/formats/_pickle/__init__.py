"""Pickles read as data: nothing is imported, looked up or called, whatever the pickle asks for."""

from __future__ import annotations

from align.formats._pickle.machine import Global, Made, Persistent, mapping_of, read_pickle
from align.formats._pickle.torch_tensors import (
    TensorView,
    UnsupportedTensorError,
    class_name,
    describe,
    is_tensor,
    read_view,
)

__all__ = [
    "Global",
    "Made",
    "Persistent",
    "TensorView",
    "UnsupportedTensorError",
    "class_name",
    "describe",
    "is_tensor",
    "mapping_of",
    "read_pickle",
    "read_view",
]
