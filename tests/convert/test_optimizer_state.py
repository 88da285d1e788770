"""A training goes on in the other framework: steps behind a conversion with state are those that would have come."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.convert.convert_checkpoint import convert_checkpoint
from align.rules.training_rules import optimizer_state_rules
from align.runs.run_folder import as_document

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from align.convert.convert_checkpoint import ConversionRecord

pytestmark = pytest.mark.frameworks

BEFORE, AFTER = 3, 5
# Measured: at most 2e-6 in losses, 1.2e-5 in weights (Adagrad without epsilon), over both nets and all optimizers.
LOSS_NOISE, WEIGHT_NOISE = 5e-6, 5e-5
LABELS = np.arange(6) % 3
GROUPS = {"cnn": False, "transformer": True}  # whether weights and biases are groups of their own
LAYERS = {"cnn": ("line=conv-1d",), "transformer": ("k=linear",)}
# torch's optimizer, MindSpore's, and how each is made. No bias stands where its gradient is rounding alone.
CASES = {
    "nn.SGD": ("torch.optim.SGD(p, 0.05, 0.9, 0.2)", "nn.SGD(p, 0.05, 0.9, 0.2)"),
    "nn.Momentum": ("torch.optim.SGD(p, 0.05, 0.9)", "nn.Momentum(p, 0.05, 0.9)"),
    "experimental.SGD": ("torch.optim.SGD(p, 0.05, 0.9, nesterov=True)", "optim.SGD(p, 0.05, 0.9, nesterov=True)"),
    "nn.Adam": ("torch.optim.Adam(p, 0.01, amsgrad=True)", "nn.Adam(p, 0.01, use_amsgrad=True)"),
    "experimental.Adam": ("torch.optim.Adam(p, 0.01)", "optim.Adam(p, 0.01)"),
    "experimental.AdamW": ("torch.optim.AdamW(p, 0.01)", "optim.AdamW(p, 0.01, weight_decay=0.01)"),
    "nn.RMSProp": (
        "torch.optim.RMSprop(p, 0.005, momentum=0.9)",
        "nn.RMSProp(p, 0.005, decay=0.99, momentum=0.9, epsilon=1e-10)",
    ),
    "experimental.RMSprop": (
        "torch.optim.RMSprop(p, 0.005, momentum=0.9, centered=True)",
        "optim.RMSprop(p, 0.005, momentum=0.9, centered=True)",
    ),
    "nn.Adagrad": ("torch.optim.Adagrad(p, 0.05)", "nn.Adagrad(p, learning_rate=0.05)"),
    "experimental.Adagrad": ("torch.optim.Adagrad(p, 0.05, lr_decay=0.1)", "optim.Adagrad(p, 0.05, lr_decay=0.1)"),
}


def torch_nets() -> dict[str, Any]:
    import torch

    class Cnn(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = torch.nn.Conv2d(1, 4, 3, bias=False), torch.nn.BatchNorm2d(4)
            self.line, self.head = torch.nn.Conv1d(4, 3, 5), torch.nn.Linear(36, 3)

        def forward(self, x: Any) -> Any:
            return self.head(torch.tanh(self.line(torch.relu(self.norm(self.conv(x))).flatten(2))).flatten(1))

    class Transformer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.last = torch.nn.LayerNorm(8), torch.nn.LayerNorm(8)
            self.q, self.k, self.v = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8, bias=False), torch.nn.Linear(8, 8)
            self.out, self.head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 3)

        def forward(self, x: Any) -> Any:
            y = self.norm(x)
            weights = torch.softmax(self.q(y) @ self.k(y).transpose(1, 2), -1)
            return self.head(self.last(x + self.out(weights @ self.v(y))).mean(1))

    return {"cnn": Cnn, "transformer": Transformer}


def port_nets() -> dict[str, Any]:
    from mindspore import nn, ops

    class CnnPort(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(1, 4, 3, pad_mode="valid"), nn.BatchNorm2d(4)
            self.line, self.head = nn.Conv1d(4, 3, 5, pad_mode="valid", has_bias=True), nn.Dense(36, 3)

        def construct(self, x: Any) -> Any:
            hidden = ops.relu(self.norm(self.conv(x))).reshape(6, 4, -1)
            return self.head(ops.tanh(self.line(hidden)).reshape(6, -1))

    class TransformerPort(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.last = nn.LayerNorm((8,), epsilon=1e-5), nn.LayerNorm((8,), epsilon=1e-5)
            self.q, self.k, self.v = nn.Dense(8, 8), nn.Dense(8, 8, has_bias=False), nn.Dense(8, 8)
            self.out, self.head = nn.Dense(8, 8), nn.Dense(8, 3)

        def construct(self, x: Any) -> Any:
            y = self.norm(x)
            weights = ops.softmax(ops.matmul(self.q(y), self.k(y).transpose(0, 2, 1)), -1)
            return self.head(self.last(x + self.out(ops.matmul(weights, self.v(y)))).mean(1))

    return {"cnn": CnnPort(), "transformer": TransformerPort()}


@pytest.fixture(scope="module")
def nets() -> dict[str, SimpleNamespace]:
    """Two networks in both frameworks, each with what takes its gradients; MindSpore's are used again and again."""
    import mindspore
    from mindspore import nn

    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    random, models, criterion = np.random.default_rng(0), torch_nets(), nn.CrossEntropyLoss()
    found = {}
    for name, cell in port_nets().items():
        cell.set_train(True)

        def loss(x: Any, y: Any, cell: Any = cell) -> Any:
            return criterion(cell(x), y)

        grad = mindspore.value_and_grad(loss, None, cell.trainable_params())
        batch = random.standard_normal({"cnn": (6, 1, 6, 6), "transformer": (6, 4, 8)}[name]).astype(np.float32)
        found[name] = SimpleNamespace(name=name, model=models[name], port=cell, grad=grad, batch=batch)
    return found


