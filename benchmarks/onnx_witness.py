"""ONNX exports as sides: how many initializers are paired, whether a witness names the faulty side, how much memory.

    python benchmarks/onnx_witness.py                  # all three parts
    python benchmarks/onnx_witness.py --only faults    # pairs, faults or memory

It needs torch, MindSpore, transformers, onnxruntime, onnx and onnxscript. 1 is returned if a bar is missed: at least
95 % of the initializers that hold parameters paired and none wrongly, all thirty faults laid to the side that has them,
peak memory within the model, twice the largest intermediate tensor and 256 MB.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "planted"))

from exported_net import exported, mindspore_net, pixels, torch_net

if TYPE_CHECKING:
    from collections.abc import Callable

LEAST_PAIRED = 0.95
SPARE_BYTES = 256 << 20


def main() -> int:
    """Run the parts that are asked for and print what they measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("pairs", "faults", "memory"))
    asked = parser.parse_args().only
    warnings.simplefilter("ignore")
    parts = {"pairs": measure_pairs, "faults": measure_faults, "memory": measure_memory}
    with tempfile.TemporaryDirectory() as folder:
        results = [part(Path(folder)) for name, part in parts.items() if asked in (None, name)]
    return 0 if all(results) else 1


def models() -> dict[str, Callable[[], tuple[Any, dict[str, Any]]]]:
    """Small models of transformers, convolutional ones and Transformers, each with its inputs."""
    import torch
    import transformers as hf

    image = {"pixel_values": torch.randn(2, 3, 32, 32)}
    words = {"input_ids": torch.randint(0, 60, (2, 7))}
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    eager = {"attn_implementation": "eager"}
    resnet = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [2, 2], "layer_type": "basic"}
    convnext = {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2}
    return {
        "ResNet": lambda: (hf.ResNetForImageClassification(hf.ResNetConfig(**resnet, num_labels=5)), image),
        "MobileNetV2": lambda: (
            hf.MobileNetV2ForImageClassification(hf.MobileNetV2Config(depth_multiplier=0.25, image_size=32)),
            image,
        ),
        "ConvNeXt": lambda: (hf.ConvNextForImageClassification(hf.ConvNextConfig(**convnext, num_labels=5)), image),
        "ViT": lambda: (
            hf.ViTForImageClassification(hf.ViTConfig(**sizes, **eager, image_size=32, patch_size=8, num_labels=5)),
            image,
        ),
        "DistilBERT": lambda: (
            hf.DistilBertForSequenceClassification(
                hf.DistilBertConfig(vocab_size=60, dim=32, n_layers=2, n_heads=2, hidden_dim=48, **eager)
            ),
            words,
        ),
    }


def measure_pairs(folder: Path) -> bool:
    """Export each model both ways, and count the initializers with a parameter's values that have its name."""
    good = True
    for name, make in models().items():
        for dynamo in (False, True):
            model, inputs = make()
            drawn(model.eval())
            file = folder / f"{name}{dynamo}.onnx"
            export(model, inputs, file, dynamo=dynamo)
            paired, total, wrong = count_pairs(model, file)
            good &= not wrong and paired >= LEAST_PAIRED * total
            exporter = "dynamo" if dynamo else "TorchScript"
            print(
                f"pairs   {name:<12} {exporter:<12} {paired} of {total} initializers paired, {wrong} wrong", flush=True
            )
    return good


def drawn(model: Any) -> None:
    """Give every parameter and statistic values of its own, as training does."""
    import torch

    generator = torch.Generator().manual_seed(1)
    for name, tensor in model.state_dict().items():
        if "running_var" in name:
            tensor.uniform_(0.5, 2.0, generator=generator)
        elif tensor.is_floating_point():
            tensor.add_(torch.randn(tensor.shape, generator=generator) * 0.1)


def export(model: Any, inputs: dict[str, Any], file: Path, *, dynamo: bool) -> None:
    """Write the file with one of torch's exporters."""
    import torch

    more = {"external_data": False, "verbose": False} if dynamo else {"opset_version": 17}
    torch.onnx.export(model, (), str(file), kwargs=inputs, dynamo=dynamo, input_names=[*inputs], **more)


def count_pairs(model: Any, file: Path) -> tuple[int, int, int]:
    """How many initializers are paired, how many could be, and how many pairs hold other values than the model's.

    An initializer could be paired if it is floating, has more than one element, and a node uses it.
    """
    from align.models.open_side import open_sides
    from align.names.map_parameters import match_sides
    from align.names.map_result import follow_origins
    from align.names.user_rules import NameRules

    sides = follow_origins(*open_sides(model, str(file)))
    ours, theirs = (side.reader.read_parameters(side.model, side.label) for side in sides)
    mine, held = (side.reader.read_values(side.model) for side in sides)
    pairs = match_sides(ours, theirs, NameRules()).pairings
    wrong = sum(not np.array_equal(one.transform.apply(mine[one.source]), held[one.target]) for one in pairs)
    graph = sides[1].model
    targets = {one.target for one in pairs}
    known = {one.initializer for one in graph.parameters if one.name in targets}
    for norm in graph.folded:
        if norm.weight_name in targets:
            known |= {one.initializer for one in graph.parameters if one.name == norm.bias_name}
    used = {name for node in graph.graph.nodes for name in node.inputs}
    could = {
        name
        for name, tensor in graph.tensors.items()
        if tensor.dtype.startswith("float") and name in used and int(np.prod(tensor.shape)) > 1
    }
    return len(could & known), len(could), wrong


