D, H, K, F = 32, 4, 7, 3  # width, heads, taps of the depthwise filter, frequencies left after subsampling
HD = D // H


def reshape(*shape):
    return {"op": "reshape", "shape": list(shape)}


def permute(*axes):
    return {"op": "permute", "axes": list(axes)}


def rows(start, stop):
    return {"op": "slice", "axis": 0, "start": start, "stop": stop}


def part(start, stop, *shape):
    return {"op": "part", "axis": 0, "start": start, "stop": stop, "shape": list(shape)}


PAIRS = [
    ("pre_encode.conv.0.weight", "reduce_a.weight", []),
    ("pre_encode.conv.0.bias", "reduce_a.bias", []),
    ("pre_encode.conv.2.weight", "reduce_b.weight", []),
    ("pre_encode.conv.2.bias", "reduce_b.bias", []),
    # channel by frequency there, frequency by channel here
    ("pre_encode.out.weight", "flatten_in.weight", [reshape(D, D, F), permute(0, 2, 1), reshape(D, F * D)]),
    ("pre_encode.out.bias", "flatten_in.bias", []),
    ("decoder.weight", "to_symbols.weight", []),
    ("decoder.bias", "to_symbols.bias", []),
]
for i in range(2):
    s, t = f"layers.{i}", f"stages.{i}"
    for a, b in (
        ("feed_forward1.layer_norm", "sandwich.0.pre"),
        ("feed_forward2.layer_norm", "sandwich.1.pre"),
        ("norm_self_att", "far_pre"),
        ("norm_conv", "local_pre"),
        ("norm_out", "close"),
    ):
        PAIRS += [(f"{s}.{a}.weight", f"{t}.{b}.gain", []), (f"{s}.{a}.bias", f"{t}.{b}.offset", [])]
    for a, b in (("feed_forward1", "sandwich.0"), ("feed_forward2", "sandwich.1")):
        for role in ("weight", "bias"):
            PAIRS += [
                (f"{s}.{a}.linear1.{role}", f"{t}.{b}.expand.{role}", []),
                (f"{s}.{a}.linear2.{role}", f"{t}.{b}.contract.{role}", []),
            ]
    for n, name in enumerate(("linear_q", "linear_k", "linear_v")):
        for h in range(H):
            start = (3 * h + n) * HD
            steps = [rows(h * HD, (h + 1) * HD), part(start, start + HD, 3 * D, D)]
            PAIRS.append((f"{s}.self_attn.{name}.weight", f"{t}.far.triple.weight", steps))
    PAIRS += [
        (f"{s}.self_attn.linear_out.weight", f"{t}.far.merge.weight", []),
        (f"{s}.self_attn.linear_out.bias", f"{t}.far.merge.bias", []),
        (f"{s}.self_attn.linear_pos.weight", f"{t}.far.where.weight", []),
        (f"{s}.self_attn.pos_bias_u", f"{t}.far.shift_content", [reshape(H, 1, HD)]),
        (f"{s}.self_attn.pos_bias_v", f"{t}.far.shift_distance", [reshape(H, 1, HD)]),
        (f"{s}.conv.pointwise_conv1.weight", f"{t}.local.widen.weight", [reshape(2 * D, D)]),
        (f"{s}.conv.pointwise_conv1.bias", f"{t}.local.widen.bias", []),
        (f"{s}.conv.depthwise_conv.weight", f"{t}.local.taps.weight", [reshape(D, 1, 1, K)]),
        (f"{s}.conv.depthwise_conv.bias", f"{t}.local.taps.bias", []),
        (f"{s}.conv.pointwise_conv2.weight", f"{t}.local.squash.weight", [reshape(D, D)]),
        (f"{s}.conv.pointwise_conv2.bias", f"{t}.local.squash.bias", []),
        (f"{s}.conv.norm.weight", f"{t}.local.stat.gamma", []),
        (f"{s}.conv.norm.bias", f"{t}.local.stat.beta", []),
        (f"{s}.conv.norm.running_mean", f"{t}.local.stat.moving_mean", []),
        (f"{s}.conv.norm.running_var", f"{t}.local.stat.moving_variance", []),
    ]
DROP_SOURCE = {f"layers.{i}.conv.norm.num_batches_tracked": "a counter" for i in range(2)}
DROP_TARGET = {}
FREE = []
