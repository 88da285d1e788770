"""The limits of what is said of log-probabilities. Each says why it is there, and where its number comes from."""

from __future__ import annotations

from typing import Final

MEAN_LIMITS: Final = {"float32": 2e-3, "bfloat16": 0.05, "float16": 0.02}
"""The mean absolute difference up to which two sides agree that compute in this precision.
Source: docs.nvidia.com/nemo/rl, "Add New Models", takes the mean of exp(|difference|) for this; 0.05 of it is 5 % of a
probability, which reinforcement learning bears. The others are by the bits of the precision, with room for depth."""

MOST_ONE_SIDED: Final = 1.0
"""Where one side alone gives values to more than this many times the tokens that are compared, nothing is decided.
Choice: prompts without values are known and not counted; an engine that lost half of the rest was not compared."""

K3_LIMITS: Final = {"float32": 1e-5, "bfloat16": 0.01, "float16": 2e-3}
"""The KL estimate k3 up to which two sides agree: half the square of the mean limit, with room for single tokens.
Choice: of noise that is normal, k3 is half its variance; the limits are about four times that of the mean limit."""

SLIGHT_DIFFERENCE: Final = 0.1
"""A token counts as different from this difference of log-probabilities on, a tenth of its probability.
Choice: rounding to bfloat16 moves single tokens so far, and a fault moves most of them."""

GREAT_DIFFERENCE: Final = 1.0
"""A token counts as greatly different from this difference on: one side gives it e times the probability.
Choice: rounding moves a token so far only where both sides find it very unlikely."""

SLIGHT_SHARES: Final = {"float32": 1e-3, "bfloat16": 0.15, "float16": 0.05}
"""The share of tokens over SLIGHT_DIFFERENCE up to which two sides agree.
Choice: of normal noise with the mean limit of bfloat16, a tenth lies beyond 0.1; the others lie far below it."""

GREAT_SHARES: Final = {"float32": 1e-4, "bfloat16": 2e-3, "float16": 1e-3}
"""The share of tokens over GREAT_DIFFERENCE up to which two sides agree.
Choice: one token of 500 is about what unlikely tokens come to in bfloat16; end tokens alone are more than that."""

LEAST_PEARSON: Final = 0.99
"""The correlation of both sides' log-probabilities that two sides reach which agree.
Choice: rounding leaves it above 0.999; it is asked where the log-probabilities differ from each other at all."""

LEAST_SPREAD: Final = 0.1
"""Pearson is asked where log-probabilities have at least this standard deviation.
Choice: where all tokens are about equally likely, rounding alone makes it small."""

PERPLEXITY_LIMITS: Final = {"float32": 0.002, "bfloat16": 0.02, "float16": 0.01}
"""How far from 1 the ratio of perplexities may be: the mean difference with its sign.
Choice: rounding has no sign, so that the mean with its sign is well below half of the mean without."""

