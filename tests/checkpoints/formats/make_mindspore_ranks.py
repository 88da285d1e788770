"""Writes folders of MindSpore's ranks as MindSpore itself does: `make_mindspore_ranks.py FOLDER`.

The strategies are of two pipeline stages of four devices, written with MindSpore's own classes of node_strategy.proto:
its compiler makes them on a chip only. `mindspore.transform_checkpoints` then cuts a whole checkpoint by them. The
whole one is FOLDER.ckpt. `tests/checkpoints/data/mindspore_ranks` was written so.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def main(folder: str) -> None:
    """Make the strategies, the whole checkpoint, and the ranks' parts of it."""
    import mindspore as ms
    import numpy as np

    whole = Path(f"{folder}.whole")
    (whole / "rank_0").mkdir(parents=True, exist_ok=True)
    Path(folder, "strategy").mkdir(parents=True, exist_ok=True)
    shapes = {}
    for stage in (0, 1):
        shapes |= write_stage(stage, Path(folder, "strategy", f"ckpt_strategy_rank_{4 * stage}.ckpt"))
    generator = np.random.default_rng(0)
    values = {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    rows = [{"name": name, "data": ms.Tensor(value)} for name, value in values.items()]
    ms.save_checkpoint(rows, str(whole / "rank_0" / "net.ckpt"))
    shutil.copy(whole / "rank_0" / "net.ckpt", f"{folder}.ckpt")
    merged = f"{folder}.merged.ckpt"
    ms.merge_pipeline_strategys(f"{folder}/strategy", merged)
    ms.transform_checkpoints(str(whole), folder, "net_rank_", None, merged)
    shutil.rmtree(whole)
    Path(merged).unlink()


# Of each parameter: its shape, the matrix of devices, over which of its axes each of the parameter's is cut (counted
# from the last), and over how many ranks an optimizer's parallelism cuts the first axis besides, in which steps.
LAYOUTS = {
    "column": ((8, 6), (2, 2), (0, -1), 0, 0),
    "row": ((6, 8), (2, 2), (-1, 0), 0, 0),
    "both": ((4, 8), (2, 2), (1, 0), 0, 0),
    "turned": ((4, 8), (2, 2), (0, 1), 0, 0),
    "whole": ((8,), (2, 2), (-1,), 0, 0),
    "sharded": ((8, 3), (2, 2), (0, -1), 2, 2),
}


def write_stage(stage: int, file: Path) -> dict[str, tuple[int, ...]]:
    """Write the strategy of a stage; returns the shapes of its parameters."""
    from mindspore.train.node_strategy_pb2 import ParallelStrategyMap

    strategy = ParallelStrategyMap()
    strategy.current_stage = 1
    operator = strategy.parallel_strategy_item.add()
    operator.node_name = f"{stage}-MatMul"
    operator.parallel_strategys.stage = stage
    operator.parallel_strategys.parallel_strategy.add().dim.extend((1, 1))
    for name, (_, devices, axes, step, size) in LAYOUTS.items():
        item = strategy.parallel_layout_item.add()
        item.param_name = f"layer{stage}.{name}"
        layout = item.parallel_layouts
        layout.dev_matrix.add().dim.extend(devices)
        layout.tensor_map.add().dim.extend(axes)
        layout.param_split_shape.add()
        layout.indices_offset.add()
        layout.field, layout.opt_weight_shard_step, layout.opt_weight_shard_size = 0, step, size
    file.write_bytes(strategy.SerializeToString())
    return {f"layer{stage}.{name}": shape for name, (shape, *_) in LAYOUTS.items()}


if __name__ == "__main__":
    main(str(Path(sys.argv[1]).absolute()))
