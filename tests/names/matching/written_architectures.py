"""Well-known architectures written down twice, as two authors name and nest them: (a layer, its path in the port)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from written_sides import Written, batch_norm, conv, embedding, layer_norm, linear, own

if TYPE_CHECKING:
    from collections.abc import Iterator

Rows = list[tuple[Written, str]]
WIDTH = 16


def googlenet() -> Rows:
    """Four branches a block, flat numbers against nested ones."""
    rows: Rows = []
    blocks = {"3a": (192, 64, 96, 128, 16, 32, 32), "3b": (256, 128, 128, 192, 32, 96, 64),
              "4b": (512, 160, 112, 224, 24, 64, 64), "4c": (512, 128, 128, 256, 24, 64, 64)}  # fmt: skip
    for name, (into, b1, r2, b2, r3, b3, b4) in blocks.items():
        for mine, theirs, out, width, kernel in (
            ("branch1", "b1.0", b1, into, 1), ("branch2.0", "b2.0", r2, into, 1), ("branch2.1", "b2.1", b2, r2, 3),
            ("branch3.0", "b3.0", r3, into, 1), ("branch3.1", "b3.1", b3, r3, 3), ("branch4.1", "b4.1", b4, into, 1),
        ):  # fmt: skip
            rows.append((conv(f"inception{name}.{mine}.conv", out, width, kernel), f"block{name}.{theirs}.conv"))
            rows.append((batch_norm(f"inception{name}.{mine}.bn", out), f"block{name}.{theirs}.bn"))
    return rows


def densenet() -> Rows:
    """Layers that grow, numbered from 1 against from 0, words against indices."""
    rows, width = [], 64
    for block, count in enumerate((6, 12, 8), 1):
        for layer in range(1, count + 1):
            mine, theirs = f"features.denseblock{block}.denselayer{layer}", f"dense_blocks.{block - 1}.{layer - 1}"
            rows += [(batch_norm(f"{mine}.norm1", width), f"{theirs}.0")]
            rows += [(conv(f"{mine}.conv1", 128, width, 1), f"{theirs}.2")]
            rows += [(batch_norm(f"{mine}.norm2", 128), f"{theirs}.3"), (conv(f"{mine}.conv2", 32, 128), f"{theirs}.5")]
            width += 32
    return rows


def convnext() -> Rows:
    """Stages and blocks with a scale of their own, stages and downsampling as one list of eight."""
    rows: Rows = []
    for stage, (depth, width) in enumerate(((3, 24), (3, 48), (9, 96), (3, 192))):
        for block in range(depth):
            mine, theirs = f"encoder.stages.{stage}.layers.{block}", f"features.{2 * stage + 1}.{block}"
            rows += [(own(mine, gamma=(width,)), theirs), (conv(f"{mine}.dwconv", width, 1, 7), f"{theirs}.block.0")]
            rows += [(layer_norm(f"{mine}.layernorm", width), f"{theirs}.block.2")]
            rows += [(linear(f"{mine}.pwconv1", 4 * width, width), f"{theirs}.block.3")]
            rows += [(linear(f"{mine}.pwconv2", width, 4 * width), f"{theirs}.block.5")]
        if stage:
            mine, theirs = f"encoder.stages.{stage}.downsampling_layer", f"features.{2 * stage}"
            rows += [(layer_norm(f"{mine}.0", width // 2), f"{theirs}.0")]
            rows += [(conv(f"{mine}.1", width, width // 2, 2), f"{theirs}.1")]
    return rows


def vit() -> Rows:
    """Query, key and value; norms before and after against first and second."""
    rows: Rows = []
    for i in range(8):
        mine, theirs = f"vit.encoder.layer.{i}", f"blocks.{i}"
        rows += [(layer_norm(f"{mine}.layernorm_before", WIDTH), f"{theirs}.norm1")]
        for name in ("query", "key", "value"):
            rows += [(linear(f"{mine}.attention.attention.{name}", WIDTH, WIDTH), f"{theirs}.attn.{name[0]}")]
        rows += [(linear(f"{mine}.attention.output.dense", WIDTH, WIDTH), f"{theirs}.attn.proj")]
        rows += [(layer_norm(f"{mine}.layernorm_after", WIDTH), f"{theirs}.norm2")]
        rows += _feed_forward(f"{mine}.intermediate.dense", f"{mine}.output.dense", f"{theirs}.mlp.fc")
    return [*rows, (layer_norm("vit.layernorm", WIDTH), "norm"), (linear("classifier", 10, WIDTH), "head")]


def whisper() -> Rows:
    """An encoder and a decoder with two attentions a block, each norm named after its part."""
    rows: Rows = []
    for side in ("encoder", "decoder"):
        for i in range(4):
            mine, theirs = f"model.{side}.layers.{i}", f"{side}.blocks.{i}"
            rows += _attention(f"{mine}.self_attn", f"{theirs}.attn")
            if side == "decoder":
                rows += _attention(f"{mine}.encoder_attn", f"{theirs}.cross_attn")
            rows += _feed_forward(f"{mine}.fc1", f"{mine}.fc2", f"{theirs}.mlp.")
            rows += [(layer_norm(f"{mine}.final_layer_norm", WIDTH), f"{theirs}.mlp_ln")]
    return rows


def t5() -> Rows:
    """Sublayers as a list, each with its norm, against norms that are called after their part."""
    rows: Rows = [(embedding("shared", 50, WIDTH), "embed")]
    for side in ("encoder", "decoder"):
        parts = {"SelfAttention": "self_attn"} | ({"EncDecAttention": "cross_attn"} if side == "decoder" else {})
        for i in range(4):
            for place, (mine, theirs) in enumerate(parts.items()):
                above, beside = f"{side}.block.{i}.layer.{place}", f"{side}_layers.{i}.{theirs}"
                for name, other in zip("qkvo", ("q_proj", "k_proj", "v_proj", "out_proj"), strict=True):
                    rows.append((linear(f"{above}.{mine}.{name}", WIDTH, WIDTH), f"{beside}.{other}"))
                rows.append((layer_norm(f"{above}.layer_norm", WIDTH), f"{beside}_norm"))
            above, beside = f"{side}.block.{i}.layer.{len(parts)}", f"{side}_layers.{i}.ffn"
            rows += _feed_forward(f"{above}.DenseReluDense.wi", f"{above}.DenseReluDense.wo", f"{beside}.fc")
            rows.append((layer_norm(f"{above}.layer_norm", WIDTH), f"{beside}_norm"))
    return rows


def unet() -> Rows:
    """Double convolutions on the way down and up, by Sequential indices against by name."""

    def double(mine: str, theirs: str, into: int, out: int) -> Iterator[tuple[Written, str]]:
        for place, width in enumerate((into, out)):
            yield conv(f"{mine}.double_conv.{3 * place}", out, width), f"{theirs}.conv{place + 1}"
            yield batch_norm(f"{mine}.double_conv.{3 * place + 1}", out), f"{theirs}.bn{place + 1}"

    widths = (8, 16, 32, 64)
    rows = [*double("inc", "enc.0", 3, 8)]
    for step in range(3):
        rows += double(f"down{step + 1}.maxpool_conv.1", f"enc.{step + 1}", widths[step], widths[step + 1])
    for step in range(3):
        out = widths[2 - step]
        rows += [(conv(f"up{step + 1}.up", out, 2 * out, 2), f"ups.{step}")]
        rows += double(f"up{step + 1}.conv", f"dec.{step}", 2 * out, out)
    return rows


def _attention(mine: str, theirs: str) -> Rows:
    names = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "out"}
    rows = [(linear(f"{mine}.{name}", WIDTH, WIDTH), f"{theirs}.{other}") for name, other in names.items()]
    return [*rows, (layer_norm(f"{mine}_layer_norm", WIDTH), f"{theirs}_ln")]


def _feed_forward(first: str, second: str, theirs: str) -> Rows:
    wide = 4 * WIDTH
    return [(linear(first, wide, WIDTH), f"{theirs}1"), (linear(second, WIDTH, wide), f"{theirs}2")]


ARCHITECTURES = (googlenet, densenet, convnext, vit, whisper, t5, unet)
