"""The first three steps of an alignment through the Python API: map, convert, compare the forward.

    python examples/forward_alignment.py FOLDER

The pair is ResNet-50 of `transformers` and of `mindcv`; replace the two factories with your own.
"""

from __future__ import annotations

import sys
from pathlib import Path

import resnet50

import align


def main(folder: Path) -> int:
    """Return the exit code of the forward comparison: 1, since the published port differs from its original."""
    folder.mkdir(parents=True, exist_ok=True)
    resnet50.save_checkpoint(folder / "resnet50.pth")

    reference, candidate = resnet50.torch_model(), resnet50.mindspore_model()
    mapped = align.map_parameters(reference, candidate, out=folder / "map.toml")
    mapped.verdict.require_aligned()
    print(f"map:     {len(mapped.name_map.pairings)} pairs, {mapped.verdict.reason}")

    record = align.convert_checkpoint(
        folder / "resnet50.pth", folder / "resnet50.ckpt", name_map=mapped.name_map, overwrite=True
    )
    print(f"convert: {record.verdict.reason}")

    forward = align.compare_forward(
        align.open_side(reference, folder / "resnet50.pth"),
        align.open_side(candidate, folder / "resnet50.ckpt"),
        inputs=resnet50.inputs(),
        name_map=mapped.name_map,
    )
    print(f"forward: {forward.verdict.outcome.value}: {forward.verdict.reason}")
    for culprit in forward.culprits:
        print(f"at fault: {culprit.candidate}: {culprit.cause} ({culprit.sureness}): write {culprit.change}")
    return forward.verdict.exit_code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "forward-alignment")))
