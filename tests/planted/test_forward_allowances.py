"""Limits and accepted deviations on a real port with a planted defect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from align.core.verdicts import Outcome
from align.errors import UnusedPatternsError
from align.forward.compare_forward import compare_forward
from align.forward.forward_result import AcceptedDeviation, Allowances, LayerLimit

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.forward.forward_result import ForwardComparison

pytestmark = pytest.mark.frameworks


@pytest.fixture(scope="module")
def allowed(pairs: Any) -> Callable[[Allowances], ForwardComparison]:
    """Compare a port whose first norm has another epsilon, with what is allowed."""
    reference, clean, inputs = pairs.TorchConvNet(), pairs.PortConvNet(), pairs.images()
    name_map = pairs.make_alike(reference, clean, inputs)
    port = pairs.PortConvNet(defect="batch norm eps")
    pairs.transfer(reference, port, name_map)
    return lambda allowances: compare_forward(reference, port, inputs=inputs, name_map=name_map, allowances=allowances)


def test_a_limit_holds_for_the_layer_alone_and_for_what_has_gathered(allowed: Any) -> None:
    result = allowed(Allowances((LayerLimit("first_norm", factor=1e3),)))
    layer = next(one for one in result.layers if one.candidate == "first_norm")
    assert result.culprits == ()
    assert (layer.outcome, layer.limit.source) == ("aligned", "user")
    assert (layer.isolated.outcome, layer.isolated.limit.source) == ("aligned", "user")
    assert 0.1 < layer.factor < 1.0
    assert result.verdict.outcome is Outcome.NOT_ALIGNED  # what follows has its own limits


def test_a_narrower_limit_finds_what_the_noise_would_hide(allowed: Any) -> None:
    result = allowed(Allowances((LayerLimit("first", max_abs=1e-12),)))
    assert [one.candidate for one in result.culprits] == ["first", "first_norm"]


def test_an_accepted_layer_is_listed_and_what_is_right_alone_after_it_does_not_count(allowed: Any) -> None:
    result = allowed(Allowances(accepted=(AcceptedDeviation("stem.1", "trained with this epsilon"),)))
    assert result.verdict.outcome is Outcome.ALIGNED
    assert result.verdict.coverage.compared == 1
    assert result.verdict.coverage.excluded == 20
    assert result.accepted[0].candidates == ("first_norm",)


def test_every_glob_that_fits_no_layer_is_named_with_the_paths_close_to_it(allowed: Any) -> None:
    with pytest.raises(UnusedPatternsError) as caught:
        allowed(Allowances((LayerLimit("first_nrm", factor=2.0),), (AcceptedDeviation("zz*", "why"),)))
    assert "first_norm" in caught.value.close["first_nrm"]
    assert caught.value.close["zz*"] == ()
