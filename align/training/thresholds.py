"""The limits of training steps and of initial values. Each says why it is there, and where its number comes from."""

from __future__ import annotations

from typing import Final

# What several sub-rooms share.
OWN_SEED: Final = 0
"""The seed of whatever is drawn here itself: masks, values that are moved, rounding at random.
Choice: any number does; another one changes which values are drawn, and no outcome on clean pairs."""
STEPS_OF_ONE_BATCH: Final = 3
"""How many steps are taken of one batch: the second shows what a step leaves behind, the third what it keeps.
Choice: fewer hide what gathers in moments, more take longer and show the same."""
STEP_ROUNDING_SHARE: Final = 1e-5
"""By what share a loss, a gradient or a statistic may change where one step is taken twice: sums in another order.
Choice: below 1e-6 float32 alone goes beyond it, above 1e-3 a small share of dropout or a second update is missed."""
ROUNDING_UNITS: Final = 64
"""Units in the last place that another computation of the same values leaves: tables of sines, a normalisation.
Choice: a few roundings one after another leave about 10; ten times as many would hide small true differences."""
UNUSED_UNITS: Final = 4
"""Units of float32 by which a loss may change with a parameter that it does not depend on: sums in another order.
Choice: 1 lets the order of sums pass for an influence, 64 and more hide parameters of small influence."""
KEPT_VALUES: Final = 10_000
"""Values that are looked at of what a user's step keeps; of a longer list or table nothing is put back.
Choice: fewer miss the state of larger loops, more make each step slow where a data set stands in a closure."""

# Parameters that are not trained, tried.
MOVED_SHARE: Final = 0.5
"""Values are moved by this share of their size, so that a loss must follow that depends on them at all.
Choice: less is lost in rounding where the influence is small, more leads to losses that are no number."""
LARGE_VALUES: Final = 10_000.0
"""Values of this size, of both signs, bring a ReLU to life that lets nothing through, whatever its bias.
Choice: biases that large are found in no model, and float16 holds 65504 at most."""
LOSS_SCALES: Final = (65536.0, 1024.0)
"""A gradient that such a factor brings into sight was lost below what float16 holds; the smaller one is tried where the
larger one ends in infinities.
Source: IEEE 754 half precision, which holds 6e-8 at least and 65504 at most."""

# Dropout.
DROP_SHARE_DIGITS: Final = 6
"""Digits in which shares of dropout are compared: 1 - 0.9 is not 0.1 in floating point.
Choice: float32 keeps 7 digits; with 3, shares that somebody wrote would be one."""
SAME_NAMES_SHARE: Final = 0.5
"""So many calls of the side that has fewer must bear one name on both sides: then names decide which call is which.
Choice: lower pairs by names that agree by chance, higher gives up names where some layers were renamed."""

