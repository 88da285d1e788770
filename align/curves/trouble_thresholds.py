"""The limits of the classes of trouble. Each says why it is there, and where its number comes from."""

from __future__ import annotations

from typing import Final

# What several rules share.
COURSE_PARTS: Final = 8
"""Parts of a curve whose levels make its course.
Choice: fewer hide where a course turns, more make levels of few points."""
BEGINNING_POINTS: Final = 5
"""Points from which the start of a loss is taken, at most.
Choice: a loss may do most of its way in few steps; fewer make the start as uncertain as one point."""
COURSE_POINTS: Final = 8
"""Points from which on a curve has a course: one for each part.
Choice: fewer have none; more leave short trainings without a class of trouble."""
FINE_PARTS: Final = 16
"""Parts of a difference where its growth is looked at more closely: twice COURSE_PARTS.
Choice: fewer hide where a difference sets in, more are of few points each."""
SURE_ERRORS: Final = 5.0
"""Standard errors from which on a mean differs from another one.
Source: a normal distribution is beyond 5 in 6e-7 of all cases, so that the parts of many curves may be asked."""
MUCH_LARGER: Final = 10.0
"""How many times as large a figure is that is much larger.
Choice: one power of ten; a smaller one takes heavy tails for spikes, a larger one misses moderate ones."""
NOISE_RULE_POINTS: Final = 48
"""Points from which on noise and a fault are distinguished.
Choice: six for each part; fewer call small faults noise."""

# Noise.
NEXT_TO_NONE: Final = 0.25
"""A mean of this part of the noise is small beside it, however sure it is.
Choice: a larger one calls offsets noise, a smaller one calls noise of long curves an offset."""
LASTING_NOISE: Final = 4.0
"""Noise is there from the beginning on if the first part has no less than one over this of the largest.
Choice: noise goes down with the loss; a larger one calls noise what sets in late."""
JITTER_NOISES: Final = 4.0
"""Times the noise of the beginning up to which an early difference is part of it.
Choice: normal noise is beyond it in 6e-5; a larger one hides faults of the first steps."""
SIGN_CHANGES: Final = 1 / 6
"""Share of neighbouring points between which noise changes its sign at least.
Choice: independent noise does so at half of them; a larger one refuses noise that lasts some steps."""
FIRST_STEPS: Final = 16
"""First steps whose signs show whether a difference is noise.
Choice: fewer are of one sign by chance, more hide a fault that fades."""
RARE_SIGN: Final = 1 / 8
"""Share of one sign among them up to which they are of the other one.
Source: of 16 independent signs so few are of one kind in 4 of 1000 cases (binomial)."""
NOISE_CORRELATION: Final = 0.8
"""Correlation of neighbours that noise is given at most.
Choice: more leave a part of six points nothing independent; less calls wandering noise a fault."""
UNLIKE_NOISE: Final = 1.3
"""How many times the noise of one side is that of the other, if they are of unlike size.
Choice: doubled batches make 1.4; a smaller one finds unlike noise by chance."""
ROUNDING_AT_FIRST: Final = 1e-4
"""Rounding is at first at most this part of the loss.
Choice: float32 begins at 1e-6, half precision and mixed at more; a larger one takes small faults for rounding."""
ROUNDING_GROWS: Final = 100.0
"""And grows so many times by the end.
Choice: a smaller one takes steady noise for rounding that grows, a larger one misses short trainings."""
POINTS_IN_FINE_PART: Final = 6
"""Points of each of FINE_PARTS at least where growth is followed.
Choice: fewer make the size of a part a matter of chance."""

# The shape of each curve.
EARLY_STEP: Final = 5
"""Up to this step an update can show that it is wrong.
Choice: later ones may have another cause; earlier ones miss updates that one batch hardly feels."""
UPDATE_JUMP: Final = 100.0
"""How many times a difference grows from step 1 to 2 if the first update is wrong.
Choice: rounding grows some times in a step; a larger one misses wrong updates of small learning rates."""
EXCURSIONS_SHARE: Final = 0.6
"""The part of the whole difference that excursions have to make.
Choice: a smaller one names a spike where something else is wrong too, a larger one misses spikes in noise."""
NO_DESCENT: Final = 1 / 7
"""A descent of less than this part of the reference's is none.
Choice: a larger one calls slow trainings still, a smaller one asks for a flat line."""
CLEAR_DESCENT: Final = 0.02
"""A descent, or a rise, of this part of a loss is clear.
Choice: a smaller one asks for a course where the reference has none, a larger one misses fine-tuning."""

