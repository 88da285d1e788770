"""What people's training scripts save: which mapping is taken, which are listed, which are for the user to choose."""

from __future__ import annotations

import argparse
import copy
from collections import OrderedDict

import numpy as np
import pytest

from align.checkpoints.open_checkpoint import open_checkpoint
from align.errors import MissingEntryError, SeveralEntriesError, UnsupportedCheckpointError, WholeModuleError

pytestmark = pytest.mark.frameworks


@pytest.fixture(params=["new", "old"])
def save(request, tmp_path):
    import torch

    def to_file(value):
        path = tmp_path / "file.pth"
        torch.save(value, path, _use_new_zipfile_serialization=request.param == "new")
        return path

    return to_file


@pytest.fixture
def net():
    import torch

    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))


@pytest.fixture
def weights(net):
    return net.state_dict()


@pytest.fixture
def optimizer(net):
    """State of an optimizer after a step: int keys, each with two moments and a count."""
    import torch

    adam = torch.optim.AdamW(net.parameters())
    net(torch.ones(2, 3)).sum().backward()
    adam.step()
    return adam.state_dict()


def nbytes(state_dict) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in state_dict.values())


def lightning(weights, optimizer):
    import torch

    score = {"best_model_score": torch.tensor(0.1), "best_k_models": {"a.ckpt": torch.tensor(0.1)}}
    return {
        "epoch": 1,
        "pytorch-lightning_version": "2.5.0",
        "state_dict": weights,
        "loops": {"fit_loop": {"state_dict": {}, "epoch_progress": {"total": {"ready": 1}}}},
        "callbacks": {"ModelCheckpoint{'monitor': 'loss'}": score},
        "optimizer_states": [optimizer],
        "hyper_parameters": {"lr": 0.1, "backbone": argparse.Namespace(depth=3)},
    }


def mmengine(weights, optimizer):
    hub = {"log_scalars": {"loss": np.ones(3)}, "runtime_info": OrderedDict(iter=1), "resumed_keys": {}}
    return {"meta": {"cfg": "model = dict()"}, "state_dict": weights, "message_hub": hub, "optimizer": optimizer}


def test_the_imagenet_example_s_checkpoint(save, weights, optimizer) -> None:
    import torch

    path = save({"arch": "resnet50", "state_dict": weights, "best_acc1": torch.tensor(76.1), "optimizer": optimizer})
    checkpoint = open_checkpoint(path)
    assert checkpoint.key == "state_dict"
    assert list(checkpoint.tensors) == list(weights)
    assert checkpoint.other_tensors == {"best_acc1": 1, "optimizer": 12}
    listed = {entry.key: (entry.tensors, entry.nbytes) for entry in checkpoint.entries}
    assert listed == {"": (1, 4), "state_dict": (7, nbytes(weights))}


@pytest.mark.parametrize("wrap", [lightning, mmengine])
def test_the_checkpoint_of_a_training_framework(save, weights, optimizer, wrap) -> None:
    checkpoint = open_checkpoint(save(wrap(weights, optimizer)))
    assert checkpoint.key == "state_dict"
    assert list(checkpoint.tensors) == list(weights)
    assert sum(checkpoint.other_tensors.values()) == 12 + 2 * (wrap is lightning)
    assert not any(entry.key.startswith("optimizer") for entry in checkpoint.entries)


@pytest.mark.parametrize("wrapper", ["state_dict", "model", "module", "net", "ema", "model_ema"])
def test_one_wrapper_is_taken_off_whatever_its_name(save, weights, optimizer, wrapper) -> None:
    args = argparse.Namespace(lr=0.1, device="cuda")
    checkpoint = open_checkpoint(save({wrapper: weights, "optimizer": optimizer, "args": args}))
    assert checkpoint.key == wrapper
    assert checkpoint.other["args"] == "argparse.Namespace"