# Initial values.
FALSE_ALARM_CHANCE: Final = 1e-3
"""Chance of one false alarm or more in a comparison; each parameter is tested at this over their number (Bonferroni).
Choice: a larger one calls clean ports faulty more often, a smaller one needs more elements to show a difference."""
INITIAL_SAMPLES: Final = 20_000
"""Elements of a parameter on each side. With so many a bound that is 5 % off shows, and a normal distribution that is
cut at two standard deviations.
Choice: fewer miss these, more take longer and call differences that no training feels."""
INITIAL_FEWEST_ELEMENTS: Final = 400
"""A side is built until its smallest random parameter has so many elements, as far as that is cheap.
Choice: with fewer the test finds only gross differences, more ask for more builds."""
FEWEST_SEEDS: Final = 3
"""Builds from which on it shows which values no seed changes.
Choice: of two, half precision repeats too many values by chance; each more costs a build of both sides."""
MOST_SEEDS: Final = 32
"""Builds of a side at most, however small its parameters are.
Choice: fewer leave vectors of ten elements untested, more take minutes for large models."""
BUILT_ELEMENTS: Final = 2e8
"""Elements of all builds of a side together, beyond which no further one is made for the sake of small parameters.
Choice: it bounds the time to about that of building a model of 200 million parameters once."""
OWN_VALUES_SHARE: Final = 0.75
"""Share of the elements that hold a value of their own; below it, a parameter is made of copies.
Choice: half precision repeats some values by chance; copies of rows or blocks leave one half at most."""
EXACT_TEST_ELEMENTS: Final = 500
"""Elements of each side up to which p-values are exact; the asymptotic ones are as good beyond.
Choice: scipy is exact up to 10,000 by default, which takes long for many parameters."""
NORMAL_CUT: Final = 2.0
"""Standard deviations at which a truncated normal distribution is cut.
Source: the defaults of torch.nn.init.trunc_normal_ for a standard deviation of 1 and of MindSpore's TruncatedNormal."""
CUT_WIDTH: Final = 0.8796256610342398
"""A normal distribution that is cut at NORMAL_CUT keeps this share of its standard deviation.
Source: the variance of the truncated normal distribution; scipy.stats.truncnorm(-2, 2).std()."""
FAMILY_FEWEST_ELEMENTS: Final = 50
"""Below so many elements the family of a distribution is a guess.
Choice: a uniform and a normal one of equal width are hard to distinguish by fewer; more leave vectors unnamed."""
FAMILY_DISTANCE: Final = 2.4
"""Distance of the distribution functions, times the root of the elements, up to which a family fits.
Source: Kolmogorov's distribution goes beyond it in 2 exp(-2 x 2.4^2) = 2e-5 of all cases."""
ORTHOGONAL_SHARE: Final = 1e-4
"""Products of the rows of an orthogonal matrix over their squares; by chance these are 1 / sqrt(columns).
Choice: float32 leaves 1e-6; above 1e-3 wide matrices would be orthogonal by chance."""
ORTHOGONAL_ROWS: Final = 64
"""Rows whose products are looked at.
Choice: more cost time and show the same; by fewer a small matrix may be orthogonal by chance."""
FIXED_BY_CHANCE_SHARE: Final = 1e-3
"""Share of the places that hold the same value in three builds by chance, in half precision.
Choice: fewer would call rounding in bfloat16 a structure, more hide one fixed row among a thousand."""
SCALE_ERRORS: Final = 4.0
"""Standard errors that a measured scale may be off by.
Source: a normal distribution goes beyond 4 in 6e-5 of all cases."""
BOUND_ERRORS: Final = 12.0
"""Shares of 1 / elements that the largest of uniform samples may be below the true bound.
Source: the largest of n samples is so far below by chance in e^-12 of all cases."""

# Steps: recording and pairing.
SAME_GRADIENTS_SHARE: Final = 1e-3
"""By what share of their length two sides' gradients, all as one vector, or losses may differ and be the same step.
Choice: other orders of sums change far less, dropout or another term of the loss far more."""
WIDE_STEP_SHARE: Final = 1e-2
"""How far all gradients as one vector may be from those of the step in float64, if that is the same step.
Measured: float32 is off by 1e-5 in deep nets, parts of a batch with a normalisation by 1e-1."""
SAME_START_SHARE: Final = 1e-6
"""How far the values that two sides begin from may be apart, in units of the largest of a tensor.
Choice: a checkpoint that was converted holds the very values; a smaller one refuses float32 that went through text."""
SAME_INPUTS_DISTANCE: Final = 1e-2
"""Root mean square of the difference over that of the input, up to which two calls were given the same.
Choice: unrelated inputs are 1.4 apart, and rounding stays far below; nothing lies between."""
OTHER_LAYOUT_DISTANCE: Final = 0.1
"""Values that are farther apart than that, over their size, may lie in another order of axes of the same lengths.
Choice: a smaller one looks for layouts where a layer is a little off, a larger one misses tensors of like rows."""
SAME_LAYOUT_DISTANCE: Final = 1e-4
"""Values that are so near, in another order of axes, are the same ones.
Choice: above the rounding of float32 through a deep net, far below what any two unrelated tensors come to."""
LAYOUT_SAMPLES: Final = 4096
"""Elements by which layouts of one shape are distinguished.
Choice: more cost time and decide no other way; fewer might miss the few that differ in sparse tensors."""
LAYOUT_FEWEST_ELEMENTS: Final = 16
"""Of fewer elements another order may agree by chance.
Choice: fewer risk that, more leave small tensors to their shapes."""
LAYOUT_MOST_AXES: Final = 5
"""Axes of which all orders are tried.
Choice: 5 have 120 orders; 6 would have 720, and tensors of steps have no more than 5."""
PRECISION_SAMPLES: Final = 4096
"""Values of a tensor, none of them whole, of which each must fit a half precision that holds it.
Choice: more cost time; a tensor whose first 4096 fit by chance does not occur."""
PRECISION_FEWEST_VALUES: Final = 8
"""Of fewer values that are not whole no precision is concluded, as one may fit by chance.
Choice: a value of float32 fits bfloat16 in one of 65,536 cases, but written numbers as 0.5 fit often."""

