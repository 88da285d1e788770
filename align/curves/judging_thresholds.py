"""The limits of what two curves are judged by. Each says why it is there, and where its number comes from."""

from __future__ import annotations

from typing import Final

# Limits of the presets.
SHARE_OF_LOSS: Final = 0.1
"""An absolute bound on a loss is held to this part of the mean loss, since published bounds are for losses of 1 to
10.
Choice: a larger one passes losses of 0.05 that differ by a fifth, a smaller one overrides the bounds that were
published."""
COMMON_POINTS: Final = 10
"""Common points from which on a comparison may pass although points are missing or the logs begin late.
Choice: fewer pass on a handful of points, more leave short trainings undecided."""
LEAST_COVERED: Final = 0.5
"""Share of the points of either curve that lie beside a common one, at least, where both curves go on.
Choice: less than half is a verdict over the smaller part; a larger one refuses logs of which some points never meet."""
LEAST_PART: Final = 0.2
"""The same where one log begins late, so that nothing else can be compared.
Choice: a fifth of a training, which the verdict is then said of; a larger one refuses tails of logs that agree."""
WELL_COVERED: Final = 0.95
"""Such a share from which on the verdict is not said of a part alone.
Choice: a first print of a log may be late by some steps; a larger one says so of most logs."""
FIRST_ROUNDING: Final = 1e-5
"""What float32 arithmetic in another order leaves of a first loss, as a part of it.
Choice: float32 has 6e-8, and the sums of a deep net lose some more; a larger one calls small faults of a forward
rounding."""
LIMIT_ROUNDINGS: Final = 4
"""Units in the last place by which a difference of two values that are printed alike may be off.
Choice: each value, their difference and its limit are off by half a unit; more pass a difference of one printed
digit."""

# Another axis.
EXPLAINING_POINTS: Final = 8
"""Points at which curves must agree on another axis, before that explains their difference.
Choice: fewer agree by chance, more leave short logs unexplained."""
LEFT_UNEXPLAINED: Final = 0.1
"""An explanation of a difference leaves this part of it at most.
Choice: a larger one explains by what only helps a little, a smaller one asks that noise vanishes."""
SHIFTED_MEANS: Final = 10
"""Means side by side from which on their summed difference has a course.
Choice: of fewer the noise looks like a course, more leave short logs unexplained."""
COURSE_ONCE: Final = (0.7, 1.4)
"""How many times the course of the loss must be in that sum, if the means are a step apart: once, but for noise.
Choice: one step too many would be there twice, none not at all; a wider range takes a drift for a step."""
UNEXPLAINED_COURSE: Final = 0.4
"""What that course may leave of the sum, as it carries the noise of single steps.
Choice: a larger one takes any curve that goes down for a shift, a smaller one asks for losses without noise."""
MOST_STEPS_AS_ONE: Final = 64
"""How many steps of one side may be one of the other.
Choice: gradients are accumulated over fewer; more let a short and a long log of other trainings be tried."""
UNEXPLAINED_BY_RATIO: Final = 0.5
"""What steps taken together leave of the mean difference, which must be within the limits besides.
Choice: averages of several steps are nearer to each other by themselves, by a root of their number; a larger one
passes that."""

# Epochs of unlike length.
LEAST_EPOCH: Final = 8
"""Steps of an epoch from which on one step more is a last batch that one side drops.
Choice: 4 and 3 steps may as well be other batch sizes; a larger one takes small data for that."""
SHARES_OF_EPOCH: Final = (10, 5, 4, 2, 1)
"""Into how many parts an epoch is taken apart for means over each, the first that both logs have points for.
Choice: more are of few points each, fewer hide where curves part."""
POINTS_IN_SHARE: Final = 3
"""Points that make the mean of a part of an epoch, at least.
Choice: fewer are as noisy as single steps of unlike batches, more refuse logs that print rarely."""
NOISES_APART: Final = 2.0
"""How many times the noise of such means their mean difference is, before it shows a fault.
Choice: noise alone makes 0.8 times; a smaller one blames the noise of other batches, a larger one hides faults."""