def in_groups(parameters: list[Any], split: bool) -> list[Any]:
    if not split:
        return parameters
    matrices, vectors = ([p for p in parameters if (p.ndim > 1) == matrix] for matrix in (True, False))
    return [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]


def optimizer(call: str, parameters: list[Any], split: bool) -> Any:
    import torch
    from mindspore import nn
    from mindspore.experimental import optim

    return eval(call, {"torch": torch, "nn": nn, "optim": optim, "p": in_groups(parameters, split)})


def torch_steps(model: Any, optimizer: Any, batch: Any, count: int) -> list[float]:
    import torch

    losses = []
    for step in range(count):
        optimizer.zero_grad()
        outputs = model(torch.tensor(batch * np.float32(1 + 0.1 * step)))
        loss = torch.nn.functional.cross_entropy(outputs, torch.tensor(LABELS))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def port_steps(net: SimpleNamespace, optimizer: Any, count: int) -> list[float]:
    from mindspore import Tensor

    losses = []
    for step in range(count):
        inputs = Tensor(net.batch * np.float32(1 + 0.1 * step)), Tensor(LABELS.astype(np.int32))
        loss, gradients = net.grad(*inputs)
        by_name = {one.name: gradient for one, gradient in zip(net.port.trainable_params(), gradients, strict=True)}
        optimizer(tuple(by_name[one.name] for one in optimizer.parameters))
        losses.append(float(loss.asnumpy()))
    return losses


def trained(net: SimpleNamespace, call: str, path: Path, *, split: bool) -> tuple[Any, Any]:
    import torch

    torch.manual_seed(0)
    model = net.model()
    made = optimizer(call, list(model.parameters()), split)
    torch_steps(model, made, net.batch, BEFORE)
    torch.save({"model": model.state_dict(), "optimizer": made.state_dict(), "epoch": 1}, path)
    return model, made


def load_port(net: SimpleNamespace, made: Any, path: Path) -> list[str]:
    import mindspore

    stored = mindspore.load_checkpoint(str(path))
    missing = mindspore.load_param_into_net(net.port, stored)[0] + mindspore.load_param_into_net(made, stored)[0]
    return [name for name in missing if name != "global_step"]


def save_port(net: SimpleNamespace, made: Any, path: Path) -> None:
    import mindspore

    held = {one.name: one for one in (*net.port.get_parameters(), *made.get_parameters())}
    mindspore.save_checkpoint([{"name": name, "data": one} for name, one in held.items()], str(path))


