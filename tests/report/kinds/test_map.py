"""The table of pairs at the widths at which it is read: what is done to the values stands there whole."""

from __future__ import annotations

import pytest

from align.report.kinds.names import pair_table, transform_text
from align.report.show_result import blocks_as_text

CHANGES = {
    "slice 16:24": {"op": "slice", "axis": 0, "start": 16, "stop": 24, "from": [24, 8]},
    "slice 0:8 of axis 1": {"op": "slice", "axis": 1, "start": 0, "stop": 8},
    "part 8:16": {"op": "part", "axis": 0, "start": 8, "stop": 16, "shape": [24, 8]},
    "reshape [8, 1]": {"op": "reshape", "shape": [8, 1], "from": [8]},
    "permute [1, 0], then part 0:8": {
        "op": "chain",
        "steps": [
            {"op": "permute", "axes": [1, 0]},
            {"op": "part", "axis": 0, "start": 0, "stop": 8, "shape": [24, 8]},
        ],
    },
    "-": {"op": "identity"},
}


@pytest.mark.parametrize("text", CHANGES)
def test_a_transform_is_told_in_a_few_words(text: str) -> None:
    assert transform_text(CHANGES[text]) == text


@pytest.mark.parametrize("width", [100, 80])
def test_the_operation_is_not_shortened(width: int) -> None:
    pair = {
        "source": "encoder.blocks.0.attention.qkv.weight",
        "target": "backbone.layer.0.self_attention.query.weight",
        "transform": CHANGES["permute [1, 0], then part 0:8"],
        "evidence": "structure",
        "confidence": 0.7,
        "note": "",
    }
    shape = {
        "name": pair["source"], "shape": [8, 8], "dtype": "float32", "buffer": False, "trainable": True, "tied_to": None
    }  # fmt: skip
    text = blocks_as_text(pair_table([pair], [shape], show_all=False), width)
    assert "…" not in text
    last_column = text.splitlines()[1].index("shape")
    assert " ".join(line[last_column:].strip() for line in text.splitlines()[3:]).strip() == (
        "[8, 8] permute [1, 0], then part 0:8"
    )