BUCKET_EDGES: Final = (0, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
"""Positions are compared in these ranges, each twice as long as the one before.
Choice: windows, blocks of a cache and lengths of training are powers of two."""

LEAST_IN_BUCKET: Final = 16
"""A range of positions, a group of tokens or a list is judged by itself from so many tokens on.
Choice: with fewer, a single unlikely token decides about its mean."""

LOCAL_FACTOR: Final = 4.0
"""A range, group or list differs where its mean is this multiple of the mean limit.
Choice: the mean of 16 values of rounding noise is within twice that of all; the rest is room."""

AGREEING_FACTOR: Final = 0.1
"""A part agrees with the reference where it differs by less than this share of what the differing part does.
Choice: a cause that begins somewhere leaves what is before it as it was, so the ratio is far larger."""

NO_LOG_PROBABILITY: Final = 1e-3
"""Log-probabilities may be above 0 by this much.
Choice: rounding in half precision leaves sums of probabilities of 1.0005; what is larger is no log-probability."""

MASKED_VALUE: Final = -9990.0
"""A log-probability below this is minus infinity: the token was masked.
Source: vLLM writes -9999.0 in its place, as JSON has no infinity (vllm/entrypoints/openai, completion serving)."""

TOP_KEPT: Final = 5
"""So many of the most likely tokens of a position are kept, to fit a temperature.
Choice: two would do; the engines' usual number of them is 1, 5 or 20."""

LEAST_TOP_POSITIONS: Final = 8
"""Most likely tokens are used as evidence from so many positions on that both sides have them of.
Choice: with fewer, a chance equality of two numbers could stand for a law."""

SAME_ONSET: Final = 0.8
"""Differences begin with the response where they are, behind the prompt, this share of those behind the best position.
Choice: where they begin later, what lies between thins them out; values of tokens spread the rest."""

EXPLAINED_SHARE: Final = 0.1
"""A cause is confirmed where what it leaves of the mean difference is below this share.
Choice: a formula that is right leaves rounding, one that is wrong leaves most of it."""

SUSPECTED_SHARE: Final = 0.5
"""A cause without the distribution is suspected where it leaves less than this share of the mean difference.
Choice: other faults, fitted by a straight line, leave more."""

LARGEST_SHIFT: Final = 2
"""Log-probabilities are compared with those up to so many positions later and earlier.
Choice: labels that are shifted twice, or not at all, are one or two off."""

TEMPERATURES: Final = (0.05, 20.0)
"""The range in which a temperature is looked for.
Choice: engines take 0 to 2; the rest is room."""

SAME_TEMPERATURE: Final = 0.02
"""A temperature within this of 1 is none.
Choice: a fit over rounded values is off by less than that."""

FULL_MASS: Final = 0.999
"""Probabilities of the most likely tokens that sum to this are a whole distribution.
Choice: values in bfloat16 sum to 0.998 and more; twenty tokens of a language model sum to 0.9 on the average."""

MASS_SHARE: Final = 0.9
"""So many positions have to have a full mass, where the other side has less, for a renormalised distribution.
Choice: a model is sure of its token on some positions by itself, never on nearly all."""

ONE_CAUSE_SHARE: Final = 0.9
"""Tokens of one id are the cause where they make up this share of all difference.
Choice: what is left is rounding; a token that is merely frequent has its share of tokens only."""

PENALISED_SHARE: Final = 0.75
"""So many tokens that stand earlier in their list are less likely, where a penalty lowers them and no new ones.
Measured: a penalty of 1.5 lowers 82 % of them over a vocabulary of 97, where soon nearly all tokens are penalised."""

FEW_TOKENS: Final = 0.2
"""Tokens of one id that are more than this share of all tokens are no few.
Choice: the most frequent token of a text is a tenth of it."""

LENGTH_CORRELATION: Final = 0.7
"""The rank correlation of a list's length and its mean difference from which the length has an effect.
Choice: with ten lists, chance reaches 0.65 in one of twenty cases."""

LEAST_LISTS: Final = 8
"""The effect of length is told from so many lists on.
Choice: with fewer, a rank correlation is often large by chance."""

UNBIASED: Final = 0.35
"""Differences are noise where their mean with its sign is below this share of their mean without.
Choice: of normal noise over 100 tokens it is below 0.3; a cause that lowers or raises values is near 1."""

LEAST_SHARED: Final = 0.5
"""Lists whose tokens differ are versions of one list where this share of the shorter is a common head or tail.
Choice: unrelated lists share a first token or a template; versions of one prompt share most."""

LISTS_SHOWN: Final = 10
"""So many lists and tokens of each kind are listed.
Choice: they fit on a screen, and show whether there is one cause."""

CALL_TOKENS: Final = 1024
"""A live model is given lists of equal length together, up to so many tokens.
Choice: logits of a vocabulary of 150,000 take 600 MB for them in float32."""

EVIDENCE_VALUES: Final = 4_000_000
"""Of a live model so many values of whole distributions are looked at, to try a cause.
Choice: 26 tokens of a vocabulary of 150,000 and 4,000 of one of 1,000, in 32 MB; a temperature shows in a few."""

EVIDENCE_ROWS: Final = 4096
"""Of so many positions the most likely tokens of both sides are compared.
Choice: a temperature is certain after a hundred."""

INVARIANCE_LISTS: Final = 4
"""So many lists are given to a live model alone, again, and in a batch.
Choice: a kernel that changes its blocking does so for every list."""

INVARIANCE_COPIES: Final = 8
"""A batch for this has so many copies of a list.
Choice: kernels change at 2, 4, 8 or 16 rows; 8 passes three of these and is cheap."""

LONGEST_PERIOD: Final = 64
"""Repeats of up to so many tokens or words are looked for at the end of a text.
Choice: loops of language models are a few words up to two sentences."""

LEAST_REPEATS: Final = 6
"""A text loops where its end repeats itself so often.
Choice: lists, tables and code repeat a line three or four times."""

LOOP_SHARE: Final = 0.3
"""A text loops where the repeats are this share of it, or LONG_LOOP long.
Choice: a short refrain in a long text is none."""

LONG_LOOP: Final = 96
"""Repeats of so many tokens or words are a loop in a text of any length.
Choice: no sentence says the same so long."""

FOREIGN_SHARE: Final = 0.2
"""The script changes where letters of scripts that the beginning lacks are this share of the rest.
Choice: names and terms of another script are less; a text that falls apart is half of them."""

LEAST_LETTERS: Final = 40
"""Scripts are told of texts with so many letters.
Choice: in fewer, one name is a large share."""

MANY_SCRIPTS: Final = 4
"""A text with so many scripts of letters is garbled.
Choice: a text of two languages has two or three."""

SCRIPT_SHARE: Final = 0.05
"""A script counts where this share of the letters are of it.
Choice: a formula or a name in Greek is less."""

DAMAGED_SHARE: Final = 0.02
"""A text is damaged where this share of its characters are replacement characters or controls.
Choice: one cut character at the end is usual, many are not."""

UNLIKELY_TOKENS: Final = -5.0
"""Generated tokens whose mean log-probability is below this were not chosen by the distribution that gave it.
Choice: sampling at temperature 1 gives minus the entropy, for language models -0.3 to -3."""

FEW_DIFFERENT: Final = 0.02
"""A text of tokens of which less than this share are different ones says one thing.
Choice: of 500 tokens, ten different ones; a text has half as many different tokens as tokens."""

LEAST_JUDGED: Final = 64
"""Loops and few different tokens are told of texts with so many tokens or words.
Choice: short answers repeat themselves by nature."""

CUT_SHARE: Final = 0.9
"""A side's texts do not end where this share of them was cut by their length.
Choice: with a short limit of tokens many are cut, seldom nearly all of them."""

LARGEST_DIFFERENCE: Final = 50.0
"""Differences above this are taken as this in k3 and in a ratio of perplexities.
Choice: exp(50) is 5e21, so that the criterion fails as it should, and a larger one would be infinite."""