def assert_same_weights(model: Any, net: SimpleNamespace) -> None:
    names = {
        "norm.gamma": "norm.weight",
        "norm.beta": "norm.bias",
        "last.gamma": "last.weight",
        "last.beta": "last.bias",
    }
    names |= {"norm.moving_mean": "norm.running_mean", "norm.moving_variance": "norm.running_var"}
    theirs = model.state_dict()
    for one in net.port.get_parameters():
        expected = theirs[names.get(one.name, one.name)].numpy()
        np.testing.assert_allclose(one.asnumpy().reshape(expected.shape), expected, 0, WEIGHT_NOISE, err_msg=one.name)


def converted(source: Path, target: Path, **options: Any) -> ConversionRecord:
    record = convert_checkpoint(source, target, with_state=True, **options)
    target.with_suffix(".json").write_text(json.dumps(as_document(record, {})), encoding="utf-8")
    return record


@pytest.mark.slow
@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("port", CASES)
def test_training_goes_on_in_mindspore_and_back_in_torch(port: str, name: str, nets: Any, tmp_path: Path) -> None:
    import torch

    net, split, (call, port_call) = nets[name], GROUPS[name], CASES[port]
    model, made = trained(net, call, tmp_path / "net.pth", split=split)
    record = converted(tmp_path / "net.pth", tmp_path / "net.ckpt", state_for=port, layers=LAYERS[name])
    theirs = optimizer(port_call, net.port.trainable_params(), split)
    assert load_port(net, theirs, tmp_path / "net.ckpt") == []
    np.testing.assert_allclose(
        port_steps(net, theirs, AFTER), torch_steps(model, made, net.batch, AFTER), 0, LOSS_NOISE
    )
    assert_same_weights(model, net)

    save_port(net, theirs, tmp_path / "later.ckpt")
    back = converted(tmp_path / "later.ckpt", tmp_path / "later.pth", name_map=tmp_path / "net.json")
    loaded = torch.load(tmp_path / "later.pth")
    model = net.model()
    model.load_state_dict(loaded["model"])
    made = optimizer(call, list(model.parameters()), split)
    made.load_state_dict(loaded["optimizer"])
    np.testing.assert_allclose(
        port_steps(net, theirs, AFTER), torch_steps(model, made, net.batch, AFTER), 0, LOSS_NOISE
    )
    assert_same_weights(model, net)
    assert (record.verified, back.verified) == (True, True)
    # torch's SGD counts no steps, and a transformer has no BatchNorm that counts batches.
    uncounted = port.endswith(("SGD", "Momentum")) and name == "transformer"
    assert record.state.lost == (("the count of steps: nothing in the source tells it",) if uncounted else ())
    if name == "cnn":
        steps = BEFORE if port in ("experimental.SGD", "experimental.RMSprop") else BEFORE + AFTER
        assert int(loaded["model"]["norm.num_batches_tracked"]) == steps


@pytest.mark.filterwarnings("ignore")  # of Lightning, about workers and settings
def test_a_file_that_lightning_wrote_goes_on_in_mindspore(nets: Any, tmp_path: Path) -> None:
    import lightning
    import torch

    net, (_, port_call) = nets["cnn"], CASES["experimental.AdamW"]

    class Task(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = net.model()

        def training_step(self, batch: Any) -> Any:
            return torch.nn.functional.cross_entropy(self.net(batch), torch.tensor(LABELS))

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), 0.01)

    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    task, trainer = Task(), lightning.Trainer(max_steps=BEFORE, accelerator="cpu", **quiet)
    batches = [torch.tensor(net.batch * np.float32(1 + 0.1 * step)) for step in range(BEFORE)]
    trainer.fit(task, torch.utils.data.DataLoader(batches, batch_size=None))
    trainer.save_checkpoint(tmp_path / "lightning.ckpt")
    record = converted(
        tmp_path / "lightning.ckpt", tmp_path / "net.ckpt", strip=["net."], layers=LAYERS["cnn"],
        state_for="experimental.AdamW",
    )  # fmt: skip
    theirs = optimizer(port_call, net.port.trainable_params(), split=False)
    assert load_port(net, theirs, tmp_path / "net.ckpt") == []
    expected = torch_steps(task.net, trainer.optimizers[0], net.batch, AFTER)
    np.testing.assert_allclose(port_steps(net, theirs, AFTER), expected, 0, LOSS_NOISE)
    assert_same_weights(task.net, net)
    assert (record.state.steps, record.state.lost) == (BEFORE, ())