@pytest.mark.parametrize(
    ("plain", "averaged"),
    [("model", "ema"), ("model", "model_ema"), ("state_dict", "state_dict_ema"), ("state_dict", "ema_state_dict")],
)
def test_averaged_weights_beside_plain_ones_are_for_the_user_to_choose(save, weights, plain, averaged) -> None:
    path = save({plain: weights, averaged: {name: value + 1 for name, value in weights.items()}})
    with pytest.raises(SeveralEntriesError) as error:
        open_checkpoint(path)
    assert error.value.keys == (plain, averaged)
    first, second = open_checkpoint(path, plain), open_checkpoint(path, averaged)
    assert (first.key, second.key) == (plain, averaged)
    assert (first.tensors["0.bias"].load() + 1 == second.tensors["0.bias"].load()).all()
    assert second.other_tensors == {plain: 7}
    assert first.entries == second.entries
    assert {entry.key: entry.nbytes for entry in first.entries} == dict.fromkeys((plain, averaged), nbytes(weights))


@pytest.mark.parametrize("keys", [("a", "b", "c", "d"), ("runs", "0", "net"), ("1.5", "x")])
def test_a_key_may_lead_to_any_depth(save, weights, keys) -> None:
    value = weights
    for key in reversed(keys):
        value = [value] if key == "0" else {key: value, "step": 1}
    path = save(value)
    assert open_checkpoint(path).key == ".".join(keys)
    checkpoint = open_checkpoint(path, ".".join(keys))
    assert list(checkpoint.tensors) == list(weights)


def test_what_two_paths_of_keys_spell_alike_stays_apart(save, weights) -> None:
    one, two = dict(weights), {"w": weights["0.bias"]}
    path = save({"a.b": one, "a": {"b": two}})
    assert [entry.key for entry in open_checkpoint(path).entries] == ["a.b", "a.b (2)"]
    assert list(open_checkpoint(path, "a.b (2)").tensors) == ["w"]


def test_a_state_dict_and_an_optimizer_in_a_tuple(save, weights, optimizer) -> None:
    checkpoint = open_checkpoint(save((weights, optimizer)))
    assert (checkpoint.key, list(checkpoint.tensors)) == ("0", list(weights))
    assert checkpoint.other_tensors == {"1": 12}


def test_the_key_of_a_flat_file_is_empty(save, weights) -> None:
    path = save(weights)
    assert open_checkpoint(path).key == ""
    assert list(open_checkpoint(path, "").tensors) == list(weights)
    with pytest.raises(MissingEntryError) as error:
        open_checkpoint(path, "model")
    assert "the top level" in error.value.hint


def test_an_unknown_key_lists_the_known_ones(save, weights) -> None:
    with pytest.raises(MissingEntryError, match="'weights'") as error:
        open_checkpoint(save({"G": weights, "D": dict(weights)}), "weights")
    assert "'G', 'D'" in error.value.hint


@pytest.mark.parametrize("state_names", [int, str])
def test_an_optimizer_alone_is_no_model(save, weights, optimizer, state_names) -> None:
    state = {state_names(key): value for key, value in optimizer["state"].items()}
    value = {"state": state, "param_groups": optimizer["param_groups"]}
    for tree in (value, {"optimizer": value, "scheduler": {"last_epoch": 1}}):
        with pytest.raises(UnsupportedCheckpointError, match="no named tensors"):
            open_checkpoint(save(tree))
    assert open_checkpoint(save({"model": weights, "optim": value})).key == "model"


@pytest.mark.parametrize("key", ["", "model", "ema", "run.net"])
def test_a_whole_module_is_found_wherever_it_lies(save, net, key) -> None:
    value = net
    for name in reversed(key.split(".") if key else []):
        value = {name: value, "epoch": -1, "updates": None}
    path = save(value)
    for asked in (None, key):
        with pytest.raises(WholeModuleError, match=r"torch\.nn\.modules\.container\.Sequential") as error:
            open_checkpoint(path, asked)
        assert "--trust-pickle" in error.value.hint
        assert not key or f"under '{key}'" in error.value.message


