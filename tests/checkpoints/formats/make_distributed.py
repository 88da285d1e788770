"""Writes a folder of torch.distributed.checkpoint as two ranks of FSDP do, over gloo: `make_distributed.py FOLDER`.

The weights are cut by rows, and one table also by columns. Beside them stand the optimizer's state, a step and a name.
The whole weights are kept beside the folder, in FOLDER.pth. torch 2.13 wrote
`tests/checkpoints/data/fsdp` so.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(folder: str) -> None:
    """Run both ranks."""
    import torch.multiprocessing as mp

    mp.spawn(save_rank, (folder,), nprocs=2)


def save_rank(rank: int, folder: str) -> None:
    """One rank: shards a model over both, trains a step, and saves its part."""
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    store = dist.FileStore(f"{folder}.store", 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.LayerNorm(5), torch.nn.Linear(5, 3).bfloat16())
    table = torch.arange(24, dtype=torch.float32).reshape(3, 8)
    if rank == 0:
        torch.save({**model.state_dict(), "table": table}, f"{folder}.pth")
    mesh = init_device_mesh("cpu", (2,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    weights, state = get_state_dict(model, optimizer)
    weights["table"] = distribute_tensor(table, mesh, [Shard(1)])
    dcp.save({"model": weights, "optimizer": state, "step": 7, "name": "tiny"}, checkpoint_id=folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(str(Path(sys.argv[1]).absolute()))
