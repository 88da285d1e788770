"""Writes folders as Megatron-LM's ranks do, with the layers of megatron-core over gloo: `make_megatron.py FOLDER KIND`.

KIND is `dense` (tensor 2 x pipeline 2) or `experts` (tensor 2 x expert 2): a folder for each rank, in the layout of
Megatron-LM's checkpointing.py, which is not in the wheel. FOLDER.pth has the whole parameters, by the places that
megatron.core.dist_checkpointing gives to their pieces.

`dist_dense` and `dist_experts` are saved by megatron.core.dist_checkpointing itself (`torch_dist`), with norms of
queries and keys; `dist_biases` has biases of queries, keys and values instead, and a name for each layer. One rank
then loads FOLDER and runs the model: FOLDER.npz has its tokens and logits. megatron-core 0.16.1 wrote
`tests/checkpoints/data/megatron_*` so.
"""

from __future__ import annotations

import os
import sys
import zlib
from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path

SIZES = {"dense": (2, 2, 1), "experts": (2, 1, 2)}
SIZES |= {"dist_dense": (2, 2, 1), "dist_biases": (2, 2, 1), "dist_experts": (2, 1, 2)}
NUMBERED = {"non_homogeneous_layers": True}  # a name for each layer


def main(folder: str, kind: str) -> None:
    """Run all ranks, then read what they saved together."""
    import torch.multiprocessing as mp

    mp.spawn(save_rank, (folder, kind), nprocs=4)
    if kind.startswith("dist_"):
        mp.spawn(run_whole, (folder, kind), nprocs=1)


def start_rank(rank: int, folder: str, sizes: tuple[int, int, int], kind: str) -> tuple:
    """Join the other ranks, and build this one's part of a GPT; returns it with its configuration."""
    import torch
    import torch.distributed as dist

    world = 1 if sizes == (1, 1, 1) else 4
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
    store = dist.FileStore(f"{folder}.store{world}", world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    if not torch.cuda.is_available():  # megatron-core asks for a device, whatever the tensors are on
        torch.cuda.synchronize, torch.cuda.current_device = (lambda *_: None), (lambda: "cpu")
    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig

    tensor, pipeline, expert = sizes
    parallel_state.initialize_model_parallel(
        tensor, pipeline, expert_model_parallel_size=expert, expert_tensor_parallel_size=tensor
    )
    experts = kind.endswith("experts")
    with_norms = kind.startswith("dist_") and kind != "dist_biases"
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
        add_qkv_bias=not with_norms,
        qk_layernorm=with_norms,
        normalization="RMSNorm",
        layernorm_epsilon=1e-6,
        persist_layer_norm=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        apply_rope_fusion=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        tensor_model_parallel_size=tensor,
        pipeline_model_parallel_size=pipeline,
        expert_model_parallel_size=expert,
        expert_tensor_parallel_size=tensor,
        pipeline_dtype=torch.float32,
        num_moe_experts=4 if experts else None,
        moe_token_dispatcher_type="allgather",
        moe_router_load_balancing_type="none",
        moe_router_pre_softmax=False,
    )
    spec = get_gpt_layer_local_spec(
        num_experts=config.num_moe_experts, normalization="RMSNorm", qk_layernorm=with_norms
    )
    stage = parallel_state.get_pipeline_model_parallel_rank()
    model = GPTModel(
        config=config,
        transformer_layer_spec=spec,
        vocab_size=16,
        max_sequence_length=8,
        pre_process=stage == 0,
        post_process=stage == pipeline - 1,
        position_embedding_type="rope",
        share_embeddings_and_output_weights=False,
    )
    return model, shared


