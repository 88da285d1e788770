LOW, HIGH, TIME = 12, 16, 24
ALL = LOW + HIGH + LOW


def norm(source, target, channels):
    shape = [{"op": "reshape", "shape": [1, channels, 1, 1]}]
    return [(f"{source}.weight", f"{target}.gain", shape), (f"{source}.bias", f"{target}.offset", shape)]


def rows(start, stop, *shape):
    return [{"op": "part", "axis": 0, "start": start, "stop": stop, "shape": list(shape)}]


def linear(source, target):
    return [(f"{source}.weight", f"{target}.weight", []), (f"{source}.bias", f"{target}.bias", [])]


def block(source, target, cin, cout, net, start):
    return [
        *norm(f"{source}.norm1", f"{target}.enter.0", cin),
        (f"{source}.conv1.weight", f"{target}.enter.2.weight", []),
        (f"{source}.time_emb_proj.weight", f"{net}.clock.shifts.weight", rows(start, start + cout, ALL, TIME)),
        (f"{source}.time_emb_proj.bias", f"{net}.clock.shifts.bias", rows(start, start + cout, ALL)),
        *norm(f"{source}.norm2", f"{target}.leave.0", cout),
        (f"{source}.conv2.weight", f"{target}.leave.2.weight", []),
    ]


def network(s, t):
    pairs = [
        *linear(f"{s}.time_embedding.0", f"{t}.clock.hidden"),
        *linear(f"{s}.time_embedding.2", f"{t}.clock.mixed"),
        *linear(f"{s}.conv_in", f"{t}.stem"),
        *block(f"{s}.down_block", f"{t}.fine", LOW, LOW, t, 0),
        *linear(f"{s}.downsample", f"{t}.shrink"),
        *block(f"{s}.mid_block", f"{t}.coarse", HIGH, HIGH, t, LOW),
        *norm(f"{s}.mid_attention.group_norm", f"{t}.look.norm", HIGH),
        *linear(f"{s}.mid_attention.to_out", f"{t}.look.out"),
        *linear(f"{s}.upsample", f"{t}.expand"),
        *block(f"{s}.up_block", f"{t}.merge", 2 * LOW, LOW, t, LOW + HIGH),
        (
            f"{s}.up_block.conv_shortcut.weight",
            f"{t}.merge.bypass.weight",
            [{"op": "reshape", "shape": [LOW, 2 * LOW]}],
        ),
        *norm(f"{s}.conv_norm_out", f"{t}.head.0", LOW),
        *linear(f"{s}.conv_out", f"{t}.head.2"),
    ]
    for number, name in enumerate(("to_q", "to_k", "to_v")):
        place = rows(number * HIGH, (number + 1) * HIGH, 3 * HIGH, HIGH)
        pairs.append((f"{s}.mid_attention.{name}.weight", f"{t}.look.qkv.weight", place))
    return pairs


PAIRS = network("unet", "live") + network("ema", "average")
DROP_SOURCE = {"alphas_cumprod": "a constant that the port computes outside its network"}
DROP_TARGET = {}
FREE = []
