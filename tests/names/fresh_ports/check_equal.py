"""Copy the weights of every original into its port by true_map.py, run both and print how far the outputs differ.

    python tests/names/fresh_ports/check_equal.py [FOLDER ...]

Without a folder every one beside this file is checked. The status is 1 where a pair differs by more than rounding.
"""

import importlib.util
import os
import sys
from pathlib import Path

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")

import mindspore as ms
import numpy as np
import torch

HERE = Path(__file__).resolve().parent
LIMIT = 1e-4


def load(folder, stem):
    spec = importlib.util.spec_from_file_location(f"fresh_ports_{folder.name}_{stem}", folder / f"{stem}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def region_of(whole, parts, target):
    """The region of the target that the parts name, the last part that of the target itself."""
    region = whole
    for part in reversed(parts):
        assert part["op"] == "part", (target, "only parts follow a part")
        assert region.shape == tuple(part["shape"]), (target, region.shape, part["shape"])
        spot = [slice(None)] * region.ndim
        spot[part["axis"]] = slice(part["start"], part["stop"])
        region = region[tuple(spot)]
    return region


def write(value, target, steps, values):
    """Apply the steps in order; parts, always the last ones, name the region of the target that is written."""
    for number, step in enumerate(steps):
        if step["op"] == "reshape":
            value = value.reshape(step["shape"])
        elif step["op"] == "permute":
            value = value.transpose(step["axes"])
        elif step["op"] == "slice":
            value = np.take(value, range(step["start"], step["stop"]), step["axis"])
        elif step["op"] == "part":
            whole = values.setdefault(target, np.full(steps[-1]["shape"], np.nan, value.dtype))
            region = region_of(whole, steps[number:], target)
            assert region.shape == value.shape, (target, region.shape, value.shape)
            assert np.isnan(region).all(), (target, "a region is written twice")
            region[...] = value
            return
        else:
            raise ValueError(step)
    assert target not in values, (target, "written twice")
    values[target] = value


def mapped(state, truth):
    """What the port's parameters must hold, by name."""
    values = {}
    for source, target, steps in truth.PAIRS:
        write(state[source], target, steps, values)
    used = {source for source, _, _ in truth.PAIRS} | set(truth.DROP_SOURCE)
    assert used == set(state), sorted(used ^ set(state))
    for target, value in values.items():
        assert not np.isnan(value).any(), (target, "a region is left unwritten")
    for group in truth.FREE:
        assert set(group) <= set(state), group
    return values


def flat(outputs):
    if isinstance(outputs, dict):
        return [x for key in outputs for x in flat(outputs[key])]
    if isinstance(outputs, (tuple, list)):
        return [x for each in outputs for x in flat(each)]
    return [outputs.detach().numpy() if isinstance(outputs, torch.Tensor) else outputs.asnumpy()]


def difference(folder):
    """The number of pairs, of source and of target names, and the largest relative difference of an output."""
    truth = load(folder, "true_map")
    model, net = load(folder, "original").build(), load(folder, "port").build()
    net.set_train(False)
    inputs = load(folder, "data").inputs()
    state = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    values = mapped(state, truth)
    parameters = {p.name: p for p in net.get_parameters()}
    assert set(values) | set(truth.DROP_TARGET) == set(parameters), sorted(
        set(values) ^ (set(parameters) - set(truth.DROP_TARGET))
    )
    for name, value in values.items():
        assert tuple(parameters[name].shape) == value.shape, (name, parameters[name].shape, value.shape)
        parameters[name].set_data(ms.Tensor(np.ascontiguousarray(value)))
    with torch.no_grad():
        want = flat(model(**{name: torch.from_numpy(value) for name, value in inputs.items()}))
    got = flat(net(**{name: ms.Tensor(value) for name, value in inputs.items()}))
    assert [x.shape for x in want] == [x.shape for x in got], ([x.shape for x in want], [x.shape for x in got])
    worst = 0.0
    for a, b in zip(want, got, strict=True):
        scale = float(np.sqrt(np.mean(np.square(a, dtype=np.float64))))
        assert np.isfinite(a).all(), "the original's output is not finite"
        assert np.isfinite(b).all(), "the port's output is not finite"
        assert scale > 0, "an output is 0 throughout"
        worst = max(worst, float(np.abs(a.astype(np.float64) - b).max()) / scale)
    return len(truth.PAIRS), len(state), len(parameters), worst


def main(names):
    folders = [HERE / name for name in names] or sorted(p.parent for p in HERE.glob("*/true_map.py"))
    status = 0
    for folder in folders:
        pairs, sources, targets, worst = difference(folder)
        verdict = "equal" if worst < LIMIT else "DIFFERENT"
        print(
            f"{folder.name}: {pairs} pairs, {sources} sources, {targets} targets; {worst:.2e} of the scale: {verdict}"
        )
        status |= worst >= LIMIT
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
