"""What a failure is: told from what Python, torch and MindSpore really say, each kind with a hint of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.errors.models import ModelFailure, failure_hint, failure_kind, hint_in_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.errors.models import FailureKind


def kind_of(code: Callable[[], Any]) -> FailureKind:
    try:
        code()
    except Exception as error:  # noqa: BLE001 - whatever the frameworks raise
        return failure_kind(error)
    raise AssertionError("nothing was raised")


def raises(error: Exception) -> None:
    raise error


def test_words_of_the_users_own_are_not_read_as_a_frameworks(assert_each: Any) -> None:
    def check(error: Exception) -> None:
        assert kind_of(lambda: raises(error)) == "other"

    assert_each(check, [RuntimeError("no licence for this model size"), ValueError("dtype"), KeyError("shape")])


def test_kinds_that_need_no_framework(assert_each: Any) -> None:
    def check(kind: str, code: Callable[[], Any]) -> None:
        assert kind_of(code) == kind

    x = np.ones((2, 3))
    examples: list[tuple[str, Callable[[], Any]]] = [
        ("shape", lambda: x @ x),
        ("shape", lambda: x.reshape(4, 4)),
        ("arguments", lambda: len()),  # type: ignore[call-arg]
        ("index", lambda: [1].pop(5)),
        ("import", lambda: __import__("a_package_that_is_not_there")),
        ("other", lambda: x.no_such),  # type: ignore[attr-defined]
    ]
    assert_each(check, examples)


@pytest.mark.frameworks
def test_kinds_of_torch(assert_each: Any) -> None:
    import torch
    from torch import nn
    from torch.nn import functional

    def check(kind: str, code: Callable[[], Any]) -> None:
        assert kind_of(code) == kind

    x, half = torch.ones(2, 3), torch.ones(2, 3).half()
    examples = [
        ("dtype", lambda: nn.Linear(3, 3)(half)),
        ("dtype", lambda: x @ half.T),
        ("dtype", lambda: nn.Embedding(4, 4)(x)),
        ("dtype", lambda: functional.cross_entropy(x, torch.zeros(2, dtype=torch.int32))),
        ("dtype", lambda: x[x]),
        ("kernel", lambda: torch.linalg.inv(half[:, :2])),
        ("shape", lambda: nn.Linear(4, 3)(x)),
        ("shape", lambda: nn.Conv2d(3, 4, 3)(torch.ones(1, 4, 8, 8))),
        ("shape", lambda: nn.LayerNorm(4)(x)),
        ("shape", lambda: nn.BatchNorm1d(4).eval()(x)),
        ("shape", lambda: torch.softmax(x, 3)),
        ("shape", lambda: [*map(len, [(a, b, c) for a, b, c in [x.shape]])]),
        ("index", lambda: nn.Embedding(4, 4)(torch.tensor([7]))),
        ("arguments", lambda: nn.Linear(3, 3)()),
        ("arguments", lambda: nn.Linear(3, 3)(x, mask=None)),
        ("other", lambda: x.no_such),
    ]
    assert_each(check, examples)


@pytest.mark.frameworks
def test_kinds_of_mindspore(assert_each: Any) -> None:
    import mindspore
    from mindspore import mint, nn, ops

    def check(kind: str, code: Callable[[], Any]) -> None:
        assert kind_of(code) == kind

    class Compiled(nn.Cell):
        @mindspore.jit
        def construct(self, x: Any) -> Any:
            import math

            return x * math.pi

    x = mindspore.Tensor(np.ones((2, 3), np.float32))
    half = x.astype(mindspore.float16)
    labels = mindspore.Tensor([0, 1], mindspore.int64)
    examples = [
        ("kernel", lambda: mint.nn.LayerNorm(3)(x).asnumpy()),
        ("kernel", lambda: mint.nn.functional.gelu(x).asnumpy()),
        ("dtype", lambda: ops.matmul(half.T, x).asnumpy()),
        ("dtype", lambda: nn.CrossEntropyLoss()(x, labels).asnumpy()),
        ("dtype", lambda: ops.one_hot(x, 3, 1.0, 0.0).asnumpy()),
        ("shape", lambda: nn.Dense(4, 3)(x).asnumpy()),
        ("shape", lambda: x.reshape(4, 2).asnumpy()),
        ("shape", lambda: nn.LayerNorm((4,))(x).asnumpy()),
        ("shape", lambda: ops.split(x, 2, 5)[0].asnumpy()),
        ("index", lambda: nn.Embedding(4, 4)(mindspore.Tensor([7])).asnumpy()),
        ("arguments", lambda: nn.Dense(3, 3)()),
        ("compiler", lambda: Compiled()(x)),
        ("other", lambda: x.no_such()),
    ]
    assert_each(check, examples)


@pytest.mark.frameworks
def test_words_that_name_sizes_where_these_are_not_the_matter(assert_each: Any) -> None:
    import torch
    from torch import nn

    def check(kind: str, code: Callable[[], Any]) -> None:
        assert kind_of(code) == kind

    x = torch.ones(2, 5, 6)
    half = nn.Linear(6, 4)
    examples: list[tuple[str, Callable[[], Any]]] = [
        ("memory order", lambda: x.transpose(1, 2).view(2, -1)),
        ("memory order", lambda: x.permute(2, 0, 1).view(60)),
        ("memory order", lambda: x[:, ::2].view(-1)),
        ("shape", lambda: x.view(7, -1)),
        ("one number", x.item),
        ("one number", lambda: bool(x > 0)),
        ("one number", lambda: float(x)),
        ("batch of one", lambda: nn.BatchNorm1d(4)(torch.ones(1, 4))),
        ("batch of one", lambda: nn.InstanceNorm1d(4)(torch.ones(1, 4, 1))),
        ("state dict", lambda: half.load_state_dict(nn.Linear(4, 4).state_dict())),
        ("state dict", lambda: half.load_state_dict({})),
        ("out of memory", lambda: torch.empty(10**15)),
        ("device", lambda: half(torch.ones(2, 6, device="meta"))),
    ]
    assert_each(check, examples)


def test_words_of_devices_that_are_not_here(assert_each: Any) -> None:
    def check(kind: str, words: str) -> None:
        namespace: dict[str, Any] = {"__name__": "torch.nn.functional"}
        exec(compile("def fails(words):\n    raise RuntimeError(words)", "functional.py", "exec"), namespace)
        assert kind_of(lambda: namespace["fails"](words)) == kind

    examples = [
        ("device", "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"),
        ("device", "Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same"),
        ("dtype", "Input type (torch.HalfTensor) and weight type (torch.FloatTensor) should be the same"),
        ("out of memory", "CUDA out of memory. Tried to allocate 2.00 GiB. Try setting max_split_size_mb to avoid it."),
        ("memory order", "The tensor is not contiguous. You can call .contiguous() to get a contiguous tensor."),
    ]
    assert_each(check, examples)


def test_only_a_call_of_the_model_itself_asks_to_check_the_inputs() -> None:
    kinds: list[FailureKind] = ["jit", "compiler", "kernel", "arguments", "index", "dtype", "shape", "end", "other"]
    kinds += ["memory order", "out of memory", "device", "one number", "batch of one", "state dict"]
    assert len({failure_hint(kind) for kind in kinds}) == len(kinds)
    for kind in kinds:
        assert "give the inputs the names" not in hint_in_model(kind, ModelFailure("fc", line="net.py:3"))
    assert "give the inputs the names" in hint_in_model("arguments", ModelFailure())


@pytest.mark.parametrize("kind", ["shape", "dtype"])
def test_inputs_are_doubted_last_and_not_for_what_the_models_own_line_does(kind: FailureKind) -> None:
    usual = failure_hint(kind)
    told = hint_in_model(kind, ModelFailure("fc", "Linear", line="net.py:3"))
    assert told.startswith(usual.partition("; add --debug")[0])
    assert told.index("give this model inputs of the shapes") > told.index("go together")
    assert "--candidate-inputs" in told
    assert hint_in_model(kind, ModelFailure(line="net.py:3")) == usual
    assert hint_in_model(kind, ModelFailure("fc", "Linear", "norm", "net.py:3")) == usual


@pytest.mark.frameworks
def test_code_of_mindspore_jit_that_is_run_uncompiled_is_told_of_graph_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    import mindspore
    from mindspore import mint, nn

    class Compiled(nn.Cell):
        @mindspore.jit
        def construct(self, x: Any) -> Any:
            return mint.nn.functional.gelu(x)

    monkeypatch.setenv("MS_JIT", "0")  # as the adapter does, so that hooks see the layers
    x = mindspore.Tensor(np.ones((2, 3), np.float32))
    assert kind_of(lambda: Compiled()(x)) == "jit"
    assert "--candidate-mode graph" in failure_hint("jit")
