"""The forms of what a trace folder holds as JSON: the lines of its manifest, the tables of the model, its noise.

Fields that are not named here may stand there too: a later version may note more.
"""

from __future__ import annotations

from align.core.documents import (
    COUNT,
    FIGURE,
    FLAG,
    SETTINGS,
    SHAPE,
    TEXT,
    TEXT_BY_NAME,
    TEXTS,
    WHOLE,
    Form,
    listed,
    maybe,
    table,
)

KIND = {"type": "array", "items": [SHAPE, TEXT], "minItems": 2, "maxItems": 2}
SUM = {"type": "array", "items": {"type": ["integer", "null"]}, "minItems": 2, "maxItems": 3}
HEAD = table(
    {"side": TEXT, "framework": TEXT, "inputs": {"type": "object", "additionalProperties": {"type": "object"}}},
    {
        "mode": TEXT,
        "step": WHOLE,
        "seed": WHOLE,
        "direction": {"enum": ["forward", "backward"]},
        "functions": FLAG,
        "layer_inputs": FLAG,
        "kept": table({"globs": TEXTS, "elements": maybe(COUNT), "sampled": FLAG}),
    },
)
CAPTURE = table(
    {
        "order": WHOLE,
        "module": TEXT,
        "call": COUNT,
        "output": TEXT,
        "class_name": TEXT,
        "shape": SHAPE,
        "dtype": TEXT,
        "offset": maybe(COUNT),
    },
    {
        "depth": COUNT,
        "role": {"enum": ["output", "input"]},
        "kept": COUNT,
        "crc32": COUNT,
        "statistics": {"type": "object", "additionalProperties": maybe(FIGURE)},
    },
)
LINES: dict[str, Form] = {
    "schema": Form(
        table({"environment": TEXT_BY_NAME}, {"head": maybe(HEAD), "header_bytes": maybe(COUNT), "checked": FLAG})
    ),
    "module": Form(CAPTURE),
    "begin": Form(
        table(
            {"begin": TEXT, "call": COUNT, "parent": maybe(TEXT), "class_name": TEXT, "place": TEXT}
            | {"inputs": {"type": "object", "additionalProperties": KIND}}
        )
    ),
    "end": Form(table({"end": TEXT, "call": COUNT})),
    "returned": Form(
        table({"returned": COUNT}, {"kinds": TEXT_BY_NAME, "left_out": TEXT_BY_NAME, "containers": TEXT_BY_NAME})
    ),
    "recomputed": Form(table({"recomputed": TEXT, "error": maybe({"type": ["string", "number"]})}, {"reason": TEXT})),
    "failed": Form(table({"failed": TEXT})),
    "sealed": Form(
        table(
            {"sealed": FLAG},
            {"tensors": SUM, "beside": {"type": "object", "additionalProperties": SUM}, "later": TEXTS},
        )
    ),
    "file": Form(table({"file": TEXT, "told": SUM})),
}
PARAMETER = table(
    {"name": TEXT, "shape": SHAPE, "dtype": TEXT, "module": TEXT, "attribute": TEXT},
    {"trainable": maybe(FLAG), "buffer": FLAG, "tied_to": maybe(TEXT)},
)
MODULE = table(
    {"path": TEXT, "classes": TEXTS, "parameters": TEXTS},
    {"inputs_first": maybe(FLAG), "ran": FLAG, "merged_into": TEXT},
)
PARAMETERS = table(
    {
        "label": TEXT,
        "framework": maybe(TEXT),
        "parameters": listed(PARAMETER),
        "modules": listed(MODULE),
        "order": TEXT,
        "shared": listed({"type": "array", "items": TEXT, "minItems": 2, "maxItems": 2}),
    }
)
MODEL = Form(table({"schema": TEXT}, {"parameters": PARAMETERS, "settings": listed(SETTINGS)}))
MEASUREMENT = {
    "type": "object",
    "properties": {"worst": listed(COUNT), "decades": listed(COUNT)},
    "additionalProperties": maybe(FIGURE),
    "required": ["count", "max_abs", "worst", "decades"],
}
NOISE = Form(
    table({"schema": TEXT}, {"missing": TEXT, "noise": maybe({"type": "object", "additionalProperties": MEASUREMENT})})
)
