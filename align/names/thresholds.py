"""The limits of the mapper. Each says why it is there, and where its number comes from."""

from __future__ import annotations

from math import sqrt
from typing import Final

# Words and numbers of paths: layers/path_words.py, layers/numbered_lists.py, layers/surroundings.py

LIKENESS_OF_PARTS: Final = 0.8
"""How alike two words are of which one begins or ends with the other: less than equal words.
Choice: smaller, and `emb` no longer leads to `embedding`; 1, and an abbreviation counts like the word itself."""

AGAINST_ORDER_SHARE: Final = 0.5
"""What numbers against the order of registration leave of what words for places say: `norm2` may be the first norm.
Choice: 1, and such words overrule the order; 0, and they say nothing beside numbers."""

LONGEST_END: Final = 3
"""The most parts at the end of a path of which translations are learnt.
Choice: fewer, and a block's own words are lost; more, and few ends are seen twice."""

TRANSLATION_SEEN: Final = 2
"""How often ends of two paths must have gone together to be a translation.
Choice: 1, and each pair confirms itself; more, and small models teach nothing."""

DEEPEST_NESTING: Final = 4
"""Lists within lists of which all orders are tried: the work grows with the factorial of their number.
Choice: fewer, and nested lists that were turned inside out stay open; more, and the orders take long."""

NUMBERS_OF_A_RUN: Final = 3
"""How many numbers a list must have, or how many pairs must speak of it, before its direction is believed.
Choice: 2, and two blocks that are exchanged look like a list that is turned round; more, and short
lists say nothing."""

# Weighing pairs: layers/pair_evidence.py, matching/weigh_exchanges.py, matching/match_layers.py

CLEAR_BENEFIT: Final = 0.25
"""By how much a pair must lead an exchange, so that it decides. One clear piece of evidence weighs 0.8 to 2.
Choice: smaller, and a chance likeness of one word of several decides; larger, and abbreviations decide nothing."""

BENEFIT_OF_MAJORITY: Final = 0.5
"""The share of words, or of layers in two containers, above which more is alike than not.
Choice: smaller, and `aux_head.fc` is `fc` for its last word; larger, and a container with two changed layers of
five has no counterpart."""

BENEFIT_OF_SURE: Final = 0.6
"""The least benefit of a pair that is sure, and so teaches: `confidence` makes 0.8 of it, which is `SURE`.
Choice: smaller, and guesses teach others; larger, and fewer pairs teach than are called sure."""

BENEFIT_WITHOUT_RIVALS: Final = 2.0
"""The benefit of a pair without rivals, as large as one piece of evidence can be. Such pairs teach first.
Choice: smaller, and pairs that have rivals would teach with them, and confirm themselves."""

WEIGHT_OF_ORDER: Final = 0.5
"""What the order of calls weighs. Two correct implementations may call two branches in another order.
Choice: 1, and the order counts like a number or a name; below `CLEAR_BENEFIT` / 2, and it decides nothing."""

WEIGHT_OF_NEIGHBOURS: Final = 0.25
"""What siblings registered before or behind weigh, where nothing else speaks: neighbours alone leave a pair unsure.
Choice: smaller, and batch norms without words stay open; larger, and such a pair is called sure."""

AGREEING_BLOCKS: Final = 3
"""How many blocks must tell alike what each tells in part.
Choice: 2, and a coincidence in both blocks is sure; more, and shallow models profit less."""

WEIGHING_ROUNDS: Final = 6
"""How often the evidence is computed anew. The rounds end earlier where nothing changes.
Choice: fewer, and what is learnt late reaches no pair; more costs time where two states alternate."""

MOST_EXCHANGES: Final = 100_000
"""How many exchanges are weighed; layers of a shape that takes more are open.
Measured: one of 450 layers of one shape takes some 20 s. No number of steps would distinguish thousands."""

CONFIDENCE_BY_SHAPE: Final = 0.75
"""How sure a pair is that stands in one place of both models, and has nothing for it but that and its shape.
Choice: any number below `SURE` says "not sure"; this is above what names contradict."""

CONFIDENCE_BESIDE: Final = 0.75
"""How sure norms are that only what is registered around them tells apart: a module is registered in any order.
Choice: below `SURE`, so that a trial is asked for; above `CONFIDENCE_AGAINST_VALUES`, since all of a module agree."""

LONGEST_WHOLE_RUN: Final = 5
"""Runs of repeated blocks up to this length are matched whole; of longer ones the first two and the last.
Choice: below 4 there is nothing to fold; larger, and models of many lists of that length take longer."""

