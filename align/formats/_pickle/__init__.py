"""Pickles read as data: nothing is imported, looked up or called, whatever the pickle asks for."""

from __future__ import annotations

from align.formats._pickle.machine import read_pickle
from align.formats._pickle.state_dict import StateDict, find_state_dict, read_others
from align.formats._pickle.torch_tensors import TensorView, UnsupportedTensorError, is_tensor, read_view

__all__ = [
    "StateDict",
    "TensorView",
    "UnsupportedTensorError",
    "find_state_dict",
    "is_tensor",
    "read_others",
    "read_pickle",
    "read_view",
]