# How a difference goes on.
KEPT_SIGN: Final = 0.9
"""Share of the points of the second half at which a difference keeps its sign.
Choice: half of them do by chance; a larger one misses offsets in noise."""
DRIFT_GROWTH: Final = 1.5
"""How many times as large the second half of a difference is that drifts.
Choice: a line from zero makes 3; a smaller one calls a level with noise a drift."""
STILL_GROWTH: Final = 1.1
"""How many times as large the last quarter may be of a difference that has stopped growing.
Choice: noise of a level; a larger one calls slow drifts a level."""
GAP_SHARE: Final = 0.2
"""A gap is there from this part of its last size on.
Choice: a smaller one begins it at noise, a larger one leaves few parts to judge by."""
GAP_PARTS: Final = 4
"""Parts from which on the course of a gap has a form.
Choice: a line and a level fit fewer equally well."""
SUDDEN_GROWTH: Final = 4.0
"""What sets in at once is so many times as large from there on as before.
Choice: a smaller one takes jitter for a jump, a larger one misses jumps in noise."""
POINTS_NEAR: Final = 10
"""Points on either side of it by which that is seen.
Choice: fewer are a matter of chance, more hide a jump in a slope."""
SLOWER_TIMES: Final = (0.05, 4.0, 80)
"""How much longer a slower candidate may take for the same way, as a share more: from, to, and how many are tried.
Choice: less than 5 % is not seen in a curve, five times as long is a learning rate of another size; more cost
time."""
SLOWER_BINS: Final = 1024
"""Bins in which curves are put one on the other for that.
Choice: fewer blur a steep beginning, more cost time for each way that is tried."""

# Skipped steps, loss scales, learning rates.
OVERFLOWS_IN_A_ROW: Final = 10
"""Skipped steps one after the other that are no search for a loss scale any more.
Choice: a scale of 65536, where torch's GradScaler starts, is 64 after ten halvings; fewer name a usual search."""
OVERFLOW_SHARE: Final = 0.2
"""Share of all steps that are skipped where overflow is persistent.
Choice: a scaler that works skips one in a thousand; a smaller one names it in short logs that begin with a search."""
OVERFLOW_STEPS: Final = 50
"""Steps from which on that share says something.
Choice: fewer are mostly the search for a scale at the beginning."""
SCALE_FALLS: Final = 4.0
"""How many times a loss scale is smaller at the end than in the middle if it still falls: two halvings.
Choice: one halving belongs to a scaler that works."""
SCALE_POINTS: Final = 20
"""Printed loss scales from which on their course is asked.
Choice: fewer are the search at the beginning."""
BOUNDARY_REACH: Final = 3
"""Points that a change of the schedule, or skipped steps, take to show in a loss.
Choice: the loss follows a step later; more blame a schedule for what comes by chance after it."""
BOUNDARY_DENSITY: Final = 0.25
"""Share of the steps within reach of a boundary above which one proves nothing.
Choice: with more a boundary is near any step."""
BOUNDARY_POINTS: Final = 50
"""Points on either side of a boundary at which the difference is looked at.
Choice: fewer miss that it was large before, more reach other boundaries."""
BOUNDARY_JUMP: Final = 10.0
"""How many times a difference jumps at a boundary that is its cause; a log has so many points at least.
Choice: a smaller one takes noise for it, a larger one misses changes of a small rate."""
SLOPE_CHANGES: Final = 10.0
"""How many times the usual change around a learning rate changes its slope at a boundary.
Choice: a smooth decay changes evenly; a smaller one finds boundaries in it."""
RATE_UNITS: Final = 4.0
"""Units of the last printed digit below which a slope of a rate does not change.
Source: the second difference of three values that are each off by half a unit is off by two, over distances that
differ."""
SLOPE_POINTS: Final = 3
"""Points that a slope of a rate lasts, on either side of a boundary.
Choice: fewer find boundaries in rounding, more miss short warm-ups."""
POINTS_AROUND: Final = 5
"""Points on either side that show what changes of slope are usual.
Choice: fewer hold the change itself, more reach other boundaries."""
MOST_EVENTS: Final = 50
"""Events of a kind and side that are listed; a note gives the number of the others.
Choice: more fill the screen and say nothing new."""

# Other metrics.
FACTOR_COURSE: Final = 0.1
"""The range of a loss, as a part of it, from which on one factor between two losses says something.
Choice: losses that hardly move have any factor; a larger one misses short trainings."""
WHOLE_FACTOR: Final = 0.005
"""How far the median factor may be from a whole number, as a part of it.
Choice: noise of two trainings leaves less in the median; a larger one calls 1.99 two."""
FACTOR_NOISE: Final = 0.01
"""How far a point may usually be from such a factor: the noise of two trainings that are alike.
Choice: the guide's limit of the mean loss; five times as much for single points."""
OF_GRADIENTS: Final = 0.1
"""How far the factor between gradient norms may be from 1, if they are alike.
Source: the guide's limit for gradient norms (docs/loss-statistics.md)."""
SAME_FACTOR: Final = 1e-3
"""By what share the factors between two metrics may differ that have one factor.
Choice: printed digits leave less; a larger one calls curves that part a factor."""
ANOTHER_FACTOR: Final = 0.01
"""How far that factor is from 1, if it is another one.
Choice: less is rounding of half precision."""
