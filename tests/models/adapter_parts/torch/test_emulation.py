"""Models computed as a chip does, against NumPy and against torch's own recurrent layers."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from align.core.parameters import LARGEST_FLOAT16, NOT_EMULATED, Emulation, OperatorRounding

pytestmark = pytest.mark.frameworks
HALF = OperatorRounding("test", "float16", "float16")
HALF_IN = OperatorRounding("test", "float16", "float32")
HF32 = OperatorRounding("test", "HF32", "float32")
TF32 = OperatorRounding("test", "TF32", "float32")
NOTHING = OperatorRounding("test", "float32", "float32")


def emulated(
    model: Any, *inputs: Any, saturates: bool = False, reordered: tuple[str, ...] = (), **operators: OperatorRounding
) -> tuple[Any, Any]:
    """What a copy returns, and the calls that were emulated."""
    import torch

    from align.models.adapter_parts.torch.emulation import emulate, emulated_calls

    copied = copy.deepcopy(model).eval()
    emulate(copied, Emulation(operators, saturates, frozenset(reordered)))
    with torch.no_grad():
        return copied(*inputs), emulated_calls(copied)


def half(value: Any) -> Any:
    return value.detach().numpy().astype(np.float16).astype(np.float32)


def units_off(found: Any, expected: Any) -> float:
    """The largest difference in units in the last place of float16 at the size of the expected value."""
    spacing = np.spacing(np.abs(expected).astype(np.float16)).astype(np.float32)
    return float((np.abs(found.numpy() - expected) / spacing).max())


def convolved(x: Any, weight: Any, bias: Any, stride: int) -> Any:
    """A convolution by windows, summed in float32."""
    size = weight.shape[-1]
    windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(2, 3))[:, :, ::stride, ::stride]
    return np.einsum("nchwij,ocij->nohw", windows, weight, optimize=True).astype(np.float32) + bias[:, None, None]


def test_a_convolution_in_float16_is_numpys_to_one_unit_in_the_last_place() -> None:
    import torch

    torch.manual_seed(0)
    layer, x = torch.nn.Conv2d(16, 8, 3, stride=2), torch.randn(4, 16, 15, 15)
    found, _ = emulated(layer, x, convolution=HALF)
    expected = convolved(half(x), half(layer.weight), half(layer.bias), 2).astype(np.float16).astype(np.float32)
    assert units_off(found, expected) <= 1.0
    plain = layer(x).detach().numpy()
    assert np.abs(plain - expected).max() > 1e-4


@pytest.mark.parametrize("rounding", [HALF, HALF_IN])
def test_a_product_of_float16_is_numpys_to_one_unit_in_the_last_place(rounding: OperatorRounding) -> None:
    import torch

    torch.manual_seed(0)
    layer, x = torch.nn.Linear(257, 33), torch.randn(65, 257)
    found, calls = emulated(layer, x, addmm=rounding)
    expected = half(x) @ half(layer.weight).T + layer.bias.detach().numpy()
    if rounding is HALF:
        expected = expected.astype(np.float16).astype(np.float32)
    assert units_off(found, expected) <= 1.0
    assert [(one.operator, one.entry, one.calls) for one in calls] == [("addmm", "test", 1)]


@pytest.mark.parametrize(("rounding", "bits"), [(HF32, 11), (TF32, 10)])
def test_hf32_and_tf32_keep_their_bits_of_fraction_and_round_ties_to_even(rounding: Any, bits: int) -> None:
    import torch

    class Product(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x @ torch.ones(1, 1)

    unit = 2.0**-bits
    given = [1 + unit, 1 + unit / 2, 1 + 3 * unit / 2, -1 - unit / 2 - unit / 8, 3e38, np.inf, np.nan, 0.0]
    kept = [1 + unit, 1.0, 1 + 2 * unit, -1 - unit, 3e38, np.inf, np.nan, 0.0]
    found, _ = emulated(Product(), torch.tensor(given)[:, None], mm=rounding)
    np.testing.assert_allclose(found[:, 0].numpy(), np.array(kept, np.float32), rtol=2.0 ** -(bits + 2))
    assert found[:4, 0].tolist() == kept[:4]


def adding_layers() -> dict[str, tuple[Any, Any]]:
    import torch
    from torch import nn

    class Adding(nn.Module):
        """Adds rows to places, many to one, by both functions."""

        def forward(self, x: Any) -> Any:
            places = torch.arange(x.shape[0]) % 3
            summed = torch.zeros(3, x.shape[1], dtype=x.dtype).index_add(0, places, x)
            scattered = torch.zeros(3, x.shape[1], dtype=x.dtype)
            return summed, scattered.scatter_add_(0, places[:, None].expand_as(x), x)

    torch.manual_seed(0)
    image = torch.randn(2, 12, 9, 9)
    return {
        "convolution": (nn.Conv2d(12, 8, 3), image),
        "grouped": (nn.Conv2d(12, 8, 3, groups=4), image),
        "transposed": (nn.ConvTranspose2d(12, 8, 3, groups=2, stride=2), image),
        "unbatched": (nn.Conv1d(12, 8, 3), image[0, :, 0]),
        "linear": (nn.Linear(300, 20), torch.randn(30, 300)),
        "attention": (nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), torch.randn(2, 90, 32)),
        "indexed": (Adding(), torch.randn(999, 4)),
    }


@pytest.mark.parametrize(
    "name", ["convolution", "grouped", "transposed", "unbatched", "linear", "attention", "indexed"]
)
def test_sums_in_another_order_are_as_near_to_float64_as_the_usual_one_and_are_not_it(name: str) -> None:
    import torch

    from align.rules.ascend_rules import ascend_target

    order = replace(ascend_target("ascend:910b", switches={"conv_allow_hf32": "False"}), reorders=True)
    layer, given = adding_layers()[name]
    layer.eval()
    found, _ = emulated(layer, given, reordered=(*order.emulation().reordered,))
    with torch.no_grad():
        plain, exact = layer(given), copy.deepcopy(layer).double()(given.double())
    pairs = zip(*(one if isinstance(one, tuple) else (one,) for one in (found, plain, exact)), strict=True)
    for other, usual, truth in pairs:
        noise, usual_noise = ((one.double() - truth).norm() / truth.norm() for one in (other, usual))
        assert 0.0 < float(noise) < 4 * float(usual_noise) + 1e-7
        assert not torch.equal(other, usual)


def recurrent_layers() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    import torch
    from torch import nn

    torch.manual_seed(0)
    x = torch.randn(3, 7, 5)
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([7, 2, 5]), batch_first=True, enforce_sorted=False)
    return {
        "lstm both ways": (nn.LSTM(5, 8, 2, batch_first=True, bidirectional=True), (x,)),
        "lstm without bias": (nn.LSTM(5, 8, bias=False), (x,)),
        "lstm packed": (nn.LSTM(5, 8, 2, bidirectional=True), (packed,)),
        "gru with a state": (nn.GRU(5, 8, 2, bidirectional=True), (x, torch.randn(4, 7, 8))),
        "gru without batch": (nn.GRU(5, 8), (x[0],)),
        "gru packed": (nn.GRU(5, 8, batch_first=True), (packed,)),
    }


def tensors(value: Any) -> list[Any]:
    import torch

    if torch.is_tensor(value):
        return [value]
    return [value.data] if hasattr(value, "batch_sizes") else [one for part in value for one in tensors(part)]


def test_recurrent_layers_without_rounding_return_what_torchs_do(assert_each) -> None:
    import torch

    layers = recurrent_layers()

    def agrees(title: str) -> None:
        name, (layer, inputs) = title.partition(" ")[0], layers[title]
        with torch.no_grad():
            plain = tensors(layer.eval()(*inputs))
        exact, calls = emulated(layer, *inputs, **{name: NOTHING})
        coarse, _ = emulated(layer, *inputs, **{name: HALF})
        assert [one.operator for one in calls] == [name]
        for mine, same, rounded in zip(plain, tensors(exact), tensors(coarse), strict=True):
            assert mine.shape == same.shape == rounded.shape
            torch.testing.assert_close(mine, same, rtol=0, atol=1e-6)
            assert 1e-5 < (mine - rounded).abs().max() < 1e-2

    assert_each(agrees, [*layers])


def test_the_states_of_an_lstm_are_rounded_at_each_step_as_in_numpy() -> None:
    import torch

    torch.manual_seed(0)
    layer, x = torch.nn.LSTM(5, 8), torch.randn(6, 2, 5)
    (found, (hidden, cell)), _ = emulated(layer, x, lstm=HALF)
    inner, outer = half(layer.weight_ih_l0).T, half(layer.weight_hh_l0).T
    bias = half(layer.bias_ih_l0 + layer.bias_hh_l0)
    h = c = np.zeros((2, 8), np.float32)
    for step, value in enumerate(half(x)):
        gates = value @ inner + h @ outer + bias
        taken, kept, new, shown = np.split(gates, 4, -1)
        c = half(torch.from_numpy(sigmoid(kept) * c + sigmoid(taken) * np.tanh(new)))
        h = half(torch.from_numpy(sigmoid(shown) * np.tanh(c)))
        assert units_off(found[step], h) <= 1.0
    assert units_off(cell[0], c) <= 1.0
    assert units_off(hidden[0], h) <= 1.0


def sigmoid(value: Any) -> Any:
    return (1 / (1 + np.exp(-value.astype(np.float64)))).astype(np.float32)


def test_what_is_beyond_float16_overflows_or_saturates_and_is_counted() -> None:
    import torch

    class Large(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(2, 1, bias=False)
            torch.nn.init.constant_(self.inner.weight, 300.0)

        def forward(self, x: Any) -> Any:
            return self.inner(x)

    x = torch.tensor([[200.0, 100.0], [1.0, 1.0]])
    found, calls = emulated(Large(), x, mm=HALF)
    assert found[:, 0].tolist() == [np.inf, 600.0]
    (only,) = calls
    assert (only.module, only.overflowed, only.largest) == ("inner", 1, 90000.0)
    found, _ = emulated(Large(), x, mm=HALF, saturates=True)
    assert found[:, 0].tolist() == [LARGEST_FLOAT16, 600.0]


def test_products_inside_of_fused_attention_are_seen_and_switches_of_torch_are_put_back() -> None:
    import torch

    torch.manual_seed(0)
    layer, x = torch.nn.TransformerEncoderLayer(16, 4, batch_first=True), torch.randn(2, 5, 16)
    before = torch.backends.mha.get_fastpath_enabled(), torch.backends.cuda.flash_sdp_enabled()
    _, calls = emulated(layer, x, bmm=HALF, mm=HALF, addmm=HALF)
    assert sum(one.calls for one in calls if one.operator == "bmm") == 2
    assert {one.module for one in calls} == {"self_attn", "linear1", "linear2"}
    assert (torch.backends.mha.get_fastpath_enabled(), torch.backends.cuda.flash_sdp_enabled()) == before
    assert not layer._forward_hooks


def test_products_that_cannot_be_looked_into_are_counted_as_not_emulated() -> None:
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pair, self.head = torch.nn.Bilinear(4, 4, 3), torch.nn.Linear(3, 2)

        def forward(self, x: Any) -> Any:
            twisted = torch.view_as_real(torch.complex(x, x) @ torch.complex(x, x).T)
            return self.head(self.pair(x, x)) + torch.cdist(x, x)[:, :2] + twisted[:, :2, 0]

    _, calls = emulated(Net(), torch.randn(5, 4), addmm=HALF, mm=HALF, bmm=HALF)
    found = {(one.module, one.operator): one.entry for one in calls}
    hidden = {("pair", "_trilinear"), ("", "_cdist_forward"), ("", "mm")}
    assert {place for place, entry in found.items() if entry == NOT_EMULATED} == hidden
    assert found["head", "addmm"] == "test"
    _, calls = emulated(Net(), torch.randn(5, 4), convolution=HF32)
    assert calls == ()


def test_an_operator_of_somebody_else_is_not_taken_for_torchs_of_that_name() -> None:
    import torch

    library = torch.library.Library("align_test", "DEF")
    library.define("mm(Tensor a, Tensor b) -> Tensor")
    library.impl("mm", lambda a, b: a @ b, "CPU")

    class Net(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.ops.align_test.mm(x, x)

    x = torch.randn(4, 4)
    found, calls = emulated(Net(), x, mm=HALF)
    assert [(one.operator, one.entry) for one in calls] == [("align_test::mm", NOT_EMULATED)]
    assert torch.equal(found, x @ x)


def test_attention_is_taken_apart_where_the_code_asks_for_a_fused_kernel() -> None:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    class Net(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
                return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    _, calls = emulated(Net(), torch.randn(1, 1, 4, 8), bmm=HALF)
    assert [(one.operator, one.entry, one.calls) for one in calls] == [("bmm", "test", 2)]


def test_a_recurrent_layer_whose_arguments_are_named_is_counted_as_not_emulated() -> None:
    import torch

    class Named(torch.nn.LSTM):
        def forward(self, x: Any) -> Any:
            named = {"num_layers": 1, "dropout": 0.0, "train": False, "bidirectional": False, "batch_first": False}
            start = (torch.zeros(1, 2, 3),) * 2
            return torch.lstm(x, start, self._flat_weights, has_biases=True, **named)[0]

    _, calls = emulated(Named(4, 3), torch.randn(5, 2, 4), lstm=HALF)
    assert [one.entry for one in calls] == [NOT_EMULATED]


@pytest.mark.parametrize(("value", "beyond"), [(65504.0, 0), (65519.0, 0), (65520.0, 1)])
def test_what_is_rounded_to_the_largest_number_of_float16_does_not_overflow(value: float, beyond: int) -> None:
    import torch

    layer = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(layer.weight)
    found, (call,) = emulated(layer, torch.full((1, 1), value), mm=HALF_IN)
    assert (call.overflowed, bool(found.isinf().any())) == (beyond, beyond == 1)
