"""The limits of the forward comparison, its causes and its bisection: why each is there, and where it comes from."""

from __future__ import annotations

from typing import Final

# isolation: each layer alone

LEAST_ROUNDING_SHARE: Final = 0.03
"""Noise below this share of a unit in the last place shows that nothing inside was rounded in that dtype.
Source: rounding moves values by 0.29 units, the standard deviation of a uniform distribution of one unit; this is a
tenth of it."""

MOST_ISOLATED_ROUNDS: Final = 4
"""Runs of the port in which calls are given the reference's inputs, so that a port that never comes right ends.
Choice: fewer leave faults that stand behind each other unseen, more cost a run each."""

HELPED_SHARE: Final = 0.1
"""A call was helped by right inputs if it is off by less than this share of what it was off by before.
Choice: a smaller share blames calls that were only given something wrong, a larger one excuses those at fault."""

DRIFT_SHARE: Final = 0.25
"""A drift has begun where the inputs are off by this share of what they are off by where it shows.
Choice: a smaller share names an earlier layer, where rounding may hide the drift; a larger one a later layer."""

LEAST_DATA_VALUES: Final = 4
"""An input with fewer different values may be a mask, which a port may hand over in another form.
Choice: a mask has two or three values; a larger number takes quantised data for a mask."""

MOST_DOUBTFUL_TRIALS: Final = 4
"""So many modules that may end elsewhere than their counterparts are tried as the one at fault.
Choice: each costs a run of a port that is faulty anyway; those nearest before the fault come last."""

# causes: what explains a fault

MOST_MODULES_AROUND: Final = 3
"""So many modules around wrong code are asked for settings that differ by name.
Choice: each setting costs a run; what is farther out seldom reads a setting for the code inside."""

MOST_UNPAIRED_TRIALS: Final = 8
"""So many changes of layers without counterpart are tried for each fault.
Choice: each costs a run of the port, and none of these layers need be at fault."""

MOST_LEFT_OUT: Final = 4
"""So many layers without counterpart are left out on a trial for each fault, the latest first.
Choice: each costs a run of the port; between two layers with parameters seldom stand more."""

MOST_TENSORS_BEFORE: Final = 8
"""So many tensors of the same shape before a fault are asked what code makes of them, the latest first.
Choice: the work grows with the pairs of them; code seldom reaches farther back."""

MOST_POINTS_ASKED: Final = 8
"""So many wrong points before a stretch are asked whether they are the same on both sides, the latest first.
Choice: each costs a run of the port; what goes wrong shows at each point behind it, so that a few are enough."""

SCALE_DIGITS: Final = 4
"""A fitted factor that is 1 or -1 to so many digits is a term that is added, or left out.
Choice: float32 fits a factor to about seven digits; fewer hide a scale of 1.0005."""

MOST_OTHER_TENSORS: Final = 4
"""So many tensors of another shape are asked besides, for code that reduces or resizes.
Choice: as above; these are related to the fault less often."""

# functions: which call inside of wrong code is at fault

MOST_RECORDED_BYTES: Final = 512 * 2**20
"""So much of what functions are given and return is kept of a run of one side.
Choice: enough for a block of a large model on a small batch; more would not stay beside two models."""

MOST_FOLLOWED_CALLS: Final = 200
"""So many wrong tensors are followed back inside of one piece of code.
Choice: code of one module seldom has so many calls; what is longer costs more than it tells."""

MOST_REPLACED_RESULTS: Final = 4
"""So many results of the reference are tried in the place of what one call of the port returned.
Choice: each costs a run; the right one is nearly always among the first, which have the same inputs."""

MOST_REPLACED_LINES: Final = 12
"""So many replaced results of single lines are tried at each distance from what is given right values.
Choice: each costs a run; with more lines wrong, all of them are tried at once."""

MOST_LOOK_LEVELS: Final = 3
"""So far behind the first unknown tensors results are replaced.
Choice: what a port computes in another way has two or three calls; farther on, the place says little."""

ATTENTION_TOLERANCE: Final = 0.01
"""So near, as a share, the steps of a fused attention come to what it returned, if it was told what they assume.
Choice: bfloat16 has two digits, and another scale or mask is far apart.
"""

MOST_PARTS: Final = 4
"""Into so many parts along an axis a tensor is taken apart, where the reference has each by itself.
Choice: query, key and value are three, corners of boxes four; of more parts single ones are too small to tell.
"""

