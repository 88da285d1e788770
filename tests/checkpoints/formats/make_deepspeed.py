"""Writes folders of DeepSpeed ZeRO as two ranks do, over gloo on a CPU: `make_deepspeed.py FOLDER STAGE`.

The model has two groups of parameters of odd sizes, a frozen layer, a buffer and a shared weight. DeepSpeed's own
zero_to_fp32 puts the weights together in FOLDER.pth. DeepSpeed 0.19 wrote `tests/checkpoints/data/zero1` to `zero3` so.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(folder: str, stage: int) -> None:
    """Run both ranks, then join what they wrote with DeepSpeed's own script."""
    import torch
    import torch.multiprocessing as mp

    mp.spawn(save_rank, (folder, stage), nprocs=2)
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    whole = get_fp32_state_dict_from_zero_checkpoint(folder)
    torch.save({name: value.clone() for name, value in whole.items()}, f"{folder}.pth")
    Path(folder, "zero_to_fp32.py").unlink(missing_ok=True)


def save_rank(rank: int, folder: str, stage: int) -> None:
    """One rank: trains a step in bfloat16, and saves its part."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "DS_ACCELERATOR": "cpu"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29577", "LOCAL_SIZE": "2"}
    import deepspeed
    import torch

    torch.manual_seed(0)

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.frozen = torch.nn.Embedding(7, 5), torch.nn.Linear(5, 3)
            self.fc, self.norm = torch.nn.Linear(3, 5), torch.nn.LayerNorm(5)
            self.head = torch.nn.Linear(5, 7, bias=False)
            self.head.weight = self.embed.weight
            self.frozen.requires_grad_(False)
            self.register_buffer("scale", torch.full((5,), 0.5))

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return self.head(self.norm(self.fc(self.frozen(self.embed(rows)))) * self.scale.to(self.fc.bias.dtype))

    net = Net()
    groups = [
        {"params": [net.embed.weight, net.fc.weight], "weight_decay": 0.1},
        {"params": [net.fc.bias, *net.norm.parameters()], "weight_decay": 0.0},
    ]
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    engine, *_ = deepspeed.initialize(
        model=net, optimizer=torch.optim.SGD(groups, lr=0.01), config=config, dist_init_required=True
    )
    loss = engine(torch.tensor([1, 2 + rank, 3])).float().square().mean()
    engine.backward(loss)
    engine.step()
    engine.save_checkpoint(folder, tag="global_step1")


if __name__ == "__main__":
    main(str(Path(sys.argv[1]).absolute()), int(sys.argv[2]))