# Layers of another form: matching/other_forms.py, matching/fused_layers.py, matching/matrix_orientations.py

CONFIDENCE_OF_FORM: Final = 0.9
"""How sure a pair of another form can be at most: that both hold the same values is a guess, however well it is placed.
Choice: 1, and the map does not show that a form was guessed; below `SURE`, and a correct map is never sure."""

CONFIDENCE_OF_TURNED: Final = 0.7
"""How sure a pair is of which one matrix is read as (in, out) where no class says so.
Choice: below `SURE`, since the shape of a square matrix shows no error."""

CONFIDENCE_OF_FLATTENED: Final = 0.7
"""How sure a convolution is to be a linear layer: some models flatten the positions before the channels.
Choice: below `SURE`, so that only a trial settles it."""

LIKENESS_OF_FORMS: Final = 0.5
"""The least likeness of the words of two paths of which nothing around is paired.
Choice: smaller, and layers of another form pair by their shapes; larger, and ports with other names stay open."""

CONFIDENCE_OF_PACKED: Final = 0.9
"""How sure the order of pieces is in torch's packed projection.
Source: the documentation of torch.nn.MultiheadAttention puts q above k above v."""

CONFIDENCE_OF_NAMED_PIECES: Final = 0.7
"""How sure the order of pieces is that names tell: no shape tells whether they are interleaved by heads.
Choice: below `SURE`, so that a trial is asked for."""

CONFIDENCE_OF_NUMBERED_PIECES: Final = 0.6
"""How sure the order of pieces is that only numbers tell, by conventions of writing.
Choice: below that of named ones."""

CONFIDENCE_OF_BIAS_BESIDE: Final = 0.9
"""How sure a bias beside a fused layer (`q_bias`) is that of the piece of its name: it is not cut.
Choice: above `SURE`, since its name and shape say it; below 1, since the pieces are not sure."""

# What stays open, and doubts: matching/match_names.py, matching/explain_unpaired.py, match_by_order.py

CONFIDENCE_OF_DOUBTED: Final = 0.7
"""How sure a pair of names is at most that something puts in doubt: names that may be shifted by one.
Choice: below `SURE`, above what values contradict."""

CONFIDENCE_BY_ORDER: Final = 0.75
"""How sure a pair is that the order of calls tells: two correct ports may call two branches in another order.
Choice: below `SURE`, so that a trial is asked for."""

CONFIDENCE_AGAINST_VALUES: Final = 0.5
"""How sure a pair is whose partner holds the value of another tensor that the user paired.
Choice: the least confidence that is shown, since a value speaks against it."""

SUGGESTED_NAMES: Final = 3
"""How many close names an unmatched parameter is shown with.
Choice: fewer may miss the right one, more are not read."""

LIKENESS_OF_SUGGESTIONS: Final = 0.4
"""The least likeness (difflib's ratio) of a name that is suggested. Names of another framework share few letters.
Choice: smaller, and names are suggested that share nothing; difflib's own 0.6 finds few across frameworks."""

MOST_NAMES_IN_WARNING: Final = 12
"""How many missing parameters a warning names.
Choice: fewer hide which layers are meant, more fill the screen."""

# The map file: fold_names.py

MOST_NAMES_OF_RANGES: Final = 1_000_000
"""How many names one text with ranges may stand for: no model has more parameters, and memory has an end.
Choice: smaller refuses large mixtures of experts; larger lets a hostile file fill the memory."""

# Equal values: by_value/equal_values.py

READ_WHOLE_BYTES: Final = 1 << 16
"""Tensors up to so many bytes are read whole where a few of their elements are wanted.
Measured: to map a tensor and look at 64 elements takes 15 us, to read 64 KiB of a file that is open 5 us."""

SAMPLED_POINTS: Final = 8
"""Elements read along each axis of a matrix, and their square of any other tensor.
Choice: fewer, and more tensors have one sample and are read whole; more are read in vain."""

MOST_LINES_OF_A_GROUP: Final = 12
"""So many lines are offered for one open group: three layers against four.
Choice: more hide the other groups; fewer leave out candidates of groups that a user reads in one look."""

MOST_ORDERED_PIECES: Final = 3
"""Pieces of a fused layer up to this number are offered in every order.
Choice: q, k and v have 6 orders; 4 pieces would have 24, which nobody reads."""

# The trial: by_value/

