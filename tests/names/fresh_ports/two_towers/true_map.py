D, P, PLACES, DEPTH = 32, 6, 17, 2


def reshape(*shape):
    return {"op": "reshape", "shape": list(shape)}


def permute(*axes):
    return {"op": "permute", "axes": list(axes)}


def rows(start, stop):
    return {"op": "slice", "axis": 0, "start": start, "stop": stop}


def part(start, stop, shape):
    return {"op": "part", "axis": 0, "start": start, "stop": stop, "shape": shape}


PAIRS = [
    # channel, row, column there; row, column, channel here
    ("visual.conv1.weight", "pictures.tile.weight", [permute(0, 2, 3, 1), reshape(D, P * P * 3)]),
    ("visual.class_embedding", "pictures.summary", [reshape(1, 1, D)]),
    ("visual.positional_embedding", "pictures.order", [reshape(1, PLACES, D)]),
    ("visual.proj", "pictures.to_common.weight", [permute(1, 0)]),
    ("token_embedding.weight", "words.lexicon.embedding_table", []),
    ("positional_embedding", "words.order", [reshape(1, PLACES, D)]),
    ("text_projection", "words.to_common.weight", [permute(1, 0)]),
    ("logit_scale", "sharpness", [reshape(1)]),
]


def norm(source, target):
    PAIRS.extend([(f"{source}.weight", f"{target}.gamma", []), (f"{source}.bias", f"{target}.beta", [])])


norm("visual.ln_pre", "pictures.first_norm")
norm("visual.ln_post", "pictures.last_norm")
norm("ln_final", "words.last_norm")
for a, b in (("visual.transformer", "pictures.trunk"), ("transformer", "words.trunk")):
    for i in range(DEPTH):
        s = f"{a}.resblocks.{i}"
        norm(f"{s}.ln_1", f"{b}.norms.{2 * i}")
        norm(f"{s}.ln_2", f"{b}.norms.{2 * i + 1}")
        for role in ("weight", "bias"):
            qkv, address = f"{s}.attn.qkv.{role}", f"{b}.mixes.{i}.address.{role}"
            both = [2 * D, D] if role == "weight" else [2 * D]
            PAIRS += [
                # the port has the keys before the queries, the values apart; the bias of the keys moves no output
                (qkv, address, [rows(D, 2 * D), part(0, D, both)]),
                (qkv, address, [rows(0, D), part(D, 2 * D, both)]),
                (qkv, f"{b}.mixes.{i}.content.{role}", [rows(2 * D, 3 * D)]),
                (f"{s}.attn.proj.{role}", f"{b}.mixes.{i}.finish.{role}", []),
                (f"{s}.mlp.0.{role}", f"{b}.mlps.{i}.grow.{role}", []),
                (f"{s}.mlp.2.{role}", f"{b}.mlps.{i}.shrink.{role}", []),
            ]

DROP_SOURCE = {}
DROP_TARGET = {}
FREE = []
