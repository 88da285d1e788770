"""Load a converted checkpoint the way MindSpore's users do, strictly: `load_strictly.py file.py:function FILE.ckpt`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def main(model: str, checkpoint: str) -> int:
    """Return 0 if MindSpore fills every parameter of the network from the file and leaves nothing over."""
    import mindspore as ms

    import align.models.frameworks.mindspore  # noqa: F401 - quietens the destructors of cells at exit

    place, _, function = model.rpartition(":")
    sys.path.insert(0, str(Path(place).parent))
    net = getattr(importlib.import_module(Path(place).stem), function)()
    values = ms.load_checkpoint(checkpoint)
    missing, unexpected = ms.load_param_into_net(net, values, strict_load=True)
    print(f"{len(values)} parameters loaded strictly; missing {missing}, unexpected {unexpected}")
    return 1 if missing or unexpected else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