DIGITS_OF_A_TRIAL: Final = 16
"""Digits of the sum by which a map file knows what its trial was made of.
Choice: 64 bits make no two alike by chance, and stand on one line of the file."""

DIGITS_OF_A_RULE: Final = 8
"""Digits of the sum of each rule that a trial had.
Choice: of 100 rules two are alike once in a million files; and that of hundreds must stand on one line."""

TRIAL_SEED: Final = 1_000_003
"""The seed of the values of a trial: two trials of the same models come to the same.
Choice: any number but a small one, from which inputs are drawn: the products of equal numbers repeat themselves."""

PERTURBING_SEED: Final = 1
"""The seed of the values that show whether a parameter has an effect.
Choice: any number but `TRIAL_SEED`, or the same values would change nothing."""

TRIAL_SPREAD: Final = 0.2
"""How far random values lie around 1 for what scales, around 0 for what shifts.
Choice: smaller, and channels are hard to distinguish; larger, and the signal of a deep model dies or grows."""

TRIAL_GAIN: Final = sqrt(2.0)
"""The gain of random weights, which keeps the variance through layers followed by ReLU.
Source: He et al., Delving Deep into Rectifiers, 2015, equation 10."""

LEAST_VARIANCE_SHARE: Final = 0.05
"""The share of the mean variance that a channel's own must have, or a dead channel would grow beyond all others.
Choice: smaller, and a dead channel is multiplied by more than 4; larger, and true variances are hidden."""

AGREEING_DISTANCE: Final = 1e-3
"""The relative RMS distance below which two tensors are the same. Values of two layers that are not the same differ by
as much as they are large; rounding, also of another kernel after one layer, stays below 1e-4, and so does an epsilon.
Choice: anything between those two decides the same."""

SEEN_ENDS: Final = 64
"""So many of the least and of the largest elements know a tensor whose axes stand in another order.
Choice: the extremes of two tensors of one distribution are far apart, other than their quantiles; more cost memory."""

MOST_SORTED_ELEMENTS: Final = 2**21
"""The extremes of a tensor of more elements are not looked for.
Measured: 2^21 elements take 30 to 70 ms, as long as a layer that makes so many."""

REORDERED_SUM_DISTANCE: Final = 1e-5
"""The relative RMS distance that adding the same terms in another order makes in float32.
Choice: smaller takes rounding for an effect of a choice; larger hides the effect of a small parameter."""

LEAST_RANGE: Final = 1e-9
"""The range of a tensor's elements, relative to the largest, from which on it varies, and can tell anything.
Choice: it lies below the rounding of float32, and above that of float64."""

MOST_ALTERNATIVES: Final = 120
"""How many choices of partners are tried in a group, each in a run of its own: all orders of five layers.
Choice: 24 would leave five alike layers open, 720 take six times as long."""

MOST_CONFIRMED_LAYERS: Final = 200
"""How many layers that are not sure are confirmed one by one, each in a run of its own.
Choice: fewer leave large maps unsure, more take longer than a trial should."""

MOST_SIBLING_GROUPS: Final = 24
"""How many groups of siblings are put in question, each with a run for every order.
Choice: fewer leave exchanged siblings in deep models, more take longer than a trial should."""

MOST_FOLLOWED_STEPS: Final = 8
"""How many layers further two choices are followed until their effects meet.
Choice: fewer leave branches open that meet late; each takes a run for every choice."""

USUAL_NORM_EPSILON: Final = 1e-5
"""The epsilon of a BatchNorm whose layer does not show it.
Source: the default of `torch.nn.BatchNorm2d` and of `mindspore.nn.BatchNorm2d`."""

# Dataflow: dataflow/

MOST_WRITTEN_CALLS: Final = 20_000
"""Calls of a user's functions that are followed in the code of one model.
Choice: a block makes a few calls, so that models of a thousand blocks are read; a loop over more steps is given up."""

DEEPEST_WRITTEN_CALLS: Final = 60
"""So many calls within each other are followed.
Choice: modules are nested ten deep; each level takes a dozen frames of Python, whose limit is a thousand."""

MOST_WRITTEN_ROUNDS: Final = 1024
"""Rounds of one loop that are followed.
Choice: lists of layers are shorter; more would follow a loop over samples."""

MOST_ROUNDS_OF_CODE: Final = 8
"""How often names are matched again with what the code tells. The rounds end earlier where nothing is added.
Choice: fewer, and what is learnt late teaches nothing; each matches both sides once."""