# Steps: what rounding explains.
LOSS_SHARE: Final = 1e-4
"""How far apart two losses may be, relative, where no run in float64 shows their rounding.
Choice: float32 leaves 1e-6 in a mean of samples; a lower limit calls deep nets faulty, a higher one hides terms."""
MOST_CODE_STEPS: Final = 24
"""Steps that are taken to find the call of a loss that is at fault.
Choice: code of a loss has a few lines, most with one or two results to try; a step costs more than a run."""
SAME_BATCH_SHARE: Final = 1e-2
"""How far apart two losses of the same may be, as a share of what is to be explained.
Choice: as between like tensors in wrong code; another entry of a batch changes a loss by its own size."""
ORDER_SHARE: Final = 1e-6
"""By how much of its size a gradient has to be another one without the updates before it.
Choice: the same operations on the same values give the same bits, but for sums in another order."""
MOST_UNREAD_ENTRIES: Final = 3
"""Entries of a batch that are tried with other values, each in a few steps of the reference.
Choice: labels, masks and weights of one task; more are no slip of a line."""
LOSS_NOISE_FACTOR: Final = 10.0
"""In how many units of its rounding two losses may differ, where a run in float64 shows it.
Choice: the rounding is one draw of many; a few times as much is common, a true fault is far beyond."""
LOSS_ROUNDING_SHARE: Final = 64 * 1.2e-7
"""By what share of itself a loss may differ whatever the run in float64 shows, as 64 units of float32.
Choice: where both runs agree by chance their difference is no measure; a mean of samples leaves that much."""
FREE_RUN_FACTOR: Final = 100.0
"""How often what explains it a free run may be apart, since what differs grows from step to step.
Measured: clean pairs of tests/planted/step_nets.py come to 1.02 in four steps of SGD, momentum and Adam, to 7 in 20
steps of Adam and in 8 of SGD at a rate that diverges; a port with the weights of the step before to 2,700 in two."""
FREE_RUN_LEAST_SHARE: Final = 1e-6
"""What rounding explains at least of a free run, as a share of the way: values that are 0 are not moved by it.
Choice: about ten units of float32; without it a net of zeros would be apart at the first rounding."""
MOMENT_SHARE: Final = 1e-3
"""What moments may differ by, relative to the largest of a tensor and to its root mean square, under equal gradients.
Measured: MindSpore keeps 1 - beta2 in float32, which is off by 5e-5 for 0.999 and by 3e-4 for 0.9999."""
MOMENT_FACTOR_TOLERANCE: Final = 1e-3
"""Relative: how far apart the factors of two parameters' moments may be that are one unit.
Choice: as MOMENT_SHARE, since the factors carry the same rounding."""

