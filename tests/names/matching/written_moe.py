"""A mixture of experts and its port, written down without any framework: other names, other nesting, another order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from written_sides import Written, embedding, layer_norm, linear, side

if TYPE_CHECKING:
    from align.core.parameters import ParameterSet

WIDTH, INNER, ROWS = 16, 8, 64


def mixture(layers: int, experts: int) -> tuple[ParameterSet, ParameterSet, dict[str, str]]:
    """The original, its port, and which name is which; 3 x layers x experts parameters and a few more a layer."""
    pairs = [(embedding("model.embed_tokens", ROWS, WIDTH), "decoder.token_embedding")]
    for i in range(layers):
        pairs += block(f"model.layers.{i}", f"decoder.blocks.{i}", experts)
    pairs += [(layer_norm("model.norm", WIDTH), "decoder.final_norm")]
    pairs += [(linear("lm_head", ROWS, WIDTH, bias=False), "output_proj")]
    port = [a.at(b) for a, b in sorted(pairs, key=lambda pair: _registered(pair[1]))]
    names = {f"{a.path}.{name}": f"{b}.{own}" for a, b in pairs for name, own in a.at(b).attributes("nn").items()}
    return side("torch", *(a for a, _ in pairs)), side("nn", *port), names


def block(source: str, target: str, experts: int) -> list[tuple[Written, str]]:
    """One decoder layer: layers of the original with the port's paths."""
    names = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "out"}
    found = [(linear(f"{source}.self_attn.{a}", WIDTH, WIDTH), f"{target}.attn.{b}") for a, b in names.items()]
    found += [(layer_norm(f"{source}.input_layernorm", WIDTH), f"{target}.norm_x")]
    found += [(layer_norm(f"{source}.post_attention_layernorm", WIDTH), f"{target}.norm_y")]
    found += [(linear(f"{source}.mlp.gate", experts, WIDTH, bias=False), f"{target}.moe.router")]
    for e in range(experts):
        for (a, b), shape in {
            ("gate_proj", "w1"): (INNER, WIDTH),
            ("down_proj", "w2"): (WIDTH, INNER),
            ("up_proj", "w3"): (INNER, WIDTH),
        }.items():
            mine = linear(f"{source}.mlp.experts.{e}.{a}", *shape, bias=False)
            found.append((mine, f"{target}.moe.expert_list.{e}.{b}"))
    return found


def _registered(path: str) -> tuple[object, ...]:
    """The port registers within each block the experts first, then the norms, the attention last."""
    parts = path.split(".")
    if parts[1:2] != ["blocks"]:
        return (0 if parts[-1] == "token_embedding" else 2,)
    inside = ("moe", "norm_x", "norm_y", "attn").index(parts[3])
    expert = int(parts[5]) if len(parts) > 5 else 0
    return (1, int(parts[2]), inside, expert, parts[-1])