SURE_NOISES: Final = 4.0
"""Standard errors from which on the mean difference of such curves is none of that noise.
Source: a normal distribution is beyond 4 in 6e-5 of all cases."""

# Means that do not say so.
NOISE_POINTS: Final = 24
"""Points from which on noises of averages and of single steps are compared.
Choice: the size of noise is good to a sixth then; fewer make noises alike by chance."""
UNLIKE_BEFORE: Final = 1.8
"""How many times the noise of single steps is that of the means at least.
Choice: means of five steps have 2.2 times less if the noise is independent; a larger one misses noise that is not."""
ALIKE_AFTER: Final = 1.4
"""How many times the noise of one side may be that of the other once single steps are averaged.
Choice: two noises that are good to a sixth differ by less; a larger one lets other lengths pass."""
SMALLER_AFTER: Final = 0.7
"""What averaging leaves of the difference at most where both sides saw other batches.
Choice: a root of two less, as one of two equal noises vanishes; a larger one passes averages of anything."""
COURSE_CORRELATION: Final = 0.7
"""Correlation of neighbours above which single steps follow a course of their own, and are no noise.
Choice: a larger one takes a wander for noise, a smaller one refuses noise that lasts a few steps."""
SCATTER_PARTS: Final = 4
"""Parts of a training in each of which there must be noise.
Choice: fewer let a noisy beginning alone pass, more are too short in short logs."""
LEAST_SCATTER: Final = 0.02
"""The noise of a part, as a share of that of the noisiest one, at least.
Choice: noise goes down with the loss, rarely fifty times; a smaller one lets parts without noise pass."""
SMOOTHER: Final = 0.5
"""Running means have at most this part of the roughness of single steps.
Source: neighbouring means of n steps differ by one n-th of what single steps do: 0.2 for five."""
RUNNING_LENGTHS: Final = (5, 10, 20, 50, 100)
"""Lengths of running means that are tried for logs that print each step.
Choice: what loggers average over; each further one costs a comparison and may fit by chance."""

# The shape of one curve.
MEDIAN_WIDTH: Final = 11
"""Points of a running median, and of the level before a point.
Choice: a spike of five points cannot move it; a wider one lags behind a steep beginning."""
OF_NORMAL: Final = 1.4826
"""So many times the median of absolute values is the standard deviation of a normal distribution.
Source: 1 / the third quartile of the standard normal distribution, 0.6745."""
NOISE_BLOCK: Final = 256
"""Points of a block by which the noise of its surroundings is taken.
Choice: fewer follow a spike, more miss noise that goes down with the loss."""
NOISE_SAMPLING: Final = 4
"""Of the points of such a block every fourth counts.
Source: a median of 64 values is good to a sixth, in a quarter of the time."""
EXCURSION_NOISES: Final = 8.0
"""A point leaves the level before it by so many times the noise at least.
Choice: below 6, long curves of heavy-tailed noise have excursions by chance; above 10 small spikes are missed."""
EXCURSION_SHARE: Final = 0.1
"""And by this share of that level at least.
Choice: a smaller one reports spikes that no one sees in a plot, a larger one misses those of small losses."""
EXCURSION_POINTS: Final = 4
"""Points from which on a curve has a level to leave.
Choice: fewer have no noise, more leave the shortest logs without events."""
MOST_EXCURSIONS: Final = 1000
"""Excursions that are found in a curve.
Choice: more are no events but its nature, and cost time; fewer may miss those that make the difference."""
STAYING_POINTS: Final = 3
"""Points at the end of a curve from which on an excursion counts as staying there.
Choice: one or two may be a spike that the log did not see the end of."""

