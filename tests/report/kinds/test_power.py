"""The power of a comparison as the user reads it."""

from __future__ import annotations

from align.core.documents import to_json_data
from align.forward.forward_result import OutputPower, ParameterPower, Power
from align.report.blocks import Lines
from align.report.kinds.forward import power_blocks


def shown(power: Power | None, *, show_all: bool = False) -> tuple[list[str], str]:
    (block,) = power_blocks(to_json_data(power), show_all=show_all)
    assert isinstance(block, Lines)
    return list(block.lines), block.tone


def test_of_a_model_in_order_one_line_an_input_and_one_on_parameters_is_all() -> None:
    parameters = tuple(ParameterPower(f"fc{i}.weight", 8, 0, i * 1e-5, "seen") for i in (1, 2))
    lines, tone = shown(Power((OutputPower("", 0, "", "Net", 2e4),), parameters, {"x": 2e4}))
    assert lines == [
        "x: unrelated values in its place change the model's outputs by 20,000 × their limit",
        "a change of 0.002 % or more shows in 2 parameters (fc2.weight shows least)",
    ]
    assert tone == "plain"


def test_inputs_that_move_nothing_and_those_that_were_not_replaced_are_told() -> None:
    lines, tone = shown(Power((), (), {"x": 0.5, "y": float("inf")}, {"mask": "no other"}))
    assert lines[0].endswith("only 0.5 × their limit: its use is not tested")
    assert lines[1] == "y: unrelated values in its place change the model's outputs by inf × their limit"
    assert lines[2] == "mask: not measured: no other"
    assert tone == "open"


def test_outputs_at_an_end_are_named() -> None:
    outputs = (
        *(OutputPower(f"blocks.{i}.relu", 1, "", "ReLU", 0.0, "constant") for i in range(3)),
        OutputPower("gate", 0, "", "Sigmoid", 9.0, "saturated"),
        OutputPower("fc", 0, "", "Linear", None),
    )
    lines, _ = shown(Power(outputs))
    assert lines[0].startswith("3 of 5 compared outputs are constant (dead or saturated): blocks.")
    assert lines[1] == "1 of 5 compared outputs is saturated at both ends almost everywhere: gate (Sigmoid)"
    assert lines[2].startswith("3 of 5 compared outputs change with no input: ")


def test_parameters_are_named_by_how_they_are_seen() -> None:
    parameters = (
        ParameterPower("aux.weight", 4, 4, None, "blind"),
        ParameterPower("words.weight", 200, 180, 1e-4, "partly blind"),
        ParameterPower("scale", 1, 0, 0.25, "weakly seen"),
        ParameterPower("router.weight", 4, 0, None, "unknown"),
    )
    lines, _ = shown(Power((), parameters))
    assert [line.partition(": ")[2] for line in lines[:4]] == [
        "aux.weight",
        "words.weight (of words.weight, 90 % are hidden)",
        "scale (of scale, a change of 25 % or more shows)",
        "router.weight",
    ]


def test_a_long_list_is_cut_unless_all_is_asked_for() -> None:
    names = ["head", "neck", "stem", "tail", "body", "arm", "leg", "foot"]
    power = Power((), tuple(ParameterPower(name, 1, 1, None, "blind") for name in names))
    assert shown(power)[0][0].endswith("arm, ...")
    assert shown(power, show_all=True)[0][0].endswith("leg, foot")


def test_power_that_nobody_measured_is_not_passed_over() -> None:
    assert shown(None) == (["Not measured: whether a fault could have been seen is not known."], "open")