MOST_TURNED_AXES: Final = 4
"""Right results of so many axes are turned as the port's stand, where several orders have its shape.
Choice: 24 orders are compared at once; with five axes it would be 120, and equal lengths are rare there.
"""

MOST_RESULTS_FROM_END: Final = 3
"""So many results of the reference are tried for each call that all that is wrong goes through.
Choice: the reference's last steps are mostly the port's; each costs a run.
"""

MOST_MISSED_FROM_END: Final = 3
"""The search from the end stops once so many calls in a row have results to try, and none of them mends.
Choice: calls that only bring what is there into another form seldom stand more than two in a row.
"""

MOST_NARROWING_RUNS: Final = 16
"""So many results are tried to find an earlier call once the code up to one is known to be wrong.
Choice: between that call and the first ones seldom lie more than eight lines; each costs a run.
"""

MOST_OTHER_TABLES: Final = 6
"""So many tables of the reference are tried in the place of the port's.
Choice: a piece of code keeps one or two; each pair of equal size costs a run.
"""

MOST_LOOK_TOLERANCE: Final = 1e-3
"""Two tensors of both sides are one if they are apart by less than this share of their size.
Choice: float16 rounds to 5e-4; unrelated tensors are apart by their own size."""

LEAST_LOOK_TOLERANCE: Final = 3e-6
"""Where like tensors would have to be nearer than this, nothing is looked for.
Choice: a few operations in float32, which rounds to 6e-8, gather about so much."""

LOOK_SHARE_OF_FAULT: Final = 0.03
"""Two tensors are one only if they are apart by less than this share of what is wrong at the end.
Choice: a larger share takes the fault itself for rounding, a smaller one rounding for a fault."""

MOST_LOOK_RUNS: Final = 150
"""Runs of a model for looking inside of wrong code, unless `--functions` asks for as many as it takes.
Choice: a count gives one answer on a quiet machine and on a busy one; a fault of one line takes ten to forty.
"""

MOST_CODE_LEVELS: Final = 8
"""So far behind the first unknown tensors of a loss results are replaced.
Choice: where one side's loss is one call, all of the other's calls lie between, and a loss is a handful of them.
"""


LEAST_CORRELATED_ELEMENTS: Final = 16
"""Parameters of fewer elements are not called unrelated: they correlate by chance.
Choice: a smaller number calls short biases unrelated, a larger one says nothing of them."""

CHANCE_CORRELATION_OF_WEIGHTS: Final = 5.0
"""Values are unrelated if their correlation stays within so many standard deviations of chance.
Choice: chance goes beyond 5 in one of two million cases; a larger number hides weak relations."""

ROUNDED_WEIGHT_UNITS: Final = 4.0
"""A weight that was scaled or cast may be off by so many units in the last place: it was rounded once or twice more.
Choice: a smaller number misses weights that went through two casts, a larger one hides small changes."""

LEAST_DRAWN_ELEMENTS: Final = 64
"""Fewer values show no distribution that they were drawn from.
Choice: the kurtosis of 64 values is uncertain by 0.6 (sqrt(24 / n)); a smaller number takes one for another."""

DRAWN_DEVIATIONS: Final = 4.0
"""Mean, spread and kurtosis of fresh values lie within so many standard deviations of their estimates.
Choice: 4 miss one draw in sixteen thousand; a larger number takes trained values for fresh ones."""

CLOSE_KURTOSIS: Final = 0.3
"""By how much the kurtosis of fresh values may differ beyond that, as that of a normal distribution cut at its ends.
Choice: normal and uniform are 1.2 apart, so that a number below 0.6 keeps them so."""

# layers: rows and their notes

MOST_LISTED_PLACES: Final = 8
"""A message lists so many places or modules; the rest is a count.
Choice: what a reader takes in at a glance."""

LONGEST_SHOWN_TEXT: Final = 80
"""A text that a model returns is shown up to so many characters.
Choice: a line of a terminal."""

SHARE_DIGITS: Final = 6
"""Shares of dropout are equal if they are so to this many digits, as 1 - keep_prob is not exact.
Choice: nobody sets a share more finely; float32 holds seven digits."""

LEAST_PADDING_UNITS: Final = 64.0
"""What moves by fewer units in the last place of the largest value, when padded tokens change, is rounding.
Choice: the same as the worst error of rounding, 64 units; a smaller number takes rounding for padding."""