# How a wrong value follows from the right one.
UNEXPLAINED_SHARE: Final = 1e-3
"""A relation explains a gradient or a movement if what it leaves is this share of it.
Choice: far above the rounding of a layer in float32, far below what another fault leaves."""
UNEXPLAINED_SHARE_OF_HALF: Final = 3e-2
"""The same in half precision, whose rounding is what is left.
Choice: several units of bfloat16 (8e-3); a larger one would explain a gradient by a factor that is not there."""
RELATION_ELEMENTS: Final = 1 << 20
"""Elements of a gradient by which a relation is looked for: what relates two gradients relates each element.
Choice: more cost memory in float64 and show the same."""
FEWEST_AT_BOUND: Final = 2
"""Elements beyond a bound from which on they were clipped to it: the largest one stands at a bound by itself.
Choice: 1 would call each gradient clipped, more miss a clipping that meets few."""
FITTED_FACTS_TOLERANCE: Final = 1e-2
"""Relative: figures of two parameters that are so near are one, so that one fault is reported for both.
Choice: fitted figures differ in their third digit; above 0.1, factors of unlike faults would be one."""
FACTOR_TOLERANCE: Final = 2e-3
"""Relative: a factor or a norm of gradients that is so near to a number is that number.
Choice: the arithmetic of float32 and what clipping adds to a norm stay below; 33 samples for 32 are far above."""
SAMPLES_TOLERANCE: Final = 1e-3
"""Relative: a factor that is so near to the number of samples is that of a sum in the place of a mean.
Choice: far above rounding, far below the next number of samples in batches of up to a thousand."""
WRITTEN_DIGITS: Final = 2
"""Digits of a norm or bound that somebody wrote: 1.0, 0.25.
Choice: of one digit 0.25 is missed; of three any norm is near to a number by chance."""
CLIP_DIGITS: Final = 4
"""Digits in which a bound that was read off gradients is reported.
Choice: what clipping adds to a norm shows in the sixth; fewer would round a bound that somebody computed."""
UNLIKE_NORMS_SHARE: Final = 1e-2
"""Norms of gradients that differ by more have several sizes: that they come to one norm is no mere factor.
Choice: far more than FACTOR_TOLERANCE, and less than what two steps or two parameters usually differ by."""
ADDED_ROUNDING_SHARE: Final = 4 * 1.2e-7
"""Rounding of a gradient in float32 to which something was added, as a share of it.
Choice: four roundings of half a unit each and some room; a larger one hides small decays."""
EXCUSED_FACTOR: Final = 100.0
"""How often nearer what optimizers get must be, over its size, than a tensor inside of the step, then no fault.
Choice: what a layer does wrong reaches the gradients of parameters about as large as it is; packed sequences come to
500, log-probabilities in the place of logits to 30,000."""
ROUNDED_LIMITS: Final = 10.0
"""Limits that a gradient inside of steps which train the same may be off by, if nothing relates it to the right one.
Measured: 1.3 where each expert is computed for all tokens and the reference routes them; faults of a way back are
beyond a thousand."""
AVERAGE_TOLERANCE: Final = 1e-2
"""What a factor may leave of the way of an average of weights (root mean square).
Choice: the way is a difference of float32 and loses digits; another average than of these weights leaves a tenth."""
MOST_AVERAGED: Final = 8
"""Weights of one shape that are tried as what an average is of, those of the likest names first.
Choice: a copy keeps the names of its weights; layers of one shape are rarely more, and each trial is a few sums."""
LEAST_LOSS_SCALE: Final = 8.0
"""Factors that are smaller are rather something else than a loss scale.
Choice: 2 and 4 are common counts of parts or processes, while scales begin at 128."""
SOFTMAX_TOLERANCE: Final = 1e-5
"""By how much shares of classes may be off the softmax of values, in float32.
Choice: rounding leaves a few 1e-7 of a share; other functions are off by far more."""
CROSS_ENTROPY_SHARE: Final = 2e-3
"""What a form of the cross entropy may leave of a gradient (root mean square), or of the sum of shares, which is 1.
Choice: float32 and MindSpore's softmax stay below; another label or another form leaves a tenth and more."""
LEAST_SMOOTHING: Final = 1e-3
"""Label smoothing that is less is none: it is what rounding leaves in the fit.
Choice: people write 0.01 to 0.3; below CROSS_ENTROPY_SHARE a fit cannot show any."""
CROSS_ENTROPY_FEWEST_ROWS: Final = 2
"""Samples from which on a form of the cross entropy is concluded.
Choice: the gradient of one sample fits several forms; batches have more than two."""
LABEL_SHIFTS: Final = (0, 1, -1, 2, -2)
"""Positions by which the labels of a sequence may be moved.
Choice: a shift that is forgotten or made twice; further ones take time, and fit constant labels by chance."""
CLASS_SHIFTS: Final = (0, 1, -1)
"""What may be added to a label: classes that are counted from 1 on one side.
Choice: others are no counting of classes."""
TERM_TOLERANCE: Final = 5e-3
"""What a term of the values may leave of a gap (root mean square), and how far apart two coefficients that are one.
Choice: gaps are differences of float32 and lose digits; coefficients that people write differ by more."""
TERM_FEWEST_ELEMENTS: Final = 4
"""Elements of all parameters together from which on a gap is a term of the values: of one any number is a multiple.
Choice: fewer risk that, more miss the decay of a tiny model."""
CLEAR_GAP_ROUNDINGS: Final = 8.0
"""A gap that is less than so many times its rounding shows nothing.
Choice: a lower one fits coefficients to noise, a higher one misses small decays."""
TERM_UNEXPLAINED_SHARE: Final = 1e-2
"""What a factor may leave of the gradient of a term, which is a difference of two gradients.
Choice: ten times UNEXPLAINED_SHARE, for the difference is smaller than what it is made of."""
LOST_GRADIENT_FACTOR: Final = 100.0
"""Limits by which a gradient of the whole step must be off if each layer alone is right.
Measured: clean pairs of tests/planted/step_nets.py come to 1, single ones of a ResNet-50 on two samples to 3,300."""
LOST_GRADIENTS_NOISE_FACTOR: Final = 10.0
"""By how often their rounding all gradients as one vector must be off too.
Measured: that ResNet-50 comes to 2."""

