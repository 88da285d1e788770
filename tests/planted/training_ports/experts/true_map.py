DIM, HIDDEN, EXPERTS, VOCAB = 32, 40, 4, 61
SLACK = 4e-5


def part(axis, start, stop, shape):
    return {"op": "part", "axis": axis, "start": start, "stop": stop, "shape": shape}


def turned():
    return [{"op": "permute", "axes": [1, 0]}]


PAIRS = [
    ("embed_tokens.weight", "wte", []),
    ("embed_positions.weight", "wpe", []),
    ("norm.weight", "s_out.g", []),
    ("lm_head.weight", "predict", turned()),
]
for n in range(2):
    s, t = f"layers.{n}", f"stack.{n}"
    PAIRS += [
        (f"{s}.input_layernorm.weight", f"{t}.s1.g", []),
        (f"{s}.post_attention_layernorm.weight", f"{t}.s2.g", []),
        (f"{s}.self_attn.o_proj.weight", f"{t}.mix.merge.weight", []),
        (f"{s}.block_sparse_moe.router.weight", f"{t}.bank.gate.weight", []),
        (f"{s}.block_sparse_moe.router.bias", f"{t}.bank.gate.bias", []),
    ]
    for k, name in enumerate("qkv"):
        PAIRS.append(
            (
                f"{s}.self_attn.{name}_proj.weight",
                f"{t}.mix.qkv.weight",
                [part(0, k * DIM, (k + 1) * DIM, [3 * DIM, DIM])],
            )
        )
    for e in range(EXPERTS):
        x = f"{s}.block_sparse_moe.experts.{e}"
        for k, name in enumerate(("w1", "w3")):
            start, stop = k * HIDDEN, (k + 1) * HIDDEN
            PAIRS += [
                (
                    f"{x}.{name}.weight",
                    f"{t}.bank.w_in",
                    [
                        *turned(),
                        {"op": "reshape", "shape": [1, DIM, HIDDEN]},
                        part(2, start, stop, [1, DIM, 2 * HIDDEN]),
                        part(0, e, e + 1, [EXPERTS, DIM, 2 * HIDDEN]),
                    ],
                ),
                (
                    f"{x}.{name}.bias",
                    f"{t}.bank.b_in",
                    [
                        {"op": "reshape", "shape": [1, HIDDEN]},
                        part(1, start, stop, [1, 2 * HIDDEN]),
                        part(0, e, e + 1, [EXPERTS, 2 * HIDDEN]),
                    ],
                ),
            ]
        PAIRS += [
            (
                f"{x}.w2.weight",
                f"{t}.bank.w_out",
                [*turned(), {"op": "reshape", "shape": [1, HIDDEN, DIM]}, part(0, e, e + 1, [EXPERTS, HIDDEN, DIM])],
            ),
            (
                f"{x}.w2.bias",
                f"{t}.bank.b_out",
                [{"op": "reshape", "shape": [1, DIM]}, part(0, e, e + 1, [EXPERTS, DIM])],
            ),
        ]

DROP_SOURCE = {}
DROP_TARGET = {}
FREE = []
