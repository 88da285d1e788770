NORM = (("weight", "gamma"), ("bias", "beta"), ("running_mean", "moving_mean"), ("running_var", "moving_variance"))
# source layer, source norm, target unit, (out, in)
UNITS = [
    ("feat.stn.conv1", "feat.stn.bn1", "pose.summary.steps.0", (24, 3)),
    ("feat.stn.conv2", "feat.stn.bn2", "pose.summary.steps.1", (32, 24)),
    ("feat.stn.conv3", "feat.stn.bn3", "pose.summary.steps.2", (64, 32)),
    ("feat.stn.fc1", "feat.stn.bn4", "pose.to_matrix.wide", None),
    ("feat.stn.fc2", "feat.stn.bn5", "pose.to_matrix.narrow", None),
    ("feat.conv1", "feat.bn1", "summary.steps.0", (24, 3)),
    ("feat.conv2", "feat.bn2", "summary.steps.1", (32, 24)),
    ("feat.conv3", "feat.bn3", "summary.steps.2", (64, 32)),
    ("cls_head.0", "cls_head.1", "per_cloud.wide", None),
    ("cls_head.3", "cls_head.5", "per_cloud.narrow", None),
    ("seg_head.3", "seg_head.4", "per_point.narrow", (24, 48)),
]

PAIRS = []
for layer, norm, unit, shape in UNITS:
    flat = [{"op": "reshape", "shape": list(shape)}] if shape else []
    PAIRS += [(f"{layer}.weight", f"{unit}.mix.weight", flat), (f"{layer}.bias", f"{unit}.mix.bias", [])]
    PAIRS += [(f"{norm}.{s}", f"{unit}.stat.{t}", []) for s, t in NORM]

PAIRS += [
    ("feat.stn.fc3.weight", "pose.to_matrix.answer.weight", []),
    ("feat.stn.fc3.bias", "pose.to_matrix.answer.bias", []),
    ("cls_head.7.weight", "per_cloud.answer.weight", []),
    ("cls_head.7.bias", "per_cloud.answer.bias", []),
    ("seg_head.6.weight", "per_point.answer.weight", [{"op": "reshape", "shape": [9, 24]}]),
    ("seg_head.6.bias", "per_point.answer.bias", []),
    ("seg_head.0.bias", "per_point.wide.mix.bias", []),
]
PAIRS += [(f"seg_head.1.{s}", f"per_point.wide.stat.{t}", []) for s, t in NORM]

# the original joins (local, global), the port (global, local)
for start, stop, to in ((0, 24, 64), (24, 88, 0)):
    PAIRS += [
        (
            "seg_head.0.weight",
            "per_point.wide.mix.weight",
            [
                {"op": "reshape", "shape": [48, 88]},
                {"op": "slice", "axis": 1, "start": start, "stop": stop},
                {"op": "part", "axis": 1, "start": to, "stop": to + stop - start, "shape": [48, 88]},
            ],
        )
    ]

COUNTED = [norm for _, norm, _, _ in UNITS] + ["seg_head.1"]
DROP_SOURCE = {f"{norm}.num_batches_tracked": "a counter, not used in evaluation" for norm in COUNTED}
DROP_TARGET = {}
FREE = []
