"""Writes folders as Megatron-LM's ranks do, with the layers of megatron-core over gloo: `make_megatron.py FOLDER KIND`.

KIND is `dense` (tensor 2 x pipeline 2) or `experts` (tensor 2 x expert 2). The same model is also saved by
megatron.core.dist_checkpointing, which puts the parameters together itself: FOLDER.pth has them, by the names of the
whole model. megatron-core 0.16 wrote `tests/checkpoints/data/megatron_*` so, in the layout of Megatron-LM's
checkpointing.py, which is not in its wheel.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from pathlib import Path

SIZES = {"dense": (2, 2, 1), "experts": (2, 1, 2)}


def main(folder: str, kind: str) -> None:
    """Run all ranks, then read what they saved together."""
    import torch.multiprocessing as mp

    mp.spawn(save_rank, (folder, kind), nprocs=4)


def save_rank(rank: int, folder: str, kind: str) -> None:
    """One rank: its part of a GPT of four layers, saved in both ways."""
    import torch
    import torch.distributed as dist

    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "4"}
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}.store", 4), rank=rank, world_size=4)
    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig

    tensor, pipeline, expert = SIZES[kind]
    parallel_state.initialize_model_parallel(
        tensor, pipeline, expert_model_parallel_size=expert, expert_tensor_parallel_size=tensor
    )
    shared = {
        "num_layers": 4 if kind == "dense" else 2,
        "hidden_size": 8,
        "num_attention_heads": 4,
        "num_query_groups": 2,
    }
    config = TransformerConfig(
        **shared,
        ffn_hidden_size=12,
        use_cpu_initialization=True,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        add_bias_linear=False,
        add_qkv_bias=True,
        normalization="RMSNorm",
        persist_layer_norm=False,
        bias_dropout_fusion=False,
        tensor_model_parallel_size=tensor,
        pipeline_model_parallel_size=pipeline,
        expert_model_parallel_size=expert,
        expert_tensor_parallel_size=tensor,
        pipeline_dtype=torch.float32,
        num_moe_experts=4 if expert > 1 else None,
    )
    spec = get_gpt_layer_local_spec(num_experts=config.num_moe_experts, normalization="RMSNorm")
    stage = parallel_state.get_pipeline_model_parallel_rank()
    model = GPTModel(
        config=config,
        transformer_layer_spec=spec,
        vocab_size=16,
        max_sequence_length=4,
        pre_process=stage == 0,
        post_process=stage == pipeline - 1,
        position_embedding_type="rope",
        share_embeddings_and_output_weights=False,
    )
    generator = torch.Generator().manual_seed(1 + rank)
    for parameter in model.parameters():
        if getattr(parameter, "tensor_model_parallel", False):
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator))
    for name, parameter in model.named_parameters():  # all ranks have one value of what is not cut
        if not getattr(parameter, "tensor_model_parallel", False):
            parameter.data.copy_(
                torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name) + stage))
            )
        elif expert > 1 and "experts" not in name:
            dist.broadcast(parameter.data, tensor_source(rank, tensor), group=replicas(rank, tensor))
    args = Namespace(
        **shared, padded_vocab_size=16, vocab_size=13, world_size=4, tensor_model_parallel_size=tensor,
        pipeline_model_parallel_size=pipeline, expert_model_parallel_size=expert, swiglu=True,
    )  # fmt: skip
    place = f"mp_rank_{parallel_state.get_tensor_model_parallel_rank():02d}"
    place += f"_{stage:03d}" if pipeline > 1 else ""
    place += f"_{parallel_state.get_expert_model_parallel_rank():03d}" if expert > 1 else ""
    own = Path(folder, "iter_0000003", place)
    own.mkdir(parents=True, exist_ok=True)
    saved = {"args": args, "checkpoint_version": 3.0, "iteration": 3, "model": model.state_dict_for_save_checkpoint()}
    torch.save(saved, own / "model_optim_rng.pt")
    pieces = {}
    for name, entry in flat(model.sharded_state_dict()).items():
        if entry.data is not None:
            pieces[name, entry.key] = (entry.global_shape, entry.global_offset, entry.prepend_axis_num, entry.data)
    gathered: list[object] = [None] * 4
    dist.all_gather_object(gathered, pieces)
    if rank == 0:
        Path(folder, "latest_checkpointed_iteration.txt").write_text("3", encoding="utf-8")
        torch.save(joined(gathered), f"{folder}.pth")
    dist.destroy_process_group()


_GROUPS: dict[int, object] = {}


def replicas(rank: int, tensor: int) -> object:
    """The ranks that hold the same part of what is no expert's; every rank makes all groups."""
    import torch.distributed as dist

    for first in range(tensor):
        if first not in _GROUPS:
            _GROUPS[first] = dist.new_group(list(range(first, 4, tensor)))
    return _GROUPS[rank % tensor]


def tensor_source(rank: int, tensor: int) -> int:
    """The first of them."""
    return rank % tensor


def flat(state: dict) -> dict:
    """The sharded tensors of megatron-core by name, each half of a gate and its values by itself."""
    from megatron.core.dist_checkpointing.mapping import ShardedTensor, ShardedTensorFactory

    found = {}
    for name, entry in state.items():
        parts = entry
        if isinstance(entry, ShardedTensorFactory):
            parts = entry.build()
        for number, part in enumerate(parts if isinstance(parts, (list, tuple)) else [parts]):
            if isinstance(part, ShardedTensor):
                found[f"{name}#{number}"] = part
    return found


def joined(ranks: list) -> dict:
    """Whole tensors by megatron-core's keys: the pieces at the offsets that it tells."""
    import torch

    whole: dict[str, torch.Tensor] = {}
    for pieces in ranks:
        for (_, key), (shape, offset, before, data) in pieces.items():
            target = whole.setdefault(key, torch.full(shape, float("nan")))
            data = data.reshape(*(1,) * before, *data.shape)
            target[tuple(slice(at, at + size) for at, size in zip(offset, data.shape, strict=True))] = data
    return whole


if __name__ == "__main__":
    main(str(Path(sys.argv[1]).absolute()), sys.argv[2])
