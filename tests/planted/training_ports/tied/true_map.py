DIM, LAYERS = 32, 3


def rows(start, stop):
    return {"op": "slice", "axis": 0, "start": start, "stop": stop}


TURN = {"op": "permute", "axes": [1, 0]}

PAIRS = [
    ("wte.weight", "words", []),
    ("wpe.weight", "places", []),
    ("ln_f.weight", "final.scale", []),
    ("ln_f.bias", "final.shift", []),
]
for n in range(LAYERS):
    s, t = f"h.{n}", f"stack.{n}"
    PAIRS += [
        (f"{s}.ln_1.weight", f"{t}.before_mix.scale", []),
        (f"{s}.ln_1.bias", f"{t}.before_mix.shift", []),
        (f"{s}.attn.c_attn.weight", f"{t}.mix.to_q", [rows(0, DIM), TURN]),
        (f"{s}.attn.c_attn.weight", f"{t}.mix.to_kv", [rows(DIM, 3 * DIM), TURN]),
        (f"{s}.attn.c_proj.weight", f"{t}.mix.merge.weight", []),
        (f"{s}.attn.c_proj.bias", f"{t}.mix.merge.bias", []),
        (f"{s}.ln_2.weight", f"{t}.ffn.0.scale", []),
        (f"{s}.ln_2.bias", f"{t}.ffn.0.shift", []),
        (f"{s}.mlp.c_fc.weight", f"{t}.ffn.1.weight", []),
        (f"{s}.mlp.c_fc.bias", f"{t}.ffn.1.bias", []),
        (f"{s}.mlp.c_proj.weight", f"{t}.ffn.3.weight", []),
        (f"{s}.mlp.c_proj.bias", f"{t}.ffn.3.bias", []),
    ]

DROP_SOURCE = {"lm_head.weight": "tied: the same tensor as wte.weight"}
DROP_TARGET = {}
FREE = [["wte.weight", "lm_head.weight"]]