# Running statistics.
STATISTIC_ROUNDING_SHARE: Final = 16 * 1.2e-7
"""What a kernel that adds in float32 leaves in a mean, over the size of the inputs; one in float64 leaves nothing.
Choice: sums of a batch leave some units; a higher one hides a momentum of inputs with a large mean."""
SWAPPED_MOMENTUM_RATIO: Final = 9.0
"""How many times as far statistics move with a momentum of 0.9 in the place of 0.1.
Source: both frameworks mix in a share of the batch's statistics; torch's default of 0.1 is MindSpore's 0.9."""
MOMENTUM_TOLERANCE: Final = 5e-3
"""How far apart two momenta may be that are one: they are fitted through several calls.
Choice: 0.1 and 0.11 must differ; rounding of statistics leaves about 1e-4."""
MOMENTUM_GRID: Final = 256
"""Momenta that are tried first; the best one is refined between its neighbours.
Choice: what is missed has one valley between neighbours; fewer may begin in another one."""
MOMENTUM_ROUNDS: Final = 48
"""Rounds of the refinement, each of which keeps two thirds.
Choice: 48 reach 1e-11 of a momentum, far below what float32 shows."""

# Updates: what rounding explains.
BLOCK_ELEMENTS: Final = 1 << 18
"""Elements that are computed together in float64.
Choice: 2 MiB an array stay in the cache; larger ones cost memory, smaller ones calls."""
LAST_PLACES: Final = 3.0
"""Units in the last place of a value that a step may be off: a side rounds it when it stores it, and once before.
Measured: up to 2 a side, by AdamW of both frameworks."""
MOVEMENT_UNITS: Final = 16.0
"""Units of the largest movement so far that the roundings of moments and root may leave, beside those of beta2.
Choice: about ten operations of half a unit and some room; a higher one hides small changes of the rate."""
MOVEMENT_UNITS_UNKNOWN: Final = 512.0
"""The same where the rule is not known: a beta2 of 0.999 may stand behind it.
Measured: 30 to 70 units for that beta2 on MindSpore's Adam, whose betas are float32; the formula allows 500."""
MOMENT_NOISE_FACTOR: Final = 4.0
"""How often what rounded moments change may show: two implementations round at other places.
Choice: 1 is one draw of that noise; more than 10 would excuse another rule in half precision."""
GUARD_EPSILON: Final = 1e-7
"""An epsilon of Adam up to this is a mere guard against division by zero, whose place is allowed for.
Source: defaults of the frameworks are 1e-8 and 1e-7; larger ones are chosen for their effect."""
GUARD_EXCESS: Final = 1.25
"""How often what the place of that epsilon makes may show.
Choice: what is computed is exact but for rounding, so that a quarter is room enough."""
TRIAL_MOVEMENT_SHARE: Final = 0.02
"""Share of the movement that a changed rule may be off beyond the reference's own limits.
Choice: a change may make a rule so unstable that noise would excuse everything; more explains what is no cause."""
DRIFT_DEVIATIONS: Final = 8.0
"""Standard deviations of rounding beyond which all elements together drift.
Source: a normal distribution goes beyond 8 in one of 1e15 cases."""
DRIFT_ROUNDING: Final = 1.0
"""Units in the last place that a step is off by rounding, as a standard deviation.
Source: a rounding is uniform within half a unit, with a deviation of 0.29; a step has four of them at most."""