MOST_UNSEEN_PARAMETERS: Final = 0.5
"""With more than this share of a side's parameters in modules that were not seen, only the outputs were compared.
Choice: half; a smaller share refuses models of which the large part was judged."""

SQUARED_PIECE: Final = 1 << 20
"""Elements of a parameter that are squared in float64 at a time.
Choice: memory of some megabytes; smaller pieces take more calls."""

# running: what it takes, noise, and modules that no run shows

WIDE_BYTES: Final = 8
"""Bytes of a number in float64.
Source: IEEE 754."""
OUTPUTS_BYTES: Final = 320 << 20
"""What a comparison takes beside both models and the layer that is in float64.
Measured: 300 MB with a model of 56 million parameters, of which most are outputs and code."""
TIMES_BOTH_TRACED: Final = 9.0
"""A comparison of models that agree takes so many times as long as the runs of both in which outputs are kept.
Choice: 6 was counted for a model like Llama of 0.2 billion parameters, 13 for a smaller one of which all is measured;
with faults it may be twice that."""

FEWER_RUNS_BYTES: Final = 1 << 28
"""From so many bytes of both models on, runs are left out whose result cannot change the verdict.
Choice: smaller models take seconds, and all their figures are measured; 256 MiB are 33 million parameters a side."""

SUSPECT_NOISE_UNITS: Final = 256.0
"""Noise of so many units in the last place of a tensor's scale is looked into.
Choice: deep float32 nets gather some hundred; a smaller number costs runs for nothing."""

SUSPECT_NOISE_UNITS_OF_HALF: Final = 8.0
"""The same in half precision, where kernels add in float32 and round once.
Choice: as above; fewer layers' rounding gathers there before values are rounded again."""

MOST_TIMES_ROUNDING: Final = 100.0
"""Noise of more than so many times what rounding at random moves is no rounding.
Choice: real kernels round up to some ten times more than one unit an operation, as sums of thousands do."""

MOST_TIMES_IN_COARSER: Final = 4.0
"""Noise in a coarser dtype that is above its own in float64, in units, by more than this is no rounding.
Choice: in half precision kernels add in float32 and round once, so a layer alone moves by less than its own noise."""

LEAST_INEXACT_UNITS: Final = 8.0
"""Below so many units in the last place of the largest value a function is as exact as others.
Choice: correct functions of both frameworks are off by a few units; a smaller number costs runs for nothing."""

MOST_PROBE_RUNS: Final = 8
"""Runs that may be spent on the unseen modules of one side; one is enough if none has an effect.
Choice: what is open at the end is not called bypassed."""

# power: what inputs can show

LEAST_SATURATED_ELEMENTS: Final = 100
"""Of fewer elements it is no wonder that all lie near the smallest or the largest.
Choice: a smaller number reports short outputs that are right."""

SATURATED_SHARE: Final = 0.99
"""An output is saturated if this share of its elements lies at either end.
Choice: a smaller share reports outputs that still show something."""

MOST_INPUTS_ALONE: Final = 3
"""So many inputs are replaced one by one; of more, the last are replaced together.
Choice: each costs a run; a model with a cache has dozens of inputs."""

SUSPECT_PARAMETER_MOVE: Final = 0.01
"""A parameter is suspected to move nothing if a change by its own size moves less than this share of a limit.
Choice: a suspect costs a run; a larger share suspects parameters that do show."""

NO_GRADIENT: Final = 1e-6
"""Elements of a gradient below this share of its largest count as none.
Choice: float32 leaves up to 1e-7 where a gradient cancels, as that of the key bias in attention's fused one."""

MOST_POWER_RUNS: Final = 4
"""Runs that may be spent on deciding between suspects.
Choice: usually one is enough; what is open at the end is not called blind."""

LEAST_POWER_LIMIT: Final = 1e-6
"""The limit of a tensor that is all zero, whose own limit is zero: as if its values were around 1.
Choice: about ten units of float32 at 1."""

WEAK_CHANGE: Final = 0.01
"""The relative change of a parameter that ought to show.
Choice: one percent; a smaller change is below many limits, a larger one hides what cannot show it."""

# verdicts: what they do not rest on

LARGE_LIMIT_SHARE: Final = 0.01
"""A limit of this share of an output says little of it, and the verdict says so.
Choice: faults of one percent are then within the limit."""

LEAST_LIMITS_MOVED: Final = 100.0
"""Other inputs should move the outputs by so many limits.
Choice: with fewer, a fault of one percent of what the inputs show is below the limit."""

