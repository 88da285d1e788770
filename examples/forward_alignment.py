"""The first three steps of an alignment through the Python API: map, convert, compare the forward.

    python examples/forward_alignment.py FOLDER

The pair is ResNet-18 of `transformers` and of `mindcv`; replace the two factories with your own.
"""

from __future__ import annotations

import sys
from pathlib import Path

import resnet

import align


def main(folder: Path) -> int:
    """Return the exit code of the forward comparison: 1, since the published port differs from its original."""
    folder.mkdir(parents=True, exist_ok=True)
    resnet.save_checkpoint(folder / "resnet18.pth")

    reference, candidate = resnet.torch_model(), resnet.mindspore_model()
    mapped = align.map_parameters(reference, candidate, out=folder / "map.toml")
    mapped.verdict.require_aligned()
    print(f"map:     {len(mapped.name_map.pairings)} pairs, {mapped.verdict.reason}")

    record = align.convert_checkpoint(
        folder / "resnet18.pth", folder / "resnet18.ckpt", name_map=mapped.name_map, overwrite=True
    )
    print(f"convert: {record.verdict.reason}")

    forward = align.compare_forward(
        align.open_side(reference, folder / "resnet18.pth"),
        align.open_side(candidate, folder / "resnet18.ckpt"),
        inputs=resnet.inputs(),
        name_map=mapped.name_map,
    )
    print(f"forward: {forward.verdict.outcome.value}: {forward.verdict.reason}")
    for culprit in forward.culprits:
        print(f"at fault: {culprit.candidate}: {culprit.cause} ({culprit.sureness}): write {culprit.change}")
    return forward.verdict.exit_code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "forward-alignment")))
