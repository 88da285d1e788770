WIDTHS = (16, 24, 40)
LAST = len(WIDTHS) - 1

PAIRS = []


def layer(source, target):
    PAIRS.extend((f"{source}.{role}", f"{target}.{role}", []) for role in ("weight", "bias"))


def norm(source, target):
    PAIRS.extend([(f"{source}.weight", f"{target}.gamma", []), (f"{source}.bias", f"{target}.beta", [])])


for i in range(LAST + 1):
    block = "bottleneck.block" if i == LAST else f"encoders.{i}.block"
    layer(f"{block}.0", f"sink.filters.{2 * i}")
    norm(f"{block}.1", f"sink.norms.{2 * i}")
    layer(f"{block}.3", f"sink.filters.{2 * i + 1}")
    norm(f"{block}.4", f"sink.norms.{2 * i + 1}")
for i in range(LAST):
    # the original counts its decoders from the coarsest, the port from the finest
    s, j = f"decoders.{i}", LAST - 1 - i
    layer(f"{s}.up", f"rise.grow.{j}")
    layer(f"{s}.conv.block.0", f"rise.first.{j}")
    norm(f"{s}.conv.block.1", f"rise.first_norm.{j}")
    layer(f"{s}.conv.block.3", f"rise.second.{j}")
    norm(f"{s}.conv.block.4", f"rise.second_norm.{j}")
    for a, b in (("W_g", "coarse"), ("W_x", "fine")):
        layer(f"{s}.gate.{a}.0", f"rise.selectors.{j}.see_{b}")
        norm(f"{s}.gate.{a}.1", f"rise.selectors.{j}.scale_{b}")
    mid = WIDTHS[j] // 2
    PAIRS += [
        (f"{s}.gate.psi.weight", f"rise.selectors.{j}.vote", [{"op": "reshape", "shape": [1, mid]}]),
        (f"{s}.gate.psi.bias", f"rise.selectors.{j}.level", []),
    ]
layer("out_conv", "labelling")

DROP_SOURCE = {}
DROP_TARGET = {}
# added to each other before anything else is done with them
FREE = [[f"decoders.{i}.gate.W_g.1.bias", f"decoders.{i}.gate.W_x.1.bias"] for i in range(LAST)]