def test_without_the_state_the_same_steps_differ(nets: Any, tmp_path: Path) -> None:
    net, (call, port_call) = nets["transformer"], CASES["experimental.AdamW"]
    model, made = trained(net, call, tmp_path / "net.pth", split=False)
    convert_checkpoint(tmp_path / "net.pth", tmp_path / "net.ckpt", layers=LAYERS["transformer"])
    theirs = optimizer(port_call, net.port.trainable_params(), split=False)
    load_port(net, theirs, tmp_path / "net.ckpt")
    difference = np.abs(np.subtract(port_steps(net, theirs, AFTER), torch_steps(model, made, net.batch, AFTER)))
    assert difference.max() > 100 * LOSS_NOISE


def state_of(made: Any) -> dict[str, Any]:
    return {one.name: one.asnumpy().copy() for one in made.get_parameters()}


def test_moments_and_numbers_stand_where_each_other_optimizer_reads_them(nets: Any, tmp_path: Path) -> None:
    """Those that do not run on a CPU, or compute otherwise: their values are held against what torch saved."""
    from mindspore import Tensor, mint, nn

    net, split = nets["cnn"], False
    model, made = trained(net, "torch.optim.AdamW(p, 0.01)", tmp_path / "net.pth", split=split)
    kept = made.state_dict()["state"][3]
    assert dict(model.named_parameters())["line.weight"].shape == kept["exp_avg"].shape
    ports = {
        "nn.AdamWeightDecay": (nn.AdamWeightDecay, ("adam_m.", "adam_v."), {"global_step": [3], "learning_rate": 0.01}),
        "mint.Adam": (mint.optim.Adam, ("exp_avg.", "exp_avg_sq."), {"state_step": [3]}),
        "mint.AdamW": (mint.optim.AdamW, ("exp_avg.", "exp_avg_sq."), {"state_step": [2]}),
    }
    for port, (kind, affixes, numbers) in ports.items():
        options = {"state_for": port, "layers": LAYERS["cnn"], "overwrite": True}
        converted(tmp_path / "net.pth", tmp_path / "net.ckpt", **options)
        theirs = kind(net.port.trainable_params(), 0.1)
        assert load_port(net, theirs, tmp_path / "net.ckpt") == []
        held = state_of(theirs)
        for affix, moment in zip(affixes, ("exp_avg", "exp_avg_sq"), strict=True):
            np.testing.assert_array_equal(held[f"{affix}line.weight"], kept[moment].numpy()[:, :, None])
        for name, value in numbers.items():
            np.testing.assert_allclose(held[name], value, 1e-6)
        if port == "nn.AdamWeightDecay":  # one step, by its formula: no bias correction
            before, ones = held["line.bias"], 0.1 * np.ones(3, np.float32)
            theirs(tuple(Tensor(np.full(one.shape, 0.1, np.float32)) for one in theirs.parameters))
            first, second = (
                0.9 * held["adam_m.line.bias"] + 0.1 * ones,
                0.999 * held["adam_v.line.bias"] + 0.001 * ones**2,
            )
            expected = before - 0.01 * first / (np.sqrt(second) + 1e-6)
            np.testing.assert_allclose(state_of(theirs)["line.bias"], expected, 1e-4)