def test_a_parallel_wrapper_is_named_with_what_it_holds(save, net) -> None:
    import torch

    with pytest.raises(WholeModuleError, match=r"DataParallel around torch\.nn\.modules\.container\.Sequential"):
        open_checkpoint(save(torch.nn.DataParallel(net)))


def test_a_module_beside_tensors_is_not_passed_over_in_silence(save, net) -> None:
    import torch

    path = save({"model": net, "stats": {"mean": torch.ones(3)}})
    with pytest.raises(WholeModuleError, match="under 'model', beside tensors under 'stats'") as error:
        open_checkpoint(path)
    assert "--key 'stats'" in error.value.hint
    checkpoint = open_checkpoint(path, "stats")
    assert list(checkpoint.tensors) == ["mean"]
    assert checkpoint.other == {"model": "torch.nn.modules.container.Sequential"}
    assert checkpoint.other_tensors == {"model": 7}


def test_a_module_without_tensors_or_further_down_is_no_rival(save, net, weights) -> None:
    import torch

    value = {"state_dict": weights, "criterion": torch.nn.CrossEntropyLoss(), "hyper_parameters": {"net": net}}
    checkpoint = open_checkpoint(save(value))
    assert checkpoint.key == "state_dict"
    assert checkpoint.other["criterion"] == "torch.nn.modules.loss.CrossEntropyLoss"
    assert checkpoint.other_tensors == {"hyper_parameters": 7}


def test_what_is_no_tensor_is_named_by_its_class(save) -> None:
    import torch

    found = open_checkpoint(
        save(
            {
                "w": torch.ones(2, requires_grad=True),
                "matrix": np.eye(2),
                "best": np.float64(0.5),
                "size": torch.Size([2, 3]),
                "dtype": torch.float16,
                "device": torch.device("cpu"),
                "args": argparse.Namespace(lr=1),
            }
        )
    )
    assert list(found.tensors) == ["w"]
    assert found.other["matrix"] == "NumPy array, pickled by NumPy"
    assert found.other["best"].endswith("multiarray.scalar")
    del found.other["matrix"], found.other["best"]
    assert found.other == {
        "size": "torch.Size",
        "dtype": "torch.float16",
        "device": "torch.device",
        "args": "argparse.Namespace",
    }


def test_attributes_of_a_state_dict_are_no_entries_of_it(save, net) -> None:
    state_dict = copy.copy(net.state_dict())
    assert state_dict._metadata
    assert open_checkpoint(save(state_dict)).other == {}


@pytest.mark.filterwarnings("ignore:Please use DTensor:FutureWarning")
@pytest.mark.parametrize("kind", ["DTensor", "ShardedTensor"])
def test_a_shard_of_a_distributed_tensor_is_refused_by_name(save, tmp_path, kind) -> None:
    import torch
    from torch import distributed

    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        value = _dtensor() if kind == "DTensor" else _sharded_tensor()
        path = save({"w": value, "plain": torch.ones(2)})
    finally:
        distributed.destroy_process_group()
    with pytest.raises(UnsupportedCheckpointError, match=rf"'w' is no plain tensor.*\.{kind}"):
        open_checkpoint(path)


def _dtensor():
    import torch
    from torch.distributed.tensor import DeviceMesh, Shard, distribute_tensor

    return distribute_tensor(torch.ones(4, 2), DeviceMesh("cpu", [0]), [Shard(0)])


def _sharded_tensor():
    import torch
    from torch.distributed._shard.metadata import ShardMetadata
    from torch.distributed._shard.sharded_tensor import Shard, init_from_local_shards

    shard = Shard(torch.ones(2, 2), ShardMetadata([0, 0], [2, 2], "rank:0/cpu"))
    return init_from_local_shards([shard], (2, 2))
