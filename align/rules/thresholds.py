"""The limits of the rules. Each says why it is there, and where its number comes from."""

from __future__ import annotations

from typing import Final

MOST_STACKED_LAYERS: Final = 32
"""What `*` in an attribute stands for: weight_ih_l0 ... weight_ih_l31 of a stacked LSTM.
Choice: fewer leave the deepest layers of a net without a role; more only make the tables of rules longer."""

FLOAT32_SETTING_TOLERANCE: Final = 1e-6
"""How far two settings differ, relative to each other, that are one: some went through float32 and back.
Choice: float32 keeps 6e-8; a smaller number would part 1e-5 from its float32 form,
a larger one would hide a changed setting."""
