"""A small Llama of `transformers` with random weights; tiny_llama_port.py is its port to MindSpore.

    python examples/tiny_llama.py llama.pth

saves the weights, for `align convert` and `align generate` (docs/generate.md).
"""

from __future__ import annotations

import sys

VOCABULARY, WIDTH, INNER, LAYERS, HEADS, GROUPS = 97, 32, 64, 2, 4, 2
THETA, EPSILON = 10000.0, 1e-6


def build():
    """LlamaForCausalLM with two layers, whose heads share keys and values in pairs."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=GROUPS,
        rms_norm_eps=EPSILON,
        initializer_range=0.3,
    )
    return LlamaForCausalLM(config).eval()


if __name__ == "__main__":
    import torch

    torch.save(build().state_dict(), sys.argv[1])
