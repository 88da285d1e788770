LATENT, EMBED = 16, 8


def columns(start, stop):
    return [{"op": "slice", "axis": 1, "start": start, "stop": stop}]


def batch_norm(source, target):
    return [
        (f"{source}.weight", f"{target}.gamma", []),
        (f"{source}.bias", f"{target}.beta", []),
        (f"{source}.running_mean", f"{target}.moving_mean", []),
        (f"{source}.running_var", f"{target}.moving_variance", []),
    ]


def row(number, channels):
    return [
        {"op": "reshape", "shape": [1, channels]},
        {"op": "part", "axis": 0, "start": number, "stop": number + 1, "shape": [2, channels]},
    ]


G, P, D, C = "generator", "painter", "discriminator", "critic"

PAIRS = [
    (f"{G}.embed.weight", f"{P}.codes", []),
    (f"{G}.fc.weight", f"{P}.from_noise.weight", columns(0, LATENT)),
    (f"{G}.fc.weight", f"{P}.from_code.weight", columns(LATENT, LATENT + EMBED)),
    (f"{G}.fc.bias", f"{P}.from_noise.bias", []),
    *batch_norm(f"{G}.bn", f"{P}.grow.2.0"),
    (f"{G}.conv.weight", f"{P}.grow.3.weight", []),
    (f"{G}.conv.bias", f"{P}.grow.3.bias", []),
    (f"{D}.conv1.weight", f"{C}.trunk.0.weight", []),
    (f"{D}.conv1.bias", f"{C}.trunk.0.bias", []),
    (f"{D}.conv2.weight", f"{C}.trunk.2.weight", []),
    (f"{D}.norm2.weight", f"{C}.trunk.3.affine", row(0, 12)),
    (f"{D}.norm2.bias", f"{C}.trunk.3.affine", row(1, 12)),
    (f"{D}.conv3.weight", f"{C}.trunk.5.weight", []),
    (f"{D}.norm3.weight", f"{C}.trunk.6.affine", row(0, 16)),
    (f"{D}.norm3.bias", f"{C}.trunk.6.affine", row(1, 16)),
    (f"{D}.fc.weight", f"{C}.score.weight", [{"op": "reshape", "shape": [1, 16, 2, 2]}]),
    (f"{D}.fc.bias", f"{C}.score.bias", []),
    (f"{D}.embed.weight", f"{C}.kinds.embedding_table", []),
]
DROP_SOURCE = {f"{G}.bn.num_batches_tracked": "a counter of torch's batch norm"}
for n in range(2):
    s, t = f"{G}.blocks.{n}", f"{P}.grow.{n}"
    PAIRS += [
        *batch_norm(f"{s}.bn1", f"{t}.main.0.0"),
        (f"{s}.conv1.weight", f"{t}.main.2.weight", []),
        *batch_norm(f"{s}.bn2", f"{t}.main.3.0"),
        (f"{s}.conv2.weight", f"{t}.main.4.weight", []),
        (f"{s}.skip.weight", f"{t}.side.1.weight", []),
    ]
    for norm in ("bn1", "bn2"):
        DROP_SOURCE[f"{s}.{norm}.num_batches_tracked"] = "a counter of torch's batch norm"

DROP_TARGET = {}
FREE = []
