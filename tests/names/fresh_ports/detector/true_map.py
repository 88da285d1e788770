WIDTH, LEVELS = 24, 4
NORM = (("weight", "gamma"), ("bias", "beta"), ("running_mean", "moving_mean"), ("running_var", "moving_variance"))
COLUMN = [{"op": "reshape", "shape": [WIDTH, 1, 1]}]

# convolution and batch norm of the original, the port's cell of both
FILTERS = [("backbone.conv1", "backbone.bn1", "eye.stem")]
for n, block in enumerate(("layer1.0", "layer1.1", "layer2.0", "layer3.0", "layer3.1")):
    s, t = f"backbone.{block}", f"eye.units.{n}"
    FILTERS += [(f"{s}.conv1", f"{s}.bn1", f"{t}.first"), (f"{s}.conv2", f"{s}.bn2", f"{t}.second")]
    if block.endswith(".0"):
        FILTERS += [(f"{s}.downsample.0", f"{s}.downsample.1", f"{t}.detour")]

PAIRS = []
for layer, norm, cell in FILTERS:
    PAIRS += [(f"{layer}.weight", f"{cell}.kernel.weight", [])]
    PAIRS += [(f"{norm}.{s}", f"{cell}.calm.{t}", []) for s, t in NORM]

CONVS = [("fpn.extra", "eye.coarser")]
for n in range(3):
    CONVS += [(f"fpn.inner_blocks.{n}", f"eye.enter.{2 - n}"), (f"fpn.layer_blocks.{n}", f"eye.polish.{2 - n}")]
for n, (tower, final) in enumerate(
    (("ctr_tower", "centerness"), ("bbox_tower", "bbox_pred"), ("cls_tower", "cls_logits"))
):
    CONVS += [(f"head.{final}", f"branches.{n}.final")]
    for k in range(2):
        CONVS += [(f"head.{tower}.{3 * k}", f"branches.{n}.mixers.{k}")]
        PAIRS += [
            (f"head.{tower}.{3 * k + 1}.weight", f"branches.{n}.norms.{k}.gain", COLUMN),
            (f"head.{tower}.{3 * k + 1}.bias", f"branches.{n}.norms.{k}.lift", COLUMN),
        ]
PAIRS += [(f"{s}.{leaf}", f"{t}.{leaf}", []) for s, t in CONVS for leaf in ("weight", "bias")]

PAIRS += [
    (
        f"head.scales.{n}.scale",
        "stretch",
        [
            {"op": "reshape", "shape": [1]},
            {"op": "part", "axis": 0, "start": n, "stop": n + 1, "shape": [LEVELS]},
        ],
    )
    for n in range(LEVELS)
]

DROP_SOURCE = {f"{norm}.num_batches_tracked": "a counter, not used in evaluation" for _, norm, _ in FILTERS}
DROP_TARGET = {}
# both are added before the same activation
FREE = [
    [f"backbone.{block}.bn2.bias", f"backbone.{block}.downsample.1.bias"]
    for block in ("layer1.0", "layer2.0", "layer3.0")
]