# bisection

PAIRED_POINT_SCORE: Final = 1000.0
"""Points of paired layers outweigh in an alignment all that may stand between them.
Choice: a likeness scores one at most, so that this outweighs a thousand of them."""

MOST_ALIGNED_CELLS: Final = 4_000_000
"""Two sequences are aligned as far as their table has so many cells (32 MB in float64).
Choice: beyond it only paired layers are points; a larger table takes seconds."""

LOSS_LIMIT: Final = 0.005
"""The first loss of a port may be off by half a percent.
Source: the migration guide of MindSpore Transformers."""

MOST_SENSITIVE_SETS: Final = 16
"""So many sets of sensitive layers are looked for.
Choice: each costs dozens of runs; with more, most of the model is sensitive."""

# dumps

GRADIENT_SUM_UNITS: Final = 16.0
"""A parameter's gradient may differ by so many units in the last place of the sum of its terms' sizes.
Measured: the bias of a convolution in front of a BatchNorm is off by 5 between torch and MindSpore, over 128 terms; a
smaller number alarms at longer sums, a larger one hides faults of gradients that cancel."""

# witness

NEARER_THAN_WITNESS: Final = 10.0
"""Of three sides of which no two agree, two are right if they are nearer to each other by this factor than the third.
Choice: errors of rounding that have gathered are a few times their limit, faults are hundreds of times theirs; a larger
number would call more of the layers behind a fault different on all three sides."""

# predictions: what a chip is expected to do as the limit

MOST_FLUSHED: Final = 0.01
"""So large a share of the gradients that are not zero may be flushed to zero at a loss scale.
Choice: below it a step moves as in float32 to two digits; a larger share shows as layers that learn slowly.
"""

BLIND_LIMIT: Final = 1.0
"""A limit by a prediction that is this share of a layer's typical value (RMS) shows no fault in it.
Choice: an output of zeros would pass.
"""

MOST_TRIED_EDITS: Final = 40
"""So many changes of expressions are tried for a piece of wrong code.
Choice: each costs a run of the port; the arguments of a usual piece of code have fewer values worth trying.
"""

MOST_INSERTED_LAYERS: Final = 4
"""Of the layers of the reference that a list of the port may lack, so many are tried, the latest first.
Choice: between two layers with parameters stand an activation, a dropout and a pooling at most, in usual models.
"""

MOST_REORDERED: Final = 4
"""Of so many axes, or joined parts, all orders are tried.
Choice: 4 have 24 orders; 5 have 120, more than runs of the port are worth.
"""

# power: neutral values and inputs, moved and drawn in a further run

LARGEST_NEUTRAL_DRAW: Final = 0.25
"""Zeros are moved by up to this; by less where a row has many elements, as fresh layers draw them.
Choice: thousands of limits of usual tensors; more brings activations to their ends, where faults hide again."""

NEUTRAL_SCALE_SHARE: Final = 0.25
"""Other values are moved by up to this share of themselves: scales and variances keep their sign.
Choice: a fault then shows in nearly that share of an output; more lets rounding grow through deep models."""

SMALL_CONSTANT: Final = 1e-3
"""A constant below this hides what it scales, as a layer scale of 1e-6 does: it is made as large as a fresh value.
Choice: a branch that is scaled so is within some limits; above it the share of itself shows."""

LEAST_COPIED_ELEMENTS: Final = 4
"""Values of fewer elements are no copies of each other: a pair of scales may well be alike.
Choice: a larger number leaves copies of small weights unseen."""

LEAST_OTHER_LENGTH: Final = 2
"""The shortest length that is drawn beside the given one.
Choice: a single token shows no order of tokens."""

DRAWN_LENGTH: Final = 3
"""So many tokens are drawn where one was given.
Choice: the least at which a neighbour and the one behind it differ."""

MOST_NAMED_SAMPLES: Final = 1000
"""So many samples that are wrong are kept of a layer.
Choice: a batch is seldom larger, and a report shows the first few."""


# The limits of relations: when one counts as found, and how much work it may be to look for it.

ENOUGH_BITS: Final = 32.0
"""A relation must outweigh by so many bits the number of relations among which it was looked for.
Choice: a fluke in four thousand million; fewer bits let flukes pass, more ask for larger tensors."""

ELEMENTS_PER_NUMBER: Final = 4
"""So many elements must be put right for each number that was fitted to the data.
Choice: with one element a number anything explains everything; more miss relations of small tensors."""

