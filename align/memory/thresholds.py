"""The limits of what is said of memory. Each says why it is there, and where its number comes from."""

from __future__ import annotations

from typing import Final

WORTH_CHECKPOINTING: Final = 0.03
"""Checkpointing of layers is listed where the peak falls by at least this share.
Choice: it costs another forward pass of these layers, which less than that does not repay."""

CHECKPOINTINGS_SHOWN: Final = 6
"""So many ways to checkpoint are listed, those that bring most first.
Choice: blocks, what is inside a block, and stages fill it; more only repeat these in other words."""

MORE_THAN_REFERENCE: Final = 0.25
"""A layer of the port is named where it keeps this share more for the way back than the reference's.
Choice: the two frameworks keep another tensor here and there (a mask as bytes or as numbers); a layer that keeps one
more of full size is beyond it."""

LEAST_TOLD_SHARE: Final = 0.02
"""A layer is compared with its counterpart where one of them keeps this share of the peak.
Choice: what is smaller moves no peak."""

OBJECTS_NAMED: Final = 5
"""So many kinds of objects that grow are named.
Choice: a leak is one or two of them; the rest hangs on these."""

OBJECTS_A_STEP: Final = 0.5
"""A kind of object grows where so many more of it live after each step.
Choice: a leak in each second step has this; caches stand still."""

SHARE_OF_LARGEST: Final = 0.05
"""Tensors and lines are named that grow by this share of the bytes of the first one.
Choice: what is smaller hangs on that one: shapes, lists and records of it."""

TRACED_FRAMES: Final = 8
"""So many calls are noted of where Python's memory was taken.
Choice: enough to come out of NumPy and the standard library to a line of the user's; more cost time and memory."""
