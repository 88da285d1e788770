WIDTH, HABIT, SIZE, DEPTH = 32, 16, 40, 2


def cut(axis, start, stop):
    return {"op": "slice", "axis": axis, "start": start, "stop": stop}


PAIRS = [
    ("obs_rms.running_mean", "skin.centre", []),
    ("obs_rms.running_var", "skin.spread", []),
    ("action_embedding.weight", "habits.embedding_table", []),
    # one layer over the joined features there, the sum of three here
    ("fuse.weight", "from_retina.weight", [cut(1, 0, WIDTH)]),
    ("fuse.weight", "from_skin.weight", [cut(1, WIDTH, 2 * WIDTH)]),
    ("fuse.weight", "from_habit.weight", [cut(1, 2 * WIDTH, 2 * WIDTH + HABIT)]),
    ("fuse.bias", "from_retina.bias", []),
]
PAIRS += [
    (f"{s}.{leaf}", f"{t}.{leaf}", [])
    for s, t in (
        ("encoder.cnn.0", "retina.near"),
        ("encoder.cnn.2", "retina.middle"),
        ("encoder.cnn.4", "retina.far"),
        ("encoder.linear", "retina.squeeze"),
        ("sensor_mlp.0", "skin.inner"),
        ("sensor_mlp.2", "skin.outer"),
        ("actor.0", "choice.open"),
        ("actor.2", "choice.close"),
        ("value_stream.0", "worth.open"),
        ("value_stream.2", "worth.close"),
        ("advantage_stream.0", "merit.open"),
        ("advantage_stream.2", "merit.close"),
    )
    for leaf in ("weight", "bias")
]
for n in range(DEPTH):
    row = [cut(0, n, n + 1), {"op": "reshape", "shape": [SIZE]}]
    PAIRS += [("initial_h", f"chain.{n}.blank_out", row), ("initial_c", f"chain.{n}.blank_cell", row)]
    PAIRS += [
        (f"rnn.{leaf}_{side}_l{n}", f"chain.{n}.{letter}_{gate}.{leaf}", [cut(0, k * SIZE, (k + 1) * SIZE)])
        for side, letter in (("ih", "W"), ("hh", "U"))
        for leaf in ("weight", "bias")
        for k, gate in enumerate("ifgo")
    ]

DROP_SOURCE = {"obs_rms.count": "a counter of the observations seen, not used in evaluation"}
DROP_TARGET = {}
# the two biases of a gate are only ever added to each other
FREE = [[f"rnn.bias_ih_l{n}", f"rnn.bias_hh_l{n}"] for n in range(DEPTH)]