LEAST_BITS_OF_ELEMENT: Final = 2.0
"""An element says something only if the spread is that many doublings above the limit.
Choice: at 2 the limit is a quarter of the spread; with less, outputs that hardly vary fit any relation."""

LEAST_RELATION_GAIN: Final = 4.0
"""What a relation leaves must be smaller by this factor than what was there.
Choice: a smaller factor names relations that explain little, a larger one those of small faults not at all."""

CLOSER_TO_FUNCTION: Final = 50.0
"""So much closer must a candidate be to a function than to the reference, to be taken for that function.
Measured: an activation written with MindSpore's tanh (9e-6 off) is 1,000 times closer to its function; functions that
are often exchanged differ by 1 % of their range and more, and only what is 50 times closer is named."""

INFORMATIVE_SPREAD: Final = 4.0
"""A slice that varies by less than this multiple of the limit cannot distinguish a scale from a shift.
Choice: a smaller multiple reads a scale off rounding, a larger one leaves calm channels out."""

MOST_OF_SLICES: Final = 0.5
"""This share of the slices must show a relation that is found slice by slice.
Choice: the others may be constant or wrong otherwise; a smaller share lets chance name an order or a scale."""

NEGATED_TOLERANCE: Final = 1e-5
"""A fitted scale this close to -1 is a sign that was lost, and no number.
Choice: float32 fits a scale to about 1e-7; a larger number hides a scale that is not -1."""

LARGEST_NAMED_SCALE: Final = 5000.0
"""Scales up to this, and down to its inverse, are named as whole numbers and square roots.
Choice: it holds 255, 1000 and the square roots of all common widths (sqrt(4096) = 64 and its inverse)."""

NAMED_SCALE_TOLERANCE: Final = 1e-6
"""A fitted scale this close, relatively, to a whole number or square root is called that.
Choice: ten units of float32; among thousands of square roots a larger tolerance always finds one near."""

LARGEST_TRIED_ATTENTION: Final = 1 << 20
"""Attention layers up to so many elements are computed in every way.
Choice: each way costs the whole layer; larger ones would take seconds."""

MOST_ATTENTION_TENSORS: Final = 5
"""Among so many tensors queries, keys and values are looked for.
Choice: five have 60 ordered triples, each tried with every number of heads."""

MOST_ATTENTION_HEADS: Final = 64
"""So many heads are tried at most.
Choice: published models have up to 128, most of them 64 or fewer; each number costs a trial."""

LARGEST_ATTENTION_SAMPLE: Final = 1 << 18
"""One sample of attention in code has at most so many elements, as hundreds of ways are tried on some of it.
Choice: a larger number makes the search take seconds."""

LARGEST_ATTENTION_IN_CODE: Final = 1 << 22
"""All samples together have at most so many elements, as the ways that are left are tried on all.
Choice: a larger number makes the search take seconds."""

TRIED_POSITIONS: Final = 2
"""So many positions are tried before the whole.
Choice: one might be equal by chance; more cost time for hundreds of ways."""

MOST_TERMS: Final = 16
"""Among so many tensors two terms of a sum are looked for.
Choice: the work grows with the pairs, 120 of 16."""

FARTHEST_DISPLACEMENT: Final = 2
"""By so many pixels along two axes a displacement is looked for.
Choice: wrong padding displaces by one or two; the work grows with the square."""

SHORTEST_DISPLACED_AXIS: Final = 6
"""Axes that are displaced have so many elements at least, so that some are left in the middle.
Choice: it must be above twice the farthest displacement."""

MOST_CUT_OFFSETS: Final = 64
"""So many offsets of a cut are tried.
Choice: a padding or a special token is shorter; each offset costs a comparison of some elements."""

MOST_UNEQUAL_PARTS: Final = 6
"""An order of slices is one of unequal parts if there are so many runs of neighbours at most.
Choice: pyramids have three to five levels; with more runs it is an order of its own."""

LEAST_PART_LENGTH: Final = 4
"""Such parts have so many slices each, on the mean.
Choice: shorter runs are found in any order."""

LONGEST_KEPT_AXIS: Final = 128
"""Masks of padding are read off an axis of at most so many positions.
Choice: each number of kept positions is computed; more of them take seconds and much memory."""

LEAST_KEPT_FEATURES: Final = 8
"""A sample needs so many numbers to show how many positions it keeps.
Choice: each gives dozens of bits; of one or two numbers many lengths fit within the limit."""