def test_a_lamb_of_torch_becomes_that_of_mindspore(nets: Any, tmp_path: Path) -> None:
    """torch has none: apex and timm keep their count of steps in the group."""
    import torch
    from mindspore import nn

    net = nets["transformer"]
    _, made = trained(net, "torch.optim.Adam(p, 0.01)", tmp_path / "net.pth", split=True)
    saved = torch.load(tmp_path / "net.pth")
    for group in saved["optimizer"]["param_groups"]:
        kept = {key: group[key] for key in ("lr", "betas", "eps", "weight_decay", "params")}
        group.clear()
        group.update(kept, bias_correction=True, grad_averaging=True, max_grad_norm=1.0, step=3)
    for entry in saved["optimizer"]["state"].values():
        del entry["step"]
    torch.save(saved, tmp_path / "net.pth")
    converted(tmp_path / "net.pth", tmp_path / "net.ckpt", layers=LAYERS["transformer"])
    theirs = nn.Lamb(in_groups(net.port.trainable_params(), split=True), 0.1)
    assert load_port(net, theirs, tmp_path / "net.ckpt") == []
    held, kept = state_of(theirs), made.state_dict()["state"]
    np.testing.assert_array_equal(held["lamb_v.q.weight"], kept[0]["exp_avg_sq"].numpy())
    assert held["global_step"].tolist() == [3]
    save_port(net, theirs, tmp_path / "later.ckpt")
    converted(tmp_path / "later.ckpt", tmp_path / "later.pth", name_map=tmp_path / "net.json")
    back = torch.load(tmp_path / "later.pth")["optimizer"]
    assert [group["params"] for group in back["param_groups"]] == [[*range(5)], [*range(5, 13)]]
    assert [group["step"] for group in back["param_groups"]] == [3, 3]
    for number, entry in back["state"].items():
        for moment, value in entry.items():
            torch.testing.assert_close(value, kept[number][moment], rtol=0, atol=0)


def test_a_step_of_both_resumed_trainings_is_compared(nets: Any, tmp_path: Path) -> None:
    """`align step` takes optimizers that were filled, and finds a state that was forgotten."""
    import torch
    from mindspore import nn

    import align

    net, (call, port_call) = nets["transformer"], CASES["experimental.AdamW"]
    model, made = trained(net, call, tmp_path / "net.pth", split=False)
    converted(tmp_path / "net.pth", tmp_path / "net.ckpt", layers=LAYERS["transformer"])
    batch = {"x": net.batch, "label": LABELS}
    outcomes = []
    for filled in (True, False):
        theirs = optimizer(port_call, net.port.trainable_params(), split=False)
        load_port(net, theirs if filled else net.port, tmp_path / "net.ckpt")
        sides = (
            align.Training(model, torch.nn.CrossEntropyLoss(), made),
            align.Training(net.port, nn.CrossEntropyLoss(), theirs),
        )
        outcomes.append(align.compare_training_step(*sides, batch=batch, steps=2).verdict.outcome.value)
    assert outcomes == ["aligned", "not aligned"]


def made_by_mindspore() -> Iterator[tuple[str, Any]]:
    """Each optimizer of the data, as MindSpore makes it, with all of its moments."""
    from mindspore import Parameter, Tensor, mint, nn
    from mindspore.experimental import optim

    homes = {"nn": nn, "experimental": optim, "mint": mint.optim}
    options = {"nn.SGD": {"momentum": 0.9}, "nn.Momentum": {"momentum": 0.9}, "nn.Adam": {"use_amsgrad": True}}
    options |= {"nn.RMSProp": {"centered": True}, "mint.Adam": {"amsgrad": True}}
    for form in optimizer_state_rules().mindspore:
        home, _, name = form.id.partition(".")
        parameters = [Parameter(Tensor(np.ones((2, 3), np.float32)), name="fc.weight")]
        rate = {"learning_rate" if home == "nn" else "lr": 0.1}
        yield form.id, getattr(homes[home], name)(parameters, **rate, **options.get(form.id, {}))


def test_each_optimizer_of_mindspore_keeps_what_the_data_says() -> None:
    forms = {one.id: one for one in optimizer_state_rules().mindspore}
    for port, made in made_by_mindspore():
        form = forms[port]
        held = {one.name: one for one in made.get_parameters() if one.name != "fc.weight"}
        moments = {f"{affix}fc.weight" for affix in form.moments}
        left = {name for name in moments - held.keys() if not name.startswith(form.optional)}
        numbers = {one.name: (one.shape, one.dtype) for one in form.numbers}
        kinds = {name: (one.shape, str(one.dtype).lower()) for name, one in held.items() if name not in moments}
        assert (left, kinds) == (set(), numbers), port
        for affix, start in form.start.items():
            np.testing.assert_allclose(held[f"{affix}fc.weight"].asnumpy(), start)
