WIDTH = 16


def part(start, stop, shape):
    return {"op": "part", "axis": 0, "start": start, "stop": stop, "shape": shape}


PAIRS = []
DROP_SOURCE = {}
for n, unit in enumerate(("stem.0", "stem.1", "layer1", "layer2", "layer3")):
    s, t = f"backbone.{unit}", f"body.{n}"
    PAIRS += [
        (f"{s}.0.weight", f"{t}.conv.weight", []),
        (f"{s}.1.weight", f"{t}.bn.gamma", []),
        (f"{s}.1.bias", f"{t}.bn.beta", []),
        (f"{s}.1.running_mean", f"{t}.bn.moving_mean", []),
        (f"{s}.1.running_var", f"{t}.bn.moving_variance", []),
    ]
    DROP_SOURCE[f"{s}.1.num_batches_tracked"] = "a count that is not used"
for n in range(3):
    for kind in ("weight", "bias"):
        PAIRS += [
            (f"fpn.inner_blocks.{n}.{kind}", f"neck.side{n + 3}.{kind}", []),
            (f"fpn.layer_blocks.{n}.{kind}", f"neck.smooth{n + 3}.{kind}", []),
        ]
    PAIRS.append((f"head.scales.{n}.scale", "head.level_scale", [part(n, n + 1, [3])]))
for k, name in enumerate(("cls_tower", "bbox_tower")):
    start, stop = k * WIDTH, (k + 1) * WIDTH
    PAIRS += [
        (f"head.{name}.0.weight", "head.towers.weight", [part(start, stop, [2 * WIDTH, WIDTH, 3, 3])]),
        (f"head.{name}.0.bias", "head.towers.bias", [part(start, stop, [2 * WIDTH])]),
        (f"head.{name}.1.weight", "head.norm.w", [part(start, stop, [2 * WIDTH])]),
        (f"head.{name}.1.bias", "head.norm.b", [part(start, stop, [2 * WIDTH])]),
    ]
for name, start, stop in (("bbox_pred", 0, 4), ("centerness", 4, 5)):
    PAIRS += [
        (f"head.{name}.weight", "head.to_box.weight", [part(start, stop, [5, WIDTH, 3, 3])]),
        (f"head.{name}.bias", "head.to_box.bias", [part(start, stop, [5])]),
    ]
PAIRS += [
    ("head.cls_logits.weight", "head.to_class.weight", []),
    ("head.cls_logits.bias", "head.to_class.bias", []),
]

DROP_TARGET = {}
FREE = []
