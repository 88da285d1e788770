"""The limits of the comparison of two data pipelines. Each says why it is there, and where its number comes from."""

from __future__ import annotations

from typing import Final

# reading

MOST_BATCHES: Final = 100
"""So many batches of each side are read where nobody says how many.
Choice: some thousand samples, which show every difference of rule, in the time that a user waits."""

MOST_KEPT_BYTES: Final = 48_000_000
"""Values of the first samples are kept up to here, a side.
Choice: a few hundred pictures of 224 x 224, which leaves room under 500 MB."""

MOST_KEPT_SAMPLES: Final = 512
"""Not more than so many samples are kept whole.
Choice: a cause that 512 samples do not show is too rare to be a rule of the pipeline."""

SAMPLES_GATHERED: Final = 64
"""Single samples are looked at together, so many at a time.
Choice: it makes their cost that of batches."""

SAMPLES_READ_AGAIN: Final = 24
"""So many samples are read a second time, to see whether a side repeats itself.
Choice: enough to tell another order from other values, and hardly any time."""

# finding samples again

MOST_CHANNELS: Final = 4
"""An axis of at most so many entries may be that of channels.
Choice: grey, RGB and RGBA."""

MOST_TABLE_COLUMNS: Final = 8
"""So many columns of a table are kept of each sample to find it again.
Choice: 32 bytes; two rows that are alike in 8 columns are one for us."""

SAME_PRINT_TOLERANCE: Final = 1e-5
"""Two samples are one if their figures agree to this share of the sample's norm.
Choice: far above the rounding of float32 (1e-7), far below one grey value of 255 in each pixel (4e-3)."""

PLACE_SHARE: Final = 0.9
"""If so many samples are equal at their place, the order is the same, and the rest differs in value.
Choice: no shuffle of more than ten samples leaves nine of ten where they were."""

LEAST_FOUND_SHARE: Final = 0.02
"""Pairs count if at least this share of the smaller side is found on the other.
Choice: two windows of a shuffled set meet in few samples; chance pairs are fewer."""

LEAST_ALIKE_SHARE: Final = 0.25
"""Pairs by features count if so many samples of the smaller side have one.
Choice: features of unlike samples are mutual nearest neighbours in a few of a hundred."""

LEAST_OWN_LIKENESS: Final = 0.3
"""Samples stand at the same place if they correlate by so much more with their own than with their neighbour.
Choice: half of what a strong change (cut, tone curve, augmentation) leaves; unlike samples differ by less than 0.1."""

LEAST_TIMES_OVER: Final = 1.5
"""A side that holds the other one's epoch at least so many times repeats it.
Choice: what fills the last batch or rank up adds a few samples; twice without the last batch is nearly 2."""

MOST_MATCHED_SAMPLES: Final = 20_000
"""Features are compared for so many samples a side.
Choice: neighbours are searched in a second."""

CLEAR_NEIGHBOUR: Final = 0.5
"""A nearest neighbour counts if it is nearer than this share of the distance to the second.
Source: Lowe, Distinctive image features from scale-invariant keypoints, 2004, uses 0.8; half is stricter."""

# causes

SAME_VALUE_ROUNDING: Final = 32
"""Values agree if they are within so many roundings of the coarser dtype, at the scale of the sample's largest.
Choice: sums and products of a normalisation in another order err by a few."""

MOST_EXPLAINED_SAMPLES: Final = 64
"""Causes are sought and confirmed on so many pairs of samples, which are spread over all that are kept.
Choice: enough to fit scale, offset and place; more only costs."""

LEAST_LIKENESS: Final = 0.98
"""A change of place (layout, flip, channels) is tried in full if its correlation with the reference is above this.
Choice: the right one gives 1 up to what another cause adds."""

RESIZED_LIKENESS: Final = 0.8
"""Pictures that correlate above this, place by place, and agree in no other way, are the same picture made otherwise.
Choice: other methods of resizing correlate above 0.9, other pictures hardly above 0.5."""

MOST_GREY_LEVELS: Final = 3.0
"""Differences up to so many grey levels are those of two decoders.
Source: libjpeg's fast and exact inverse transforms differ by up to 2 levels; one more for colour conversion."""

KNOWN_CONSTANT_TOLERANCE: Final = 2e-3
"""A fitted mean, std or factor is a known one if it is so near.
Choice: published constants are given with three digits."""

SMALLEST_SHARE: Final = 0.6
"""A change that explains so large a share of the samples one by one (flipped or not, cropped here or there) is random.
Choice: with fewer, the likeness may be chance."""

PICTURE_SIZE_TOLERANCE: Final = 1e-3
"""A factor between boxes is the size of a picture if it is so near, and a share may lie so far outside of 0 to 1.
Choice: half a pixel of 500, which boxes that were rounded once are off by."""

# random augmentation

DRAWS_LEVEL: Final = 1e-3
"""Two random augmentations differ if a test of one of their statistics says so at this level, all statistics together.
Choice: one false alarm in a thousand comparisons."""

LEAST_TESTED_SAMPLES: Final = 32
"""A test of distributions needs so many samples on each side.
Choice: with fewer, the two-sample test of Kolmogorov and Smirnov sees only gross differences."""

MOST_MAP_LABELS: Final = 64
"""A picture of at most so many whole numbers may be a map of labels.
Choice: more than the classes of most segmentations, fewer than the grey values of a photograph."""

MOST_MAPPED_VALUES: Final = 10_000
"""A map from value to value is sought for at most so many different values.
Choice: labels and small vocabularies; each value must be seen twice, which larger ones are not in a few batches."""

# showing

MOST_SHOWN_SAMPLES: Final = 4
"""So many pairs of each field are shown beside each other.
Choice: a row of pictures that fits on a page."""

MOST_SHOWN_VALUES: Final = 12
"""So many values of a sample are shown in words.
Choice: a line of 100 columns."""

SHOWN_PICTURE_SIDE: Final = 48
"""Pictures are shown with at most so many rows and columns.
Choice: 9 kB each in a document; what a reader sees on a page at this size."""

MOST_CURVE_POINTS: Final = 200
"""A long row is drawn as a curve of so many points.
Choice: a point for each two pixels of the picture."""

MOST_ALIGNED_TOKENS: Final = 4096
"""Of a row so many tokens are aligned with those of the other side.
Choice: the context of most models; two such rows are aligned in a tenth of a second."""

MOST_SHOWN_TOKENS: Final = 64
"""So many pairs of tokens of a sample are shown, those that differ with some around them.
Choice: two screens of a page; what the first sixty do not show, a sample more does not show either."""

TOKENS_AROUND: Final = 3
"""So many equal tokens are shown before and behind one that differs.
Choice: enough words to find the place in a text."""
