WIDTH, INNER, EXPERTS = 32, 24, 4
HEAD, KV, PER_KV = 8, 2, 2
GROUP = (PER_KV + 2) * HEAD


def rows(start, stop):
    return {"op": "slice", "axis": 0, "start": start, "stop": stop}


def part(axis, start, size, shape):
    return {"op": "part", "axis": axis, "start": start, "stop": start + size, "shape": shape}


TURN = {"op": "permute", "axes": [1, 0]}

PAIRS = [
    ("embed_tokens.weight", "codes.embedding_table", []),
    ("norm.weight", "s_out", []),
    ("lm_head.weight", "unembed.weight", []),
]
for n in range(2):
    s, t = f"layers.{n}", f"stages.{n}"
    PAIRS += [
        (f"{s}.input_layernorm.weight", f"{t}.s1", []),
        (f"{s}.post_attention_layernorm.weight", f"{t}.s2", []),
        (f"{s}.self_attn.q_norm.weight", f"{t}.mixer.q_scale", []),
        (f"{s}.self_attn.k_norm.weight", f"{t}.mixer.k_scale", []),
        (f"{s}.self_attn.o_proj.weight", f"{t}.mixer.merge.weight", []),
        (f"{s}.mlp.gate.weight", f"{t}.pool.pick", [TURN]),
        (f"{s}.mlp.gate.bias", f"{t}.pool.lean", []),
        (f"{s}.mlp.shared_expert.w2.weight", f"{t}.always_out.weight", []),
    ]
    # queries, key and value of the first kv head, then those of the second
    fused = [KV * GROUP, WIDTH]
    for kv in range(KV):
        q = PER_KV * HEAD
        PAIRS += [
            (
                f"{s}.self_attn.q_proj.weight",
                f"{t}.mixer.fan_out.weight",
                [rows(kv * q, (kv + 1) * q), part(0, kv * GROUP, q, fused)],
            ),
            (
                f"{s}.self_attn.k_proj.weight",
                f"{t}.mixer.fan_out.weight",
                [rows(kv * HEAD, (kv + 1) * HEAD), part(0, kv * GROUP + q, HEAD, fused)],
            ),
            (
                f"{s}.self_attn.v_proj.weight",
                f"{t}.mixer.fan_out.weight",
                [rows(kv * HEAD, (kv + 1) * HEAD), part(0, kv * GROUP + q + HEAD, HEAD, fused)],
            ),
        ]
    # w1 and w3 beside each other: rows of the shared expert, columns of an expert in the stack
    for start, w in ((0, "w1"), (INNER, "w3")):
        PAIRS += [
            (
                f"{s}.mlp.shared_expert.{w}.weight",
                f"{t}.always_in.weight",
                [part(0, start, INNER, [2 * INNER, WIDTH])],
            )
        ]
        PAIRS += [
            (
                f"{s}.mlp.experts.{e}.{w}.weight",
                f"{t}.pool.fused_in",
                [
                    TURN,
                    {"op": "reshape", "shape": [1, WIDTH, INNER]},
                    part(2, start, INNER, [1, WIDTH, 2 * INNER]),
                    part(0, e, 1, [EXPERTS, WIDTH, 2 * INNER]),
                ],
            )
            for e in range(EXPERTS)
        ]
    PAIRS += [
        (
            f"{s}.mlp.experts.{e}.w2.weight",
            f"{t}.pool.fused_out",
            [TURN, {"op": "reshape", "shape": [1, INNER, WIDTH]}, part(0, e, 1, [EXPERTS, INNER, WIDTH])],
        )
        for e in range(EXPERTS)
    ]

DROP_SOURCE = {}
DROP_TARGET = {}
FREE = []
