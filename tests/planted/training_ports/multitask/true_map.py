KIND, BOX = 20, 12


def batch_norm(source, target):
    return [
        (f"{source}.weight", f"{target}.gamma", []),
        (f"{source}.bias", f"{target}.beta", []),
        (f"{source}.running_mean", f"{target}.moving_mean", []),
        (f"{source}.running_var", f"{target}.moving_variance", []),
    ]


def rows(start, stop, *shape):
    return [{"op": "part", "axis": 0, "start": start, "stop": stop, "shape": list(shape)}]


PAIRS = [
    ("cls_head.fc1.weight", "net.hidden.weight", rows(0, KIND, KIND + BOX, 24)),
    ("box_head.fc1.weight", "net.hidden.weight", rows(KIND, KIND + BOX, KIND + BOX, 24)),
    ("cls_head.fc1.bias", "net.hidden.bias", rows(0, KIND, KIND + BOX)),
    ("box_head.fc1.bias", "net.hidden.bias", rows(KIND, KIND + BOX, KIND + BOX)),
    ("cls_head.norm.weight", "net.to_kind.0.gamma", []),
    ("cls_head.norm.bias", "net.to_kind.0.beta", []),
    ("cls_head.fc2.weight", "net.to_kind.1.weight", []),
    ("cls_head.fc2.bias", "net.to_kind.1.bias", []),
    ("box_head.fc2.weight", "net.to_box.weight", []),
    ("box_head.fc2.bias", "net.to_box.bias", []),
    ("mask_head.block.conv.weight", "net.regions.mix.weight", []),
    *batch_norm("mask_head.block.bn", "net.regions.norm"),
    ("mask_head.predict.weight", "net.regions.score.weight", [{"op": "reshape", "shape": [4, 12]}]),
    ("mask_head.predict.bias", "net.regions.score.bias", []),
]
for n, name in enumerate(("doubt_kind", "doubt_box", "doubt_region")):
    PAIRS.append(("log_vars", name, [{"op": "slice", "axis": 0, "start": n, "stop": n + 1}]))

COUNTER = "a counter of torch's batch norm"
DROP_SOURCE = {"mask_head.block.bn.num_batches_tracked": COUNTER}
for n, name in enumerate(("first", "second", "third", "fourth")):
    PAIRS += [
        (f"trunk.{n}.conv.weight", f"net.backbone.{name}.0.weight", []),
        *batch_norm(f"trunk.{n}.bn", f"net.backbone.{name}.1"),
    ]
    DROP_SOURCE[f"trunk.{n}.bn.num_batches_tracked"] = COUNTER

DROP_TARGET = {}
FREE = []