# Drift.
FALSE_ALARM_RATE: Final = 0.01
"""The chance of a false alarm of two tests together; each is held to half of it (Bonferroni).
Measured: docs/loss-statistics.md, alarms without a drift or a change in 400 to 4000 simulations of each kind of
noise."""
DRIFT_BLOCKS: Final = 20
"""Blocks of which neighbours are not alike, and points, that a test of drift needs.
Measured: with fewer, wandering and drifting look the same; the false alarms in docs/loss-statistics.md hold from 50
points."""
DRIFT_CORRELATION: Final = 0.6
"""What the correlation of neighbouring blocks may be, with a standard error more, for drift to be tested at all.
Measured: docs/loss-statistics.md: with it noise of correlation 0.99 and random walks alarm in less than 1 %."""
SUM_ROUNDING: Final = 1e-12
"""What sums leave of a constant, of a straight line or of a shape that fits, as a part of the values.
Choice: float64 leaves 1e-16 for each of thousands of terms; a larger one takes small noise for none."""

# Reference runs.
PREDICTION_COVERAGE: Final = 0.95
"""Share of the points of one more run that the envelope of reference runs holds.
Choice: the usual one; a larger one needs more runs to show a difference, a smaller one leaves more points outside by
chance."""
ALLOWED_OUTSIDE: Final = 2 * (1 - PREDICTION_COVERAGE)
"""Share of points outside the envelope that is allowed.
Choice: twice what the interval leaves outside by itself, as tails and a pooled variance are never quite as assumed."""
POOLED_STEPS: Final = 31
"""Steps around each over which the variance of the runs is pooled.
Choice: it changes slowly there; fewer make the envelope ragged with two or three runs, more miss a steep
beginning."""
FEWEST_RUNS: Final = 2
"""Runs of the reference that make an envelope.
Source: one run has no deviation; the power with two, three and five stands in docs/loss-statistics.md."""

