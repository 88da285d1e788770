WIDTH, PATCH, GRID, LENGTH = 32, 4, 4, 10


def reshape(*shape):
    return [{"op": "reshape", "shape": list(shape)}]


def rows(start, stop):
    return [{"op": "slice", "axis": 0, "start": start, "stop": stop}]


def norm(source, target):
    return [(f"{source}.weight", f"{target}.gamma", []), (f"{source}.bias", f"{target}.beta", [])]


def dense(source, target):
    return [(f"{source}.weight", f"{target}.weight", []), (f"{source}.bias", f"{target}.bias", [])]


PAIRS = [
    ("logit_scale", "log_temp", reshape(1)),
    ("visual.conv1.weight", "image_side.patch.weight", reshape(WIDTH, 3 * PATCH * PATCH)),
    ("visual.class_embedding", "image_side.cls", reshape(1, 1, WIDTH)),
    ("visual.positional_embedding", "image_side.pos", reshape(1, GRID * GRID + 1, WIDTH)),
    ("visual.proj", "image_side.head.weight", [{"op": "permute", "axes": [1, 0]}]),
    ("text.token_embedding.weight", "text_side.words.embedding_table", []),
    ("text.positional_embedding", "text_side.pos", reshape(1, LENGTH, WIDTH)),
    ("text.text_projection.weight", "text_side.head.weight", []),
    *norm("visual.ln_pre", "image_side.first"),
    *norm("visual.ln_post", "image_side.last"),
    *norm("text.ln_final", "text_side.last"),
]
for side, tower in (("visual", "image_side"), ("text", "text_side")):
    for n in range(2):
        s, t = f"{side}.blocks.{n}", f"{tower}.encoder"
        PAIRS += norm(f"{s}.ln_1", f"{t}.norms.{2 * n}") + norm(f"{s}.ln_2", f"{t}.norms.{2 * n + 1}")
        PAIRS += dense(f"{s}.attn.proj", f"{t}.attentions.{n}.out")
        PAIRS += dense(f"{s}.mlp.0", f"{t}.mlps.{n}.up") + dense(f"{s}.mlp.2", f"{t}.mlps.{n}.down")
        for k, name in enumerate(("query", "key", "value")):
            PAIRS.append(
                (f"{s}.attn.qkv.weight", f"{t}.attentions.{n}.{name}.weight", rows(k * WIDTH, (k + 1) * WIDTH))
            )

DROP_SOURCE = {}
DROP_TARGET = {}
FREE = []
