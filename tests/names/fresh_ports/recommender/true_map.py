SIZES, TASKS = (12, 7, 12, 20, 7), ("click", "cart", "order")
D, EXPERTS, HIDDEN, LEVELS = 24, 4, 40, 3
WIDTH = (len(SIZES) + 2) * D
SWAP = {"op": "permute", "axes": [1, 0]}


def reshape(*shape):
    return {"op": "reshape", "shape": list(shape)}


def rows(start, stop):
    return {"op": "slice", "axis": 0, "start": start, "stop": stop}


def part(axis, start, stop, *shape):
    return {"op": "part", "axis": axis, "start": start, "stop": stop, "shape": list(shape)}


PAIRS = [
    ("history.weight", "bought", []),
    ("dense_bn.weight", "calibrate.gamma", []),
    ("dense_bn.bias", "calibrate.beta", []),
    ("dense_bn.running_mean", "calibrate.moving_mean", []),
    ("dense_bn.running_var", "calibrate.moving_variance", []),
    ("dense_mlp.0.weight", "spread.weight", []),
    ("dense_mlp.0.bias", "spread.bias", []),
    ("dense_mlp.2.weight", "lift.weight", []),
    ("dense_mlp.2.bias", "lift.bias", []),
    ("dense_linear.weight", "slope", [reshape(6)]),
    ("dense_linear.bias", "base", []),
]
start = 0
for i, size in enumerate(SIZES):
    stop = start + size
    PAIRS += [
        ("sparse.embedding.weight", f"tables.{i}.embedding_table", [rows(start, stop)]),
        ("sparse_linear.embedding.weight", f"scores.{i}.embedding_table", [rows(start, stop)]),
    ]
    start = stop
for i in range(LEVELS):
    PAIRS += [
        (f"cross.w.{i}", f"interactions.{i}.direction", [reshape(WIDTH, 1)]),
        (f"cross.b.{i}", f"interactions.{i}.shift", [reshape(1, WIDTH)]),
    ]
for e in range(EXPERTS):
    crew = f"panel.crew.{e}"
    PAIRS += [
        ("mmoe.w1", f"{crew}.study.weight", [rows(e, e + 1), reshape(WIDTH, HIDDEN), SWAP]),
        ("mmoe.b1", f"{crew}.study.bias", [rows(e, e + 1), reshape(HIDDEN)]),
        ("mmoe.w2", f"{crew}.answer.weight", [rows(e, e + 1), reshape(HIDDEN, D), SWAP]),
        ("mmoe.b2", f"{crew}.answer.bias", [rows(e, e + 1), reshape(D)]),
    ]
for n, task in enumerate(TASKS):
    a, z, total = n * EXPERTS, (n + 1) * EXPERTS, len(TASKS) * EXPERTS
    PAIRS += [
        (f"mmoe.gates.{n}.weight", "panel.trust", [SWAP, part(1, a, z, WIDTH, total)]),
        (f"mmoe.gates.{n}.bias", "panel.trust_base", [part(0, a, z, total)]),
    ]
    for role in ("weight", "bias"):
        PAIRS += [
            (f"heads.{task}.0.{role}", f"opinions.{n}.{role}", []),
            (f"heads.{task}.3.{role}", f"verdicts.{n}.{role}", []),
        ]

DROP_SOURCE = {
    "sparse.offsets": "where a field's rows begin; the port has a table a field",
    "sparse_linear.offsets": "where a field's rows begin; the port has a table a field",
    "dense_bn.num_batches_tracked": "a counter",
}
DROP_TARGET = {}
FREE = []
