"""Every rule about how ranks cut a parameter fits its examples, and no rule before it does."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from align.rules.training_rules import shard_layouts

MODELS = Path(__file__).parent / "data" / "model_names.json.gz"
DECODERS = ("Llama", "Qwen", "Mixtral", "Glm", "glm", "Deepseek", "ChatGLM")


def test_each_cut_is_the_first_that_fits_its_examples() -> None:
    layouts = shard_layouts()
    for cut in layouts.cuts:
        assert cut.examples, cut.names
        for name in cut.examples:
            assert layouts.cut_of(name) is cut, name
    assert layouts.cut_of("decoder.layers.0.mixer.in_proj.weight") is None


def test_every_parameter_of_the_known_language_models_has_a_cut() -> None:
    models = json.loads(gzip.decompress(MODELS.read_bytes()))["models"]
    names = {name for model, names in models.items() for name in names if any(kind in model for kind in DECODERS)}
    assert len(names) > 200
    layouts = shard_layouts()
    assert sorted(name for name in names if layouts.cut_of(name) is None) == ["model.rotary_emb.inv_freq"]


def test_layers_and_experts_are_counted_on() -> None:
    layouts = shard_layouts()
    for name in layouts.examples["layers"]:
        assert layouts.layer_of(name) is not None
    for name in layouts.examples["experts"]:
        assert layouts.expert_of(name) is not None
    local = "decoder.layers.1.mlp.experts.local_experts.3.linear_fc1.weight"
    assert (
        layouts.renumbered(local, layer=4, expert=8)
        == "decoder.layers.5.mlp.experts.local_experts.11.linear_fc1.weight"
    )
    grouped = "decoder.layers.1.mlp.experts.linear_fc2.weight3"
    assert layouts.renumbered(grouped, expert=8) == "decoder.layers.1.mlp.experts.linear_fc2.weight11"
    assert layouts.layer_of("embedding.word_embeddings.weight") is None
