D, N = 32, 16

TRANSPOSED = [{"op": "permute", "axes": [1, 0]}]


def rows(start, stop):
    return {"op": "slice", "axis": 0, "start": start, "stop": stop}


def part(start, stop, shape):
    return {"op": "part", "axis": 0, "start": start, "stop": stop, "shape": shape}


PAIRS = [
    ("src_embed.tok.weight", "words_in.embedding_table", []),
    ("src_embed.pos", "places_in", [{"op": "reshape", "shape": [1, N, D]}]),
    ("tgt_embed.tok.weight", "words_out", []),
    ("tgt_embed.pos", "places_out", [{"op": "reshape", "shape": [1, N, D]}]),
    ("generator.bias", "word_bias", []),
]


def norm(source, target):
    PAIRS.extend([(f"{source}.weight", f"{target}.gamma", []), (f"{source}.bias", f"{target}.beta", [])])


def attention(source, target):
    for role in ("weight", "bias"):
        packed = f"{source}.in_proj_{role}"
        both = [2 * D, D] if role == "weight" else [2 * D]
        PAIRS.extend(
            [
                (packed, f"{target}.ask.{role}", [rows(0, D)]),
                # keys, then values; the bias of the keys moves no output: the softmax takes it out again
                (packed, f"{target}.memory.{role}", [rows(D, 2 * D), part(0, D, both)]),
                (packed, f"{target}.memory.{role}", [rows(2 * D, 3 * D), part(D, 2 * D, both)]),
                (f"{source}.out_proj.{role}", f"{target}.back.{role}", []),
            ]
        )


def feed_forward(source, target):
    PAIRS.extend(
        [
            (f"{source}.linear1.weight", f"{target}.w_up", TRANSPOSED),
            (f"{source}.linear1.bias", f"{target}.b_up", []),
            (f"{source}.linear2.weight", f"{target}.w_down", TRANSPOSED),
            (f"{source}.linear2.bias", f"{target}.b_down", []),
        ]
    )


for i in range(2):
    s, t = f"encoder.{i}", f"reader.{i}"
    norm(f"{s}.norm1", f"{t}.before_look")
    attention(f"{s}.self_attn", f"{t}.look")
    norm(f"{s}.norm2", f"{t}.before_think")
    feed_forward(s, f"{t}.think")
    s, t = f"decoder.{i}", f"writer.{i}"
    norm(f"{s}.norm1", f"{t}.before_look_back")
    attention(f"{s}.self_attn", f"{t}.look_back")
    norm(f"{s}.norm2", f"{t}.before_look_over")
    attention(f"{s}.multihead_attn", f"{t}.look_over")
    norm(f"{s}.norm3", f"{t}.before_think")
    feed_forward(s, f"{t}.think")
norm("encoder_norm", "closing.reader")
norm("decoder_norm", "closing.writer")

DROP_SOURCE = {"generator.weight": "the same tensor as tgt_embed.tok.weight"}
DROP_TARGET = {}
FREE = [["tgt_embed.tok.weight", "generator.weight"]]
