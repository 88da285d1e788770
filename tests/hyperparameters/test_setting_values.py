"""Values of one meaning are one value, and others are not."""

from __future__ import annotations

from typing import Any

from align.hyperparameters.setting_values import is_given, same_value


def test_values_that_are_the_same(assert_each: Any) -> None:
    def same(one: Any, other: Any) -> None:
        assert same_value(one, other)
        assert same_value(other, one)

    pairs = [
        (1e-4, "1e-4"),
        ("1_000", 1000),
        (True, "on"),
        ("10%", 0.1),
        ((0.9, 0.95), "0.9 0.95"),
        ("a ", "A"),
        (3.0, 3),
        (4 / 3, "1.333"),
        ((3 / 4, 4 / 3), "0.75, 1.3333"),
    ]
    assert_each(same, pairs)


def test_values_that_are_not(assert_each: Any) -> None:
    def unlike(one: Any, other: Any) -> None:
        assert not same_value(one, other)
        assert not same_value(other, one)

    assert_each(
        unlike,
        [
            (1e-4, "1e-5"),
            (True, "off"),
            ("adam", "adamw"),
            ((1, 2), (1, 2, 3)),
            (1.0, 1.0 + 1e-6),
            (0, 1e-8),
            (4 / 3, 1.334),
            (4 / 3, 1.33),
            (2 / 70, 0.029),
            (0.9999, 0.99991),
        ],
    )


def test_what_leaves_a_value_to_the_program() -> None:
    assert [one for one in (None, "", "auto", "None", "null") if is_given(one)] == []
    assert all(is_given(one) for one in (0, False, "0", "cosine"))
