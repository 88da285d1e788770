"""Faults in words of data: grouped by module, each with what is known of its cause and no more."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from align.core.protocols import LayerSettings
from align.core.traces import Capture
from align.forward.forward_result import Culprit
from align.forward.isolated_calls import IsolatedCall, IsolatedTensor
from align.forward.locate_faults import Fault, ProducerLayer
from align.forward.relations.relation import Relation
from align.forward.settings_to_try import findings_of, findings_of_unpaired
from align.forward.suspects import Suspect, culprit_of, suspects_of, with_findings, with_relation, with_weights
from align.lint.compare_settings import SettingFinding
from align.rules.pitfalls import pitfalls
from align.traces.module_calls import Call, CallPair

if TYPE_CHECKING:
    from align.traces.module_calls import CallKey


def alone(factor: float, role: Any = "output") -> IsolatedTensor:
    return IsolatedTensor(Capture(0, "a", 0, "", "Norm", (3,), "float32", role=role), None, None, factor)


def fault(
    candidate: str = "b", call: int = 0, factor: float = 2.0, part: Any = "layer", made_by: ProducerLayer | None = None
) -> Fault:
    mine = Call("a", call, 0, "LayerNorm", "layer_norm", ())
    theirs = Call(candidate, call, 0, "Norm", "layer_norm", ())
    return Fault(CallPair(mine, theirs), part, alone(factor, "input" if part == "inputs" else "output"), made_by)


def finding(rule: str, change: str, reference: str, candidate: str) -> SettingFinding:
    names = ("a", "b", "LayerNorm", "Norm")
    return SettingFinding(rule, "error", *names, "", reference, candidate, "", change)


def is_mended(faults: list[Fault], calls: dict[CallKey, IsolatedCall]) -> bool:
    return Suspect(tuple(faults), culprit_of(faults)).is_mended(calls)


def seen(factor: float, inputs: float = 0.0) -> IsolatedCall:
    tensors = alone(inputs, "input"), alone(factor)
    given, returned = ({one.reference.key: one} for one in tensors)
    return IsolatedCall(inputs=given, outputs=returned)


def test_repeated_calls_of_a_module_are_one_culprit_with_the_worst_factor() -> None:
    faults = [fault(call=0), fault("c"), fault(call=1, factor=inf), fault(part="inputs")]
    suspects = suspects_of(faults)
    assert [[faults.index(fault) for fault in one.faults] for one in suspects] == [[0, 2], [1], [3]]
    culprit = suspects[0].culprit
    assert (culprit.candidate, culprit.call, culprit.part, culprit.factor) == ("b", 0, "layer", inf)
    assert culprit.facts == {"calls": 2}
    assert (culprit.cause, culprit.sureness, culprit.change, culprit.line) == ("", "unknown", "", "")


def test_a_layer_without_counterpart_that_made_a_wrong_input_is_the_culprit_itself() -> None:
    culprit = culprit_of([fault(part="inputs", made_by=ProducerLayer("pool", "AvgPool2d"))])
    assert (culprit.candidate, culprit.candidate_class, culprit.part) == ("pool", "AvgPool2d", "layer")
    assert (culprit.reference, culprit.facts) == ("a", {"shows_at": "b"})


def test_wrong_weights_are_confirmed_and_told_with_their_relation_where_one_is_known() -> None:
    culprit = culprit_of([fault()])
    known = with_weights(culprit, None, {"b": Relation("transposed", 0.0, facts={"axes": "1,0"})})
    assert (known.cause, known.sureness) == ("weights-differ", "confirmed")
    assert known.facts == {"relation": "transposed", "axes": "1,0"}
    assert with_weights(culprit, None, {"other": Relation("transposed", 0.0)}).facts == {}


def test_weights_of_a_layer_without_counterpart_make_it_the_culprit() -> None:
    culprit = with_weights(culprit_of([fault(part="inputs")]), ProducerLayer("gate", "Dense"), {})
    assert (culprit.candidate, culprit.candidate_class, culprit.part) == ("gate", "Dense", "layer")
    assert culprit.facts == {"shows_at": "b"}


def test_a_hypothesis_that_explains_all_is_suspected_and_one_that_does_not_is_a_hint() -> None:
    culprit = culprit_of([fault()])
    whole = with_relation(culprit, Relation("scaled", 0.5, facts={"scale": 2.0}))
    assert (whole.cause, whole.sureness, whole.facts) == ("scaled", "suspected", {"scale": 2.0})
    for part in (Relation("slices", 0.5, share=0.9, facts={"axis": 1}), Relation("slices", 3.0, facts={"axis": 1})):
        hinted = with_relation(culprit, part)
        assert (hinted.cause, hinted.sureness, hinted.facts) == ("", "unknown", {"hint": "slices", "axis": 1})


def test_settings_are_confirmed_only_where_the_change_was_tried() -> None:
    culprit = culprit_of([fault(), fault(call=1)])
    findings = [finding("eps", "eps=1e-5", "eps=1e-5", "epsilon=1e-7"), finding("axis", "axis=1", "dim=1", "axis=-1")]
    tried = with_findings(culprit, findings, confirmed=True)
    assert (tried.cause, tried.sureness, tried.change) == ("eps + axis", "confirmed", "eps=1e-5; axis=1")
    assert tried.facts == {"calls": 2, "reference": "eps=1e-5, dim=1", "candidate": "epsilon=1e-7, axis=-1"}
    assert with_findings(culprit, findings[:1], confirmed=False).sureness == "suspected"


def test_a_module_is_mended_only_if_all_of_its_calls_are_right() -> None:
    faults = [fault(call=0), fault(call=1)]
    assert is_mended(faults, {("b", 0): seen(0.5), ("b", 1): seen(1.0)})
    assert not is_mended(faults, {("b", 0): seen(0.5), ("b", 1): seen(1.1)})
    assert not is_mended(faults, {("b", 0): seen(0.5)})  # the run did not come to the other
    assert not is_mended(faults, {})
    assert not is_mended(faults[:1], {("b", 0): IsolatedCall()})  # what was off could not be compared again


def test_wrong_inputs_are_mended_by_right_inputs_and_wrong_outputs_by_right_outputs() -> None:
    right_inputs = {("b", 0): seen(5.0, inputs=0.5)}
    assert is_mended([fault(part="inputs")], right_inputs)
    assert not is_mended([fault(part="layer")], right_inputs)


def norm(path: str, family: str, **values: Any) -> LayerSettings:
    return LayerSettings(path, (family,), values)


def test_the_settings_of_a_layer_at_fault_are_compared_and_no_others() -> None:
    mine = {"a": norm("a", "torch.nn.LayerNorm", eps=1e-5), "other": norm("other", "torch.nn.LayerNorm", eps=1e-5)}
    theirs = {
        "b": norm("b", "mindspore.nn.LayerNorm", epsilon=1e-7),
        "other": norm("other", "mindspore.nn.LayerNorm", epsilon=1e-7),
    }
    found = findings_of([fault()], (mine, theirs), pitfalls(), {})
    assert list(found) == ["b"]
    assert [one.rule for one in found["b"]] == ["layer-norm-epsilon"]


def test_a_layer_without_counterpart_is_held_against_the_layer_that_owns_its_parameters() -> None:
    fused = LayerSettings("qkv", ("torch.nn.Linear",), {"bias": True})
    kernel = LayerSettings("up", ("torch.nn.Conv2d",), {"bias": True})
    lone = LayerSettings("q", ("mindspore.nn.Dense",), {"has_bias": False})
    settings = {"qkv": fused, "up": kernel}, {"q": lone}

    def told(owner: str) -> list[tuple[str, str, str]]:
        found = findings_of_unpaired((owner, "q"), settings, pitfalls())
        return [(one.rule, one.severity, one.reference) for one in found]

    assert told("qkv") == [("linear-bias", "error", "qkv")]
    assert told("up") == [("linear-bias", "note", "up")]  # no rule knows both: its switch
    assert told("") == [("linear-bias", "note", "")]
    equal = {"q": LayerSettings("q", ("mindspore.nn.Dense",), {"has_bias": True})}
    assert findings_of_unpaired(("qkv", "q"), (settings[0], equal), pitfalls()) == ()


def test_a_layer_whose_settings_cannot_be_read_has_no_findings() -> None:
    made = fault(part="inputs", made_by=ProducerLayer("probe:x", "Probe"))
    assert findings_of([fault(), made], ({}, {}), pitfalls(), {}) == {}


def test_a_culprit_keeps_what_it_knew() -> None:
    culprit = Culprit("a", "b", "A", "B", 0, "layer", 2.0, facts={"calls": 3})
    assert with_relation(culprit, Relation("scaled", 0.5)).facts == {"calls": 3}
    assert with_weights(culprit, None, {}).facts == {"calls": 3}
