"""GPT-2 LM (small, its head tied) of transformers against mindone.transformers: a case as those of a folder of cases.

The folder's `common.py` must be importable.
"""

from __future__ import annotations

from typing import Any

import common  # type: ignore[import-not-found]

KWARGS = True


def _config() -> Any:
    sizes = {"n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 300, "n_positions": 64}
    return common.transformers().GPT2Config(**sizes, use_cache=False, attn_implementation="eager")


def torch_model() -> Any:
    """The original."""
    return common.transformers().GPT2LMHeadModel(_config())


def mindspore_model() -> Any:
    """The port."""
    return common.mindone_transformers().GPT2LMHeadModel(_config())


def inputs() -> dict[str, Any]:
    """Tokens."""
    return {"input_ids": common.ids(300, 2, 11)}


TIED = (r"(transformer\.wte|lm_head)\.weight", "transformer.wte.weight")
EXPECTED = common.by_rules(torch_model, mindspore_model, [TIED])