def faults() -> dict[str, Callable[[Any], None]]:
    """Changes of the torch net, by name: of values, which all sides can hold, and of settings."""

    def value(name: str, change: Callable[[Any], Any]) -> Callable[[Any], None]:
        def plant(net: Any) -> None:
            tensor = net.state_dict()[name]
            tensor.copy_(change(tensor.clone()))

        return plant

    return {
        "a convolution scaled": value("conv1.weight", lambda x: x * 1.02),
        "kernels turned": value("layer.0.weight", lambda x: x.flip(-1)),
        "a norm's bias off": value("bn1.bias", lambda x: x + 0.05),
        "a mean off": value("layer.1.running_mean", lambda x: x + 0.1),
        "a variance scaled": value("bn1.running_var", lambda x: x * 1.1),
        "a norm's weight scaled": value("norm.weight", lambda x: x * 1.01),
        "two rows exchanged": value("fc1.weight", lambda x: x[[1, 0, *range(2, len(x))]]),
        "a bias of zeros": value("fc1.bias", lambda x: x * 0),
        "one column off": value("fc2.weight", lambda x: x + 0.05 * (x.new_ones(x.shape).cumsum(1) == 1)),
        "a sign": value("fc2.bias", lambda x: -x),
    }


def measure_faults(folder: Path) -> bool:
    """Plant each fault in each of three sides: torch, its MindSpore port, its export."""
    right = 0
    for number, (name, plant) in enumerate(faults().items()):
        for side in ("reference", "candidate", "witness"):
            found = three_sides(folder / f"{number}{side}", plant, side)
            right += found == side
            print(f"faults  {name:<24} in the {side:<10} found: {found}", flush=True)
    print(f"faults  {right} of 30 laid to the right side", flush=True)
    return right == 30


def three_sides(folder: Path, plant: Callable[[Any], None], side: str, *, dynamo: bool = False) -> str:
    """Who is said to deviate first."""
    import torch

    from align.convert.convert_checkpoint import convert_checkpoint
    from align.forward.compare_forward import compare_forward
    from align.models.open_side import open_side

    folder.mkdir()
    nets = {name: torch_net() for name in ("reference", "candidate", "witness")}
    plant(nets[side])
    torch.save(nets["candidate"].state_dict(), folder / "net.pth")
    convert_checkpoint(folder / "net.pth", folder / "net.ckpt")
    port = open_side(mindspore_net(), folder / "net.ckpt")
    file = exported(folder / "net.onnx", nets["witness"], dynamo=dynamo)
    result = compare_forward(nets["reference"], port, inputs=pixels(), witness=str(file), power=False)
    third = result.witness
    return "nobody" if third is None or third.first is None else third.layers[third.first].deviates


def measure_memory(folder: Path) -> bool:
    """The peak of a process that runs a wide net and sees what every module returns; and that of `align capture`."""
    import torch
    from torch import nn

    layers = [nn.Conv2d(3, 64, 3, padding=1), nn.ReLU()]
    layers += [layer for _ in range(6) for layer in (nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU())]
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 400_000)).eval()
    file = folder / "wide.onnx"
    torch.onnx.export(net, (torch.zeros(1, 3, 32, 32),), str(file), dynamo=False, input_names=["x"],
                      dynamic_axes={"x": {0: "n", 2: "h", 3: "w"}})  # fmt: skip
    size = 512
    largest = 4 * 64 * size * size
    spec = f"x=float32[1,3,{size},{size}]"
    peak = peak_of(RUN, [str(file), str(size)])
    captured = peak_of(CAPTURE, ["capture", str(file), "--input", spec, "-o", str(folder / "trace")])
    bound = file.stat().st_size + 2 * largest + SPARE_BYTES
    print(f"memory  peak {peak >> 20} MB; model {file.stat().st_size >> 20} MB, largest tensor {largest >> 20} MB, "
          f"bound {bound >> 20} MB; align capture, which writes all: {captured >> 20} MB", flush=True)  # fmt: skip
    return peak <= bound


RUN = """
import sys
import numpy as np
from align.models.open_side import open_side

class Sums:
    def add(self, capture, value):
        value.sum()

side = open_side(sys.argv[1])
size = int(sys.argv[2])
side.runner.run(side.model, {"x": np.ones((1, 3, size, size), np.float32)}, Sums())
"""
CAPTURE = """
import sys
from align.cli.main import main
if main(sys.argv[1:]):
    sys.exit(2)
"""


def peak_of(code: str, arguments: list[str]) -> int:
    """The largest resident memory of a process of its own."""
    code += "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return int(done.stderr.strip().splitlines()[-1]) << 10


if __name__ == "__main__":
    sys.exit(main())
