DIM, INNER, STATE, CONV, RANK = 32, 48, 8, 4, 4


def rows(start, stop):
    return [{"op": "slice", "axis": 0, "start": start, "stop": stop}]


TAPS = [{"op": "reshape", "shape": [INNER, CONV]}, {"op": "permute", "axes": [1, 0]}]

PAIRS = [
    ("embedding.weight", "table", []),
    ("norm_f.weight", "last.g", []),
]
for n in range(3):
    s, t = f"layers.{n}", f"trunk.{n}"
    PAIRS += [
        (f"{s}.norm.weight", f"{t}.pre.g", []),
        (f"{s}.mixer.in_proj.weight", f"{t}.value_branch.weight", rows(0, INNER)),
        (f"{s}.mixer.in_proj.weight", f"{t}.gate_branch.weight", rows(INNER, 2 * INNER)),
        (f"{s}.mixer.conv1d.weight", f"{t}.smooth.taps", TAPS),
        (f"{s}.mixer.conv1d.bias", f"{t}.smooth.offset", []),
        (f"{s}.mixer.x_proj.weight", f"{t}.ssm.delta.0.weight", rows(0, RANK)),
        (f"{s}.mixer.x_proj.weight", f"{t}.ssm.write.weight", rows(RANK, RANK + STATE)),
        (f"{s}.mixer.x_proj.weight", f"{t}.ssm.read.weight", rows(RANK + STATE, RANK + 2 * STATE)),
        (f"{s}.mixer.dt_proj.weight", f"{t}.ssm.delta.1.weight", []),
        (f"{s}.mixer.dt_proj.bias", f"{t}.ssm.delta.1.bias", []),
        (f"{s}.mixer.A_log", f"{t}.ssm.log_rate", [{"op": "permute", "axes": [1, 0]}]),
        (f"{s}.mixer.D", f"{t}.ssm.skip", []),
        (f"{s}.mixer.out_proj.weight", f"{t}.back.weight", []),
    ]

DROP_SOURCE = {"lm_head.weight": "tied: the same tensor as embedding.weight"}
DROP_TARGET = {}
FREE = [["embedding.weight", "lm_head.weight"]]