def save_rank(rank: int, folder: str, kind: str) -> None:
    """One rank: its part of a GPT, saved in both ways."""
    import torch
    import torch.distributed as dist

    tensor, pipeline, expert = SIZES[kind]
    model, shared = start_rank(rank, folder, SIZES[kind], kind)
    from megatron.core import parallel_state

    stage = parallel_state.get_pipeline_model_parallel_rank()
    generator = torch.Generator().manual_seed(1 + rank)
    for parameter in model.parameters():
        if getattr(parameter, "tensor_model_parallel", False):
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator))
    for name, parameter in model.named_parameters():  # all ranks have one value of what is not cut
        if not getattr(parameter, "tensor_model_parallel", False):
            parameter.data.copy_(
                torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed_of(name, kind) + stage))
            )
        elif expert > 1 and "experts" not in name:
            dist.broadcast(parameter.data, tensor_source(rank, tensor), group=replicas(rank, tensor))
    args = Namespace(
        **shared, padded_vocab_size=16, vocab_size=13, world_size=4, tensor_model_parallel_size=tensor,
        pipeline_model_parallel_size=pipeline, expert_model_parallel_size=expert, swiglu=True, ckpt_format="torch_dist",
    )  # fmt: skip
    if kind.startswith("dist_"):
        save_together(model, folder, kind, args)
        dist.destroy_process_group()
        return
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


def save_together(model, folder: str, kind: str, args: Namespace) -> None:
    """All ranks write one checkpoint, with a moment of an optimizer and a random state as Megatron-LM adds them."""
    from copy import copy

    import torch
    import torch.distributed as dist
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.dist_checkpointing.mapping import ShardedObject
    from megatron.core.dist_checkpointing.strategies.torch import TorchDistSaveShardedStrategy

    place = Path(folder, "iter_0000003")
    if dist.get_rank() == 0:
        place.mkdir(parents=True)
        Path(folder, "latest_checkpointed_iteration.txt").write_text("3", encoding="utf-8")
    dist.barrier()
    weights = model.sharded_state_dict(metadata=NUMBERED if kind == "dist_biases" else None)
    moments = {}
    for name, entry in flat(weights).items():
        if "norm" not in name:
            continue
        moments[name] = copy(entry)
        moments[name].key = f"optimizer.state.exp_avg.{entry.key}"
        moments[name].data = torch.ones_like(entry.data)
    stages = parallel_state.get_pipeline_model_parallel_world_size()
    shape, at = (stages, 1), (parallel_state.get_pipeline_model_parallel_rank(), 0)
    ranks = parallel_state.get_tensor_model_parallel_rank(), parallel_state.get_data_parallel_rank()
    state = ShardedObject("rng_state", {"cpu": torch.get_rng_state()[:8]}, shape, at, replica_id=ranks)
    saved = {"args": args, "checkpoint_version": 3.0, "iteration": 3, "model": weights, "optimizer": moments}
    dist_checkpointing.save(
        saved | {"rng_state": state}, str(place), TorchDistSaveShardedStrategy("torch_dist", 1, thread_count=1)
    )


def run_whole(rank: int, folder: str, kind: str) -> None:
    """One rank loads the whole of what four saved, and computes logits."""
    import numpy as np
    import torch
    import torch.distributed as dist

    model, _ = start_rank(rank, folder, (1, 1, 1), kind)
    from megatron.core import dist_checkpointing, tensor_parallel
    from megatron.core.transformer.moe import moe_utils

    moe_utils.te_general_gemm = None  # 0.16.1 looks for it where Transformer Engine is not installed, too
    tensor_parallel.get_cuda_rng_tracker().fork = lambda *_: nullcontext()  # nothing is dropped out

    weights = model.sharded_state_dict(metadata=NUMBERED if kind == "dist_biases" else None)
    loaded = dist_checkpointing.load({"model": weights}, str(Path(folder, "iter_0000003")))
    model.load_state_dict(loaded["model"])
    model.eval()
    tokens = torch.tensor([[1, 5, 2, 9, 11, 3]])
    mask = torch.triu(torch.ones(1, 1, 6, 6, dtype=torch.bool), 1)
    with torch.no_grad():
        logits = model(tokens, torch.arange(6)[None], mask)
    np.savez(f"{folder}.npz", tokens=tokens.numpy(), logits=logits.numpy())
    dist.destroy_process_group()


_GROUPS: dict[int, object] = {}


def seed_of(name: str, kind: str) -> int:
    """Where values of a name begin; those of norms of queries and keys differ."""
    return zlib.crc32(name.encode()) if kind.startswith("dist_") else len(name)


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