FIRST_LOOK_AT_CUT: Final = 64
"""So many elements are compared at an offset before all of them.
Choice: fewer let more wrong offsets through to the costly look."""

MOST_REORDERED_PARTS: Final = 8
"""An order of slices is described as one of up to so many equal parts.
Choice: fused layers have three or four; with many parts any order could be called so."""

LARGEST_EPSILON: Final = 0.1
"""A larger epsilon is not believed to be one.
Choice: frameworks have 1e-12 to 1e-3; a larger number lets another fault pass for an epsilon."""

LARGE_NORM_INPUT: Final = 1 << 19
"""Inputs of more elements are tried on some samples first.
Choice: each way costs the whole input several times."""

MOST_NORM_GROUPS: Final = 64
"""Numbers of groups of a group norm that are tried, besides one for each channel.
Choice: most published models have 32; each number costs a trial."""

FIRST_LOOK_AT_AXES: Final = 32
"""So many elements are compared for each order of axes before more of them.
Choice: fewer let more wrong orders through to the costly look."""

CHANCE_CORRELATION_OF_ERRORS: Final = 4.0
"""An error is rounding if its mean and its correlation with the values stay within so many standard deviations.
Choice: 4 leave out one rounding in four thousand (four figures); a larger number calls small faults rounding."""

LEAST_ROUNDED_ELEMENTS: Final = 256
"""Of fewer elements no error is said to be of the size of rounding.
Choice: a smaller number says so of errors that only look at random."""

LONGEST_ORDER_OF_NUMBERS: Final = 1 << 16
"""An order of single numbers is looked for among so many at most.
Choice: so many numbers lie closer to each other than float32's limit, and no order of them shows."""

SLICE_COLUMNS: Final = 64
"""So many elements stand for a slice.
Choice: fewer make unlike slices look alike, more cost memory for each slice."""

SLICE_TABLE_CELLS: Final = 1 << 21
"""A table of slices has so many numbers at most (16 MB in float64).
Choice: it bounds the memory of long axes, such as vocabularies."""

SHARES_TOLERANCE: Final = 1e-3
"""Shares add up to 1 within this.
Choice: sums of thousands of shares in float16 are off by as much; a larger number takes other outputs for shares."""

WIDEST_BORDER: Final = 3
"""A wrong border is so many elements wide at most.
Choice: a wrong padding of a kernel of 7 reaches 3 elements in."""

MOST_WRONG_SLICES: Final = 0.5
"""At most this share of the slices may be wrong if the fault is said to be in them.
Choice: with more it is the layer that is wrong, not some slices."""

WRONG_THROUGHOUT: Final = 0.25
"""A slice is wrong throughout if this share of its elements is wrong.
Choice: a smaller share blames slices for single elements, a larger one misses faults that are small in places."""

DROPOUT_DEVIATIONS: Final = 5.0
"""The share of zeros and the scale of dropout agree within so many standard deviations of chance.
Choice: chance goes beyond 5 in one of two million cases."""

DIGITS_OF_CAP: Final = 2
"""A soft cap that was read off the data is one with so many digits, or a whole number.
Choice: caps that people write are 5, 30 or 2.5; with more digits one cap in the place of another looks like a third.
"""

DIGITS_OF_FACTOR: Final = 5
"""A number of the code, times a factor that was read off the data, is tried with so many digits.
Choice: factors are good to six or seven digits of float32; with fewer a number of a user's is not met.
"""

MOST_SOFT_CAP: Final = 100.0
"""A soft cap above so many times the largest value is none.
Choice: it moves that value by 3e-5 of itself."""

BISECTIONS: Final = 60
"""So many halvings find the number of a curve.
Choice: each gives one bit; float64 has 53."""

MOST_LISTED_SAMPLES: Final = 12
"""So many entries of the first axis are named that carry a difference.
Choice: what stands in a line; how many there are is said anyway."""

# fused operators

DROPOUT_MARGIN: Final = 0.05
"""The share of weights that a dropout kept is what a call says if it is nearer than this.
Choice: between two and four deviations of a share that is estimated from the least number of weights below."""

LEAST_DROPPED: Final = 500
"""A dropout over fewer weights, counted as if all were equal, says nothing of its probability.
Choice: the deviation of a share is sqrt(p (1 - p) / n) there, 0.022 for a half and 0.013 for a tenth."""
