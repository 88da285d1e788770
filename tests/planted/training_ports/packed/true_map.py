H = 16
SLACK = 2e-6
GATES = ((0, 2 * H, 0), (2 * H, 3 * H, 3 * H), (3 * H, 4 * H, 2 * H))


def part(axis, start, stop, *shape):
    return {"op": "part", "axis": axis, "start": start, "stop": stop, "shape": list(shape)}


def rows(start, stop):
    return {"op": "slice", "axis": 0, "start": start, "stop": stop}


def reshape(*shape):
    return {"op": "reshape", "shape": list(shape)}


PAIRS = [
    ("word_embedding.weight", "word_table", []),
    ("char_encoder.embedding.weight", "char_table", []),
    ("norm.weight", "scale.gain", []),
    ("norm.bias", "scale.shift", []),
    ("hidden2mid.weight", "mid.weight", []),
    ("hidden2mid.bias", "mid.bias", []),
    ("mid2tag.weight", "top.weight", []),
    ("mid2tag.bias", "top.bias", []),
]
for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
    PAIRS += [(f"char_encoder.lstm.{kind}_l0{way}", f"speller.{kind}_l0{way}", []) for way in ("", "_reverse")]
for n, size in enumerate((32, 2 * H)):
    t = f"layers.{n}"
    for d, way in enumerate(("", "_reverse")):
        for start, stop, to in GATES:
            count = stop - start
            for kind, name, width in (("weight_ih", "kernel", size), ("weight_hh", "recurrent", H)):
                PAIRS.append(
                    (
                        f"lstm.{kind}_l{n}{way}",
                        f"{t}.{name}",
                        [
                            rows(start, stop),
                            {"op": "permute", "axes": [1, 0]},
                            reshape(1, width, count),
                            part(2, to, to + count, 1, width, 4 * H),
                            part(0, d, d + 1, 2, width, 4 * H),
                        ],
                    )
                )
            for k, kind in enumerate(("bias_ih", "bias_hh")):
                PAIRS.append(
                    (
                        f"lstm.{kind}_l{n}{way}",
                        f"{t}.offset",
                        [
                            rows(start, stop),
                            reshape(1, 1, count),
                            part(2, to, to + count, 1, 1, 4 * H),
                            part(1, k, k + 1, 1, 2, 4 * H),
                            part(0, d, d + 1, 2, 2, 4 * H),
                        ],
                    )
                )

DROP_SOURCE = {}
DROP_TARGET = {}
FREE = []
