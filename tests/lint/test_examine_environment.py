"""What of this machine changes a comparison: switches as the live frameworks have them, and what to write."""

from __future__ import annotations

import pytest

from align.core.verdicts import Outcome
from align.lint.examine_environment import _matters, examine_environment, switches

SLOW = "AuthenticAMD avx avx2 avx512f"


@pytest.fixture
def torch():
    torch = pytest.importorskip("torch")
    before = torch.get_float32_matmul_precision()
    yield torch
    torch.set_float32_matmul_precision(before)


@pytest.mark.frameworks
def test_a_precision_mode_that_rounds_is_named_with_the_line_that_ends_it(torch) -> None:
    torch.set_float32_matmul_precision("medium")
    result = examine_environment()
    found = next(one for one in result.findings if one.subject == "torch-matmul-precision")
    assert found.severity == "warning"
    assert 'torch.set_float32_matmul_precision("highest")' in str(found.message)
    assert result.verdict.outcome is Outcome.ALIGNED  # a switch is no fault of the machine


@pytest.mark.frameworks
def test_switches_as_a_comparison_wants_them_are_no_findings(torch) -> None:
    torch.set_float32_matmul_precision("highest")
    result = examine_environment()
    assert not [one for one in result.findings if one.subject.startswith("torch-") and one.severity == "warning"]
    states = {one.id: one.state for one in result.switches}
    assert states["torch-matmul-precision"] == "as wanted"
    assert states["torch-npu-matmul-hf32"] == "not readable"  # torch_npu is not here
    assert {"python", "processor", "threads", "memory", "disk"} <= result.machine.keys()
    assert result.machine["memory"] > 0


def test_a_slow_convolution_is_warned_of_where_the_processor_has_it() -> None:
    switch = next(one for one in switches() if one.id == "mindspore-convolution")
    assert _matters(switch.on, {"cpu"}, {"processor": SLOW})
    assert not _matters(switch.on, {"cpu"}, {"processor": SLOW.replace("AuthenticAMD", "GenuineIntel")})
    assert not _matters(switch.on, {"cpu"}, {"processor": SLOW.replace(" avx512f", "")})
    assert switch.write.startswith("ONEDNN_MAX_CPU_ISA=AVX2")


def test_every_switch_says_where_it_is_read_and_what_to_write() -> None:
    for switch in switches():
        assert bool(switch.reads) != bool(switch.variable), switch.id
        assert switch.write, switch.id
        assert switch.source.startswith("https://"), switch.id
        assert switch.severity in ("warning", "note"), switch.id