# Updates: what explains them.
SEARCH_ELEMENTS: Final = 256
"""Elements by which causes of an update are searched for, and further steps are simulated.
Choice: half of them are those that differ most; more make each of some hundred trials slow."""
CAUSE_ELEMENTS: Final = 1 << 12
"""Elements of a parameter on which causes of others are tried before all are computed.
Choice: fewer let more causes through to the slow check, more are slow themselves."""
RATIO_ELEMENTS: Final = 1 << 16
"""Elements by which one number between two movements is sought.
Choice: a ratio is one number, for which far fewer would do; these cost milliseconds."""
SIGN_TOLERANCE: Final = 1e-4
"""How near to -1 a ratio of movements must be for another sign.
Choice: far above the rounding of a mean over RATIO_ELEMENTS, far below any factor that somebody wrote."""
SOLVED_EXCESS: Final = 1.25
"""Limits that a rule may be off on all elements, whose numbers were solved on some.
Choice: at 1 a number that is right is lost by its last digit, at 2 wrong numbers of few steps pass."""
ALTERNATIVE_EXCESS: Final = 0.5
"""Alternatives that are so many limits farther off than the best one do not explain equally well.
Choice: at 0 rounding decides between equals, at 1 each that passes counts."""
FRUITLESS_SEARCHES: Final = 24
"""Searches of single changes that found nothing, after which none are made.
Choice: it bounds the time on models that no single change explains; more find a rare second fault later."""
PAIR_SEARCHES: Final = 4
"""Parameters for which two changes at once are searched for; each takes seconds.
Choice: it bounds the time; what explains one of them is tried on all others anyway."""
SHARED_CAUSES: Final = 16
"""Causes that are tried on all parameters.
Choice: it bounds the time on faults that look different in each parameter; true ones are among the first."""
SETTINGS_TOGETHER: Final = 6
"""Differences of two rules' settings that are tried together.
Choice: it bounds the combinations of at most 20 fields; more differences are another method."""
SAME_SETTING_SHARE: Final = 1e-6
"""Relative: settings that are so near are the same, as they went through float32.
Source: float32 keeps 6e-8 of a number; a few roundings stay below."""
LARGEST_MOMENTUM: Final = 0.99995
"""With more, a momentum cannot be distinguished from a factor in a few steps.
Choice: people write up to 0.9999."""
FURTHER_STEPS: Final = 8
"""Steps that are simulated to see after how many alternatives differ.
Choice: more advice than that nobody follows; each costs a simulation of all alternatives."""