MOST_WRITTEN_NODES: Final = 2_000_000
"""Layers that are looked at in the code of both models, to find what stands before and behind those that are open.
Choice: a second; a mixture of thousands of experts that names leave open would take minutes."""

MOST_FILTER_GROUPS: Final = 64
"""So many groups of a convolution are products of their own.
Choice: ResNeXt has 32; each is one more use, and of more the whole filter is one.
"""

MOST_SEEN_ROWS: Final = 4096
"""Marks kept of the rows of a tensor.
Choice: fewer, and an expert's rows are not found among all; more cost memory for each operator."""

MOST_SEEN_CALLS: Final = 64
"""Calls of which the first and the last row are kept.
Choice: a head that all levels share has five, a cell that is called step by step has one a step; more cost memory.
"""

MOST_NEAR_FEATURES: Final = 16
"""So many uses whose rows have a number near that of another are looked at, to find rows side by side.
Choice: two rows of a few numbers are hardly ever near by chance; zeros are near each other and tell nothing.
"""

SEEN_PEAKS: Final = 4
"""Rows kept whole of either end of the marks, to tell how the features stand.
Choice: fewer, and features that are dead in all of them look alike; more cost memory for each operator."""

LEAST_SHARED_ROWS: Final = 3
"""So many rows must be found among others, to be those of the same tensor.
Choice: one row may be near another by chance; three within a thousandth are not."""

MOST_DERIVED_CUTS: Final = 256
"""So many tensors made of a product's features are known at a time.
Choice: gates are computed within some ten calls; more cost memory for each call.
"""

MOST_SUMMED_PRODUCTS: Final = 4
"""So many products may be added up for their parts to be those of each.
Choice: a gate adds two, one with a third input three; along a residual stream all layers are added up.
"""

MOST_LEAVES: Final = 64
"""So many parts of what one product returned are looked at, and so many products back an addition is looked for.
Choice: fewer hide how many heads are cut; more cost time where a loop cuts step by step."""

MOST_ARRANGED_PARTS: Final = 6
"""So many parts of a product may stand in another order than those of the other side's.
Choice: an LSTM has four gates, a block of a diffusion transformer six; more are heads, and have too many orders.
"""

MOST_ORDERS_OF_A_TIE: Final = 24
"""Orders that are tried of layers that the same rows go into, each in a run of its own, all layers at once.
Choice: four layers have 24 orders; more would take more runs than a user waits for."""

MOST_DATAFLOW_RUNS: Final = 10
"""Runs of the second model in which orders are tried, and in which it is shown that they have an effect.
Choice: three layers of one input have 6 orders; with more a trial would cost more than ten passes."""

MOST_FIRST_STATES: Final = 8
"""So many rows of learnt first states are told apart by what comes out, each in a run of either side.
Choice: four layers of an LSTM have 8; more would take longer than all other runs together."""

MOST_RUNS_OF_A_TENSOR: Final = 256
"""So many parts of a tensor are made one by one, as of heads that are interleaved.
Choice: fewer refuse models of many heads; more make a map that nobody reads."""

MOST_CUTS: Final = 3
"""So often a part of a product may be cut again: into kv and q, then k and v, then halves.
Choice: more would take halves of heads for layers of their own."""

MOST_FOLLOWING_USES: Final = 16
"""So many products behind a use are compared by their shapes, to tell one branch from another.
Choice: fewer, and branches that end differently look alike; a block has some ten."""

MOST_WINDOWS: Final = 4
"""So many branches that the same rows go into are tried for one.
Choice: towers of a detector are three; experts follow each other in one order on both sides."""

MOST_DISTINCT_ELEMENTS: Final = 2**20
"""Of larger tensors elements may be alike, and copies that were moved about are not traced.
Choice: 2^20 elements take a tenth of a second to sort; larger ones would take longer than a pass."""

MOST_SEEDS_TRIED: Final = 3
"""So many draws of values are tried until every expert sees some rows.
Choice: each costs two passes of the first side; a router that leaves one out thrice does so on these inputs."""

MOST_DRAWS_OF_INPUTS: Final = 4
"""So many inputs drawn from the given ones are tried where no output depends on a parameter.
Choice: each is one more trial; an expert that four draws do not reach takes other inputs than these.
"""

MORE_SAMPLES: Final = 8
"""So many times as many samples are drawn in every other of these trials.
Choice: a router sends few rows to each of many experts; more would make a trial slow.
"""