# Where curves part.
EXCURSION_WEIGHT: Final = 2.0
"""A stretch that ends before the curve does must outweigh so many points, or it is an excursion.
Choice: a smaller one calls two points beyond the limit a change, a larger one misses short ones."""
AGREEING_SCORE: Final = -0.5
"""The mean score of the points after a stretch that agree again: within half of their limit.
Choice: 0 would call points agreed that lie at the limit, -1 asks that they are equal."""
REARRANGEMENTS: Final = 599
"""Arrangements that chance is asked with.
Source: Hemerik and Goeman (2018): with the one that was found they make 600, so that 0.5 % is a whole number of
them."""
ARRANGEMENT_ROUNDS: Final = (29, 120, 225, 225)
"""They are looked at so many at a time: the first ones mostly distinguish chance from a change.
Choice: it decides the time that clear cases take; together they are REARRANGEMENTS."""
ONSETS_TRIED: Final = 80
"""Onsets along which a change is tested.
Choice: the ones between them look like these; more cost time and find the same."""
CHANGE_BLOCKS: Final = 8
"""Blocks below which averages are made no coarser.
Choice: of fewer the correlation of neighbours is unknown, more call curves that wander untestable."""
STRETCH_CELLS: Final = 4000
"""Cells in which a stretch that ends is looked for, as it may be short.
Choice: fewer average short stretches away, more cost time in each of 599 arrangements."""
ONSET_CONFIDENCE: Final = 0.95
"""What is promised of the interval of an onset.
Measured: `python benchmarks/change_points.py`, with 91 to 100 % for the noises of docs/loss-statistics.md."""
ONSET_POSTERIOR: Final = 0.98
"""The share of the posterior that the interval holds, as shapes and noise are never quite as assumed.
Measured: `python benchmarks/change_points.py`: so ONSET_CONFIDENCE holds for independent noise of every shape."""
ONSET_POINTS: Final = 16
"""Points from which on an onset is looked for.
Choice: fewer do not show their noise; more leave short logs without an interval."""
IMMATERIAL_SHARE: Final = 0.1
"""What is below this part of its limit is no difference that matters.
Choice: a larger one lets onsets begin late, a smaller one begins them at rounding."""
IMMATERIAL_AT_ZERO: Final = 1e-9
"""Nor is this part of the largest difference, where the limit is zero.
Choice: above the rounding of float64, below all that a printed loss shows."""
CLEAR_NOISES: Final = 6.0
"""A difference is clear at so many standard deviations of its noise.
Choice: normal noise never comes so far; a larger one lets the interval hear points that say nothing of the onset."""
CUT_NOISES: Final = 4.0
"""A point that is further off its neighbours, in standard deviations, is cut back to that.
Choice: normal noise is beyond it in 6e-5; a smaller one cuts noise, a larger one lets one point decide."""
ONE_SIDED_SHARE: Final = 0.5
"""A difference keeps to one side if its sum is this part of the sum of its sizes.
Choice: noise around zero has one over the root of its points; a larger one misses offsets of the size of the
noise."""
LEVEL_BEFORE: Final = 0.25
"""Standard deviation, in limits, of a difference that is there before another one sets in.
Choice: a larger one explains onsets away by levels, a smaller one ignores that a port may be a little off from the
start."""
AT_ONCE_SHARE: Final = 0.5
"""What sets in at once has this part of its size from its first point on.
Choice: half of it; the words of the verdict depend on it, and no outcome."""
POINTS_AFTER_CLEAR: Final = 3
"""Points after a difference has become clear that still count.
Choice: more bring what says nothing of the onset, fewer leave a single point to decide."""
POINTS_BEFORE: Final = 8
"""Points before an onset that show the noise there.
Choice: fewer show no noise, more leave early onsets undecided."""
ZOOM_ROUNDS: Final = 12
"""How often the cells around an onset are made finer at most.
Choice: each divides them by up to 160, so that a few suffice; it bounds the time where the posterior is flat."""
LARGER_NOISE: Final = 4.0
"""Noise from the onset on is so many times as large as before at least.
Choice: less is nothing that few points could show; more misses noises that grow."""
QUIET_NOISES: Final = 40
"""Sizes of the noise before an onset that are tried, each twice the one before.
Source: 2^40 spans what lies between IMMATERIAL_AT_ZERO and the largest difference."""
ONSET_CELLS: Final = 160
"""Cells of a curve in which an onset is looked for at a time.
Choice: fewer take more rounds, more cost the square of their number."""
SATURATING: Final = (0.05, 0.2, 0.5)
"""After this part of what follows an onset a level is reached, along its power of two thirds.
Choice: quick, medium and slow; more cost time, and the ones between look like these."""
LEVEL_POINTS: Final = 2
"""Cells that a level before a change takes to be known.
Choice: one cell would let any first point be a level of its own."""

# Speed.
SLOWER_RATIO: Final = 1.1
"""How many times slower the candidate is before a reason is sought.
Choice: step times vary by some percent from run to run; a larger one misses what users ask about."""
WARMING_UP: Final = 2.0
"""A first step is one of warming up if it takes so many times the usual time.
Choice: compilation takes much longer; a smaller one takes slow steps of a steady training out."""
MOST_WARM_UP: Final = 20
"""Printed times of warming up at most.
Choice: more would leave out a training that gets faster by and by."""
WARM_UP_SHARE: Final = 0.1
"""And this share of all times at most.
Choice: more would leave little of short logs."""
TAIL_PERCENTILE: Final = 95
"""The percentile of step times that shows a few slow steps.
Choice: the usual one; a higher one is a single step in short logs."""
FEW_TIMES: Final = 20
"""Times below which a note says that they are few.
Choice: of fewer the 95th percentile is the slowest step alone; more put the note under most short logs."""

# Results that can be looked at.
MOST_POINTS: Final = 10_000
"""Points of a curve that a result keeps.
Choice: a plot has fewer pixels; more make reports of megabytes."""
STRETCHES: Final = 1_000
"""Stretches of a longer curve of each of which the extremes are kept.
Choice: about as many as a plot is wide; fewer hide spikes beside each other."""
POINTS_AT_ENDS: Final = 100
"""Points at either end, outside their limit, or not finite, that are kept as they are.
Choice: beginnings and first faults are read one by one; more make the result long."""


# The limits of the classes of trouble. Each says why it is there, and where its number comes from.

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