# Updates: solving for a number (damped least squares).
SOLVER_ROUNDS: Final = 20
"""Rounds of the search from a start.
Choice: it converges in about ten; more cost time where there is no solution."""
SOLVER_STARTS: Final = 12
"""Starts whose costs are compared, the two best of which are followed.
Choice: pairs of changes have some dozens of combinations of starts; the first are the likelier ones."""
SOLVER_NUDGE: Final = 1e-6
"""Relative step of numerical derivatives.
Choice: near the third root of float64's rounding, where cancelling and bending of the curve balance."""
SOLVER_DAMPING: Final = 1e4
"""Damping beyond which a search has come to its end.
Choice: steps are then below a ten-thousandth of what they were; more rounds gain nothing."""
SOLVER_GAIN: Final = 1e-3
"""Share of the sum of squares that a round must gain to go on; a solution gains more up to its last round.
Choice: a smaller one creeps along valleys that hold no solution."""
SOLVER_RESIDUAL: Final = 1e12
"""Residuals, in limits, are cut there, so that their squares stay numbers.
Choice: float64 holds 1e308, and sums of 1e24 keep their order."""
SOLVER_DIGITS: Final = (1, 2, 3, 4, 5, 6)
"""Digits of numbers that are tried in the place of a solved one, the roundest first.
Choice: people write few; float32 keeps no more than 7."""

# Layers that move a training.
TRAINING_LOSS_LIMIT: Final = 0.005
"""The loss after the last step may move by half a percent where layers compute otherwise.
Source: the migration guide of MindSpore Transformers, which allows it for the first loss of a port."""
EQUAL_RUNS_ROUNDED: Final = 2
"""Trainings from values that are rounded at random, beside one from the same values: what they differ by is noise.
Choice: each costs a training; one alone is small by chance too often."""
EQUAL_RUNS_FACTOR: Final = 10.0
"""A loss moved if it moved by more than so many times what equal trainings differ by.
Choice: the larger of two differences is a tenth of what a third one may be in about one of a hundred cases."""

# Updates by code of the user's own.
OWN_UPDATE_SHARE: Final = 1e-4
"""By what share of a parameter's change two sides' own updates may be apart.
Choice: float32 leaves far less; a decay of 1e-4 at weights that are ten times their gradients is ten times as much."""
OWN_UPDATE_ROUNDINGS: Final = 30.0
"""So many times what a gradient, or the stored value, is apart the change of it may be.
Choice: Adam divides by the gradient's own size, so that small elements move by more than their share."""

# Gradients that a line stops.
SAME_STOPPED_DISTANCE: Final = 1e-4
"""Tensors that both sides stop are the same if they are so near, over their size, with their elements in order.
Choice: as tensors in another layout; above the rounding of float32, far below two unrelated tensors."""

# ranks

RANK_ROUNDING: Final = 64
"""Gradients of two ranks are equal up to so many roundings of their largest value.
Choice: an all-reduce adds a few ranks in another order on each of them, or not."""

NEAR_FACTOR: Final = 1e-3
"""The optimizers' gradient is the mean of the ranks' if its factor over it is so near to 1.
Choice: float16 sums err by less; two ranks' sum is 2."""

# samples

LEAST_SAMPLE_SHARE: Final = 1e-4
"""A sample's gradient differs if it is off by this share of what the samples of the batch have there on average.
Choice: of a sample that is learned, little but rounding is left; frameworks' softmax rounds single values by 5e-5."""

ELEMENTS_OF_GRADIENTS: Final = 8192
"""Of so many elements of all gradients it is told how much each sample counts in the gradient of the batch.
Choice: far more than a batch has samples; a thousand samples take 64 MB."""

LEAST_SAMPLE_INDEPENDENCE: Final = 1e-3
"""How much each sample counts is told where the smallest singular value of their gradients is so far from the largest.
It is not told of a sample whose gradient is smaller than this share of the largest one.
Choice: float32 leaves 1e-6 in a gradient, and so 1e-3 in what is told."""

MIXED_SAMPLES_SHARE: Final = 1e-3
"""A batch's gradient is a sum of those of its samples if no more than this is left of it.
Choice: float32 leaves 1e-6, another order of sums in deep nets 1e-5; samples that meet in a loss leave 1e-1."""

SAMPLE_WEIGHT_TOLERANCE: Final = 1e-2
"""Two samples count alike if their factors are so near, as shares.
Choice: ten times what LEAST_SAMPLE_INDEPENDENCE leaves; a sample that is left out is off by all of it."""

SAMPLES_IN_VERDICT: Final = 10
"""So many samples that differ are named in the verdict; the result lists all.
Choice: a line of a terminal."""
